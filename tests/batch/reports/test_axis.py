"""The axis of a timeline: times without sends are narrow, and every place has its time."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from invsvc_async.batch.reports import timeline
from invsvc_async.batch.reports.axis import axis_of

pytestmark = pytest.mark.one_python

DAY = 86_400_000  # ms
TIMES = st.lists(st.integers(-50, 1_050), max_size=8).map(
    lambda times: [*zip(sorted(times)[::2], sorted(times)[1::2], strict=False)]
)


def test_short_pause_has_its_own_width():
    """A pause of a quarter or less is as wide as it is long."""
    axis = axis_of(0, 1_000, [(500, 750)])
    assert not axis.is_shortened
    assert [axis.place_of(at) for at in (0, 500, 750, 1_000)] == [0.0, 0.5, 0.75, 1.0]


def test_long_pauses_take_a_quarter_in_all():
    """Longer ones take a quarter together, each in proportion to its length."""
    axis = axis_of(0, 10_000, [(1_000, 7_000), (7_500, 9_500)])
    assert axis.is_shortened
    first = axis.place_of(7_000) - axis.place_of(1_000)
    second = axis.place_of(9_500) - axis.place_of(7_500)
    assert (first + second, first / second) == pytest.approx((0.25, 3.0))
    # 1 s, 0.5 s and 0.5 s with sends have the other three quarters
    assert axis.place_of(1_000) == pytest.approx(0.375)


def test_nothing_but_a_pause():
    """An axis on which nothing was ever sent is not shortened."""
    axis = axis_of(0, 1_000, [(-5, 2_000)])
    assert (axis.is_shortened, axis.place_of(500)) == (False, 0.5)


def test_times_outside():
    """They are at the ends."""
    axis = axis_of(100, 200, [])
    assert (axis.place_of(0), axis.place_of(300)) == (0.0, 1.0)


@given(TIMES)
def test_order_and_inverse(still):
    """Later times have later places, from 0 to 1, and each place leads back to its time."""
    axis = axis_of(0, 1_000, still)
    places = [axis.place_of(at) for at in range(0, 1_001, 10)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert [axis.time_at(place) for place in places] == [*range(0, 1_001, 10)]


@pytest.mark.parametrize(
    ("ended", "times"),
    [
        (7_000, ["00:00:00", "00:00:07"]),
        (9_000, ["00:00:00", "00:00:03", "00:00:06", "00:00:09"]),
        (2 * DAY, [f"2026-05-0{day}" for day in (1, 1, 2, 2, 3)]),
    ],
)
def test_times_below_it(ended, times):
    """They are whole seconds, and have their day if the axis is longer than one."""
    begun = 1_777_593_600_000
    # reaches: the texts below an axis, which a page only has among others
    found = [*timeline._times(axis_of(begun, begun + ended, []))]
    assert len(found) == len(times)
    assert all(each in text for each, text in zip(times, found, strict=True))
    assert ("2026" in found[0]) is (ended > DAY)
