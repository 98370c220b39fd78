"""The monotonic clock of the machine, and a protocol for clocks that replace it in tests."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


# Settle windows and proofs must keep ageing while a laptop sleeps.  CLOCK_BOOTTIME counts that time (Linux).
_steady: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


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
