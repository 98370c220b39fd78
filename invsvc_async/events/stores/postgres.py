"""
Keep deliveries in one PostgreSQL table that several machines share; never rely on a machine's own clock.

Whose turn it is, the server decides: by its time, and by rows that it skips while another worker locks them.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from invsvc_async._errors import ConfigurationError, JournalError
from invsvc_async.events.stores import DeadLetter, Delivery, Entry, Standing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["PostgresStore"]

_VERSION: Final = 1
_MARK: Final = "invsvc_async events, version "
_LOCK: Final = 0x696E7665  # a number of our own: two processes may both find that there is no table
_TIMEOUT: Final = 5.0  # seconds for one statement: a delivery must be answered within ten
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS {table} (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key text UNIQUE,
        type text NOT NULL,
        body bytea,
        state text NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due timestamptz NOT NULL,
        token text NOT NULL DEFAULT '',
        attempts integer NOT NULL DEFAULT 0,
        reason text NOT NULL DEFAULT '',
        received timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX {table}_waiting ON {table} (due, id) WHERE state = 'open' AND body IS NOT NULL;
    CREATE INDEX {table}_claimed ON {table} (due) WHERE state = 'open' AND body IS NULL;
    CREATE INDEX {table}_handled ON {table} (due) WHERE state = 'handled';
    CREATE INDEX {table}_dead ON {table} (id) WHERE state = 'dead';
    COMMENT ON TABLE {table} IS '{mark}';
"""
_PUT: Final = """
    INSERT INTO {table} AS kept (key, type, body, state, due) VALUES ($1, $2, $3, 'open', now())
    ON CONFLICT (key) DO UPDATE SET body = excluded.body WHERE kept.state = 'open' AND kept.body IS NULL
    RETURNING xmax = 0
"""
_CLAIM: Final = """
    INSERT INTO {table} AS kept (key, type, body, state, due, token, attempts)
    VALUES ($1, $2, $3, 'open', now() + $4 * interval '1 second', $5, 1)
    ON CONFLICT (key) DO UPDATE SET due = excluded.due, token = excluded.token, attempts = kept.attempts + 1
    WHERE kept.state = 'open' AND kept.due <= now()
    RETURNING id, token, key, type, body, attempts
"""
_TAKE: Final = """
    WITH turn AS (
        SELECT id FROM {table} WHERE state = 'open' AND body IS NOT NULL AND due <= now()
        ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    UPDATE {table} AS kept
    SET due = now() + $2 * interval '1 second', token = $3, attempts = kept.attempts + 1
    FROM turn WHERE kept.id = turn.id
    RETURNING kept.id, kept.token, kept.key, kept.type, kept.body, kept.attempts
"""
_OURS: Final = "WHERE id = $1 AND token = $2 AND state = 'open'"
_RELEASE: Final = f"""
    WITH forgotten AS (DELETE FROM {{table}} {_OURS} AND body IS NULL RETURNING id), given_back AS (
        UPDATE {{table}} SET due = now() + $3 * interval '1 second', token = ''
        {_OURS} AND body IS NOT NULL RETURNING id
    )
    SELECT id FROM forgotten UNION ALL SELECT id FROM given_back
"""  # noqa: S608 - our own words


