"""Type checkers, run on code as users write it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def checked(tool, *arguments, cwd):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", tool, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd, timeout=300,
        env={**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def mypy(*arguments, cwd):
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    cache = ROOT / ".mypy_cache" / "users"  # settings of users, so no cache of ours would do
    return checked("mypy", "--config-file=", "--strict", f"--cache-dir={cache}", *arguments, cwd=cwd)


@pytest.mark.parametrize("name", ["uses.py", "misuses.py", "names.py"])
def test_mypy_strict(name, tmp_path):
    """Under mypy's strict settings types are inferred as they are said to be, and misuses are refused."""
    ran = mypy("--follow-imports=silent", HERE / name, cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["uses.py", "names.py"])
def test_pyright(name, tmp_path):
    """Pyright infers the same types, and takes every name at the top for an exported one."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    ran = checked("pyright", "--pythonpath", sys.executable, HERE / name, cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
