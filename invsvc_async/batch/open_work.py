"""The work that a run has begun and not ended: what a run that stops still has to wait for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from invsvc_async.batch.run_end import RunEnd


_TO_STORE = 1.0  # s that the journal of a stopped run has to store finished writes


class OpenWork:
    """
    The tasks that run items, and the stores of verdicts.

    A store that has not ended when the work is cancelled is *given up* a second later: the next run settles
    its write. An error of a task, or of what follows a store, ends the run by *run_end*.
    """

    def __init__(self, run_end: RunEnd, changed: asyncio.Event) -> None:
        self._run_end = run_end
        self._changed = changed
        self.tasks: set[asyncio.Task[None]] = set()
        # The stores that have not ended. Those that were given up are not in it.
        self._stores: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self.tasks) + len(self._stores)

    # --- what begins and ends

    # Any: of a coroutine
    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* in a task."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._run_end.guarded, self._task_ended))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Note that *task* has ended; an error of it ends the run."""
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._run_end.fail(error)
        self._changed.set()

    def follow(
        self,
        storing: asyncio.Future[None],
        stored: Callable[[asyncio.Future[None]], None],
    ) -> None:
        """Call *stored* with *storing* once that has ended."""
        self._stores.add(storing)
        storing.add_done_callback(partial(self._run_end.guarded, stored))

    def forget(self, storing: asyncio.Future[None]) -> bool:
        """Forget *storing*, which has ended; return whether it was given up before."""
        was_given_up = storing not in self._stores
        self._stores.discard(storing)
        return was_given_up

    # --- the end

    async def until_ended(self, grace: float) -> None:
        """Wait until all has ended, for *grace* seconds at most."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        while (unended := self._unended()) and (seconds := until - loop.time()) > 0:
            await asyncio.wait(unended, timeout=seconds)

    async def cancel(self) -> None:
        """Cancel the tasks, wait for what is stored by then, and give up what is not."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        if self._stores:
            await asyncio.wait(self._stores, timeout=_TO_STORE)
        # A journal that hangs is not waited for: the next run settles what is not stored.
        self._stores.clear()

    def _unended(self) -> set[asyncio.Future[None]]:
        """Return what has not ended."""
        return {each for each in (*self.tasks, *self._stores) if not each.done()}