class PostgresStore:
    """
    Keep deliveries in *table* of the database at *dsn*; the table is made if there is none.

    Needs the extra ``postgres``.  Give each receiver a table of its own: its workers take whatever is in it.
    *connections* bounds the pool of this process.
    """

    def __init__(self, dsn: str, *, table: str = "invsvc_delivery", connections: int = 8) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigurationError(f"{table!r} cannot name a table. Use lower-case letters, digits and _.")
        self._dsn = dsn
        self._table = table
        self._connections = connections
        self._opening = asyncio.Lock()
        self._pool: Any = None  # Any: asyncpg has no types of its own
        self._ready = False

    def __repr__(self) -> str:
        return f"PostgresStore(table={self._table!r})"  # the address may hold a password

    async def open(self) -> None:
        """
        Connect and make the table if there is none; again is harmless.

        Raises:
            ConfigurationError: The extra ``postgres`` is not installed.
            JournalError: The server is out of reach, or the table is foreign or of a newer version.
        """
        async with self._connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if await connection.fetchval("SELECT to_regclass($1)", self._table) is None:
                mark = f"{_MARK}{_VERSION}"
                await connection.execute(_SCHEMA.format(table=self._table, mark=mark))
            found = await connection.fetchval("SELECT obj_description(to_regclass($1))", self._table)
        if found != f"{_MARK}{_VERSION}":
            raise JournalError(
                f"The table {self._table} is marked {found!r}. Update this package or name another."
            )
        self._ready = True

    async def close(self) -> None:
        """Close the connections; the next use opens them again."""
        pool, self._pool, self._ready = self._pool, None, False
        if pool is not None:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await pool.close()
            except TimeoutError:  # a connection is in use, or the server no longer answers
                pool.terminate()

    async def put(self, delivery: Delivery) -> bool:
        """Keep a delivery to be handled; ``False`` if its key is known."""
        rows = await self._rows(_PUT, delivery.key, delivery.type, delivery.body)
        return bool(rows) and bool(rows[0][0])

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Make a dead letter of what arrived, or of what we hold (``False`` if the lease was lost)."""
        if isinstance(found, Entry):
            return await self._change(f"state = 'dead', due = now(), reason = $3 {_OURS}", found, reason)
        made = await self._rows(
            "INSERT INTO {table} (key, type, body, state, due, reason) VALUES ($1, $2, $3, 'dead', now(), $4)"
            " ON CONFLICT (key) DO NOTHING RETURNING id",
            found.key,
            found.type,
            found.body,
            reason,
        )
        return bool(made)

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Keep a delivery and take it at once; take over one whose lease ran out."""
        token = secrets.token_hex(8)
        rows = await self._rows(_CLAIM, delivery.key, delivery.type, delivery.body, lease, token)
        if rows:
            return Entry(**rows[0])
        found = await self._rows("SELECT state, body IS NOT NULL FROM {table} WHERE key = $1", delivery.key)
        if found and found[0][0] != "open":
            return Standing.HANDLED
        return Standing.STORED if found and found[0][1] else Standing.BUSY

    async def take(self, *, limit: int, lease: float) -> list[Entry]:
        """Take waiting deliveries that are due and whole, oldest first."""
        rows = await self._rows(_TAKE, limit, lease, secrets.token_hex(8))
        return sorted((Entry(**row) for row in rows), key=lambda entry: entry.id)

    async def handled(self, entry: Entry) -> bool:
        """Record that it is handled and drop its body; ``False`` if the lease was lost."""
        return await self._change(f"state = 'handled', due = now(), body = NULL {_OURS}", entry)

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """Give it back, to be taken again after *delay*; ``False`` if the lease was lost."""
        return bool(await self._rows(_RELEASE, entry.id, entry.token, delay))

    async def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """List dead letters, oldest first."""
        rows = await self._rows(
            "SELECT id, key, type, coalesce(body, ''::bytea) AS body, reason, attempts,"
            " extract(epoch FROM received)::float8 AS received_at"
            " FROM {table} WHERE state = 'dead' ORDER BY id LIMIT $1",
            limit,
        )
        return [DeadLetter(**row) for row in rows]

    async def revive(self, letter: DeadLetter) -> bool:
        """Let a dead letter be handled again; ``False`` if it is none any more."""
        rows = await self._rows(
            "UPDATE {table} SET state = 'open', due = now(), attempts = 0"
            " WHERE id = $1 AND state = 'dead' RETURNING id",
            letter.id,
        )
        return bool(rows)

    async def counts(self) -> dict[str, int]:
        """Count the deliveries by state: ``open``, ``handled``, ``dead``."""
        found = dict(await self._rows("SELECT state, count(*) FROM {table} GROUP BY state"))
        return {state: found.get(state, 0) for state in ("open", "handled", "dead")}

    async def prune(self, *, older_than: float) -> int:
        """Forget what was handled longer ago; such an event would be handled anew if it came again."""
        rows = await self._rows(
            "DELETE FROM {table} WHERE (state = 'handled' OR state = 'open' AND body IS NULL)"
            " AND due < now() - $1 * interval '1 second' RETURNING state",
            older_than,
        )
        return sum(state == "handled" for (state,) in rows)

    async def _change(self, change: str, entry: Entry, *values: object) -> bool:
        statement = f"UPDATE {{table}} SET {change} RETURNING id"  # noqa: S608 - our own words
        return bool(await self._rows(statement, entry.id, entry.token, *values))

    async def _rows(self, statement: str, *values: object) -> Any:  # Any: rows of asyncpg
        if not self._ready:
            await self.open()
        async with self._connection() as connection:
            return await connection.fetch(statement.format(table=self._table), *values)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:  # Any: asyncpg has no types of its own
        try:
            asyncpg: Any = import_module("asyncpg")
        except ImportError:
            raise ConfigurationError("PostgresStore needs asyncpg: install invsvc-async[postgres].") from None
        try:
            pool = await self._pooled(asyncpg)
            async with pool.acquire(timeout=_TIMEOUT) as connection:
                yield connection
        except (
            OSError,
            TimeoutError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # seen where the server ended the connection just before
        ) as error:
            why = type(error).__name__  # the text may hold what was to be stored
            raise JournalError(f"PostgreSQL failed ({why}). See that it runs and can be reached.") from error

    async def _pooled(self, asyncpg: Any) -> Any:  # Any: it has no types of its own
        async with self._opening:
            if self._pool is None:
                # given back without the usual reset, which costs a second trip: we leave no state behind
                lasting = type("Lasting", (asyncpg.Connection,), {"get_reset_query": _nothing})
                self._pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=1,
                    max_size=self._connections,
                    timeout=_TIMEOUT,
                    command_timeout=_TIMEOUT,
                    connection_class=lasting,
                )
            return self._pool


def _nothing(_: object) -> str:
    return ""
