"""
Be a clock whose time passes only when everybody sleeps; never wait for real.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

__all__ = ["VirtualClock"]


class VirtualClock:
    """
    Hand it to ``Client(clock=…)``: settle windows, backoff and pauses pass at once, in their order.

    ``now()`` is in seconds.  A sleeper is woken when the loop has had nothing else to do for a few turns, so
    do not use it with real sockets, whose answers it would overtake.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._waking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Tell the virtual time, s."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep until the virtual time is *seconds* later."""
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())
        await woken

    async def _wake(self) -> None:
        while self._sleepers:
            for _ in range(10):  # whoever can run does so first
                await asyncio.sleep(0)
            if not self._sleepers:
                return
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, at)
                woken.set_result(None)
