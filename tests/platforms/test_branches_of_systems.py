"""Branches of the package by the system that it runs on: each is listed here, with the test of its other side."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "invsvc_async"

pytestmark = pytest.mark.one_python

# What differs from system to system, as it stands in code (not in comments and docstrings).
NAMES = re.compile(
    r"""
    sys\.platform | \bos\.name\b | hasattr\((?:os|time|signal|socket|select)\b | platform\.system
    | \bfcntl\b(?!\.) | \bmsvcrt\b(?!\.) | \b(?:pwd|grp|resource|termios)\.\w | getattr\((?:os|time|signal|select|socket)\b
    | \.add_signal_handler\b | \.add_reader\b | \.add_writer\b | \bAF_UNIX\b | \bunix_server\b
    | os\.(?:fork|getuid|geteuid|kill|killpg|setsid|register_at_fork|fsync|uname|sysconf|getloadavg|mkfifo)\b
    | \bO_(?:NOFOLLOW|CLOEXEC|BINARY|NONBLOCK|DIRECTORY)\b | ["']/(?:proc|dev|tmp|etc)/ | \bstart_new_session\b
    | \bSIG(?:KILL|HUP|USR[12]|STOP|CONT|BREAK|CHLD|PIPE|QUIT)\b | \bset_start_method\b | \bZoneInfo\b
    """,
    re.VERBOSE,
)  # fmt: skip

EVERYWHERE = "platforms/test_everywhere.py"
PRETENDED = "platforms/test_pretended.py"
# the file: the name, the test of what happens where the name is another or missing
TESTED = {
    "cli/commands/conformance.py": {
        "sys.platform": f"{PRETENDED}::test_words_of_a_command"
    },
    "cli/commands/reconcile.py": {"ZoneInfo": f"{EVERYWHERE}::test_no_time_zones"},
    "cli/page_serving.py": {"sys.platform": f"{PRETENDED}::test_page_is_opened"},
    "cli/signals.py": {
        ".add_signal_handler": f"{PRETENDED}::test_signal_without_handlers_of_the_loop",
        "SIGHUP": f"{PRETENDED}::test_signals_of_a_terminal",
        "SIGBREAK": f"{PRETENDED}::test_signals_of_a_terminal",
        "hasattr(signal": f"{PRETENDED}::test_signals_of_a_terminal",
    },
    "concurrency/clock.py": {
        "sys.platform": f"{PRETENDED}::test_clock",
        "getattr(time": f"{PRETENDED}::test_clock",
    },
    "conformance/service_process.py": {
        "sys.platform": f"{PRETENDED}::test_service_of_its_own_process",
        "start_new_session": f"{PRETENDED}::test_service_of_its_own_process",
    },
    "durable/entries.py": {
        "sys.platform": f"{EVERYWHERE}::test_whether_the_owner_lives",
        "os.kill": f"{EVERYWHERE}::test_whether_the_owner_lives",
    },
    "engines/portals.py": {
        "sys.platform": f"{PRETENDED}::test_import_of_all_modules",
        "os.register_at_fork": f"{PRETENDED}::test_import_of_all_modules",
    },
    "engines/presence.py": dict.fromkeys(
        ('"/dev/', "os.geteuid", "sys.platform"),
        "engines/test_presence.py::test_where_there_is_no_such_folder",
    ),
    "events/receiving/web.py": {
        "sys.platform": f"{PRETENDED}::test_receiver_in_a_thread",
        "os.register_at_fork": f"{PRETENDED}::test_receiver_in_a_thread",
    },
    "events/stores/sqlite.py": {
        "sys.platform": f"{PRETENDED}::test_import_of_all_modules",
        "os.register_at_fork": f"{PRETENDED}::test_import_of_all_modules",
    },
    "profiles.py": {
        "sys.platform": f"{PRETENDED}::test_profile_in_a_file_that_others_may_write",
        "os.geteuid": f"{PRETENDED}::test_profile_in_a_file_that_others_may_write",
    },
    "simulator/replies.py": {"sys.platform": f"{PRETENDED}::test_lingering"},
    "storage/file_lock.py": {
        "sys.platform": f"{EVERYWHERE}::test_lock_of_another_process",
        "fcntl": f"{EVERYWHERE}::test_lock_of_another_process",
        "msvcrt": f"{EVERYWHERE}::test_lock_of_another_process",
        "os.register_at_fork": f"{PRETENDED}::test_import_of_all_modules",
    },
    "storage/flush.py": {
        "sys.platform": f"{PRETENDED}::test_flush",
        "fcntl": f"{PRETENDED}::test_flush",
        "os.fsync": f"{PRETENDED}::test_flush",
    },
    "storage/private_file.py": {
        "sys.platform": f"{EVERYWHERE}::test_line_ends_of_files",
        "os.geteuid": f"{EVERYWHERE}::test_line_ends_of_files",
        "getattr(os": f"{EVERYWHERE}::test_line_ends_of_files",
        "O_BINARY": f"{EVERYWHERE}::test_line_ends_of_files",
        "O_NOFOLLOW": f"{EVERYWHERE}::test_line_ends_of_files",
    },
    "storage/sqlite_file.py": {
        '"/proc/': "storage/test_sqlite_file.py::test_boot_without_linux"
    },
    "storage/sqlite_writer.py": {
        "sys.platform": f"{PRETENDED}::test_import_of_all_modules",
        "os.register_at_fork": f"{PRETENDED}::test_import_of_all_modules",
    },
    "transport/send_gate.py": {
        "sys.platform": f"{EVERYWHERE}::test_write_on_a_connection_that_the_service_closes",
        "getattr(select": f"{EVERYWHERE}::test_write_on_a_connection_that_the_service_closes",
    },
}


def code_of(file):
    """Return the code of *file*, without comments and docstrings."""
    return ast.unparse(_without_docstrings(ast.parse(file.read_text(encoding="utf-8"))))


def _without_docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value = ast.Constant(value=None)
    return tree


def test_every_branch_is_listed():
    """A new one needs a test of what happens on other systems; one that is gone leaves the list."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        names = {name.replace("'", '"') for name in NAMES.findall(code_of(file))}
        if names:
            found[str(file.relative_to(PACKAGE))] = names

    assert found == {file: {*names} for file, names in TESTED.items()}


@pytest.mark.parametrize("test", sorted({each for tests in TESTED.values() for each in tests.values()}))  # fmt: skip
def test_the_test_exists(test):
    """A test that is renamed is renamed in the list."""
    file, _, name = test.partition("::")

    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


TEXT_CALLS = {"open", "read_text", "write_text", "fdopen", "TextIOWrapper"}


def test_text_has_an_encoding():
    """Text is read and written as UTF-8, not as the system would choose."""
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _is_of_text_without_encoding(node)
    ]

    assert found == []


def _is_of_text_without_encoding(call):
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    has_encoding = any(each.arg == "encoding" for each in call.keywords)
    if name not in TEXT_CALLS or has_encoding:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) < (1 if name == "read_text" else 2)
    if name == "TextIOWrapper":
        return True
    modes = [
        each.value
        for each in (*call.args, *(k.value for k in call.keywords if k.arg == "mode"))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    is_builtin = isinstance(call.func, ast.Name)
    is_of_path = any(re.fullmatch(r"[rwax][bt+]*", mode) for mode in modes)
    return (is_builtin or is_of_path) and not any("b" in mode for mode in modes)
