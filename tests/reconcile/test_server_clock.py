"""Bounds of the service's clock, from the timestamps of its answers."""

from __future__ import annotations

import pytest

from invsvc_async.reconcile.history import Bounds
from invsvc_async.reconcile.server_clock import ServerClock, agree, bounds_of


def test_answer_brackets_the_clock():
    """The timestamp lies between send and receipt; truncation to milliseconds widens the upper bound."""
    assert bounds_of(1_000_500, 100.0, 100.25) == (900.25, pytest.approx(900.501))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([Bounds(low=1, high=3)], Bounds(low=1, high=3)),
        ([Bounds(low=1, high=3), Bounds(low=2, high=4)], Bounds(low=2, high=3)),
        ([Bounds(low=1, high=2), Bounds(low=2.25, high=3)], Bounds(low=2, high=2.25)),
        ([Bounds(low=1, high=2), Bounds(low=2.26, high=3)], None),
        ([Bounds(low=1, high=2), Bounds(low=9, high=10), Bounds(low=0, high=20)], None),
    ],
)
def test_bounds_agree(known, expected):
    """The bounds are intersected; a gap up to the slack is spanned, a wider one makes them unknown."""
    assert agree([(each.low, each.high) for each in known], 0.25) == expected


def learnt(*answers):
    clock = ServerClock()
    for stamp, started, ended in answers:
        clock.learn(stamp, started, ended)
    return clock


def test_clock_keeps_the_tightest():
    """A slow answer after a quick one does not widen the bounds; a quicker one narrows them."""
    clock = learnt((1_000_000, 0.0, 0.5), (1_001_000, 0.9, 1.2), (1_002_000, 1.0, 3.0))
    assert clock.bounds(3.0, 0.25) == Bounds(
        low=pytest.approx(999.8), high=pytest.approx(1000.001)
    )


def test_clock_knows_nothing_at_first():
    """Before the first answer there are no bounds."""
    assert ServerClock().bounds(0.0, 0.25) is None


def test_clock_forgets_after_ten_minutes():
    """Bounds expire, with or without new answers."""
    clock = learnt((1_000_000, 0.0, 0.0))
    assert clock.bounds(600.0, 0.25) is not None
    assert clock.bounds(600.1, 0.25) is None
    clock.learn(1_700_500, 700.0, 701.0)
    assert clock.bounds(701.0, 0.25) == Bounds(
        low=pytest.approx(999.5), high=pytest.approx(1000.501)
    )


def test_clock_forgets_an_old_minute_and_keeps_the_newer():
    """Each minute expires separately."""
    clock = learnt(
        (1_000_000, 0.0, 0.0), (1_090_000, 89.0, 91.0), (1_660_000, 659.0, 661.0)
    )
    assert clock.bounds(661.0, 0.25) == Bounds(
        low=pytest.approx(999.0), high=pytest.approx(1001.001)
    )
    assert clock.bounds(60.0, 0.25) == Bounds(
        low=pytest.approx(999.0), high=pytest.approx(1001.001)
    )


def test_clock_that_stepped_is_unknown_until_the_old_is_forgotten():
    """Old and new bounds exclude each other: none are known."""
    clock = learnt((1_000_000, 0.0, 0.0), (4_661_000, 61.0, 61.0))
    assert clock.bounds(61.0, 0.25) is None
    assert clock.bounds(601.0, 0.25) == Bounds(
        low=pytest.approx(4600.0), high=pytest.approx(4600.001)
    )


def test_clock_within_one_minute_takes_both_sides():
    """One answer may narrow only the lower bound, another only the upper."""
    clock = learnt(
        (1_000_000, 0.0, 2.0), (1_010_000, 8.0, 10.5), (1_020_000, 19.5, 22.0)
    )
    assert clock.bounds(22.0, 0.25) == Bounds(
        low=pytest.approx(999.5), high=pytest.approx(1000.001)
    )


def test_clock_forgets_a_minute_at_once():
    """What was learnt in the minute after an answer expires with that answer; a minute later it does not."""
    clock = learnt((1_050_000, 50.0, 50.0), (1_055_000, 55.0, 55.0))
    assert clock.bounds(650.0, 0.25) is not None
    assert clock.bounds(651.0, 0.25) is None
    clock = learnt((1_000_000, 0.0, 0.0), (1_060_000, 60.0, 60.0))
    assert clock.bounds(660.0, 0.25) is not None


def test_clock_ten_minutes_later():
    """An answer counts until ten minutes are over, even if a new one arrives at that moment."""
    clock = learnt((1_000_000, 0.0, 0.0), (1_600_000, 599.0, 600.0))
    assert clock.bounds(600.0, 0.25) == Bounds(low=1000.0, high=pytest.approx(1000.001))
