"""An outbox in PostgreSQL: transactions of the application insert entries, any number of processes send."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, cast

from invsvc_async.outbox.caller_connections import Database, run
from invsvc_async.outbox.entries import OutboxEntries, Statement, columns_of, not_there

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.postgres import PostgresStore
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore


# The lock is taken before the number, and lasts as long as the caller's transaction.  So the writes of one
# thing are numbered in the order in which their transactions commit.
_INSERT = """
WITH first AS MATERIALIZED ({lock}),
told AS MATERIALIZED (SELECT pg_notify(CAST($1 AS text), CAST($2 AS text)) AS done FROM first),
numbered AS MATERIALIZED (
    SELECT nextval('{schema}.entries_seq_seq') AS number FROM told WHERE told.done IS NOT NULL
)
INSERT INTO {schema}.entries (seq, place, key, lane, thing, digest, operation, state, common, intent)
SELECT number, number, CAST($4 AS text), CAST($3 AS bigint), CAST($5 AS text), CAST($6 AS text),
    CAST($7 AS text), 0, CAST($9 AS bigint), CAST($8 AS text)
FROM numbered ON CONFLICT (key) DO NOTHING RETURNING seq
"""
_LOCK = "SELECT pg_advisory_xact_lock(CAST($10 AS bigint)) AS done"
_NO_LOCK = "SELECT CAST($10 AS bigint) AS done"
_COMMON = """
INSERT INTO {schema}.commons (number, text) VALUES (CAST($1 AS bigint), CAST($2 AS text))
    ON CONFLICT DO NOTHING RETURNING number
"""


class PostgresOutbox(OutboxEntries):
    """The writes of an outbox in PostgreSQL."""

    database: ClassVar[Database] = "PostgreSQL"

    def __init__(self, store: Store, core: ClientCore, *, same_mode: bool) -> None:
        super().__init__(store, core, same_mode=same_mode)
        self.base: PostgresStore = cast("PostgresStore", store)

    async def insert(self, connection: object | None, new: Entry) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own."""
        # on a connection of our own, and only if it is new
        await self.base.store_commons()
        script = partial(self.enqueue, self.base.schema, new)
        if connection is None:
            return await self.base.run(script)
        return await run(connection, self.database, script())

    def find(self, core: ClientCore, new: Entry) -> Script[str]:
        """Return the schema of the outbox of *core*, and store the common part of *new* there."""
        base_url = core.base_url
        mine = core.credential.fingerprint(core.base_url) or ""
        schema = yield from self.base.find(base_url, mine, same_mode=self._same_mode)
        if schema is None:
            raise not_there(core)
        yield _COMMON.format(schema=schema), (new.common, self._common_of(new))
        return schema

    def _statements(self, place: str, new: Entry) -> tuple[Statement, Statement]:
        lane = self.lane_of(new.key, new.thing)
        text = _INSERT.format(
            schema=place, lock=_NO_LOCK if new.thing is None else _LOCK
        )
        turn = int.from_bytes(
            blake2b(f"{place} {new.thing}".encode(), digest_size=8).digest(),
            signed=True,
        )
        find = f"SELECT digest = CAST($2 AS text) FROM {place}.entries WHERE key = CAST($1 AS text)"
        values = place, str(lane), lane, *columns_of(new), new.common, turn
        return (text, values), (find, (new.key, new.digest))
