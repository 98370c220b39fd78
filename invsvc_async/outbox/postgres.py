"""An outbox in PostgreSQL: transactions of the application insert entries, any number of processes send."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.durable.intents import pack
from invsvc_async.durable.postgres_store import PostgresStore
from invsvc_async.durable.restored import PlaceError
from invsvc_async.outbox import caller_connections
from invsvc_async.outbox.entries import OutboxEntries
from invsvc_async.storage.postgres_pool import PATIENCE

if TYPE_CHECKING:
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import ClientState

__all__ = ["PostgresOutbox"]

# The lock is taken before the number, and lasts as long as the caller's transaction.  So the writes of one
# thing are numbered in the order in which their transactions commit.
LANES = 64
_INSERT = """
WITH first AS MATERIALIZED ({lock}),
told AS MATERIALIZED (SELECT pg_notify(CAST($1 AS text), CAST($2 AS text)) AS done FROM first),
numbered AS MATERIALIZED (
    SELECT nextval('{schema}.entries_seq_seq') AS number FROM told WHERE told.done IS NOT NULL
)
INSERT INTO {schema}.entries (seq, place, key, lane, thing, digest, operation, state, common, intent)
SELECT number, number, CAST($3 AS text), CAST($4 AS bigint), CAST($5 AS text), CAST($6 AS text),
    CAST($7 AS text), 0, CAST($8 AS bigint), CAST($9 AS text)
FROM numbered ON CONFLICT (key) DO NOTHING RETURNING seq
"""
_LOCK = "SELECT pg_advisory_xact_lock(CAST($10 AS bigint)) AS done"
_NO_LOCK = "SELECT CAST($10 AS bigint) AS done"
# Of each place, because a copy may contain the note of an earlier restore.
_NOTED = "copied through at "
_NOTE_LAST = """
INSERT INTO {s}facts (name, value) SELECT {arg 1 text}, CAST(coalesce(max(seq), 0) AS text) FROM {s}entries
    WHERE true ON CONFLICT DO NOTHING
"""


class _Database(PostgresStore):
    """The database of an outbox: what is enqueued while nothing may be sent cannot have been sent."""

    async def check_place(self) -> None:
        accepted = self._restored or self._moved
        try:
            await super().check_place()
        except PlaceError:
            await self.rows(_NOTE_LAST, await self.ask(self._note))
            raise
        if accepted:
            await self.rows("DELETE FROM {s}facts WHERE name LIKE $1", f"{_NOTED}%")

    async def _last_of_copy(self, connection: Any) -> int | None:  # Any: asyncpg's
        text = f"SELECT value FROM {self.schema}.facts WHERE name = $1"  # noqa: S608 - our own text
        noted = await connection.fetchval(text, await self._note(connection))
        return None if noted is None else int(noted)

    async def _note(self, connection: Any) -> str:  # Any: as above
        """Return the name of the note of the last entry that may have been sent before this place."""
        return f"{_NOTED}{sorted((await self._place_now(connection)).items())}"


class PostgresOutbox(OutboxEntries):
    """The writes of the outbox at *address*, in PostgreSQL."""

    database: ClassVar[Database] = "PostgreSQL"
    def __init__(
        self, address: str, *, create: bool = True, restored: bool = False, moved: bool = False
    ) -> None:
        self._base = _Database(
            address,
            "outbox",
            it="the outbox",
            lanes=LANES,
            create=create,
            restored=restored,
            moved=moved,
        )
        super().__init__(LANES)

    @property
    def store(self) -> PostgresStore:
        """What has its entries."""
        return self._base

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """Open it, for the base URL and credential of *session*."""
        await self.store.open_for(session, same_mode=same_mode)

    async def insert(self, connection: object, intent: Intent, content: bytes, thing: str | None) -> bool:
        """Insert a write to *thing* in the transaction of *connection*; return whether its key was new."""
        packed, schema = pack(intent, self.commons), self._base.schema
        await self._base.store_commons()  # on a connection of our own, and only if it is new
        lane = self.lane_of(intent.key, thing)
        text = _INSERT.format(schema=schema, lock=_NO_LOCK if thing is None else _LOCK)
        values = (
            schema, str(lane), intent.key, lane, thing, content.hex(), intent.operation, packed.common,
            packed.text, _number(f"{schema} {thing}"),
        )  # fmt: skip
        return await caller_connections.first_row(connection, text, values) is not None

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the entry of *key*, as the transaction of *connection* sees it."""
        text = f"SELECT digest FROM {self._base.schema}.entries WHERE key = CAST($1 AS text)"  # noqa: S608 - our own text
        row = await caller_connections.first_row(connection, text, (key,))
        return None if row is None else bytes.fromhex(row[0])

    # --- sending

    async def begin_sending(self) -> None:
        """Check the place of the database, and send in no other one from now on."""
        self._base.patience = PATIENCE
        await super().begin_sending()


def _number(text: str) -> int:
    """Return a number of 64 bits for *text*."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
