"""Share one fetch among all callers that wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable


__all__ = ["SingleFlight"]


class _Listing:
    def __init__(self, task: asyncio.Task[Any]) -> None:  # Any: whatever is fetched
        self.task = task
        self.waiting = 0


class SingleFlight:
    """
    Share a list among all who ask for it before it is begun.

    Nobody is given a list that was begun before they asked, and at most one of each is under way.
    """

    def __init__(self) -> None:
        self._next: dict[Hashable, _Listing] = {}
        self._under_way: dict[Hashable, asyncio.Lock] = {}

    async def share(
        self, what: Hashable, fetch: Callable[[], Awaitable[Any]]
    ) -> Any:  # Any: what *fetch* gives
        """Have what *fetch* gives, begun after this call; one fetch serves all who wait for it."""
        listing = self._next.get(what)
        if listing is None:
            listing = self._next[what] = _Listing(asyncio.create_task(self._run(what, fetch)))
        listing.waiting += 1
        try:
            return await asyncio.shield(listing.task)
        finally:
            listing.waiting -= 1
            if not listing.waiting and not listing.task.done():
                if self._next.get(what) is listing:
                    del self._next[what]
                listing.task.cancel()

    async def _run(self, what: Hashable, fetch: Callable[[], Awaitable[Any]]) -> Any:
        lock = self._under_way.setdefault(what, asyncio.Lock())
        async with lock:
            self._next.pop(what, None)  # from here on, it is begun
            try:
                return await fetch()
            finally:
                if what not in self._next:  # whoever waits for the lock stands there
                    del self._under_way[what]
