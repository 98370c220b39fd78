"""
The one harness of virtual time: event loops on real sockets whose time the machine does not set, and their clocks.

Three loops differ in when time passes:

- `VirtualTimeLoop`: in small steps, once nothing happens. Most tests with faults; `loop_factories` gives it to them.
- `SteadyLoop`: as the machine's, but only while the process waits. Tests that wait for a database or for threads.
- `JumpingLoop`: at once to the next timer, and not while something is on its way. Soaks of whole days, which a seed
  repeats.

A loop without sockets, on which a schedule chooses which task runs next, is another thing: `ScriptedLoop` of
`tests/interleavings`. Its clocks are these.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from invsvc_async.simulator.state import ServiceClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest

__all__ = [
    "TURN",
    "VIRTUAL_FOLDERS",
    "HandClock",
    "JumpingLoop",
    "LoopClock",
    "SteadyLoop",
    "VirtualTimeLoop",
    "loop_factories",
    "run_jumping",
    "service_clock",
]

T = TypeVar("T")

TESTS = Path(__file__).parents[1]
VIRTUAL_FOLDERS = ("faults", "reads", "transport", "writes")

# s that one turn of a jumping loop takes: a request takes some milliseconds
TURN = 0.0003
_LOOK = 0.001  # real s for which the sockets are watched before time advances
_STEP = 0.05  # s by which it then advances at most: a packet delayed by 6 ms is no timeout of 0.3 s
_TICK = 0.00005  # s by which it advances at each turn of the loop
_LOOKS = 20  # after which what is on its way counts as what never arrives
_STUCK_AFTER = 60.0  # real s without anything to do
_START = 1_000.0  # s: when a loop begins
_EPOCH = 1_780_000_000.0  # s: time of day at the virtual time 0


class Clockwork(selectors.DefaultSelector):
    """Selector of a loop, which advances its time."""

    tick: ClassVar[float] = _TICK

    def __init__(self) -> None:
        super().__init__()
        self.now = _START

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the sockets that are ready; if none is, let time pass."""
        self.now += self.tick
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready: list[Any] = super().select(_LOOK)
        if not ready:
            self.now += min(timeout, self.passed())
        return ready

    def passed(self) -> float:
        """
        Return for how many seconds nothing happened.

        With threads besides the main one (a journal's writer), whose work the loop cannot see, that takes as
        long as in real time.
        """
        return _STEP if threading.active_count() == 1 else _LOOK


class SteadyClockwork(Clockwork):
    """Selector whose time passes as the machine's while the process waits."""

    def passed(self) -> float:
        """Return for how many seconds the process waited."""
        return _LOOK


class JumpingClockwork(Clockwork):
    """Selector that waits for sockets only while something is on its way, and else lets time jump."""

    tick = TURN

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: Callable[[], bool] = lambda: False
        self.give_up: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; if nothing is, move the clock by *timeout*."""
        self.now += self.tick
        found = self._ready(0)
        if not found and timeout != 0:
            found = self._ready(0) or self._wait(timeout)
        return sorted(
            found, key=_descriptor
        )  # the kernel's order depends on the moment, and a seed must repeat

    def _ready(self, seconds: float) -> list[Any]:
        return selectors.DefaultSelector.select(self, seconds)

    def _wait(self, timeout: float | None) -> list[Any]:
        looks = 0
        while timeout is None or self.in_flight():
            if found := self._ready(_LOOK):
                return found
            looks += 1
            if timeout is None and looks * _LOOK > _STUCK_AFTER:
                raise RuntimeError(
                    "the loop has nothing to do for a minute of real time"
                )
            if timeout is not None and looks >= _LOOKS:
                self.give_up()
        self.now += timeout or 0.0
        return []


def _descriptor(event: Any) -> int:  # Any: a key and its mask
    return event[0].fd


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """
    Loop whose ``time()`` advances only when no socket is ready and no task can run.

    So a busy machine, which makes everything slow, makes no timeout expire.
    """

    kind: ClassVar[type[Clockwork]] = Clockwork

    def __init__(self) -> None:
        self.clockwork = self.kind()
        super().__init__(self.clockwork)

    def time(self) -> float:
        return self.clockwork.now

    def wall(self) -> float:
        """Return the time of day, s."""
        return _EPOCH + self.time()


class SteadyLoop(VirtualTimeLoop):
    """Loop whose time advances as the machine's, but only while this process waits for something, as for a database."""

    kind = SteadyClockwork


class JumpingLoop(VirtualTimeLoop):
    """Loop whose clock jumps to the next timer; nothing of it may run in a thread, which time would overtake."""

    kind = JumpingClockwork
    clockwork: JumpingClockwork

    def __init__(self) -> None:
        super().__init__()
        self._stamp = 0.0

    def stamp(self) -> float:
        """Return the virtual time, s, in a form in which no two calls return the same."""
        self._stamp = max(self.clockwork.now, self._stamp + 1e-8)
        return self._stamp


def run_jumping(main: Callable[[JumpingLoop], Coroutine[Any, Any, T]]) -> T:
    """Run *main* to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, JumpingLoop)
        return runner.run(main(loop))


def loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """
    Return the loop of a test, by its markers and its folder.

    Those that run in virtual time by their folder run on uvloop where the environment asks for it.
    """
    is_by_folder = item.path.relative_to(TESTS).parts[0] in VIRTUAL_FOLDERS
    if is_by_folder and os.environ.get("INVSVC_TEST_LOOP") == "uvloop":
        import uvloop

        return {"uvloop": uvloop.new_event_loop}
    if item.get_closest_marker("real_time"):
        return {"asyncio": asyncio.new_event_loop}
    if item.get_closest_marker("steady_time"):
        return {"asyncio": SteadyLoop}
    if is_by_folder or item.get_closest_marker("loop_time"):
        return {"asyncio": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}


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
