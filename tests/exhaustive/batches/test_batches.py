"""
Batches through kills, freezes, outages, retries and prunes, in the real journals, runs and engine.

Here the executions nearest to the default are walked, and some mutants. ``nox -s exhaustive`` walks on, and
``nox -s mutants`` judges all mutants.
"""

from __future__ import annotations

import pytest

from tests.exhaustive.batches.mutants import MUTANTS, caught
from tests.exhaustive.batches.play import play
from tests.exhaustive.batches.scenes import SCENES
from tests.interleavings.walk import walk

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.untraced,
    # What a killed process leaves is never awaited.
    pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings(
        "ignore:There is no current event loop:DeprecationWarning"
    ),
]
QUICK = [mutant for mutant in MUTANTS if mutant.name in {
    "one thing in two lanes", "the windows of other workers are not asked for", "newer writes are not looked at",
    "put back as unsent, though it was", "what an earlier run left is forgotten",
}]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_scene(scene):
    """No execution among the first ones breaks a rule."""
    found = walk(scene, bound=1, most=5, play=play)

    assert found.walked == 5
    assert not found.broken, str(found)


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_mutant(mutant):
    """A wrong line breaks the rule that it should."""
    assert caught(mutant, most=150) is not None
