"""One execution of a scene of batches, and what it breaks."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from invsvc_async.storage.file_lock import LockedConnection
from tests.exhaustive.batches.journals import inline_writers
from tests.exhaustive.batches.key_scenes import KeyStage
from tests.exhaustive.batches.stage import BatchStage
from tests.interleavings.loop import Stuck
from tests.interleavings.service import SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.exhaustive.batches.loop import FreezingLoop
    from tests.interleavings.scene import Scene
    from tests.interleavings.schedule import Schedule

__all__ = ["play"]

BATCH = "invsvc_async.batch"
MODULES = ("invsvc_async.durable.done_at",)


@contextmanager
def one_clock(loop: FreezingLoop) -> Iterator[None]:
    """Let the time of day be that of *loop*, and that of the service."""

    def now() -> float:
        return loop.now + SERVER

    class Connection(LockedConnection):
        """A connection to a file, whose statements have that time, too."""

        def __init__(self, *arguments: Any, **named: Any) -> None:  # Any: as of sqlite3
            super().__init__(*arguments, **named)
            self.create_function(
                "julianday", 1, lambda _: now() / 86_400.0 + 2_440_587.5
            )

    day = SimpleNamespace(time=now, time_ns=lambda: int(now() * 1e9))
    with ExitStack() as stack:
        stack.enter_context(
            patch("invsvc_async.durable.store.sqlite.LockedConnection", Connection)
        )
        for module in MODULES:
            stack.enter_context(patch(f"{module}.time", day))
        yield


@contextmanager
def small_parts() -> Iterator[None]:
    """Let inputs be taken in one write at a time, so that each of them ends a part of a file."""
    with patch(f"{BATCH}.intake.AT_ONCE", 1):
        yield


def play(scene: Scene, schedule: Schedule) -> tuple[BatchStage, list[str]]:
    """Play *scene* once, and return what is broken."""
    stage = (KeyStage if scene.name.startswith("keys") else BatchStage)(scene, schedule)
    try:
        with inline_writers(), small_parts(), one_clock(stage.loop):
            stage.play()
    except Stuck as stuck:
        return stage, [f"0: {stuck}"]
    return stage, stage.broken()
