"""A rate: starts that are spread evenly over time, by one process or divided among several."""

from __future__ import annotations

from math import floor, inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST: Final = 0.05  # s of delay that may be made up for, because timers are not exact


class Pace:
    """
    The pace of starts, *rate* a second; ``None`` is any. After a pause, *burst* seconds are made up for.

    ``gap`` is the time between two starts, and ``due`` when the next may begin. All times are those of the
    event loop, in s.
    """

    def __init__(self, rate: float | None, *, burst: float = _BURST) -> None:
        self._burst = burst
        self._whole_gap = 1 / rate if rate else 0.0
        self.gap: float = self._whole_gap
        self.due: float = -inf

    def share(self, processes: int) -> None:
        """Start at the part of the rate that is left for each of so many *processes*."""
        self.gap = self._whole_gap * processes

    def hold(self, until: float) -> None:
        """Prevent starts before *until*."""
        self.due = max(self.due, until)

    def wait(self, now: float) -> float:
        """Return for how many seconds from *now* nothing may start."""
        return max(0.0, self.due - now)

    def free(self, now: float) -> int:
        """Return how many may start *now*. There must be a rate."""
        return max(0, floor((now - self._begin(now)) / self.gap) + 1)

    def use(self, number: int, now: float) -> None:
        """Count so many that start *now*, or as soon as they may."""
        if self.gap:
            self.due = self._begin(now) + number * self.gap

    def _begin(self, now: float) -> float:
        return max(self.due, now - self._burst)


class SharedPace:
    """The pace of new writes, *rate* a second, divided among as many processes as *members* returns."""

    def __init__(self, rate: float, members: Callable[[], int]) -> None:
        self._pace = Pace(rate)
        self._members = members

    def wait_for_start(self, now: float) -> float:
        """Count a start, and return for how many seconds from *now* to wait for it."""
        pace = self._pace
        pace.share(self._members())
        seconds = pace.wait(now)
        pace.use(1, now)
        return seconds
