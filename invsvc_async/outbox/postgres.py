"""An outbox in PostgreSQL: transactions of the application insert entries, any number of processes send."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.durable.postgres_store import PostgresStore
from invsvc_async.durable.restored import PlaceError
from invsvc_async.outbox.caller_connections import run
from invsvc_async.outbox.entries import OutboxEntries, not_there

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.outbox.entries import NewWrite
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState

__all__ = ["LANES", "OutboxDatabase", "PostgresOutbox"]

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
_COMMON = """
INSERT INTO {schema}.commons (number, text) VALUES (CAST($1 AS bigint), CAST($2 AS text))
    ON CONFLICT DO NOTHING RETURNING number
"""
_VERDICTS = "verdicts"  # what those that wait for verdicts are told
# Of each place, because a copy may contain the note of an earlier restore.
_NOTED = "copied through at "
_NOTE_LAST = """
INSERT INTO {s}facts (name, value) SELECT {arg 1 text}, CAST(coalesce(max(seq), 0) AS text) FROM {s}entries
    WHERE true ON CONFLICT DO NOTHING
"""


class OutboxDatabase(PostgresStore):
    """The database of an outbox: what is enqueued while nothing may be sent cannot have been sent."""

    async def check_place(self) -> None:
        """Check the place before something is sent; if it is refused, note what there was before it."""
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
    """The writes of an outbox in PostgreSQL."""

    database: ClassVar[Database] = "PostgreSQL"

    def __init__(self, database: OutboxDatabase) -> None:
        super().__init__(LANES)
        self._base = database

    @property
    def store(self) -> PostgresStore:
        """What has its entries."""
        return self._base

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """Open it, for the base URL and credential of *session*."""
        await self.store.open_for(session, same_mode=same_mode)

    # --- in the transaction of the application

    async def insert(self, connection: object | None, new: NewWrite) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own."""
        await self._base.store_commons()  # on a connection of our own, and only if it is new
        script = partial(self.enqueue, self._base.schema, new)
        if connection is None:
            return await self._base.run(script)
        return await run(connection, self.database, script())

    def find(self, session: ClientState, new: NewWrite, *, same_mode: bool) -> Script[str]:
        """Return the schema of the outbox of *session*, and store the common part of *new* there."""
        base_url, mine = session.base_url, session.credential.fingerprint(session.base_url) or ""
        schema = yield from self._base.find(base_url, mine, same_mode=same_mode)
        if schema is None:
            raise not_there(session)
        yield _COMMON.format(schema=schema), (new.packed.common, new.common)
        return schema

    def insertion(self, place: str, new: NewWrite) -> tuple[str, tuple[Any, ...]]:  # Any: as the columns
        """Return the statement that inserts *new* in the schema *place*."""
        lane = self.lane_of(new.key, new.thing)
        text = _INSERT.format(schema=place, lock=_NO_LOCK if new.thing is None else _LOCK)
        return text, (
            place, str(lane), new.key, lane, new.thing, new.digest, new.operation, new.packed.common,
            new.packed.text, _number(f"{place} {new.thing}"),
        )  # fmt: skip

    def digest_of(self, place: str, key: str) -> tuple[str, tuple[Any, ...]]:  # Any: as above
        """Return the statement that returns the digest of the entry of *key*."""
        return f"SELECT digest FROM {place}.entries WHERE key = CAST($1 AS text)", (key,)  # noqa: S608 - our own text

    # --- sending

    async def hear(self, woken: Callable[[str, int], None]) -> None:
        """Call *woken* with the number of each lane that has something new, but not for verdicts."""
        await self._base.hear(lambda what: None if what == _VERDICTS else woken(what, 0))

    async def tell_verdicts(self) -> None:
        """Wake those in other processes that wait for verdicts."""
        await self._base.tell(_VERDICTS)

    async def hear_verdicts(self, woken: Callable[[], None]) -> None:
        """Call *woken* when other processes have stored verdicts, until cancelled."""
        await self._base.hear(lambda what: woken() if what in ("", _VERDICTS) else None)


def _number(text: str) -> int:
    """Return a number of 64 bits for *text*."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
