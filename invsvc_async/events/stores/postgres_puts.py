"""Deliveries that are stored in groups: all that come while one statement runs share the next one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from invsvc_async.events.stores import scripts
from invsvc_async.storage.postgres_pool import AWAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.events.stores import Delivery
    from invsvc_async.storage.dialect import PostgresDialect
    from invsvc_async.storage.postgres_pool import Pool

__all__ = ["GroupedPuts"]

_MOST: Final = 500  # deliveries of one statement
_BYTES: Final = 8 << 20  # of their bodies, unless one is larger


class GroupedPuts:
    """``scripts.PUT`` in *dialect*, by the connections of *pool*."""

    def __init__(self, pool: Pool, dialect: PostgresDialect) -> None:
        self.pool: Pool = pool
        self._dialect = dialect
        self._waiting: list[tuple[Delivery, asyncio.Future[bool | None]]] = []
        self._running: asyncio.Task[None] | None = None

    async def put(self, delivery: Delivery) -> bool | None:
        """
        Store a delivery to be handled; ``False`` if its key is known.

        Returns ``None``, and has stored nothing, if another handler has claimed the event without a body.

        Raises:
            JournalError: The database cannot be used.
        """
        done: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, done))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="invsvc events put")
        return await done

    async def _run(self) -> None:
        group: list[tuple[Delivery, asyncio.Future[bool | None]]] = []
        try:
            while group := self._next_group():
                await self._store(group)
        finally:  # this task is cancelled if its event loop ends
            for _, done in (*group, *self._waiting):
                done.cancel()
            self._waiting.clear()

    def _next_group(self) -> list[tuple[Delivery, asyncio.Future[bool | None]]]:
        """Remove and return what one statement may store.  It can change each row only once."""
        group: list[tuple[Delivery, asyncio.Future[bool | None]]] = []
        left: list[tuple[Delivery, asyncio.Future[bool | None]]] = []
        keys: set[str] = set()
        size = 0
        for each in self._waiting:
            delivery, done = each
            if done.done():  # nobody waits for it any more
                continue
            size += len(delivery.body or b"")
            if delivery.key in keys or len(group) == _MOST or (group and size > _BYTES):
                left.append(each)
                continue
            group.append(each)
            if delivery.key is not None:
                keys.add(delivery.key)
        self._waiting = left
        return group

    async def _store(self, group: Sequence[tuple[Delivery, asyncio.Future[bool | None]]]) -> None:
        """Store a group; if a statement is refused, one by one, so that each fails only for its own error."""
        try:
            new = await self._insert([delivery for delivery, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait get it
            if len(group) > 1 and not isinstance(error.__cause__, AWAY):
                for each in group:
                    await self._store([each])
                return
            for _, done in group:
                if not done.done():
                    done.set_exception(error)
            return
        for delivery, done in group:
            if not done.done():
                done.set_result(new.get(delivery.key, False))

    async def _insert(self, deliveries: Sequence[Delivery]) -> dict[str | None, bool | None]:
        """Return the result of each key that was not known as a whole."""
        rows = [
            (each.key, each.type, each.body, each.handler, (len(deliveries) - number) / 1e6)
            for number, each in enumerate(deliveries)
        ]
        rows.sort(key=lambda row: row[0] or "")
        return dict(await self.pool.fetch(*self._dialect.translated(scripts.PUT, (rows,))))
