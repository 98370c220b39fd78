"""One execution of a scene of batches, and what it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.exhaustive.batches.journals import inline_writers
from tests.exhaustive.batches.judge import broken
from tests.exhaustive.batches.stage import BatchStage
from tests.interleavings.loop import Stuck

if TYPE_CHECKING:
    from tests.interleavings.scene import Scene
    from tests.interleavings.schedule import Schedule

__all__ = ["play"]


def play(scene: Scene, schedule: Schedule) -> tuple[BatchStage, list[str]]:
    """Play *scene* once, and return what is broken."""
    stage = BatchStage(scene, schedule)
    try:
        with inline_writers():
            stage.play()
    except Stuck as stuck:
        return stage, [f"0: {stuck}"]
    return stage, broken(stage)
