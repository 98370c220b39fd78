"""Each mistake in the order of the bookkeeping is noticed by interrupting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interrupts.program import World
from tests.interrupts.trial import KINDS, Trials, watched
from tests.support.mutation import in_process, mutants_in

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.one_python,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("mutants.patches")),
    ids=lambda mutant: mutant.name,
)
def test_mutant(mutant, tmp_path):
    """An exception at some place of the function in which it should show breaks what holds without it."""
    function, kind, then = mutant.where
    world = World()
    try:
        with watched(), in_process(mutant):
            trials = Trials(
                world,
                lambda number: tmp_path / f"{number}.db",
                kind,
                goes_on=then == "goes on",
            )
            places = range(1, trials.places(function) + 1)
            assert any(
                trials.at(place, error, function) for place in places for error in KINDS
            )
    finally:
        world.close()
