"""The settings that make verdicts safe, of two runs of one write."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async.reconcile.safety import (
    LESS_IS_SAFER,
    MORE_IS_SAFER,
    SafetySettings,
    safer_of_both,
    safer_settings,
)
from invsvc_async.settings import ReconcilePolicy

USUAL = ReconcilePolicy()


@pytest.mark.parametrize("name", [*MORE_IS_SAFER, *LESS_IS_SAFER])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_safer_of_two_settings_counts(name, factor):
    usual = getattr(USUAL, name)
    other = attrs.evolve(USUAL, **{name: factor * usual})
    choose = max if name in MORE_IS_SAFER else min
    for one, two in [(USUAL, other), (other, USUAL)]:
        assert getattr(safer_of_both(one, two), name) == choose(usual, factor * usual)


def test_equal_settings_change_nothing():
    """The policy stays the same object, so that a store packs it once, and nothing is said of the run."""
    other = attrs.evolve(USUAL, deadline=1.0, max_resends=3, resend="never")
    assert safer_of_both(USUAL, other) is USUAL
    assert safer_settings(USUAL, other) is None


def test_other_settings_are_those_of_the_first():
    """A longer window has the deadline in which it fits."""
    other = attrs.evolve(USUAL, settle_after_loss=60.0, deadline=300.0, max_resends=3)
    assert safer_of_both(USUAL, other) == attrs.evolve(
        USUAL, settle_after_loss=60.0, deadline=300.0
    )


def test_time_that_is_none_is_refused():
    """A story may be damaged."""
    settings = attrs.asdict(safer_settings(USUAL, attrs.evolve(USUAL, reads_lag=9.0)))
    with pytest.raises(ValueError, match="clock_slack"):
        SafetySettings(**{**settings, "clock_slack": -1.0})
