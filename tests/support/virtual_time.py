"""An event loop for tests on real sockets, whose time passes quickly and only while nothing happens."""

from __future__ import annotations

import asyncio
import selectors
import threading

from invsvc_async.simulator.state import ServiceClock

__all__ = ["HandClock", "LoopClock", "SteadyLoop", "VirtualTimeLoop", "service_clock"]

_LOOK = 0.001  # real s for which the sockets are watched before time advances
_STEP = 0.05  # s by which it then advances at most: a packet delayed by 6 ms is no timeout of 0.3 s
_TICK = 0.00005  # s by which it advances at each turn of the loop
_START = 1_000.0
_EPOCH = 1_780_000_000.0  # s: time of day at the virtual time 0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """
    Loop whose ``time()`` advances only when no socket is ready and no task can run.

    So a busy machine, which makes everything slow, makes no timeout expire. With threads besides the main one
    (a journal's writer), whose work the loop cannot see, waiting takes as long as in real time.
    """

    def __init__(self) -> None:
        self._now = _START
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def advance(self, most: float, waited: float) -> None:
        """Advance the time, by at most *most* seconds, after nothing happened for *waited* real seconds."""
        alone = threading.active_count() == 1
        self._now += min(most, _STEP if alone else waited)


class SteadyLoop(VirtualTimeLoop):
    """Loop whose time advances as the machine's, but only while this process waits for something, as for a database."""

    def advance(self, most: float, waited: float) -> None:
        """Advance the time by *waited* seconds."""
        self._now += min(most, waited)


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.advance(_TICK, _TICK)
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(_LOOK)
        if not ready:
            self._loop.advance(timeout, _LOOK)
        return ready


class LoopClock:
    """Clock of a client: the time of the running loop, *ahead* by some seconds, or *rate* times as fast."""

    def __init__(self, *, ahead: float = 0.0, rate: float = 1.0) -> None:
        self.ahead = ahead
        self._rate = rate

    def now(self) -> float:
        """Return the clock's time, in seconds."""
        return asyncio.get_running_loop().time() * self._rate + self.ahead

    async def sleep(self, seconds: float) -> None:
        """Wait for *seconds* of the clock's time."""
        await asyncio.sleep(seconds / self._rate)


class HandClock:
    """Clock that stands until it is set, or somebody sleeps by it."""

    def __init__(self, time: float = 1_000.0) -> None:
        self.time = time

    def now(self) -> float:
        """Return the time that was set, in seconds."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Advance the time by *seconds*, and let others run."""
        self.time += seconds
        await asyncio.sleep(0)


def service_clock() -> ServiceClock:
    """Return a clock of the simulator that follows the running loop."""
    loop = asyncio.get_running_loop()
    return ServiceClock(wall=lambda: _EPOCH + loop.time(), steady=loop.time)
