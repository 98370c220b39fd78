"""How the size of an adaptive limit is found, far from the capacity of the service."""

from __future__ import annotations

from math import exp, inf
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.concurrency.rounds import QUEUES

if TYPE_CHECKING:
    from invsvc_async.concurrency.rounds import Round


class Capacity(NamedTuple):
    """The end of a search: an estimate of the capacity, and the latency of a size below it, if measured."""

    estimate: float
    usual: float | None = None


class CapacitySearch:
    """
    A search for the capacity, between *least* and *most*: it doubles the size, or halves it.

    Doubling ends when the latency rises by more than chance, and halving when it does not fall any more.
    *before* is a round to compare the first one with.
    """

    def __init__(
        self,
        *,
        least: int,
        most: int,
        doubles: bool,
        before: Round | None = None,
    ) -> None:
        self._smallest = least
        self._most = most
        self._doubles = doubles
        self._before = before
        # there may have been a queue before the first doubling
        self._first_try = before is None
        self._least = inf if before is None else before.latency  # the lowest latency

    @property
    def has_learnt(self) -> bool:
        """Whether it has a round to compare with."""
        return self._before is not None

    def next(self, this: Round, size: int) -> int | Capacity:
        """Return the size after *size*, whose round is *this*, or what the search has found."""
        before = self._before
        self._least = this.latency if before is None else min(self._least, this.latency)
        slope = this.slope_from(before)
        if before is not None and slope is not None and self._ends(this, before, slope):
            return self._bracket(size, *sorted((before, this)))
        at_end = size == (self._most if self._doubles else self._smallest)
        has_demand = not self._doubles or this.is_full(size)
        can_compare = before is None or slope is not None or at_end
        if not has_demand or not can_compare:
            return size  # too little demand to judge by
        if at_end:
            return Capacity(size)
        self._first_try = before is None
        self._before = this
        if self._doubles:
            return size * 2
        return size // 2

    def _ends(
        self,
        this: Round,
        before: Round,
        slope: float,
    ) -> bool:
        """Return whether latency rose, more than by chance, while doubling; or did not fall while halving."""
        if not self._doubles:
            return slope < QUEUES
        rise = this.latency - before.latency
        return slope >= QUEUES and rise > this.chance_beside(before)

    def _bracket(
        self,
        size: int,
        small: Round,
        big: Round,
    ) -> int | Capacity:
        """Return the requests that the service processed, by Little's law; it queued the rest of *big*."""
        if self._doubles and self._first_try:
            self._doubles = False
            self._before = small
            return size // 4
        estimate = max(
            each.in_flight * exp(self._least - each.latency) for each in (small, big)
        )
        return Capacity(estimate, usual=small.latency)
