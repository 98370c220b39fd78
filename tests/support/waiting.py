"""Waiting for what nothing tells, and for what was cancelled."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cancel", "until", "until_no"]


async def until(
    condition: Callable[[], Any], *, every: float = 0.01, within: float = 300.0
) -> Any:
    """Wait until *condition*, which may have to be awaited, returns something true; return that."""
    async with asyncio.timeout(within):
        while not (found := await _now(condition)):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(every)
    return found


async def until_no(
    condition: Callable[[], Any], *, every: float = 0.01, within: float = 300.0
) -> None:
    """Wait until *condition* returns nothing that is true."""
    async with asyncio.timeout(within):
        while await _now(condition):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(every)


async def _now(condition: Callable[[], Any]) -> Any:
    found = condition()
    return await found if inspect.isawaitable(found) else found


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel *tasks*, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
