"""What a worker does beside handling events: it prunes the store, reads the backlog, and watches the loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.events.receiving.handling_results import reason_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from invsvc_async.events.receiving.handlers import InboxPolicy
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.stores import Backlog, Store

_log: Final = logging.getLogger("invsvc_async.events")
_PRUNE_EVERY: Final = 3600.0
_SAMPLE_EVERY: Final = 5.0  # s between two looks at the backlog
_LOOK_EVERY: Final = 0.5  # s between two looks at the loop
_LATE: Final = 0.5  # s by which a look is late if something has blocked the loop


class InboxUpkeep:
    """Prune the event store now and again, by *policy*, and read its backlog for *tally*."""

    def __init__(
        self,
        store: Store,
        policy: InboxPolicy,
        tally: Tally,
    ) -> None:
        self._store = store
        self._policy = policy
        self._tally = tally
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to do both now and again, in tasks of this loop."""
        works = (
            _repeated(self._prune, _PRUNE_EVERY),
            _repeated(self._sample, _SAMPLE_EVERY),
        )
        self._tasks = [
            asyncio.create_task(work, name="invsvc events upkeep") for work in works
        ]

    async def stop(self, *, grace: float) -> None:
        """Stop, and wait up to *grace* seconds for each task. What is left waits for the next start."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait({task}, timeout=grace)

    async def _prune(self) -> None:
        """Delete what the policy keeps no longer."""
        policy = self._policy
        ages = {"older_than": policy.keep}
        if policy.keep_bodies is not None:
            ages["bodies"] = policy.keep_bodies
        if policy.keep_dead is not None:
            ages["dead"] = policy.keep_dead
        with survived("Handled events could not be deleted; trying again in an hour"):
            await self._store.prune(**ages)

    async def _sample(self) -> None:
        """Read the backlog, for ``Receiver.stats``, if the store has that method."""
        read: Callable[[], Awaitable[Backlog]] | None = getattr(
            self._store, "backlog", None
        )
        if read is None:
            return
        backlog = None
        with survived("The backlog could not be read", logging.WARNING):
            backlog = await read()
        self._tally.backlog = backlog


class LoopWatch:
    """
    Watches, within its block, until when nothing has blocked the event loop: ``free_until``, a loop time.

    It tells from when to count a lease that the store has just given. The lease began as the store answered,
    and goes on while the loop is blocked. Had the answer come before ``free_until``, the loop, which was
    free, would have resumed the task that waits for it. So the lease began about then, or later.
    """

    def __init__(self) -> None:
        self.free_until: float = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._look(asyncio.get_running_loop().time())
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note_free(self, now: float) -> None:
        """Note that the loop is free *now*."""
        self.free_until = now

    def _look(self, expected: float) -> None:
        """Note now and again whether something has blocked the loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - expected < _LATE:
            self.free_until = now
        self._timer = loop.call_later(_LOOK_EVERY, self._look, now + _LOOK_EVERY)


@contextmanager
def survived(message: str, level: int = logging.ERROR) -> Generator[None]:
    """
    Log *message* and the error of the block, and go on: a user-supplied store may raise anything.

    A cancellation of the running task is raised.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as said
        # A ``CancelledError`` without a cancellation of this task comes from inside the store.
        raise_if_cancelled()
        _log.log(level, "%s: %s", message, reason_of(error))


async def _repeated(work: Callable[[], Awaitable[None]], every: float) -> None:
    """Do *work* again and again, with a pause of *every* seconds."""
    while True:
        await work()
        await asyncio.sleep(every)
