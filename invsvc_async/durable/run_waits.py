"""
The waits of the runs of keys in one process: for entries that others have, while the client is open.

Who waits for another run looks from time to time, and at once when the store hears of a change in that lane.

Processes notify each other by the number of the lane in which something has changed.  ``""`` says that some
notifications may have been missed.  Other texts are for batches.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.store import claims as in_store
from invsvc_async.durable.store.claims import Held
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.transport.transport import CLOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.store.opening import Store


# s between looks at what is waited for, in case no notification comes: the owner of a lane may fall silent.
_FIRST = 0.2
_LONGEST = 2.0


class RunWaits:
    """The waits of runs in *store*, the store of the journal of *life*, and the notices of their ends."""

    def __init__(self, life: JournalLife, store: Store) -> None:
        self._life = life
        self._store = store
        self._waiting: dict[asyncio.Event, int] = {}  # for something in a lane
        self._listening: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        # lanes in which something has ended, of which other processes are to be notified
        self._to_notify: set[int] = set()

    async def while_open(self, waiting: Awaitable[object]) -> None:
        """Await *waiting*; raise ConfigurationError if the client is closed, or is meanwhile."""
        core = self._life.core
        assert core is not None
        if core.under_way.closed:
            if inspect.iscoroutine(waiting):
                waiting.close()  # or else it warns that it was never awaited
            raise ConfigurationError(CLOSED)
        with suppress(TimeoutError), core.under_way.ended_by_close():
            await waiting
            return
        raise ConfigurationError(CLOSED)

    async def wait(self, held: Held) -> None:
        """Wait until an entry is done, released, or done anew to another thing, or its owner is silent."""
        if self._listening is None and self._store.is_shared:
            hearing = self._store.listen(_weakly(self._wake))
            self._listening = asyncio.get_running_loop().create_task(hearing)
        lane = held.entry.lane
        pause = _FIRST
        event = asyncio.Event()
        self._waiting[event] = lane
        try:
            while await self._is_held_still(held.entry):
                await self.while_open(set_within(event, pause))
                event.clear()
                pause = min(2 * pause, _LONGEST)
        finally:
            del self._waiting[event]

    def _wake(self, what: str) -> None:
        """Wake the waits that the notification *what* is about."""
        for event, lane in self._waiting.items():
            if what in ("", str(lane)):
                event.set()

    async def _is_held_still(self, entry: Entry) -> bool:
        """Return whether a living process has *entry* in the same lane, to change the same thing."""
        found = await in_store.look(self._store, entry.key)
        if not isinstance(found, Held):
            return False
        return (found.entry.lane, found.entry.thing) == (entry.lane, entry.thing)

    def notify(self, lane: int) -> None:
        """Wake all waits for something in *lane*: here and, if others use the journal, in other processes."""
        if self._waiting:
            self._wake(str(lane))
        if self._life.has_company:
            self._to_notify.add(lane)
            if self._notifying is None or self._notifying.done():
                self._notifying = asyncio.get_running_loop().create_task(
                    self._notify_others()
                )

    async def _notify_others(self) -> None:
        try:
            while self._to_notify:
                lanes = self._to_notify
                self._to_notify = set()
                # Whoever misses a notification looks by itself, a little later.
                with suppress(JournalError):
                    await self._store.notify(*map(str, lanes))
        finally:
            self._notifying = None

    def end(self) -> None:
        """Listen to other processes no more."""
        if self._listening is not None:
            self._listening.cancel()


def _weakly(wake: Callable[[str], None]) -> Callable[[str], None]:
    """Return *wake*, a method, without a reference to its object: a client that is dropped is collected."""
    reference = weakref.WeakMethod(wake)

    def wake_if_there(what: str) -> None:
        woken = reference()
        if woken is not None:
            woken(what)

    return wake_if_there
