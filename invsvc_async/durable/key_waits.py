"""Waiting until the run of a key, in this process or in another one, has ended."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import State
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.transport.transport import CLOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.key_claims import Claims, Found
    from invsvc_async.durable.store import Store

__all__ = ["Waits"]

# s between looks, in case no notification comes: the owner of a lane may also fall silent.
_FIRST, _LONGEST = 0.2, 2.0


class Waits:
    """
    Who waits in this process for entries of other runs.

    Those are told that something in a lane has ended: in this process, and with company in the others.
    """

    def __init__(self, journal: ClientJournal, store: Store, claims: Claims) -> None:
        self._journal, self._store, self._claims = journal, store, claims
        self._waiting: dict[asyncio.Event, int] = {}  # for something in a lane
        self._hearing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._told: set[int] = set()  # lanes that other processes are to be told of

    async def until_closed(self, waiting: Awaitable[Any]) -> None:  # Any: its result is not used
        """
        Await *waiting*.

        Raises:
            ConfigurationError: The client is closed, or was meanwhile.

        """
        session = self._journal.session
        assert session is not None
        if not session.closed:
            with suppress(TimeoutError), session.until_closed():
                await waiting
                return
        elif inspect.iscoroutine(waiting):
            waiting.close()
        raise ConfigurationError(CLOSED)

    async def wait(self, found: Found) -> None:
        """Wait until an entry is done, released, or its owner is silent."""
        if self._hearing is None and self._journal.is_shared:
            self._hearing = asyncio.get_running_loop().create_task(self._store.hear(self._woken))
        lane, pause = found.entry.lane, _FIRST
        now: Found | None = found
        while now is not None and now.lives and now.entry.lane == lane and now.entry.state is not State.DONE:
            event = asyncio.Event()
            self._waiting[event] = lane
            try:
                now = await self._claims.look(found.entry.key)  # it may have ended before this waits
                if now is not None and now.lives and now.entry.state is not State.DONE:
                    await self.until_closed(set_within(event, pause))
            finally:
                del self._waiting[event]
            pause = min(2 * pause, _LONGEST)

    def _woken(self, what: str) -> None:
        for event, lane in self._waiting.items():
            if what in ("", str(lane)):
                event.set()

    def tell(self, lane: int) -> None:
        """Wake those that wait for something in *lane*."""
        self._woken(str(lane))
        if self._journal.is_shared and self._journal.has_company:
            self._told.add(lane)
            if self._telling is None:
                self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._told:
                told, self._told = self._told, set()
                with suppress(JournalError):  # there is a look behind it
                    await self._store.tell(*map(str, told))
        finally:
            self._telling = None

    def end(self) -> None:
        """Stop hearing of other processes."""
        if self._hearing is not None:
            self._hearing.cancel()
