"""Bound how many requests are in flight. A free place costs no more than a count."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import count
from typing import Literal, TypeAlias

__all__ = ["Lane", "Limiter"]

Lane: TypeAlias = Literal["call", "settle"]
_Queue: TypeAlias = "OrderedDict[asyncio.Future[None], int]"


class Limiter:
    """
    Hand out *total* places in the order of arrival, a tenth of them (at least one) only to reads that settle.

    So calls that fill the pool cannot keep writes in doubt from being settled.  One place has no reserve.
    """

    def __init__(self, total: int) -> None:
        self._queues: dict[Lane, _Queue] = {"call": OrderedDict(), "settle": OrderedDict()}
        self._arrivals = count()
        self.calls: int = 0  # places in use by calls
        self.in_use: int = 0  # by both
        self._set(total)

    def _set(self, total: int) -> None:
        self.total: int = total
        self._for_calls = total - min(total - 1, max(1, total // 10))

    def resize(self, total: int) -> None:
        """Change the number of places; one in use beyond it is lost when it is given back."""
        self._set(total)
        self._hand_out()

    def resize_calls(self, places: int) -> None:
        """Change the number of places such that calls have *places*, beside the reserve of settling reads."""
        self.resize(places + max(1, places // 9))

    def enter(self, lane: Lane) -> bool:
        """Take a place if there is one (then nobody waits for it); else ``False``: :meth:`wait`."""
        if not self._has_room(lane):
            return False
        self._take(lane)
        return True

    async def wait(self, lane: Lane) -> None:
        """Take a place as soon as it is this caller's turn; cancelled, it takes none."""
        turn = asyncio.get_running_loop().create_future()
        queue = self._queues[lane]
        queue[turn] = next(self._arrivals)
        try:
            await turn
        except asyncio.CancelledError:
            queue.pop(turn, None)
            if not turn.cancelled():  # the place was handed over in the same moment
                self.leave(lane)
            raise

    def leave(self, lane: Lane) -> None:
        """Give a place back, to whoever has waited longest and may have it."""
        self.in_use -= 1
        if lane == "call":
            self.calls -= 1
        if self._queues["call"] or self._queues["settle"]:
            self._hand_out()

    def _has_room(self, lane: Lane) -> bool:
        return self.in_use < self.total and (lane == "settle" or self.calls < self._for_calls)

    def _take(self, lane: Lane) -> None:
        self.in_use += 1
        if lane == "call":
            self.calls += 1

    def _hand_out(self) -> None:
        while lane := self._next_lane():
            turn, _ = self._queues[lane].popitem(last=False)
            if not turn.done():  # cancelled, and its task has not run since
                self._take(lane)
                turn.set_result(None)

    def _next_lane(self) -> Lane | None:
        calls, settling = self._queues["call"], self._queues["settle"]
        call_is_due = bool(calls) and self._has_room("call")
        if not settling or not self._has_room("settle"):
            return "call" if call_is_due else None
        if call_is_due and next(iter(calls.values())) < next(iter(settling.values())):
            return "call"
        return "settle"
