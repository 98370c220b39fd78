"""Long work on a store in short transactions, so that deliveries need not wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["in_slices"]

_FIRST: Final = 20  # rows of the first slice
_LEAST: Final = 10  # rows of any: on a slow disk, a commit takes its time whatever is in it
_MOST: Final = 2_000  # rows of any: on PostgreSQL, a statement must end within its time limit


async def in_slices(work: Callable[[int], Awaitable[int]], *, seconds: float) -> int:
    """
    Call *work* with a number of rows until it has changed fewer than that; return how many it has changed.

    The number adapts, so that a slice takes about *seconds* with its commit, however slow the disk is.  As
    long a pause follows each, in which others use the store.
    """
    loop = asyncio.get_running_loop()
    rows, done = _FIRST, 0
    while True:
        started = loop.time()
        changed = await work(rows)
        took = max(loop.time() - started, 1e-6)
        done += changed
        if changed < rows:
            return done
        rows = max(_LEAST, min(_MOST, 2 * rows, int(rows * seconds / took)))
        await asyncio.sleep(took)
