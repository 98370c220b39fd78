"""Starts that are spread evenly over time."""

from __future__ import annotations

import pytest

from invsvc_async.concurrency.pace import Pace

BURST = 0.05  # s that are made up for


@pytest.mark.parametrize("processes", [1, 4])
def test_starts_are_spread(processes: int) -> None:
    """Each one is a gap after the one before; so many processes that share the rate have longer gaps."""
    pace = Pace(10)
    pace.share(processes)
    now = 100.0
    times = []
    for _ in range(5):
        now += pace.wait(now)
        times.append(now)
        pace.use(1, now)
    first = 100.0 - BURST
    gap = processes / 10
    expected = [100.0] + [first + gap * number for number in range(1, 5)]
    assert times == pytest.approx(expected)


def test_starts_after_a_pause() -> None:
    """Only what a short delay has cost is made up for, however long the pause was."""
    pace = Pace(64)
    assert pace.free(1000.0) == 4
    pace.use(4, 1000.0)
    assert pace.free(1000.0) == 0
    assert pace.wait(1000.0) == pytest.approx(4 / 64 - BURST)
