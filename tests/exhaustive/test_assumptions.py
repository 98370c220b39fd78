"""Where any one of the things that cannot be promised fails, the walk finds a broken invariant: it is not blind."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async.reconcile.history import Done
from tests.exhaustive.assumptions import DOUBLED, REMOVED
from tests.exhaustive.walk import Walk, shipped
from tests.exhaustive.world import NO_STEP
from tests.exhaustive.world_setup import SetUp

pytestmark = [pytest.mark.exhaustive, pytest.mark.untraced]

WORLDS = [(name, setup) for name, setups in REMOVED.items() for setup in setups]


@pytest.mark.parametrize(
    ("name", "setup"),
    WORLDS,
    ids=lambda value: value.name if isinstance(value, SetUp) else value,
)
def test_assumption_removed(name, setup):
    """Each world that lacks the assumption has a history that breaks an invariant."""
    assert Walk(setup, shipped()).whole(first=True).broken


@pytest.mark.parametrize(
    ("name", "setup"),
    WORLDS,
    ids=lambda value: value.name if isinstance(value, SetUp) else value,
)
def test_assumption_kept(name, setup):
    """The same world with the assumption back has none, so that it is the assumption that matters."""
    alone = {"acts": (), "in_turn": True, "shared": True}
    kept = attrs.evolve(
        setup,
        late=0.0,
        lag=0.0,
        stale=0.0,
        nap=0.0,
        model=_honest(setup.model),
        **alone,
    )

    assert Walk(kept, shipped()).whole(first=True).broken == []


@pytest.mark.parametrize("setup", DOUBLED, ids=lambda setup: setup.name)
def test_second_effect(setup):
    """Where a late commit makes a second webhook, no history hides it, and some tell it."""
    told = []

    def decide(*arguments):
        decision = shipped().decide(*arguments)
        told.append(isinstance(decision, Done) and decision.evidence.duplicates)
        return decision

    assert Walk(setup, attrs.evolve(shipped(), decide=decide)).whole().broken == []
    assert any(told)


def _honest(model):
    same_clocks = {name: 0.0 for name in ("ours", "others") if hasattr(model, name)}
    return attrs.evolve(model, step=NO_STEP, **same_clocks)
