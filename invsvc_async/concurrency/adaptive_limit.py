"""A concurrency limit that follows the capacity of the service, judged by latency."""

from __future__ import annotations

from collections import OrderedDict
from math import exp, inf, log

from invsvc_async.concurrency.quick_start import QuickStart
from invsvc_async.concurrency.rounds import QUEUES, QuickRound, Round, SettledRound

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


class _Estimate:
    """The estimate near the capacity, between *least* and *most*, and the sizes that swing about it."""

    _STEP = 0.15  # change of the estimate's logarithm per unit of slope above or below QUEUES
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
        push = max(-QUEUES, min(QUEUES, QUEUES - slope))
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

    _ROSE = log(1.5)  # a larger difference means that latency has risen
    _RECENT = 0.2  # weight of the newest round in the usual latency
    _FEWEST = 20  # answers in a settled round
    _SHORTEST = 0.2  # s: minimum length of a round that steers
    _SETTLING = 0.5  # in latencies: how long after a change of size answers still reflect the old size

    def __init__(self, *, most: int = 1000, least: int = 1, first: int = 1) -> None:
        self.most: int = most
        self.least: int = min(least, most)
        self.size: int = min(max(first, least), most)
        self._estimate = _Estimate(self.size, least=self.least, most=most)
        self._seeks = 1  # 1: doubles; -1: halves; 0: swings about the estimate
        self._first_try = True  # there may have been a queue before the first doubling
        self._before: Round | None = None
        self._least = inf  # the lowest latency while seeking
        self._usual = inf  # latency, as in a round
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
        has_learnt = self._before is not None  # since the last time
        if self._start is not None and self._start.has_learnt:
            has_learnt = True
            size = min(size, self._start.good)
        self._settle(size)
        self._seeks = 0 if has_learnt else 1
        self._resize(size, now)
        self._sums = self._settled_round(now)

    def _judge(self, this: Round, now: float) -> None:
        size = self.size
        self._resize(self._next_size(this), now)
        if self._start is not None:
            grew = self.size > size
            self._sums = self._start.next_round(now, self.size, grew=grew)
            return
        self._sums = self._settled_round(
            now if size == self.size else now + self._SETTLING * exp(this.latency)
        )

    def _next_size(self, this: Round) -> int:
        if self._start is not None:
            return self._grow(this, self._start)
        return self._seek(this) if self._seeks else self._steer(this)

    def _settled_round(self, since: float) -> SettledRound:
        shortest = 0.0 if self._seeks else self._SHORTEST
        return SettledRound(since, max(self.size, self._FEWEST), shortest)

    def _resize(self, size: int, now: float) -> None:
        size = min(self.most, max(self.least, size))
        if size != self.size:
            self.size = size
            self._resized = now

    # --- at the start

    def _grow(self, this: Round, start: QuickStart) -> int:
        """Grow while answers are as quick as before; then seek, beginning with what is known by then."""
        if start.is_slower(this):
            self._start = None
            self._before = start.baseline()
            self._first_try = self._before is None
            self._least = inf if self._before is None else self._before.latency
            return start.size_to_look_at(this)
        if self.size == self.most and this.is_full(self.size):
            self._settle(self.size)
            return self._estimate.next_size(self.size)
        return start.next_size(this, self._sums, self.size)

    # --- far from the capacity

    def _seek(self, this: Round) -> int:
        """Double while latency stays the same, or halve while it falls."""
        before = self._before
        up = self._seeks > 0
        self._least = this.latency if before is None else min(self._least, this.latency)
        slope = this.slope_from(before)
        if before is not None and slope is not None and self._ends(this, before, slope):
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

    def _ends(self, this: Round, before: Round, slope: float) -> bool:
        """Return whether latency rose, more than by chance, while doubling; or did not fall while halving."""
        if self._seeks < 0:
            return slope < QUEUES
        rise = this.latency - before.latency
        return slope >= QUEUES and rise > this.chance_beside(before)

    def _bracket(self, small: Round, big: Round) -> int:
        """Settle on the requests that the service processed, by Little's law; it queued the rest of *big*."""
        if self._seeks > 0 and self._first_try:
            self._seeks = -1
            self._before = small
            return self.size // 4
        self._usual = small.latency
        self._settle(
            max(
                each.in_flight * exp(self._least - each.latency)
                for each in (small, big)
            )
        )
        return self._estimate.next_size(self.size)

    def _settle(self, estimate: float) -> None:
        self._seeks = 0
        self._start = None
        self._before = None
        self._estimate.set(estimate)

    # --- near the capacity

    def _steer(self, this: Round) -> int:
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
