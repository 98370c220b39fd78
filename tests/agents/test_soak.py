"""A short soak of scripted agents; `python -m tests.agents.soak` is the long one."""

from __future__ import annotations

import sys

import pytest

from tests.agents.soak import soak

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.untraced,
    pytest.mark.skipif(sys.platform == "win32", reason="kills by signals of POSIX"),
]


async def test_soak():
    """Under faults, kills, lost connections and changes of mind: one effect each, and no false word."""
    office = await soak(actions=18, faults=0.25, seed=3, at_once=6)
    assert office.judge.wrong == []
    assert office.judge.told["applied"] >= 18
