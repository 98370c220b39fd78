"""The monotonic clock of the machine, and a protocol for clocks that replace it in tests."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


def _steady_clock() -> Callable[[], float]:
    """
    Return the monotonic clock that counts the time for which the machine sleeps, if the system has one.

    Settle windows and proofs must keep ageing while a laptop sleeps.  On Linux and macOS, ``time.monotonic``
    stands still then; on Windows it goes on.
    """
    if sys.platform == "win32":
        return time.monotonic
    else:  # noqa: RET505 - type checkers skip this branch on Windows
        name = "CLOCK_MONOTONIC_RAW" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
        number: int | None = getattr(time, name, None)
        if number is None:
            return time.monotonic
        return partial(time.clock_gettime, number)


_steady: Callable[[], float] = _steady_clock()


class Clock(Protocol):
    """The source of all times of the package, in seconds.  Tests pass their own."""

    def now(self) -> float:
        """Return the monotonic time.  Only differences are meaningful."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        ...


class SystemClock:
    """The machine's monotonic clock.  It includes time asleep if the system has such a clock."""

    # a function of C: a call asks five times
    now: staticmethod[[], float] = staticmethod(_steady)

    async def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        await asyncio.sleep(seconds)
