"""Timeouts for a block of code, at a third of the cost of ``asyncio.timeout_at``, and for an event."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Deadline", "set_within"]


class Deadline:
    """
    A context manager that raises ``TimeoutError`` in its block at *deadline*.

    *deadline* is in seconds on the clock of *loop*; ``inf`` needs no timer.  :meth:`expire` ends the block
    at once.  A cancellation from elsewhere is passed on unchanged.
    """

    __slots__ = ("_before", "_deadline", "_expired", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self._loop = loop
        self._deadline = deadline
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task(self._loop)
        assert task is not None  # only coroutines use this
        self._task: asyncio.Task[object] | None = task
        self._before = task.cancelling()
        self._timer = None if self._deadline == inf else self._loop.call_at(self._deadline, self.expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and task is not None:
            alone = task.uncancel() <= self._before
            if alone and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def expire(self) -> None:
        """End the block now, as if the deadline had passed."""
        if self._task is not None and not self._expired:
            self._expired = True
            self._task.cancel()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """
    Wait for *event*, at most for *seconds*; return whether it is set.

    Not with ``wait_for``: on Python 3.11, it loses a cancellation that arrives as the event is set.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
