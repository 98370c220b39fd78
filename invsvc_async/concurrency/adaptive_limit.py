"""A concurrency limit that follows the capacity of the service, judged by latency."""

from __future__ import annotations

from collections import OrderedDict
from math import exp, inf, log
from typing import NamedTuple

# Requests in flight that are always allowed. Few, so that the fastest answer time is seen; not one, so that a
# request that hangs does not stop the others.
LEAST = 4

# Tuned on simulated services: capacity 1 to 200, 5 to 500 ms, constant to exponential (see the tests).
_QUEUES = 0.65  # growth of latency per growth in flight above which more in flight is not worth it
_APART = 0.08  # two rounds are compared if the logarithms of their requests in flight differ this much
_FULL = 0.9  # used share of the limit above which there is demand for more


class _Round(NamedTuple):
    """Means over the answers of one round: requests in flight, and the logarithm of the latency (s)."""

    in_flight: float
    latency: float  # of logarithms, so a few slow answers hardly move it

    def is_full(self, size: int) -> bool:
        """Return whether so much of the limit *size* was used that there is demand for more."""
        return self.in_flight >= _FULL * size

    def slope_from(self, before: _Round | None) -> float | None:
        """
        Return the growth of latency per growth of requests in flight since the round *before*, 0 to 1.

        ``None`` if the rounds cannot be compared.
        """
        if before is None or min(before.in_flight, self.in_flight) <= 0:
            return None
        growth = log(self.in_flight / before.in_flight)
        if abs(growth) < _APART:
            return None
        return (self.latency - before.latency) / growth


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


class _Sums:
    """
    Sums over the answers of the round that began at *since*.

    A round has the requests that began in an interval: counting those that end favours quick ones.
    """

    _FEWEST = 20  # answers in a round
    _SHORTEST = 0.2  # s: minimum length of a round that steers; a pause of this process must not fill it

    def __init__(self, since: float) -> None:
        self.since: float = since
        self._until = since  # what begins from then on is of the next round
        self.answers: int = 0
        self._used = 0
        self._logs = 0.0

    def add(
        self,
        started: float,
        ended: float,
        in_flight: int,
        latency: float,
        *,
        size: int,
        seeks: bool,
    ) -> _Round | None:
        """
        Add an answered request, or return the round if it is complete without it.

        *size* is the limit of the round; *seeks*: it does not steer, so it need not be long.
        """
        if started >= self._until:
            in_time = seeks or ended - self.since >= self._SHORTEST
            if in_time and self.answers >= max(size, self._FEWEST):
                return _Round(self._used / self.answers, self._logs / self.answers)
            self._until = ended
        self.answers += 1
        self._logs += latency
        self._used += in_flight
        return None


