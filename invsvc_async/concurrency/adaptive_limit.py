"""A concurrency limit that follows the capacity of the service, judged by latency."""

from __future__ import annotations

from collections import OrderedDict
from math import exp, inf, log
from typing import NamedTuple

# Requests in flight that are always allowed. Few, so that the fastest answer time is seen; not one, so that a
# request that hangs does not stop the others.
LEAST = 4


class _Round(NamedTuple):
    """Means over the answers of one round: requests in flight, and the logarithm of the latency (s)."""

    in_flight: float
    latency: float  # of logarithms, so a few slow answers hardly move it


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
        self._usual: float | None = (
            None  # a running mean of the logarithms of latencies
        )
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
    """Sums over the answers of the round that began at *since*."""

    def __init__(self, since: float) -> None:
        self.since = self.until = (
            since  # and until when the requests of this round began
        )
        self.answers = self.used = 0
        self.logs = 0.0


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

    # Tuned on simulated services: capacity 1 to 200, 5 to 500 ms, constant to exponential (see the tests).
    _QUEUES = 0.65  # growth of latency per growth in flight above which more in flight is not worth it
    _STEP = 0.15  # change of the estimate's logarithm per unit of slope above or below _QUEUES
    _STREAK = (
        0.25  # extra steps for each earlier round in a row that pointed the same way
    )
    _LONGEST = 8  # rounds in a row that count
    _ROSE = log(1.5)  # a larger difference means that latency has risen
    _RECENT = 0.2  # weight of the newest round in the usual latency
    _FEWEST = 20  # answers in a round
    _SHORTEST = 0.2  # s: minimum length of a round that steers; a pause of this process must not fill it
    _SETTLING = 0.5  # in latencies: how long after a change of size answers still reflect the old size
    _APART = 0.08  # two rounds are compared if the logarithms of their requests in flight differ this much
    _FULL = 0.9  # used share of the limit above which there is demand for more
    _LOOK = 8  # at the maximum, one round in so many tries fewer

    def __init__(self, *, most: int = 1000, least: int = 1, first: int = 1) -> None:
        self.most: int = most
        self.least: int = min(least, most)
        self.size: int = min(max(first, least), most)
        self._estimate = float(self.size)
        self._seeks = 1  # 1: doubles; -1: halves; 0: swings about the estimate
        self._first_try = True  # there may have been a queue before the first doubling
        self._before: _Round | None = None
        self._least = inf  # the lowest latency while seeking
        self._usual = inf  # latency, as in a round
        self._swings = self._streak = 0
        self._rises: bool | None = None  # whether the estimate rose the last time
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
        if started >= self._sums.since:  # it was made under this size
            self._add(started, ended, in_flight, latency)

    def _halve(self, now: float) -> None:
        """Halve the size, because the service is overloaded."""
        has_learnt = self._before is not None  # since the last time
        self._settle(self.size // 2)
        self._seeks = 0 if has_learnt else 1
        self._resize(self.size // 2, now)
        self._sums = _Sums(now)

    def _add(
        self, started: float, ended: float, in_flight: int, latency: float
    ) -> None:
        """Add an answered request to the current round, or judge the round if it is complete."""
        sums = self._sums
        # A round has the requests that began in an interval: counting those that end favours quick ones.
        if started >= sums.until:
            in_time = self._seeks != 0 or ended - sums.since >= self._SHORTEST
            if in_time and sums.answers >= max(self.size, self._FEWEST):
                self._judge(
                    _Round(sums.used / sums.answers, sums.logs / sums.answers), ended
                )
                return
            sums.until = ended
        sums.answers += 1
        sums.logs += latency
        sums.used += in_flight

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
        slope = self._slope(before, this)
        if before is not None and slope is not None and (slope >= self._QUEUES) is up:
            return self._bracket(*sorted((before, this)))
        at_end = self.size == (self.most if up else self.least)
        if (up and not self._is_full(this)) or (
            before is not None and slope is None and not at_end
        ):
            return self.size  # too little demand to judge by
        if at_end:
            self._settle(self.size)
            return self._swing()
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
        return self._swing()

    def _settle(self, estimate: float) -> None:
        self._seeks = 0
        self._before = None
        self._rises = None
        self._estimate = float(estimate)

    # --- near the capacity

    def _steer(self, this: _Round) -> int:
        """Move the estimate by comparing this round with the one before."""
        before, self._before = self._before, this
        if before is not None:
            if min(before.latency, this.latency) > self._usual + self._ROSE:
                self._seeks = -1
                self._least = this.latency
                return self.size // 2
            slope = self._slope(before, this)
            if slope is not None:
                self._learn(slope, wanted=self._is_full(max(before, this)))
        usual = this.latency if self._usual == inf else self._usual
        self._usual = usual + self._RECENT * (this.latency - usual)
        return self._swing()

    def _learn(self, slope: float, *, wanted: bool) -> None:
        push = max(-self._QUEUES, min(self._QUEUES, self._QUEUES - slope))
        rises = push > 0
        if rises and not wanted:
            return
        self._streak = (
            min(self._streak + 1, self._LONGEST) if rises is self._rises else 0
        )
        self._rises = rises
        self._estimate *= exp(self._STEP * push * (1 + self._STREAK * self._streak))

    def _swing(self) -> int:
        """Return the next size: the estimate or a fifth more, whichever is farther from the current one."""
        self._estimate = min(float(self.most), max(float(self.least), self._estimate))
        low = int(self._estimate)
        if low == self.most:
            self._swings += 1
            return low if self._swings % self._LOOK else low - max(1, low // 6)
        return max(
            low, low + max(1, round(low / 5)), key=lambda size: abs(size - self.size)
        )

    def _slope(self, before: _Round | None, this: _Round) -> float | None:
        """
        Return the growth of latency per growth of requests in flight, 0 to 1.

        ``None`` if the rounds cannot be compared.
        """
        if before is None or min(before.in_flight, this.in_flight) <= 0:
            return None
        growth = log(this.in_flight / before.in_flight)
        return (
            (this.latency - before.latency) / growth
            if abs(growth) >= self._APART
            else None
        )

    def _is_full(self, a_round: _Round) -> bool:
        return a_round.in_flight >= self._FULL * self.size
