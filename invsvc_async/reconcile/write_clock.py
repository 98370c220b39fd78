"""
The service's clock beside the clock of this process, as the events of one write show it.

*Local time* (of this process, in seconds) orders the events of the history. *Server time* is in the answers,
in whole milliseconds or seconds. The difference is known only between two bounds, which each answer narrows
(``Bounds``). So a local time is a range of server times, and the reverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from propcache.api import cached_property

from invsvc_async.reconcile.history import Attempt, Bounds, Reading
from invsvc_async.reconcile.server_clock import agree, bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.reconcile.history import History
    from invsvc_async.reconcile.intent import Intent


def server_times(at: float, bounds: Bounds | None) -> tuple[float | None, float | None]:
    """Return the earliest and the latest server time (s) of the local time *at*, if there are bounds."""
    if bounds is None:
        return None, None
    return at + bounds.low, at + bounds.high


@attrs.define(slots=False)
class WriteClock:
    """
    The two clocks at the end of *history*.

    *is_resumed*: another process has sent the write, so that the bounds of the intent are by its clock.
    *slack*: by how much the clocks of the service's hosts may differ from each other, in seconds.
    """

    intent: Intent
    history: History
    is_resumed: bool
    slack: float

    @cached_property
    def bounds(self) -> Bounds | None:
        """
        Clock bounds from all answers of this process, those before the first send included.

        ``None`` if there are none, or if the service's clock was set meanwhile.
        """
        readings = [event for event in self.history if isinstance(event, Reading)]
        if not all(reading.steady for reading in readings):
            return None
        return agree([*self._all_bounds(readings)], self.slack)

    def _all_bounds(self, readings: list[Reading]) -> Iterator[tuple[float, float]]:
        """Yield the bounds of each answer, of *readings*, and of the intent."""
        for event in self.history:
            if isinstance(event, (Attempt, Reading)) and event.stamp is not None:
                yield bounds_of(event.stamp, event.started, event.ended)
        for reading in readings:
            if reading.bounds is not None:
                yield reading.bounds.low, reading.bounds.high
        # Those of the intent are by the local clock of the process that sent, which may be another one.
        at_first = self.intent.bounds
        if at_first is not None and not self.is_resumed:
            yield at_first.low, at_first.high

    def server_times(self, at: float) -> tuple[float | None, float | None]:
        """Return the earliest and the latest server time (s) of the local time *at*, as far as known."""
        return server_times(at, self.bounds)

    def local_time(self, at: float, bounds: Bounds) -> float:
        """Return the latest local time of the server time *at* (s)."""
        return at + self.slack - bounds.low

    def answered_by(self, reading: Reading) -> float | None:
        """Return the latest server time (s) of the answer; ``None`` if it is not known."""
        if reading.stamp is not None:
            return reading.stamp / 1000
        _, latest = self.server_times(reading.ended)
        return latest
