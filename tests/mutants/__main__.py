"""
Break the rules of writes and the transport, one expression at a time, in a copy.

A break that no test notices must stand in ``survivors.toml`` with a reason; nine in ten must be noticed all the same.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

import attrs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = "invsvc_async"
LEAST = 90.0  # % of the mutants of each part that must be noticed

PARTS = {
    "rules": tuple(
        f"reconcile/{name}.py"
        for name in (
            "attempts",
            "decide",
            "findings",
            "facts",
            "settle_windows",
            "write_clock",
            "before_send",
            "turn",
            "stored_intent",
            "server_clock",
            "compare",
        )
    ),
    "transport": (
        "transport/send_gate.py",
        "transport/response_body.py",
        "transport/exchange.py",
        "transport/transport.py",
        "transport/connections.py",
        "transport/session_sender.py",
        "concurrency/limiter.py",
        "concurrency/adaptive_limit.py",
        "concurrency/capacity_search.py",
        "concurrency/steering.py",
        "concurrency/quick_start.py",
        "concurrency/rounds.py",
        "concurrency/clock.py",
    ),
}
FILES = [file for part in PARTS.values() for file in part]
TESTS = (
    "tests/reconcile/test_decide.py",
    "tests/reconcile/test_json_form.py",
    "tests/reconcile/test_server_clock.py",
    "tests/reconcile/test_compare.py",
    "tests/reconcile/test_stored_intent.py",
    "tests/transport/test_send_gate.py",
    "tests/transport/test_response_body.py",
    "tests/transport/test_transport.py",
    "tests/concurrency/test_limiter.py",
    "tests/concurrency/test_quick_start.py",
    "tests/transport/test_whole_answers.py",
    "tests/transport/test_cancellation.py",
    "tests/transport/test_one_request.py",
    "tests/transport/test_bytes_sent.py",
    "tests/transport/test_custom_session.py",
)
NOTICED = {"killed", "timeout"}

# A mutant that hangs is noticed by the time that one test takes: mutmut's own limit, of all tests of a mutant
# together, would take a busy machine for a hang.
HANGS = "faulthandler_timeout = 10\nfaulthandler_exit_on_timeout = true"


@attrs.frozen
class Mutant:
    """One broken expression: ``was`` and ``now`` are the lines that differ."""

    file: str
    was: str
    now: str


def main() -> int:
    """Break, test, and judge."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _copy(folder)
        subprocess.run(  # noqa: S603 - fixed arguments; what it draws is no figure
            [_mutmut(), "run"],
            cwd=folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        return judge(folder)


def judge(folder: Path) -> int:
    """Print what was noticed in *folder*; 1 where a survivor is not listed, or too many survive."""
    statuses = _statuses(folder)
    alive = {
        name: _shown(folder, name)
        for name, status in statuses.items()
        if status not in NOTICED
    }
    listed = {Mutant(each["file"], each["was"], each["now"]) for each in _listed()}
    unlisted = {name: mutant for name, mutant in alive.items() if mutant not in listed}
    for name, mutant in unlisted.items():
        _say(
            f"{statuses[name]}, and not listed: {name}\n  - {mutant.was}\n  + {mutant.now}"
        )
    for mutant in listed - set(alive.values()):
        _say(f"listed, and noticed now: {mutant}")
    rates = [_rate(files, statuses) for files in PARTS.values()]
    return 1 if unlisted or min(rates) < LEAST else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _mutmut() -> str:
    return str(Path(sys.executable).with_name("mutmut"))


def _copy(folder: Path) -> None:
    for name in (PACKAGE, "tests"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in FILES:
        path = folder / PACKAGE / file
        path.write_text(undecorated(path.read_text(encoding="utf-8")), encoding="utf-8")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    heading = "[tool.pytest.ini_options]\n"
    assert heading in settings
    settings = settings.replace(heading, f"{heading}{HANGS}\n") + _settings()
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")


def undecorated(source: str) -> str:
    """
    Apply each decorator of a function in a line after it: mutmut leaves functions that bear one alone.

    A cache is left out: what the first run of the tests put there would hide the mutants.
    """
    lines = source.splitlines()
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in sorted(functions, key=lambda node: node.lineno, reverse=True):
        if len(node.decorator_list) != 1:
            continue
        (decorator,) = node.decorator_list
        wrapper, indent = ast.unparse(decorator), " " * node.col_offset
        if not wrapper.startswith("lru_cache"):
            lines.insert(
                node.end_lineno, f"{indent}{node.name} = {wrapper}({node.name})"
            )
        del lines[decorator.lineno - 1 : decorator.end_lineno]
    return "\n".join(lines) + "\n"


def _settings() -> str:
    files = [f"{PACKAGE}/{file}" for file in FILES]
    return f"""
[tool.mutmut]
source_paths = ["{PACKAGE}/"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {list(TESTS)}
pytest_add_cli_args = ["-k", "not uvloop", "-p", "no:cacheprovider"]
also_copy = ["tests"]
"""


def _statuses(folder: Path) -> dict[str, str]:
    told = _ask(folder, "results", "--all", "true")
    lines = (
        line.strip().rpartition(": ") for line in told.splitlines() if ": " in line
    )
    return {name: status for name, _, status in lines}


def _shown(folder: Path, name: str) -> Mutant:
    was, now = [], []
    for line in _ask(folder, "show", name).splitlines():
        if line.startswith("-") and not line.startswith("---"):
            was.append(line[1:].strip())
        elif line.startswith("+") and not line.startswith("+++"):
            now.append(line[1:].strip())
    return Mutant(_file_of(name), "\n".join(was), "\n".join(now))


def _file_of(name: str) -> str:
    """Return the file of a mutant, whose name is ``package.module.function``."""
    return "/".join(name.split(".")[1:-1]) + ".py"


def _ask(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [_mutmut(), *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def _listed() -> list[dict[str, str]]:
    listed: list[dict[str, str]] = tomllib.loads(
        (HERE / "survivors.toml").read_text(encoding="utf-8")
    )["survivor"]
    assert all(each["why"] for each in listed)
    return listed


def _rate(files: tuple[str, ...], statuses: dict[str, str]) -> float:
    found = Counter(
        status in NOTICED
        for name, status in statuses.items()
        if _file_of(name) in files
    )
    rate = 100 * found[True] / found.total()
    _say(
        f"{', '.join(files)}: {found[True]:,} of {found.total():,} mutants noticed, {rate:.1f} %"
    )
    return rate


if __name__ == "__main__":
    sys.exit(main())
