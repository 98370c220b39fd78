"""Each wrong line of the rules is noticed by the walk."""

from __future__ import annotations

import sys

import attrs
import pytest

from tests.exhaustive.assumptions import SWITCHED
from tests.exhaustive.mutants import MUTANTS
from tests.exhaustive.mutate import CHAIN, PACKAGE, broken
from tests.exhaustive.walk import Walk, shipped
from tests.exhaustive.world_list import SMALL

pytestmark = [pytest.mark.exhaustive, pytest.mark.untraced]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant):
    """Some world that it should show in breaks an invariant.  test_exhaustive shows that none does without it."""
    subject = broken(mutant)
    worlds = [setup for setup in SMALL if any(name in setup.name for name in mutant.where)]

    assert any(Walk(setup, subject).whole(first=True).broken for setup in worlds)


@pytest.mark.parametrize("name", SWITCHED)
def test_mistake_around_decide(name):
    """What the client must see to, turns and claims, is missed by the walk when it is not there."""
    assert all(Walk(setup, shipped()).whole(first=True).broken for setup in SWITCHED[name])


def test_mutant_whose_text_is_gone():
    """A line that no longer stands in the source is an error, never a mutant that was caught."""
    with pytest.raises(LookupError, match="stands 0 times"):
        broken(attrs.evolve(MUTANTS[0], old="no such line"))


def test_modules_after_a_mutant():
    """The modules that ship are back in their places, unchanged."""
    before = {name: sys.modules.get(f"{PACKAGE}.{name}") for name in CHAIN}

    mutated = broken(MUTANTS[0])

    assert {name: sys.modules.get(f"{PACKAGE}.{name}") for name in CHAIN} == before
    assert mutated.decide is not shipped().decide


def test_unbroken_copy():
    """Modules loaded by the same road, no line of them wrong, break no invariant: it is the line that is noticed."""
    same = broken(attrs.evolve(MUTANTS[0], new=MUTANTS[0].old))
    worlds = [setup for setup in SMALL if "others act twice" in setup.name]

    assert [Walk(setup, same).whole(first=True).broken for setup in worlds] == [[]] * len(worlds)
