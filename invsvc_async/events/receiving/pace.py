"""A limit of calls per second."""

from __future__ import annotations

from math import floor
from typing import Final

__all__ = ["Pace"]

_BURST: Final = 0.05  # s of calls that may be caught up at once, because each look at the store takes time


class Pace:
    """Spread calls evenly, *rate* a second.  *now* is the time of the event loop, in seconds."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate
        self._next = float("-inf")

    def free(self, now: float) -> int:
        """Return how many calls may begin now."""
        return max(0, floor((now - self._start(now)) / self._gap) + 1)

    def use(self, number: int, now: float) -> None:
        """Count so many calls that begin now."""
        self._next = self._start(now) + number * self._gap

    def wait(self, now: float) -> float:
        """Return how many seconds remain until a call may begin."""
        return max(0.0, self._next - now)

    def _start(self, now: float) -> float:
        return max(self._next, now - _BURST)
