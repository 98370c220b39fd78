"""
Batches through kills, freezes, outages, retries and prunes, in the real journals, runs and engine.

Here the executions nearest to the default are walked. ``nox -s exhaustive`` walks on, and ``nox -s mutants``
judges mutants.
"""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_scene(scene):
    """No execution among the first ones breaks a rule."""
    found = walk(scene, bound=1, most=5, play=play)

    assert found.walked == 5
    assert not found.broken, str(found)
