"""The task that adds the items of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from invsvc_async.batch.run_end import RunEnd


class Feeding:
    """The task that adds the items. An error of it ends the run, by *run_end*."""

    def __init__(self, run_end: RunEnd, changed: asyncio.Event) -> None:
        self._run_end = run_end
        self._changed = changed
        self._task: asyncio.Task[bool] | None = None
        self.input_ended: bool = False  # although writes that were stored may follow

    @property
    def is_complete(self) -> bool:
        """Whether all items were added."""
        task = self._task
        if task is None or not task.done():
            return False
        if task.cancelled():
            return False
        return task.result()

    def start(self, source: Coroutine[Any, Any, None]) -> None:  # Any: of a coroutine
        """Run *source*, which adds the items, until it or the run ends."""
        self._task = asyncio.create_task(self._feed(source))

    async def _feed(self, source: Coroutine[Any, Any, None]) -> bool:
        """Return whether *source* ended without an error."""
        try:
            await source
        except JournalError as error:
            self._run_end.fail(error)
        except Exception as error:  # noqa: BLE001 - any error of the source ends the run
            self._run_end.end_when_idle(error)
        else:
            self._changed.set()
            return True
        return False

    def end_input(self) -> None:
        """Note that the input has no more writes: what is not complete is in the store by now."""
        self.input_ended = True

    async def stop(self) -> None:
        """Cancel the task, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
