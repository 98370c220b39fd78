"""How the size of an adaptive limit is steered near the capacity of the service."""

from __future__ import annotations

from math import exp, inf, log
from typing import TYPE_CHECKING

from invsvc_async.concurrency.rounds import QUEUES

if TYPE_CHECKING:
    from invsvc_async.concurrency.rounds import Round


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
            if self._swings % self._LOOK:
                return low
            return low - max(1, low // 6)
        high = low + max(1, round(low / 5))
        return max(low, high, key=lambda each: abs(each - size))


class Steering:
    """
    The size near the capacity: an estimate, moved by comparing each round with the one before.

    It needs an estimate first, by ``begin``, and a new one after each search.
    """

    _ROSE = log(1.5)  # a larger difference means that latency has risen
    _RECENT = 0.2  # weight of the newest round in the usual latency

    def __init__(self, size: int, *, least: int, most: int) -> None:
        self._estimate = _Estimate(size, least=least, most=most)
        self._usual = inf  # latency, as in a round
        self._before: Round | None = None

    @property
    def has_learnt(self) -> bool:
        """Whether it has had a round since it began."""
        return self._before is not None

    def begin(self, estimate: float, *, usual: float | None = None) -> None:
        """Begin anew with *estimate*; *usual* is the latency of such a size, if it was measured."""
        if usual is not None:
            self._usual = usual
        self._before = None
        self._estimate.set(estimate)

    def first_size(self, size: int) -> int:
        """Return the size after *size*, under which no round was steered."""
        return self._estimate.next_size(size)

    def next_size(self, this: Round, size: int) -> int | None:
        """Return the size after *size*, whose round is *this*; ``None`` if the latency has risen too much."""
        before = self._before
        self._before = this
        if before is not None:
            if min(before.latency, this.latency) > self._usual + self._ROSE:
                return None
            slope = this.slope_from(before)
            if slope is not None:
                wanted = max(before, this).is_full(size)
                self._estimate.learn(slope, wanted=wanted)
        usual = this.latency if self._usual == inf else self._usual
        self._usual = usual + self._RECENT * (this.latency - usual)
        return self._estimate.next_size(size)
