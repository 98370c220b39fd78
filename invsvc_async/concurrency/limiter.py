"""A limit on requests in flight, with a reserve for the reads that settle writes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import count
from typing import Literal, TypeAlias

Lane: TypeAlias = Literal["call", "settle"]
# By what waits: when it came, and for which request.
_Queue: TypeAlias = "OrderedDict[asyncio.Future[None], tuple[int, object]]"


class Limiter:
    """
    A fair limit of *total* requests in flight.  A tenth, but at least one, is reserved for settling reads.

    So calls that use up the limit cannot keep ambiguous writes from being settled.  A limit of one has no
    reserve.

    A request is known by any object; without one, it is one of several that need not be told apart.  What is
    counted are those objects, so that :meth:`leave` may be called again if a signal handler raised in it.
    """

    def __init__(self, total: int) -> None:
        self._queues: dict[Lane, _Queue] = {
            "call": OrderedDict(),
            "settle": OrderedDict(),
        }
        self._running: dict[Lane, set[object]] = {"call": set(), "settle": set()}
        self._arrivals = count()
        self.resize(total)

    @property
    def calls(self) -> int:
        """How many calls are in flight."""
        return len(self._running["call"])

    @property
    def in_use(self) -> int:
        """How many requests are in flight."""
        return len(self._running["call"]) + len(self._running["settle"])

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

    def enter(self, lane: Lane, request: object = None) -> bool:
        """Start a request if the limit allows it.  Return whether it does; if not, use :meth:`wait`."""
        calls = self._running["call"]
        settling = self._running["settle"]
        if len(calls) + len(settling) >= self.total:
            return False
        if lane == "call" and len(calls) >= self._for_calls:
            return False
        self._running[lane].add(object() if request is None else request)
        return True

    async def wait(self, lane: Lane, request: object = None) -> None:
        """Wait until the limit allows a request, and start it.  If cancelled, none is started."""
        request = object() if request is None else request
        waiter = asyncio.get_running_loop().create_future()
        queue = self._queues[lane]
        try:
            queue[waiter] = next(self._arrivals), request
            await waiter
        except BaseException:  # also GeneratorExit, of a write that is closed
            queue.pop(waiter, None)
            if request in self._running[lane]:  # it was started at the same moment
                self.leave(lane, request)
            raise

    def leave(self, lane: Lane, request: object = None) -> None:
        """End a request; if the limit allows, start the request that has waited longest."""
        running = self._running[lane]
        if request is None:
            running.pop()
        else:
            running.discard(request)
        if self._queues["call"] or self._queues["settle"]:
            self._hand_out()

    def _hand_out(self) -> None:
        while self.in_use < self.total:
            due: list[tuple[tuple[asyncio.Future[None], tuple[int, object]], Lane]] = []
            for lane, queue in self._queues.items():
                may_start = lane == "settle" or self.calls < self._for_calls
                if queue and may_start:
                    due.append((next(iter(queue.items())), lane))
            if not due:
                return
            # The one that has waited longest.
            (waiter, (_, request)), lane = min(due, key=lambda each: each[0][1][0])
            if not waiter.done():  # else cancelled, and its task has not run since
                self.enter(lane, request)
                waiter.set_result(None)
            self._queues[lane].pop(waiter, None)
