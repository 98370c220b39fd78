"""Usual calls do no more work inside the package than counts.toml allows, and its bounds are close."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_BOUNDS = tomllib.loads((_HERE / "counts.toml").read_text(encoding="utf-8"))
_SLACK = 1.03  # a bound this far above its count no longer notices what a change adds


@pytest.fixture(scope="module")
def counted():
    """Count in a process without pytest, which rewrites the package's assert statements, and without coverage."""
    command = [sys.executable, "-m", "tests.benchmarks.counts"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=plain)  # noqa: S603
    return tomllib.loads(done.stdout)[_VERSION]


@pytest.mark.skipif(_VERSION not in _BOUNDS, reason="other versions of Python run other instructions")
@pytest.mark.parametrize(
    ("name", "what"),
    [(name, what) for name, bounds in _BOUNDS.get(_VERSION, {}).items() for what in bounds],
)
def test_count_of_a_usual_call(counted, name, what):
    """It is within its bound, and the bound is lowered when the count is."""
    found, most = counted[name][what], _BOUNDS[_VERSION][name][what]
    assert found <= most, f"{found} instead of {most} {what}: a bound is raised only with a reason beside it"
    assert most <= found * _SLACK + 1, f"only {found} {what}: lower the bound of {most} in counts.toml"


def test_bounds_of_all_calls(counted):
    """No call is counted without a bound, and none has a bound but is not counted."""
    for bounds in _BOUNDS.values():
        assert {name: set(each) for name, each in bounds.items()} == {
            name: set(each) for name, each in counted.items()
        }
