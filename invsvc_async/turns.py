"""
Let creates of one address take turns, and let those that wait for the same list share it; never the network.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable

    from invsvc_async.clock import Clock

__all__ = ["Listings", "Turn", "Turns"]


class Turn:
    """One place in line.  ``free_at``: local s before which the next one may not send."""

    def __init__(self) -> None:
        self.free_at: float = -inf
        self.waiting = 0
        self.lock: asyncio.Lock = asyncio.Lock()


class Turns:
    """Lines of writes that must not be under way at the same time."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, Turn] = {}

    @asynccontextmanager
    async def turn(
        self, line: Hashable, clock: Clock, pause: Callable[[float], Awaitable[bool]]
    ) -> AsyncGenerator[Turn]:
        """
        Wait for one's turn, as long as *pause* says that it was no shorter than asked; who holds it sets
        ``free_at`` if the next must wait beyond its end.
        """
        turn = self._lines.setdefault(line, Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                while (left := turn.free_at - clock.now()) > 0 and await pause(left):
                    pass
                yield turn
        finally:
            turn.waiting -= 1
            self._forget(line, turn, clock)

    def _forget(self, line: Hashable, turn: Turn, clock: Clock) -> None:
        if not turn.waiting and turn.free_at <= clock.now():
            self._lines.pop(line, None)
        if len(self._lines) > 1000:
            now = clock.now()
            stale = [each for each, kept in self._lines.items() if not kept.waiting and kept.free_at <= now]
            for each in stale:
                del self._lines[each]


class _Listing:
    def __init__(self, task: asyncio.Task[Any]) -> None:  # Any: whatever is fetched
        self.task = task
        self.waiting = 0


class Listings:
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
