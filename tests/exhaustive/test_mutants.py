"""Each wrong line of the rules is noticed by the walk; ``nox -s mutants`` runs this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exhaustive.assumptions import SWITCHED
from tests.exhaustive.walk import Walk, shipped
from tests.exhaustive.world_list import SMALL
from tests.support.mutation import in_process, mutants_in

pytestmark = [pytest.mark.exhaustive, pytest.mark.untraced, pytest.mark.whole]
HERE = Path(__file__).parent
MUTANTS = mutants_in(HERE / "rules.patches") + mutants_in(HERE / "siblings.patches")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant):
    """Some world that it should show in breaks an invariant.  Without it, none does: ``nox -s mutants`` walks them all."""
    worlds = [
        setup for setup in SMALL if any(name in setup.name for name in mutant.where)
    ]

    with in_process(mutant):
        assert any(Walk(setup, shipped()).whole(first=True).broken for setup in worlds)


@pytest.mark.parametrize("name", SWITCHED)
def test_mistake_around_decide(name):
    """What the client must see to, turns and claims, is missed by the walk when it is not there."""
    assert all(
        Walk(setup, shipped()).whole(first=True).broken for setup in SWITCHED[name]
    )
