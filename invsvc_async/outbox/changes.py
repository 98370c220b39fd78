"""What wakes those that wait for verdicts of an outbox, in this process and in others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.outbox.opening import OutboxOpening


_VERDICTS = "verdicts"  # what processes are told
_POLL = 1.0  # s between looks for verdicts of other processes
_TELL = 0.05  # s between notices to other processes that verdicts were stored


class VerdictChanges:
    """What changes for those that wait for verdicts of the outbox in *store*, which *opening* opens."""

    def __init__(self, store: Store, opening: OutboxOpening) -> None:
        self._store = store
        self._opening = opening
        # set when verdicts are stored or given back, or it is opened late, or closed
        self._changed = asyncio.Event()
        # of verdicts that other processes have stored
        self._hearing: asyncio.Task[None] | None = None
        # verdicts were stored, of which other processes are to be told
        self._stored = asyncio.Event()

    async def until_open(self) -> None:
        """Wait until the database has been reached, if the start was without it."""
        while self._opening.problem is not None:
            await self._changed.wait()

    def hear(self) -> asyncio.Event:
        """Return an event that is set once verdicts are stored or given back, or the outbox is closed."""
        if self._hearing is None and self._opening.is_open and self._store.is_shared:
            self._hearing = asyncio.create_task(self._store.listen(self._heard))
        return self._changed

    def _heard(self, what: str) -> None:
        if what in ("", _VERDICTS):
            self.wake()

    def wake(self) -> None:
        """Wake those that wait here."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, changed: asyncio.Event) -> None:
        """Wait for *changed*, which ``hear`` has returned, or until it is time to look all the same."""
        await set_within(changed, _POLL)

    def note_stored(self) -> None:
        """Note that verdicts were stored: wake the waits here, and soon the waits of other processes."""
        self.wake()
        self._stored.set()

    async def tell(self) -> None:
        """Wake the waits of other processes now."""
        await self._store.notify(_VERDICTS)

    async def tell_others(self) -> None:
        """Wake other processes' waits for verdicts, at most every few milliseconds."""
        while True:
            await self._stored.wait()
            self._stored.clear()
            with suppress(JournalError):  # they look now and then
                await self.tell()
            await asyncio.sleep(_TELL)

    async def end(self) -> None:
        """Hear of other processes no more."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait([self._hearing])
            self._hearing = None
