"""Starts that are spread evenly over time."""

from __future__ import annotations

from math import floor
from typing import Final

# s of starts that may be caught up at once: timers are not exact, and each look at a store takes time
_BURST: Final = 0.05


class Pace:
    """Spreads starts evenly, *rate* a second.  *now* is the time of the event loop, in seconds."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate
        self._next = float("-inf")

    def free(self, now: float) -> int:
        """Return how many starts may be made now."""
        return max(0, floor((now - self._start(now)) / self._gap) + 1)

    def use(self, number: int, now: float, *, processes: int = 1) -> None:
        """Count so many starts, at the part of the rate that each of so many *processes* has."""
        self._next = self._start(now) + number * self._gap * processes

    def wait(self, now: float) -> float:
        """Return how many seconds remain until the next start."""
        return max(0.0, self._next - now)

    def _start(self, now: float) -> float:
        return max(self._next, now - _BURST)
