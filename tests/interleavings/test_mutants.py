"""Each mistake around the rules is noticed by the walk of interleavings."""

from __future__ import annotations

import pytest

from tests.interleavings.mutants import MUTANTS
from tests.interleavings.scene_list import SCENES
from tests.interleavings.walk import walk

pytestmark = pytest.mark.untraced


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant, monkeypatch):
    """Some scene that it should show in breaks an invariant that holds without it."""
    scenes = [scene for scene in SCENES if scene.name.startswith(mutant.where)]
    assert scenes
    mutant.apply(monkeypatch)

    assert any(walk(scene, first=mutant.rule).broken for scene in scenes)
