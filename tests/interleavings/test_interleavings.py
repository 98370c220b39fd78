"""
All interleavings of a few runs on one thing, in the real driver, locks, claims, settling and recovery.

``reconcile.decide`` says what follows from what one write has seen.  The walk of ``tests/exhaustive`` judges
that.  What decides outside it is walked here:

- ``Thing`` and ``line_names.line_of``: which writes wait for which, and until when a line stays closed;
- ``WriteRegister.claim``: which webhook belongs to which intent, surely or by a guess;
- ``starting.taken_up``: which revision of an intent counts, whether a newer write was sent, and since when
  (``Resumed.at``);
- ``WriteRegister.ended``: outcomes that are remembered for whoever takes the same intent up again;
- ``WriteRegister.doubt_newest`` and ``overtake``: which open writes a newer one of the same line has overtaken;
- ``starting.close_lines_of_leftovers``: the lines of what a process before this one left in the journal.

Only the transport is replaced, by a service in memory whose answers and effects follow a schedule.
"""

from __future__ import annotations

import pytest

from tests.interleavings.scene_list import SCENES
from tests.interleavings.walk import walk

pytestmark = pytest.mark.untraced


# Executions of each scene, those nearest to the default: each of the mutants is noticed within 173 of them.
FEW = 180


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_scene(scene):
    """No schedule among the first ones breaks an invariant; ``nox -s exhaustive`` walks on."""
    found = walk(scene, most=FEW)

    assert found.walked > 50
    assert not found.broken, str(found)


@pytest.mark.whole
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_whole_scene(scene):
    """No schedule within the bound of the scene breaks an invariant."""
    found = walk(scene)

    assert found.whole
    assert found.walked > 50
    assert not found.broken, str(found)
