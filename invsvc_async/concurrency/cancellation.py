"""Cancellation: of a task where an error may have taken its place, of a wait, and of who awaits a future."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


T = TypeVar("T")


def cancellations() -> int:
    """Return how often the running task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def raise_if_cancelled(before: int = 0) -> None:
    """
    Raise ``CancelledError`` if the running task was asked to end, more often than *before*.

    A loop that survives errors must call this after each: a cleanup may raise another error in place of the
    ``CancelledError``, and nothing cancels the task again.
    """
    if cancellations() > before:
        raise asyncio.CancelledError


async def until_ended(tasks: Collection[asyncio.Task[Any]], hurry: Callable[[], object]) -> None:
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


def settle(future: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    """Set the *error* of *future*, or its *result*; its waiter may have been cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()  # mark it as retrieved, so that asyncio does not log it
