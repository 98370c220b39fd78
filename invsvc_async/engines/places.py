"""
The places of rows that are sent at the same time.

A row has a place from before its write begins until the end of its first request. It has none while it is
settled; to send again, it acquires one before new rows do. A row that sends nothing for a while loses its
place, too: it waits for an earlier write to the same thing, or for a process that has its key. So rows in
doubt keep no new row from being sent. A request that hangs keeps its place until it is answered or times out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from invsvc_async.concurrency.pace import SharedPace
from invsvc_async.errors import JournalError
from invsvc_async.transport.client_core import ClientOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.transport.client_core import Request
    from invsvc_async.transport.exchange import Exchange

_PATIENCE: Final = 1.0  # s for which a row that sends nothing keeps its place


class RowPlaces:
    """
    The places of the rows of one iterator: *most*, and at most *rate* new ones a second.

    The rate is divided among the processes that send: *members* returns their number. All methods are called
    in the event loop.
    """

    def __init__(
        self,
        most: int,
        rate: float | None,
        members: Callable[[], int],
    ) -> None:
        self.has_rate: bool = rate is not None
        self._free = most
        self._pace = None if rate is None else SharedPace(rate, members)
        self._new: deque[asyncio.Future[None]] = deque()
        self._again: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a place for a new row. Rows get places in their order."""
        await self._turn(self._new)

    async def wait_for_rate(self) -> None:
        """Wait for the turn of a new write by the rate, if there is one."""
        if self._pace is not None:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._pace.wait_for_start(now))

    async def acquire_again(self) -> None:
        """Wait for a place for a row that has begun, before new rows."""
        await self._turn(self._again)

    def release(self) -> None:
        """Free a place for the row that is next; rows that have begun come before new rows."""
        for waiting in (self._again, self._new):
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1

    async def _turn(self, waiting: deque[asyncio.Future[None]]) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # the place was given at the same moment
            raise


class RowPlace:
    """
    The place of one row, which may come *behind* that of an earlier row to the same thing.

    Then it starts after that one, and not at all if that one has failed: sent again, the earlier row would
    come after it.
    """

    def __init__(self, places: RowPlaces) -> None:
        self._places = places
        self.behind: RowPlace | None = None
        self.has_started: asyncio.Event = asyncio.Event()
        self.has_failed: bool = False
        self._is_held = False
        self._is_sending = False

    async def acquire(self, has_happened: Callable[[], Awaitable[bool]]) -> None:
        """
        Acquire the place for a new row; it is released after a while in which the row sends nothing.

        If there is a rate, wait for its turn, too, unless its write *has_happened*: then nothing is sent.
        """
        await self._places.acquire()
        self._is_held = True
        if self._places.has_rate and not await has_happened():
            await self._places.wait_for_rate()
        if self.behind is not None:
            await self.behind.has_started.wait()
        asyncio.get_running_loop().call_later(_PATIENCE, self._release_unless_sending)

    def check_order(self) -> None:
        """
        Check the row before to the same thing, which has claimed its key, or ended.

        Raises:
            JournalError: It has failed.
        """
        if self.behind is not None and self.behind.has_failed:
            raise JournalError(
                "an earlier row to the same resource has failed, so this one was not sent. Send both again."
            )

    def keep(self) -> bool:
        """Keep the place for a request. Return ``False`` if it has to be acquired again."""
        self._is_sending = True
        return self._is_held

    async def acquire_again(self) -> None:
        """Acquire the place again for a request, before new rows."""
        await self._places.acquire_again()
        self._is_held = True

    def release(self) -> None:
        """Release the place, if it is held."""
        self._is_sending = False
        if self._is_held:
            self._is_held = False
            self._places.release()

    def end(self) -> None:
        """Release the place of a row that has ended, and let the next row to the same thing start."""
        self.has_started.set()
        self.behind = None
        self.release()

    def _release_unless_sending(self) -> None:
        if not self._is_sending:
            self.release()


class RowOptions(ClientOptions, kw_only=True, eq=False):
    """The options of the client of one row, whose write has a *place* during each request."""

    place: RowPlace

    @classmethod
    def of(cls, place: RowPlace, view: ClientOptions) -> RowOptions:
        """Return the options of *view* for a row."""
        given: dict[str, Any] = msgspec.structs.asdict(view)  # Any: as the fields
        return cls(place=place, **given)

    def check_start(self) -> None:
        """Raise if the row before to the same thing has failed."""
        self.place.check_order()

    async def send(self, request: Request, exchange: Exchange) -> Exchange:
        """Send *exchange* as the base class does; a write has its place meanwhile."""
        if not exchange.write:
            return await super().send(request, exchange)
        try:
            if not self.place.keep():
                with self.core.under_way.ended_by_close():
                    await self.place.acquire_again()
            return await super().send(request, exchange)
        finally:
            self.place.release()
