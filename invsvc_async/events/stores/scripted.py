"""What the stores on SQLite and PostgreSQL have in common: each of their methods runs a script."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.events.stores import (
    Backlog,
    Delivery,
    Entry,
    Standing,
    State,
    StateStats,
    StoredEvent,
    scripts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from invsvc_async.storage.dialect import Script

__all__ = ["ScriptedStore", "in_slices"]

T = TypeVar("T")

_FIRST: Final = 20  # rows of the first slice
_LEAST: Final = 10  # rows of any: on a slow disk, a commit takes its time whatever is in it
_MOST: Final = 2_000  # rows of any: on PostgreSQL, a statement must end within its time limit


class ScriptedStore:
    """A ``HandlerStore`` whose operations are scripts."""

    async def _ask(self, script: Callable[[], Script[T]], *, together: bool = False) -> T:
        """Run a new *script*, *together* in one transaction, or each statement perhaps in its own."""
        raise NotImplementedError

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        """Run a new *script* that only reads."""
        raise NotImplementedError

    async def _in_slices(self, script: Callable[[int], Script[int]]) -> int:
        """Repeat a *script* on so many rows while there are more; return how many it has changed."""
        raise NotImplementedError

    async def _put(self, delivery: Delivery) -> bool | None:
        """Store a delivery with those that wait, by ``scripts.PUT``; return its result."""
        raise NotImplementedError

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        """Store a delivery to be handled, also for other handlers; ``False`` if its key is known."""
        if not further and delivery.ordering_key is None and delivery.body is not None:
            new = await self._put(delivery)
            if new is not None:
                return bool(new)
        return await self._ask(lambda: scripts.put(delivery, further), together=True)

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Store a delivery or a leased entry as a dead letter; ``False`` if the lease was lost."""
        if isinstance(found, Entry):
            return await self._end(scripts.BURIED, found, reason)
        return await self._ask(lambda: scripts.bury(found, reason))

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Store a delivery and lease it at once; also lease a known one whose lease ran out."""
        return await self._ask(lambda: scripts.claim(delivery, lease))

    async def take(self, *, limit: int, lease: float, handlers: Collection[str] | None = None) -> list[Entry]:
        """Lease deliveries that are due and have a body, oldest first: all, or those for *handlers*."""
        return await self._ask(lambda: scripts.take(limit, lease, handlers))

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        """Mark it as handled, and keep only *body* of it; ``False`` if the lease was lost."""
        return await self._end(scripts.HANDLED, entry, body)

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """End the lease, so that it is due after *delay*; ``False`` if the lease was lost."""
        return await self._ask(lambda: scripts.release(entry, delay))

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        """End the lease and store the event for handlers; ``False`` if the lease was lost."""
        return await self._ask(lambda: scripts.assign(entry, deliveries), together=True)

    async def give(self, event: StoredEvent, handler: str) -> bool:
        """Store a copy of *event* for one more handler; ``False`` if that one has had it, or it cannot be."""
        return await self._ask(lambda: scripts.give(event, handler), together=True)

    async def events(
        self, *, state: State | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredEvent]:
        """Return events in one state, or in any, by ascending id, from beyond the id *after*."""
        return await self._read(lambda: scripts.events(state, after, limit))

    async def dead_letters(self, *, limit: int = 100) -> list[StoredEvent]:
        """Return the first dead letters."""
        return await self.events(state="dead", limit=limit)

    async def revive(self, event: StoredEvent) -> bool:
        """Make a dead letter, or a handled event whose body was kept, due again."""
        return await self._ask(lambda: scripts.revive(event))

    async def drop(self, event: StoredEvent) -> bool:
        """Delete the body of an event that nobody is to handle any more; its key stays."""
        return await self._ask(lambda: scripts.drop(event), together=True)

    async def counts(self) -> dict[str, int]:
        """Return the number of deliveries by state, as ``stats`` does: ``open``, ``handled``, ``dead``."""
        return {state: found.count for state, found in (await self.stats()).items()}

    async def stats(self) -> dict[State, StateStats]:
        """Return the number and the oldest of the events in each state, at most 100,000."""
        return await self._read(scripts.stats)

    async def backlog(self) -> Backlog:
        """Return what waits now."""
        return await self._read(scripts.backlog)

    async def prune(
        self, *, older_than: float, bodies: float | None = None, dead: float | None = None
    ) -> int:
        """Delete what was handled longer ago; such an event would be handled again if it came again."""
        after = 0

        def some_dead(rows: int) -> Script[int]:
            nonlocal after
            seen, after = yield from scripts.prune_dead(dead or 0.0, after, rows)
            return seen

        pruned = 0
        for what, age in (("claims", older_than), ("bodies", bodies), ("handled", older_than)):
            if age is not None:
                pruned = await self._in_slices(partial(scripts.prune, scripts.OLD[what], age))
        if dead is not None:
            await self._in_slices(some_dead)
        return pruned

    async def _end(self, text: str, entry: Entry, *values: object) -> bool:
        ordered = entry.ordering_key is not None
        return await self._ask(lambda: scripts.end(text, entry, *values), together=ordered)


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
