"""
An event loop whose clock jumps to the next timer when nothing is left to do, with real sockets.

Sockets are polled for real first, so a settle window of 15 s costs nothing, and no answer is overtaken.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

TURN = 0.0003  # s of virtual time that one turn of the loop takes: a request takes some milliseconds
_START = 1000.0  # s: when a loop begins
_EPOCH = 1_700_000_000.0  # s: the service's time of day then
LOOK = 0.001  # s of real time for which sockets are waited for at a time
_LOOKS = 20  # looks after which a request in flight counts as one that never arrives
_STUCK_AFTER = 60.0  # s of real time without anything to do


def _descriptor(event: Any) -> int:  # Any: a key and its mask
    return event[0].fd


class JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # depends on the system
    """A selector that waits for sockets only while something real is under way, and else lets time jump."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _START
        self.jumps = 0
        self.in_flight: Callable[[], bool] = lambda: False
        self.give_up: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; if nothing is, move the clock by *timeout*."""
        self.now += TURN
        found = super().select(0)
        if not found and timeout != 0:
            found = super().select(0) or self._wait(timeout)
        return sorted(
            found, key=_descriptor
        )  # the kernel's order depends on the moment, and a seed must repeat

    def _wait(self, timeout: float | None) -> list[Any]:
        looks = 0
        while timeout is None or self.in_flight():
            if found := super().select(LOOK):
                return found
            looks += 1
            if timeout is None and looks * LOOK > _STUCK_AFTER:
                raise RuntimeError(
                    "the loop has nothing to do for a minute of real time"
                )
            if timeout is not None and looks >= _LOOKS:
                self.give_up()
        self.jumps += 1
        self.now += timeout or 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time; nothing of it may run in a thread, which time would overtake."""

    def __init__(self) -> None:
        self.clockwork = JumpingSelector()
        super().__init__(self.clockwork)
        self._stamp = 0.0

    def time(self) -> float:
        return self.clockwork.now

    def stamp(self) -> float:
        """Return the virtual time, s, in a form in which no two calls return the same."""
        self._stamp = max(self.clockwork.now, self._stamp + 1e-8)
        return self._stamp

    def wall(self) -> float:
        """Return the time of day, s."""
        return _EPOCH + self.clockwork.now


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run *main* to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(loop))
