"""When a batch may send: limits of concurrency and rate, and the pauses that the service asks for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

from invsvc_async.codec.envelope import retry_after
from invsvc_async.concurrency.adaptive_limit import LEAST, AdaptiveLimit
from invsvc_async.concurrency.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.transport.exchange import Exchange


_SAME_TIME = 0.05  # s by which a timer may be off


class Slots:
    """
    The slots of one batch: as many as the service can serve without queueing, *most* at most.

    A write that hangs, because its answer takes several times as long as is usual, counts only for *most*.

    *rate* is sends per second, spread evenly. *on_room* is called when there may be a free slot. A write that
    is sent again goes first, so that started writes end before others start.
    """

    def __init__(
        self,
        most: int,
        rate: float | None,
        on_room: Callable[[], None],
    ) -> None:
        self._knee = AdaptiveLimit(most=most, least=LEAST)
        self._pace = Pace(rate)
        self._on_room = on_room
        self._limited_until = 0.0  # until when the service asked to wait, loop time
        self._again: OrderedDict[asyncio.Future[None], object] = OrderedDict()
        # uvloop's has no time if that is less than 1 ms away
        self._timer: asyncio.Handle | None = None
        self._wakes_at = 0.0  # when it ends, loop time
        self.in_use: int = 0

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def take(self, write: object) -> bool:
        """Reserve a slot for a new write, if there is one and the rate allows it."""
        return not self._again and self._try(write)

    async def take_again(self, write: object) -> None:
        """Wait for a slot for a write that is sent again."""
        if self.take(write):
            return
        turn = self._loop.create_future()
        self._again[turn] = write
        try:
            await turn
        except asyncio.CancelledError:
            # the slot was handed over at the same moment
            if turn.done() and not turn.cancelled():
                self.leave(write)
            self._again.pop(turn, None)
            raise

    def leave(self, write: object) -> None:
        """Free the slot of *write*."""
        self.in_use -= 1
        self._knee.in_flight.end(write)
        self._hand_out()

    def learn(self, exchange: Exchange) -> None:
        """Adapt to the result of a request. After a 429, nothing is sent for as long as it says."""
        if exchange.status == 429:
            self._wait_as_told(exchange)
        exchange.note_load(self._knee, self._counted(self._loop.time()))

    def _wait_as_told(self, exchange: Exchange) -> None:
        """Send nothing for as long as a 429 says, if it says that."""
        seconds = retry_after(exchange.answer_headers or {})
        if seconds is None:
            return
        self._limited_until = max(self._limited_until, self._loop.time() + seconds)
        self._pace.hold(self._limited_until)

    @property
    def free(self) -> int:
        """The number of free slots."""
        counted = self._counted(self._loop.time())
        return max(min(self._knee.size - counted, self._knee.most - self.in_use), 0)

    @property
    def limit(self) -> str | None:
        """The limit that keeps a write from being sent now, in a few words."""
        if self.in_use >= self._knee.most:
            return f"concurrency: {self.in_use:,} in flight"
        if (counted := self._counted(self._loop.time())) >= self._knee.size:
            hanging = self.in_use - counted
            more = f", and {hanging:,} whose answer is overdue" if hanging else ""
            return f"adaptive limit: {counted:,} writes in flight{more}"
        gap = self._pace.gap
        if gap:
            return f"rate: {1 / gap:,.3g} a second"
        return None

    @property
    def limited_for(self) -> float:
        """For how many more seconds nothing is sent, because the service asked to wait."""
        return max(self._limited_until - self._loop.time(), 0.0)

    def share(self, processes: int) -> None:
        """Send at the part of the rate that is left for each of so many *processes*."""
        self._pace.share(processes)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _counted(self, now: float) -> int:
        return self.in_use - self._knee.in_flight.hanging(now)

    def _try(self, write: object) -> bool:
        now = self._loop.time()
        due = self._pace.due
        if self.in_use >= self._knee.most:
            return False
        if self._counted(now) >= self._knee.size:
            due = max(due, self._knee.in_flight.next_hangs_at())
        if now < due:
            # One that ends before is kept: whoever it wakes comes here again.
            if self._timer is None or due < self._wakes_at - _SAME_TIME:
                self.close()
                self._timer = self._loop.call_at(due, self._wake)
                self._wakes_at = due
            return False
        self._pace.use(1, now)
        self.in_use += 1
        self._knee.in_flight.begin(write, now)
        return True

    def _wake(self) -> None:
        self._timer = None
        self._hand_out()

    def _hand_out(self) -> None:
        while self._again:
            turn, write = next(iter(self._again.items()))
            if not turn.done():  # otherwise cancelled, and its task has not run since
                if not self._try(write):
                    return
                turn.set_result(None)
            del self._again[turn]
        self._on_room()
