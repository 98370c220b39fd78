"""Bound how many requests are in flight; never cost more than a count while there is room."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import count
from math import inf, sqrt
from typing import Literal, TypeAlias

__all__ = ["Knee", "Lane", "Limiter"]

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
        self.calls = 0  # places in use by calls
        self.in_use = 0  # by both
        self._set(total)

    def _set(self, total: int) -> None:
        self.total = total
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


class Knee:
    """
    Find how many requests at once a service works on before it queues them.

    ``size`` starts at 1 and doubles until latency rises.  From then on a round of answers as quick as the
    quickest lets it grow by a sixteenth; a slower one cuts it to what the service had in hand (Little's law),
    at most to half; a 429 or a timeout halves it.  Latency that a cut does not bring down is the service's.
    Times are in seconds, of the caller's clock.
    """

    # Simulated services of 1 to 150 places, of constant to exponential latency, chose these (see the tests).
    _SLOWER = 1.15  # times the quickest round: a queue, not noise
    _STAYED = 0.93  # times the latency before a cut: the cut did not help
    _FEWEST = 20  # answers in a round

    def __init__(self, *, most: int = 1000) -> None:
        self.size = 1
        self.most = most
        self._quickest = inf
        self._doubling = True
        self._before_cut = inf  # latency of the round that led to the cut this round shows the effect of
        self._begin(-inf)

    def _begin(self, since: float) -> None:
        self._since = since
        self._answers = 0
        self._seconds = self._squares = 0.0
        self._used = 0

    def note(self, started: float, ended: float, *, refused: bool, in_flight: int) -> None:
        """
        Learn from one request, beside *in_flight* others; ``size`` may change.

        *refused*: it was answered 429, or timed out.
        """
        if started < self._since:
            return  # it tells about another size
        if refused:
            self._doubling, self._before_cut = False, inf
            self._set(self.size // 2, ended, ended - started)
            return
        self._answers += 1
        self._seconds += ended - started
        self._squares += (ended - started) ** 2
        self._used = max(self._used, in_flight)
        if self._answers >= max(self.size, self._FEWEST):
            self._judge(ended)

    def _judge(self, now: float) -> None:
        latency = self._seconds / self._answers
        doubt = sqrt(max(0.0, self._squares / self._answers - latency**2) / self._answers)  # standard error
        stayed = self._STAYED * self._before_cut < latency < self._SLOWER * self._before_cut
        is_its_own = stayed or self.size == 1
        self._quickest = latency if is_its_own else min(self._quickest, latency + doubt)
        self._before_cut = inf
        size = self.size
        if latency - doubt > self._SLOWER * self._quickest:
            self._doubling, self._before_cut = False, latency
            size = max(size // 2, round(min(size, self._used) * self._quickest / latency))
        elif self._used >= size:  # else there is no demand for more
            size += size if self._doubling else max(1, size // 16)
        self._set(size, now, latency)

    def _set(self, size: int, now: float, latency: float) -> None:
        size = min(self.most, max(1, size))
        # Until the requests beside those of the old size are through, latency tells about that one.
        self._begin(now if size == self.size else now + 1.5 * latency)
        self.size = size
