"""An outbox in PostgreSQL: transactions of the application insert entries, any number of processes send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from invsvc_async.durable.store.enqueued import (
    common_into,
    compared_in,
    insert_into,
    lock_things,
)
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.outbox.caller_connections import Database, run
from invsvc_async.outbox.enqueuing import Enqueuing, not_there, too_old_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.enqueued import Statement
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.postgres import PostgresStore
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore


class PostgresEnqueuing(Enqueuing):
    """The enqueueing of writes in PostgreSQL, where transactions of the application insert entries."""

    database: ClassVar[Database] = "PostgreSQL"

    def __init__(self, store: Store, *, same_mode: bool) -> None:
        super().__init__(store)
        self._base: PostgresStore = cast("PostgresStore", store)
        self._same_mode = same_mode

    async def insert(self, connection: object | None, new: Entry) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own."""
        # on a connection of our own, and only if it is new
        await self._base.store_commons()
        script = partial(self.enqueue, self._base.schema, new)
        if connection is None:
            return await self._base.run(script)
        return await run(connection, self.database, script())

    def find(self, core: ClientCore, new: Entry) -> Script[str]:
        """Return the schema of the outbox of *core*, and store the common part of *new* there."""
        base_url = core.base_url
        mine = core.credential.fingerprint(core.base_url) or ""
        schema = yield from self._base.schemas.find(
            base_url, mine, same_mode=self._same_mode
        )
        if schema is None:
            raise not_there(core)
        if lacking := (yield common_into(schema, new, self.common_of(new))):
            raise too_old_for(name for (name,) in lacking)
        return schema

    def lock_things(self, keys: Sequence[str]) -> Script[None]:
        """Lock what the entries of *keys* write to, until the transactions that enqueue to it have ended."""
        return lock_things(self._base.schema, keys)

    def statements(self, place: str, new: Entry) -> tuple[Statement, Statement]:
        """Return statements that insert *new* at *place*, or compare *new* with the entry there."""
        lane = lane_for(new.key, new.thing, self.store.how.lanes)
        return insert_into(place, new, lane), compared_in(place, new)