class _Estimate:
    """The estimate near the capacity, between *least* and *most*, and the sizes that swing about it."""

    _STEP = 0.15  # change of the estimate's logarithm per unit of slope above or below _QUEUES
    # extra steps for each earlier round in a row that pointed the same way
    _STREAK = 0.25
    _LONGEST = 8  # rounds in a row that count
    _LOOK = 8  # at the maximum, one round in so many tries fewer

    def __init__(self, size: int, *, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self.value: float = float(size)
        self._swings = 0
        self._streak = 0
        self._rises: bool | None = None  # whether the estimate rose the last time

    def set(self, estimate: float) -> None:
        """Begin anew with *estimate*."""
        self._rises = None
        self.value = float(estimate)

    def learn(self, slope: float, *, wanted: bool) -> None:
        """Move the estimate by the *slope* of two rounds; up only if more places are *wanted*."""
        push = max(-_QUEUES, min(_QUEUES, _QUEUES - slope))
        rises = push > 0
        if rises and not wanted:
            return
        self._streak = (
            min(self._streak + 1, self._LONGEST) if rises is self._rises else 0
        )
        self._rises = rises
        self.value *= exp(self._STEP * push * (1 + self._STREAK * self._streak))

    def next_size(self, size: int) -> int:
        """Return the size after *size*: the estimate or a fifth more, whichever is farther from it."""
        self.value = min(float(self._most), max(float(self._least), self.value))
        low = int(self.value)
        if low == self._most:
            self._swings += 1
            return low if self._swings % self._LOOK else low - max(1, low // 6)
        high = low + max(1, round(low / 5))
        return max(low, high, key=lambda each: abs(each - size))


class AdaptiveLimit:
    """
    Estimate how many requests a service processes at once before it queues them.

    ``size`` doubles until latency rises.  Then it alternates between an estimate and a fifth more, and the
    difference in latency moves the estimate up or down.  Only consecutive rounds are compared, so a service
    that becomes slower, or a busy event loop, is not mistaken for a queue.  A 429, or a timeout while nothing
    is answered, halves ``size``.  A latency that rises by half also halves it, repeatedly while that lowers
    the latency.  ``size`` stays between *least* and *most*.  Times are in seconds, on the caller's clock.

    It learns from answers, not from silence.  So those that are ``in_flight`` should count against ``size``
    only until they hang.
    """

    _ROSE = log(1.5)  # a larger difference means that latency has risen
    _RECENT = 0.2  # weight of the newest round in the usual latency
    _SETTLING = 0.5  # in latencies: how long after a change of size answers still reflect the old size

    def __init__(self, *, most: int = 1000, least: int = 1, first: int = 1) -> None:
        self.most: int = most
        self.least: int = min(least, most)
        self.size: int = min(max(first, least), most)
        self._estimate = _Estimate(self.size, least=self.least, most=most)
        self._seeks = 1  # 1: doubles; -1: halves; 0: swings about the estimate
        self._first_try = True  # there may have been a queue before the first doubling
        self._before: _Round | None = None
        self._least = inf  # the lowest latency while seeking
        self._usual = inf  # latency, as in a round
        self._resized = -inf  # when ``size`` changed
        self._sums = _Sums(-inf)
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
        if started < self._sums.since:
            return  # it was made under an earlier size
        complete = self._sums.add(
            started,
            ended,
            in_flight,
            latency,
            size=self.size,
            seeks=self._seeks != 0,
        )
        if complete is not None:
            self._judge(complete, ended)

    def _halve(self, now: float) -> None:
        """Halve the size, because the service is overloaded."""
        has_learnt = self._before is not None  # since the last time
        self._settle(self.size // 2)
        self._seeks = 0 if has_learnt else 1
        self._resize(self.size // 2, now)
        self._sums = _Sums(now)

    def _judge(self, this: _Round, now: float) -> None:
        size = self.size
        self._resize(self._seek(this) if self._seeks else self._steer(this), now)
        self._sums = _Sums(
            now if size == self.size else now + self._SETTLING * exp(this.latency)
        )

    def _resize(self, size: int, now: float) -> None:
        size = min(self.most, max(self.least, size))
        if size != self.size:
            self.size = size
            self._resized = now

    # --- far from the capacity

    def _seek(self, this: _Round) -> int:
        """Double while latency stays the same, or halve while it falls."""
        before = self._before
        up = self._seeks > 0
        self._least = this.latency if before is None else min(self._least, this.latency)
        slope = this.slope_from(before)
        if before is not None and slope is not None and (slope >= _QUEUES) is up:
            return self._bracket(*sorted((before, this)))
        at_end = self.size == (self.most if up else self.least)
        has_demand = not up or this.is_full(self.size)
        can_compare = before is None or slope is not None or at_end
        if not has_demand or not can_compare:
            return self.size  # too little demand to judge by
        if at_end:
            self._settle(self.size)
            return self._estimate.next_size(self.size)
        self._first_try = before is None
        self._before = this
        return self.size * 2 if up else self.size // 2

    def _bracket(self, small: _Round, big: _Round) -> int:
        """Settle on the requests that the service processed in *big*, by Little's law; it queued the rest."""
        if self._seeks > 0 and self._first_try:
            self._seeks = -1
            self._before = small
            return self.size // 4
        self._usual = small.latency
        self._settle(big.in_flight * exp(self._least - big.latency))
        return self._estimate.next_size(self.size)

    def _settle(self, estimate: float) -> None:
        self._seeks = 0
        self._before = None
        self._estimate.set(estimate)

    # --- near the capacity

    def _steer(self, this: _Round) -> int:
        """Move the estimate by comparing this round with the one before."""
        before = self._before
        self._before = this
        if before is not None:
            if min(before.latency, this.latency) > self._usual + self._ROSE:
                self._seeks = -1
                self._least = this.latency
                return self.size // 2
            slope = this.slope_from(before)
            if slope is not None:
                wanted = max(before, this).is_full(self.size)
                self._estimate.learn(slope, wanted=wanted)
        usual = this.latency if self._usual == inf else self._usual
        self._usual = usual + self._RECENT * (this.latency - usual)
        return self._estimate.next_size(self.size)
