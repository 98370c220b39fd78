"""
Bounds of the service's clock, from the timestamps of its answers.

The timestamp of each answer lies between the send of the request and the receipt of the answer.  So the
difference between the two clocks lies in an interval, which more answers narrow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from decimal import Decimal

    from invsvc_async.reconcile.history import Bounds

KEPT = 600.0  # s: how long an answer's bounds are used (a quartz clock drifts by tens of ms in that time)
_BUCKET = 60.0
WHOLE_MS = 0.001  # timestamps are truncated to whole milliseconds
WHOLE_SECOND = 1.0  # a time of a resource that is a whole second may be truncated to it

_CUTS = (  # ms of which a time is a multiple, and by how many seconds it may have been cut
    (900_000, 90_000.0),  # to a day, of some time zone, which may have 25 hours
    (60_000, 60.0),
    (1_000, WHOLE_SECOND),
)


def cut_by(milliseconds: float | Decimal) -> float:
    """Return by how much the time of a resource may have been cut, in seconds."""
    for multiple, seconds in _CUTS:
        if milliseconds % multiple == 0:
            return seconds
    return 0.0


def bounds_of(
    stamp: int,
    started: float,
    ended: float,
) -> tuple[float, float]:
    """
    Return the bounds from one answer with *stamp* (server ms), sent at *started* and received at *ended*.
    """
    return stamp / 1000 - ended, stamp / 1000 + WHOLE_MS - started


def agree(lows_highs: list[tuple[float, float]], slack: float) -> Bounds | None:
    """Intersect bounds.  ``None`` if there are none, or if two exclude each other by more than *slack*."""
    if not lows_highs:
        return None
    from invsvc_async.reconcile.history import Bounds  # which reads do not need

    lows, highs = zip(*lows_highs, strict=True)
    low = max(lows)
    high = min(highs)
    if low - high > slack:
        return None
    return Bounds(low=min(low, high), high=max(low, high))


class ServerClock(Struct):
    """
    The tightest bounds of the last ten minutes, in constant memory and time.

    After a step of the service's clock, old and new bounds exclude each other.  Then no bounds are known
    until the old ones expire, and each write learns its own.
    """

    # Each: start, highest low, lowest high.
    _buckets: deque[tuple[float, float, float]] = field(default_factory=deque)
    # The last result of ``bounds``, its slack, and until when it is valid if nothing is learnt.
    _last: tuple[Bounds | None, float, float] = (None, -1.0, 0.0)

    def learn(
        self,
        stamp: int,
        started: float,
        ended: float,
    ) -> None:
        """Learn from an answer's *stamp* (server ms) and the local times of its send and receipt."""
        low = stamp / 1000 - ended
        high = stamp / 1000 + WHOLE_MS - started  # as `bounds_of`, without a call
        if self._buckets and ended - self._buckets[-1][0] < _BUCKET:
            begun, known_low, known_high = self._buckets[-1]
            if low > known_low or high < known_high:
                self._last = None, -1.0, 0.0
                self._buckets[-1] = (begun, max(low, known_low), min(high, known_high))
            return
        self._last = None, -1.0, 0.0
        self._buckets.append((ended, low, high))
        while self._buckets[0][0] < ended - KEPT:
            self._buckets.popleft()

    def is_steady(self, since: float, slack: float) -> bool:
        """
        Return whether the answers of after *since* (local s), and up to a minute before it, agree.

        If not, the service's clock was set meanwhile, and perhaps set back.
        """
        recent = [
            (low, high)
            for begun, low, high in self._buckets
            if begun >= since - _BUCKET
        ]
        if not recent:
            return True
        return agree(recent, slack) is not None

    def bounds(self, now: float, slack: float) -> Bounds | None:
        """Return the bounds at *now*; ``None`` if none are known, or if they exclude each other."""
        bounds, its_slack, until = self._last
        if slack == its_slack and now < until:
            return bounds
        recent = [bucket for bucket in self._buckets if bucket[0] >= now - KEPT]
        bounds = agree([(low, high) for _, low, high in recent], slack)
        until = recent[0][0] + KEPT if recent else now
        self._last = bounds, slack, until
        return bounds
