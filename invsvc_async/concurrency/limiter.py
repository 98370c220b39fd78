"""A limit on requests in flight, with a reserve for the reads that settle writes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import count
from typing import Literal, TypeAlias

Lane: TypeAlias = Literal["call", "settle"]
_Queue: TypeAlias = "OrderedDict[asyncio.Future[None], int]"


class Limiter:
    """
    A fair limit of *total* requests in flight.  A tenth, but at least one, is reserved for settling reads.

    So calls that use up the limit cannot keep ambiguous writes from being settled.  A limit of one has no
    reserve.
    """

    def __init__(self, total: int) -> None:
        self._queues: dict[Lane, _Queue] = {"call": OrderedDict(), "settle": OrderedDict()}
        self._arrivals = count()
        self.calls: int = 0  # calls in flight
        self.in_use: int = 0  # all requests in flight
        self.resize(total)

    def resize(self, total: int) -> None:
        """Change the limit.  Requests in flight above it are not interrupted."""
        self.total: int = total
        self._for_calls = total - min(total - 1, max(1, total // 10))
        self._hand_out()

    def resize_calls(self, places: int) -> None:
        """Change the limit so that calls get *places*, in addition to the reserve."""
        self.resize(places + max(1, places // 9))

    @property
    def has_waiting(self) -> bool:
        """Whether calls wait."""
        return bool(self._queues["call"])

    def enter(self, lane: Lane) -> bool:
        """Start a request if the limit allows it.  Return whether it does; if not, use :meth:`wait`."""
        is_call = lane == "call"
        if self.in_use >= self.total or (is_call and self.calls >= self._for_calls):
            return False
        self.in_use += 1
        self.calls += is_call
        return True

    async def wait(self, lane: Lane) -> None:
        """Wait until the limit allows a request, and start it.  If cancelled, none is started."""
        waiter = asyncio.get_running_loop().create_future()
        queue = self._queues[lane]
        queue[waiter] = next(self._arrivals)
        try:
            await waiter
        except BaseException:  # also GeneratorExit, of a write that is closed
            queue.pop(waiter, None)
            if waiter.done() and not waiter.cancelled():  # it was started at the same moment
                self.leave(lane)
            raise

    def leave(self, lane: Lane) -> None:
        """End a request, and start the one that has waited longest if the limit allows it."""
        self.in_use -= 1
        if lane == "call":
            self.calls -= 1
        if self._queues["call"] or self._queues["settle"]:
            self._hand_out()

    def _hand_out(self) -> None:
        while self.in_use < self.total:
            due: list[tuple[int, Lane]] = [
                (next(iter(queue.values())), lane)
                for lane, queue in self._queues.items()
                if queue and (lane == "settle" or self.calls < self._for_calls)
            ]
            if not due:
                return
            _, lane = min(due)  # that of the one that has waited longest
            waiter, _ = self._queues[lane].popitem(last=False)
            if not waiter.done():  # else cancelled, and its task has not run since
                self.enter(lane)
                waiter.set_result(None)
