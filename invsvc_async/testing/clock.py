"""A clock for tests whose time passes only while all tasks sleep."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class VirtualClock:
    """
    Clock for ``Client(clock=…)``: settle windows, backoff and pauses pass at once, in order.

    ``now()`` is in seconds.  A sleeper wakes when the event loop has had nothing else to do for a few
    iterations.  Do not use it with real sockets: time would pass before their answers arrive.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._waking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time by *seconds*."""
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
            for _ in range(10):  # let all runnable tasks run first
                await asyncio.sleep(0)
            if not self._sleepers:
                return
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, at)
                woken.set_result(None)
