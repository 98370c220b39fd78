"""Usual calls take no more instructions of the package than counts.toml allows."""

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
_FAR = 1.6  # a bound this far above its count no longer notices what is twice as slow


@pytest.fixture(scope="module")
def counted():
    """Count in a process without pytest, which rewrites the package's assert statements, and without coverage."""
    command = [sys.executable, "-m", "tests.benchmarks.counts"]
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE_")
    }
    done = subprocess.run(  # noqa: S603
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=plain
    )
    return tomllib.loads(done.stdout)[_VERSION]


@pytest.mark.skipif(
    _VERSION not in _BOUNDS, reason="other versions of Python run other instructions"
)
@pytest.mark.parametrize("name", _BOUNDS.get(_VERSION, {}))
def test_instructions_of_a_usual_call(counted, name):
    """They are within their bound, and the bound is lowered when their number falls a lot."""
    found, most = counted[name], _BOUNDS[_VERSION][name]
    assert found <= most, (
        f"{found} instructions instead of {most}: find out what takes them"
    )
    assert most <= found * _FAR, (
        f"only {found} instructions: lower the bound of {most} in counts.toml"
    )


def test_bounds_of_all_calls(counted):
    """No call is counted without a bound, and none has a bound but is not counted."""
    for bounds in _BOUNDS.values():
        assert bounds.keys() == counted.keys()
