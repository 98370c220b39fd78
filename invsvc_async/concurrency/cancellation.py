"""Cancellation: of a task where an error may have taken its place, of a wait, and of who awaits a future."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


T = TypeVar("T")
# s that a cancelled wait for something that must end may still take
TO_FINISH: Final = 10.0


def cancellations() -> int:
    """Return how often the running task was asked to end."""
    task = asyncio.current_task()
    if task is None:
        return 0
    return task.cancelling()


def raise_if_cancelled(before: int = 0) -> None:
    """
    Raise ``CancelledError`` if the running task was asked to end, more often than *before*.

    A loop that survives errors must call this after each: a cleanup may raise another error in place of the
    ``CancelledError``, and nothing cancels the task again.
    """
    if cancellations() > before:
        raise asyncio.CancelledError


async def until_ended(
    tasks: Collection[asyncio.Task[Any]], hurry: Callable[[], object]
) -> None:
    """
    Wait until *tasks* have ended, however often this is cancelled.

    Each time that it is, *hurry* is called. ``CancelledError`` is raised in the end.
    """  # Any: whatever they return
    cancelled = False
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            cancelled = True
            hurry()
    if cancelled:
        raise asyncio.CancelledError


async def finished(task: asyncio.Task[T]) -> T:
    """
    Return the result of *task*, which goes on if this is cancelled, however often.

    ``CancelledError`` is then raised once it has ended, or after 10 s: a disk may hang.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        until = asyncio.get_running_loop().time() + TO_FINISH
        while (
            not task.done() and (left := until - asyncio.get_running_loop().time()) > 0
        ):
            with suppress(asyncio.CancelledError):  # it is raised below
                await asyncio.wait([task], timeout=left)
        if task.done() and not task.cancelled():
            task.exception()  # mark it as retrieved, so that asyncio does not log it
        raise


def settle(
    future: asyncio.Future[T],
    result: T,
    error: BaseException | None,
) -> None:
    """Set the *error* of *future*, or its *result*; its waiter may have been cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()  # mark it as retrieved, so that asyncio does not log it
