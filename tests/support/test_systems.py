"""Which tests cannot run on macOS or Windows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.systems import cannot_import, why_not

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize(
    ("text", "linux", "darwin", "win32"),
    [
        ("assert True", False, False, False),
        ("child.send_signal(signal.SIGKILL)", False, False, True),
        ('open("/dev/full")', False, True, True),
        ("assert mode == 0o600", False, False, True),
        ("if (pid := os.fork()) == 0:", False, False, True),
    ],
)
def test_reason(text, linux, darwin, win32):
    """It is that of the system, and Linux runs all."""
    systems = {"linux": linux, "darwin": darwin, "win32": win32}

    assert {each: why_not(text, each) is not None for each in systems} == systems


def test_files_that_windows_cannot_import():
    """Modules that it does not have are imported only by files that are left out there, or by what those use."""
    missing = {"fcntl", "resource", "pty", "termios", "tty", "pwd", "grp"}
    found = []
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        if not any(name in text for name in missing):
            continue  # to parse all takes long
        tops = ast.parse(text).body
        names = {
            alias.name for each in tops if isinstance(each, ast.Import) for alias in each.names
        } | {each.module for each in tops if isinstance(each, ast.ImportFrom)}  # fmt: skip
        if names & missing and not cannot_import(text, "win32"):
            found.append(file.name)

    assert found == []
    assert not cannot_import("import fcntl", "linux")
