"""A concurrency limit that follows the capacity of the service, judged by latency."""

from __future__ import annotations

from collections import OrderedDict
from math import exp, inf, log

from invsvc_async.concurrency.capacity_search import Capacity, CapacitySearch
from invsvc_async.concurrency.quick_start import QuickStart
from invsvc_async.concurrency.rounds import QuickRound, Round, SettledRound
from invsvc_async.concurrency.steering import Steering

# Requests in flight that are always allowed. Few, so that the fastest answer time is seen; not one, so that a
# request that hangs does not stop the others.
LEAST = 4


class InFlight:
    """
    Requests in flight, from :meth:`begin` to :meth:`end`.

    One *hangs* once it is several times as old as the usual answer.
    """

    _HANGS = 5.0  # usual latencies after which one hangs
    _SOONEST = 1.0  # s: and not before
    _NEWEST = 0.05  # weight of the newest answer in that latency

    def __init__(self) -> None:
        # those that do not hang, the oldest first
        self._begun: OrderedDict[object, float] = OrderedDict()
        self._hanging: set[object] = set()
        # a running mean of the logarithms of latencies
        self._usual: float | None = None
        self._patience = self._SOONEST  # s after which one hangs

    def begin(self, request: object, now: float) -> None:
        """Note that *request* is in flight from *now* on."""
        self._begun[request] = now

    def end(self, request: object) -> None:
        """Note that it is not in flight any more."""
        self._begun.pop(request, None)
        self._hanging.discard(request)

    def answered_in(self, latency: float) -> None:
        """Note a latency, as its logarithm."""
        before = latency if self._usual is None else self._usual
        self._usual = before + self._NEWEST * (latency - before)
        self._patience = max(self._SOONEST, self._HANGS * exp(self._usual))

    def hanging(self, now: float) -> int:
        """Return how many of them hang."""
        # next_hangs_at, without a call
        while next(iter(self._begun.values()), inf) + self._patience <= now:
            self._hanging.add(self._begun.popitem(last=False)[0])
        return len(self._hanging)

    def next_hangs_at(self) -> float:
        """Return from when on the next one hangs."""
        return next(iter(self._begun.values()), inf) + self._patience


class AdaptiveLimit:
    """
    Estimate how many requests a service processes at once before it queues them.

    ``size`` grows with the answers, to twice or four times as many, until these become slower (see
    :class:`QuickStart`).  From then on it is judged in settled rounds: it doubles until latency rises by more
    than chance.  Then it alternates between an estimate and a fifth more, and the difference in latency moves
    the estimate up or down.  Only consecutive rounds are compared, so a service that becomes slower, or a
    busy event loop, is not mistaken for a queue.  A 429, or a timeout while nothing is answered, halves
    ``size`` or takes a leap back.  A latency that rises by half also halves it, repeatedly while that lowers
    the latency.  ``size`` stays between *least* and *most*.  Times are in seconds, on the caller's clock.

    It learns from answers, not from silence.  So those that are ``in_flight`` should count against ``size``
    only until they hang.
    """

    _FEWEST = 20  # answers in a settled round
    _SHORTEST = 0.2  # s: minimum length of a round that steers
    _SETTLING = 0.5  # in latencies: how long after a change of size answers still reflect the old size

    def __init__(
        self,
        *,
        most: int = 1000,
        least: int = 1,
        first: int = 1,
    ) -> None:
        self.most: int = most
        self.least: int = min(least, most)
        self.size: int = min(max(first, least), most)
        self._steering = Steering(self.size, least=self.least, most=most)
        # far from the capacity; ``None`` near it
        self._search: CapacitySearch | None = self._new_search()
        self._resized = -inf  # when ``size`` changed
        self._start: QuickStart | None = QuickStart(self.size)  # until it is over
        self._sums: QuickRound | SettledRound = self._start.next_round(
            -inf, self.size, grew=False
        )
        self.in_flight: InFlight = InFlight()
        self._answered = -inf  # when the latest request that was answered began

    # --- what answers show

    def note(
        self,
        started: float,
        ended: float,
        in_flight: int,
        *,
        refused: bool = False,
        timed_out: bool = False,
    ) -> None:
        """
        Record one request, made while *in_flight* were in flight.  ``size`` may change.

        *refused*: the answer was a 429.
        """
        if timed_out and started < self._answered:
            return  # later ones were answered, so it says nothing about the load
        if not timed_out:
            self._answered = max(self._answered, started)
        if refused or timed_out:
            if started >= self._resized:
                self._halve(ended)
            return
        latency = log(max(ended - started, 1e-6))
        self.in_flight.answered_in(latency)
        complete = self._sums.take(started, ended, in_flight, latency)
        if complete is not None:
            self._judge(complete, ended)

    def _halve(self, now: float) -> None:
        """Halve the size, or return to the one before a leap, because the service is overloaded."""
        size = self.size // 2
        # since the last time
        learns = self._steering if self._search is None else self._search
        has_learnt = learns.has_learnt
        if self._start is not None and self._start.has_learnt:
            has_learnt = True
            size = min(size, self._start.good)
        self._settle(size)
        self._search = None if has_learnt else self._new_search()
        self._resize(size, now)
        self._sums = self._settled_round(now)

    def _judge(self, this: Round, now: float) -> None:
        size = self.size
        self._resize(self._next_size(this), now)
        if self._start is not None:
            grew = self.size > size
            self._sums = self._start.next_round(now, self.size, grew=grew)
            return
        since = now
        if self.size != size:
            since += self._SETTLING * exp(this.latency)
        self._sums = self._settled_round(since)

    def _next_size(self, this: Round) -> int:
        if self._start is not None:
            return self._grow(this, self._start)
        if self._search is not None:
            return self._seek(this, self._search)
        return self._steer(this)

    def _settled_round(self, since: float) -> SettledRound:
        shortest = self._SHORTEST if self._search is None else 0.0
        return SettledRound(since, max(self.size, self._FEWEST), shortest)

    def _resize(self, size: int, now: float) -> None:
        size = min(self.most, max(self.least, size))
        if size != self.size:
            self.size = size
            self._resized = now

    # --- at the start, far from the capacity, and near it

    def _grow(self, this: Round, start: QuickStart) -> int:
        """Grow while answers are as quick as before; then seek, beginning with what is known by then."""
        if start.is_slower(this):
            self._start = None
            self._search = self._new_search(before=start.baseline())
            return start.size_to_look_at(this)
        if self.size == self.most and this.is_full(self.size):
            self._settle(self.size)
            return self._steering.first_size(self.size)
        return start.next_size(this, self._sums, self.size)

    def _seek(self, this: Round, search: CapacitySearch) -> int:
        """Go on with *search*, or steer from what the search has found."""
        found = search.next(this, self.size)
        if not isinstance(found, Capacity):
            return found
        self._settle(found.estimate, usual=found.usual)
        return self._steering.first_size(self.size)

    def _steer(self, this: Round) -> int:
        """Steer; if the latency has risen, search downwards."""
        size = self._steering.next_size(this, self.size)
        if size is not None:
            return size
        self._search = self._new_search(doubles=False, before=this)
        return self.size // 2

    def _new_search(
        self, *, doubles: bool = True, before: Round | None = None
    ) -> CapacitySearch:
        return CapacitySearch(
            least=self.least,
            most=self.most,
            doubles=doubles,
            before=before,
        )

    def _settle(self, estimate: float, *, usual: float | None = None) -> None:
        """Steer from now on, beginning with *estimate*."""
        self._search = None
        self._start = None
        self._steering.begin(estimate, usual=usual)
