"""Each mistake around the rules is noticed by the walk of interleavings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interleavings.scene_list import SCENES
from tests.interleavings.walk import walk
from tests.support.mutation import in_process, mutants_in

pytestmark = pytest.mark.untraced


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("mutants.patches")),
    ids=lambda mutant: mutant.name,
)
def test_mutant(mutant):
    """Some scene that it should show in breaks an invariant that holds without it."""
    where, rule = mutant.where
    scenes = [scene for scene in SCENES if scene.name.startswith(where)]
    assert scenes

    with in_process(mutant):
        assert any(walk(scene, first=int(rule)).broken for scene in scenes)
