"""
Say when a batch may send: so many at once, so many a second, and not while the service asks for a pause;
never send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from invsvc_async.limits import Knee
from invsvc_async.reconcile.evidence import End

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.exchange import Exchange

__all__ = ["Slots"]

_AT_FIRST = 4  # places to begin with: fewer than most services take, so that the quickest answer is seen
_PASSES = 4  # of the loop, until the answer that has come is read
_BUSY = 0.25  # of a request's time: a loop that adds so much is itself the limit
_TICK = 0.025  # s between looks at how busy the loop is
_BURST = 0.05  # s of pace that may be made up for: timers are not exact


class Slots:
    """
    The places of one batch: as many as the service takes without queueing, *most* at most.  *rate* is sends
    a second, spread evenly; *on_room* is called when there may be room again.

    A write that is sent again goes before those that have not begun, so that what is under way ends first.
    """

    def __init__(self, most: int, rate: float | None, on_room: Callable[[], None]) -> None:
        self._knee = Knee(most=most)
        self._knee.size = min(most, _AT_FIRST)
        self._gap = self._whole_gap = 1 / rate if rate else 0.0
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._due = 0.0  # when the next send may begin, loop time
        self._again: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._quickest = inf  # s, of any request
        self._late = self._tick_due = 0.0  # s by which the loop is late, and when it is next looked at
        self._tick()
        self.in_use = 0

    def take(self) -> bool:
        """Take a place for a write that has not begun, if there is one and it is time."""
        return not self._again and self._try()

    async def take_again(self) -> None:
        """Take a place for a write that is to be sent again, as soon as there is one."""
        if not self._again and self._try():
            return
        turn = self._loop.create_future()
        self._again.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was handed over in the same moment
                self.leave()
            else:
                self._again.remove(turn)
            raise

    def leave(self) -> None:
        """Give a place back."""
        self.in_use -= 1
        self._hand_out()

    def learn(self, exchange: Exchange, retry_after: float | None) -> None:
        """Take in how a request went; one refused for its rate holds everybody up for as long as it says."""
        refused = exchange.status == 429
        if refused and retry_after is not None:
            self._due = max(self._due, self._loop.time() + retry_after)
        if exchange.end is End.ANSWERED or (exchange.end is End.LOST and exchange.timed_out):
            refused = refused or exchange.timed_out
            ended = exchange.ended if refused else exchange.started + self._of_the_service(exchange)
            self._knee.note(exchange.started, ended, refused=refused, in_flight=self.in_use)

    def _of_the_service(self, exchange: Exchange) -> float:
        """
        Take from the time of a request what this busy loop may have added.

        Fewer places would not make this process faster, so its own slowness must not count as the service's.
        """
        took = exchange.ended - exchange.started
        quickest = min(took, self._quickest)
        self._quickest = max(quickest, 0.0001)
        own = _PASSES * self._late
        return self._quickest if own > _BUSY * took else max(took - own, self._quickest)

    def _tick(self) -> None:
        """Learn how late the loop calls back."""
        now = self._loop.time()
        if self._tick_due:
            self._late += 0.3 * (max(now - self._tick_due, 0.0) - self._late)
        self._tick_due = now + _TICK
        self._ticking = self._loop.call_at(self._tick_due, self._tick)

    @property
    def free(self) -> int:
        """How many places are free."""
        return max(self._knee.size - self.in_use, 0)

    def share(self, part: float) -> None:
        """Take *part* of the pace, more than 0."""
        self._gap = self._whole_gap / part if part else self._whole_gap

    def close(self) -> None:
        """Forget the timers."""
        self._ticking.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> bool:
        if self.in_use >= self._knee.size:
            return False
        now = self._loop.time()
        if now < self._due:
            if self._timer is None or self._timer.when() < self._due - _BURST:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(self._due, self._wake)
            return False
        if self._gap:
            self._due = max(self._due, now - _BURST) + self._gap
        self.in_use += 1
        return True

    def _wake(self) -> None:
        self._timer = None
        self._hand_out()

    def _hand_out(self) -> None:
        while self._again and self._try():
            self._again.popleft().set_result(None)
        if not self._again:
            self._on_room()
