"""A rate: starts that are spread evenly over time, by one process or divided among several."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST = 0.05  # s of delay that may be made up for, because timers are not exact


class Pace:
    """
    The pace of starts, *rate* a second; ``None`` is any.

    ``gap`` is the time between two starts, and ``due`` when the next may begin, in s of the event loop.
    """

    def __init__(self, rate: float | None) -> None:
        self._whole_gap = 1 / rate if rate else 0.0
        self.gap: float = self._whole_gap
        self.due: float = 0.0

    def share(self, processes: int) -> None:
        """Start at the part of the rate that is left for each of so many *processes*."""
        self.gap = self._whole_gap * processes

    def hold(self, until: float) -> None:
        """Let nothing start before *until*."""
        self.due = max(self.due, until)

    def take(self, now: float) -> float:
        """Reserve the next start, and return when it may begin."""
        due = self.due
        if self.gap:
            due = max(due, now - _BURST)
            self.due = due + self.gap
        return due


class SharedPace:
    """The pace of new writes, *rate* a second, divided among as many processes as *members* returns."""

    def __init__(self, rate: float, members: Callable[[], int]) -> None:
        self._pace = Pace(rate)
        self._members = members

    def wait_for_start(self, now: float) -> float:
        """Reserve the next start, and return for how many seconds from *now* to wait for it."""
        self._pace.share(self._members())
        return self._pace.take(now) - now


def check_rate(rate: object) -> None:
    """
    Check a rate.

    Raises:
        ConfigurationError: It is no positive number.
    """
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    if rate is not None and not (is_number and 0 < rate < inf):
        raise ConfigurationError(
            f"rate: must be a number of sends per second above 0, not {rate!r}"
        )
