"""One fetch shared by all callers that wait for the same thing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable


class _Fetch:
    task: asyncio.Task[Any]  # Any: whatever is fetched

    def __init__(self) -> None:
        self.waiting = 0


class SingleFlight:
    """
    Share a fetch among all callers that ask before the fetch begins.

    No caller receives a result whose fetch began before the call.  At most one fetch of each thing runs at a
    time.
    """

    def __init__(self) -> None:
        self._next: dict[Hashable, _Fetch] = {}
        self._under_way: dict[Hashable, asyncio.Lock] = {}

    # Any: as fetched
    async def share(self, what: Hashable, fetch: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of a *fetch* that begins after this call. Callers who wait share the result."""
        flight = self._next.get(what)
        # a signal handler may have ended it before it began
        if flight is None or flight.task.done():
            # before its task: it may begin at once
            flight = self._next[what] = _Fetch()
            flight.task = asyncio.create_task(self._run(what, fetch))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                if self._next.get(what) is flight:
                    del self._next[what]
                flight.task.cancel()

    async def _run(self, what: Hashable, fetch: Callable[[], Awaitable[Any]]) -> Any:
        lock = self._under_way.setdefault(what, asyncio.Lock())
        async with lock:
            self._next.pop(what, None)  # it begins now
            try:
                return await fetch()
            finally:
                if what not in self._next:  # nobody waits for the lock
                    del self._under_way[what]
