"""Waiting for what nothing tells, for nothing at all, and for what was cancelled."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["block_until", "cancel", "forever", "until", "until_no"]

_EVERY = 0.01  # s between two looks
_WITHIN = 300.0  # s: longer than a busy machine needs for anything


async def until(
    condition: Callable[[], Any], *, every: float = _EVERY, within: float = _WITHIN
) -> Any:
    """Wait until *condition*, which may have to be awaited, returns something true; return that."""
    async with asyncio.timeout(within):
        while not (found := await _now(condition)):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(every)  # sleeps: between two looks, for all tests
    return found


async def until_no(
    condition: Callable[[], Any], *, every: float = _EVERY, within: float = _WITHIN
) -> None:
    """Wait until *condition* returns nothing that is true."""

    async def is_over() -> bool:
        return not await _now(condition)

    await until(is_over, every=every, within=within)


async def _now(condition: Callable[[], Any]) -> Any:
    found = condition()
    return await found if inspect.isawaitable(found) else found


def block_until(
    condition: Callable[[], Any], *, every: float = _EVERY, within: float = _WITHIN
) -> Any:
    """
    Wait as :func:`until`, in a thread that has no event loop.

    Raises:
        TimeoutError: It has not become true.

    """
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError("it did not become true")
        time.sleep(every)  # sleeps: between two looks, for all tests
    return found


async def forever() -> NoReturn:
    """Wait for nothing that ever comes: until the task is cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel *tasks*, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
