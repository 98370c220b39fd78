"""How long ago the event loop was free: leases go on while something blocks it."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["LoopWatch"]

_EVERY: Final = 0.5  # s between two looks
_LATE: Final = 0.5  # s by which a look is late if something has blocked the loop


class LoopWatch:
    """
    Watch the running event loop, until ``stop``.

    ``free`` is the last time, by the loop's clock, until which nothing has blocked it.  What the caller waits
    for has not happened long before: it would have been told.  The caller sets it when it begins to wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.free: float = self._loop.time()
        self._timer = self._loop.call_later(_EVERY, self._look, self.free + _EVERY)

    def stop(self) -> None:
        """End it."""
        self._timer.cancel()

    def _look(self, expected: float) -> None:
        now = self._loop.time()
        if now - expected < _LATE:
            self.free = now
        self._timer = self._loop.call_later(_EVERY, self._look, now + _EVERY)
