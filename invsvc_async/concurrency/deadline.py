"""Timeouts for blocks of code, at a third of the cost of ``asyncio.timeout_at``, and for an event."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import Self


class Deadline:
    """
    A context manager that raises ``TimeoutError`` in its block at *deadline*.

    *deadline* is in seconds on the clock of *loop*; ``inf`` needs no timer.  :meth:`expire` ends the block
    at once.  A cancellation from elsewhere is passed on unchanged.  *shared* has a timer for many.
    """

    __slots__ = (
        "_before",
        "_expired",
        "_loop",
        "_shared",
        "_timer",
        "deadline",
        "task",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadline: float,
        shared: Deadlines | None = None,
    ) -> None:
        self._loop = loop
        self.deadline: float = deadline
        self._shared = shared
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task(self._loop)
        assert task is not None  # only coroutines use this
        self.task: asyncio.Task[object] | None = task  # until the block ends
        self._before = task.cancelling()
        if (shared := self._shared) is not None:
            shared.open.add(self)
            if self.deadline < shared.timer_at:
                shared.set_timer(self.deadline)
        elif self.deadline == inf:
            self._timer = None
        else:
            self._timer = self._loop.call_at(self.deadline, self.expire)
        return self

    def end(self) -> None:
        """Cancel the deadline.  The block's end does so, unless a signal handler has raised just then."""
        self.task = None
        if self._shared is not None:
            self._shared.open.discard(self)
        elif self._timer is not None:
            self._timer.cancel()

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        _trace: object,
    ) -> None:
        task = self.task
        self.end()
        if self._expired and task is not None:
            alone = task.uncancel() <= self._before
            if alone and kind is asyncio.CancelledError:
                raise TimeoutError from error

    @property
    def has_expired(self) -> bool:
        """Whether it has ended its block, or is about to."""
        return self._expired

    def expire(self) -> None:
        """End the block now, as if the deadline had passed."""
        if self.task is not None and not self._expired:
            self._expired = True
            self.task.cancel()


class Deadlines:
    """
    One timer for the deadlines of many blocks in *loop*: most end before, and then it need not be set again.

    After an outage, thousands may end one by one, and each look goes through all of them.  So *every* is the
    shortest time between two looks, in seconds: how late a deadline may be noticed.

    ``open`` has the blocks that have not ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, every: float = 0.0) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._every = every
        self.open: set[Deadline] = set()
        self.timer_at: float = inf
        self._timer: asyncio.TimerHandle | None = None

    def set_timer(self, when: float) -> None:
        """Look for blocks whose deadline has passed at *when*, and not at another time."""
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at = when
        self._timer = None if when == inf else self.loop.call_at(when, self._expire_due)

    def end_within(self, seconds: float) -> None:
        """Shorten the deadlines of all open blocks to at most *seconds* from now."""
        until = self.loop.time() + seconds
        for block in self.open:
            block.deadline = min(block.deadline, until)
        if self.open:
            self.set_timer(min(until, self.timer_at))

    def _expire_due(self) -> None:
        now = self.loop.time()
        self._timer = None
        due = [block for block in self.open if block.deadline <= now]
        self.open.difference_update(due)
        for block in due:
            block.expire()
        self.set_timer(
            max(
                min((block.deadline for block in self.open), default=inf),
                now + self._every,
            )
        )


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """
    Wait for *event*, at most for *seconds*; return whether it is set.

    Not with ``wait_for``: on Python 3.11, it loses a cancellation that arrives as the event is set.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
