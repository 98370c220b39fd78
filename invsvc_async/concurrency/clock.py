"""Tell this machine's steady time and let time pass; never the time of day, which can step."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Protocol

__all__ = ["Clock", "SystemClock"]

# Windows and proofs must go on ageing while a laptop sleeps: Linux has a clock that counts that.
_steady = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Clock(Protocol):
    """Where all times of the package come from, in seconds, so that tests can hand in their own."""

    def now(self) -> float:
        """Tell the steady time; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass."""
        ...


class SystemClock:
    """The machine's own clock, which counts time asleep where the system has such a clock."""

    def now(self) -> float:
        """Tell the steady time; only differences mean anything."""
        return _steady()

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass."""
        await asyncio.sleep(seconds)
