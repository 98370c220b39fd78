"""
An event store in one PostgreSQL table, which several machines may share.

Leases are timed by the server's clock, and a worker skips the rows that another one has locked.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.events.stores import (
    COUNTED,
    EXACT,
    STATES,
    Backlog,
    Delivery,
    Entry,
    Standing,
    State,
    StateStats,
    StoredEvent,
    copy_key,
    is_copy,
    postgres_indexes,
)
from invsvc_async.events.stores import postgres_handlers as of_handlers
from invsvc_async.events.stores.estimates import SAMPLE, WALKED, estimate, estimated, needed, starts
from invsvc_async.events.stores.short_transactions import in_slices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from invsvc_async.events.stores.estimates import Sampled
    from invsvc_async.events.stores.postgres_puts import GroupedPuts
    from invsvc_async.storage.postgres_pool import Pool

__all__ = ["PostgresStore"]

_log: Final = logging.getLogger("invsvc_async.events")
_VERSION: Final = 3
_MARK: Final = "invsvc_async events, version "
_LOCK: Final = 0x696E7665  # an arbitrary number: only one process may create the table
_TIMEOUT: Final = 5.0  # s for one statement: the sender waits 10 s
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
"""
# What each version adds: instant in a table of any size, and processes of an older version that are connected
# continue to work.  Bodies of handled events are in a table of their own for that reason.
_TO_2: Final = """
    CREATE TABLE IF NOT EXISTS {table}_kept (
        id bigint PRIMARY KEY,
        due timestamptz NOT NULL DEFAULT now(),
        body bytea NOT NULL
    );
    CREATE INDEX IF NOT EXISTS {table}_kept_due ON {table}_kept (due);
"""
_TO_3: Final = of_handlers.TO_3 + "COMMENT ON TABLE {table} IS '{mark}';"
_STEPS: Final = {"1": _TO_2 + _TO_3, "2": _TO_3}
# now() is the time before the statement waited for a locked row; clock_timestamp() is the time after.
# Nothing is added if the handler has had a copy, with the key $7: then the event's own key was that of
# another handler's claim, which was deleted.
_CLAIM: Final = """
    INSERT INTO {table} AS kept (key, type, body, state, due, token, attempts, handler)
    SELECT $1::text, $2::text, $3::bytea, 'open', now() + $4 * interval '1 second', $5::text, 1, $6::text
    WHERE NOT EXISTS (SELECT FROM {table} WHERE key = $7) OR EXISTS (SELECT FROM {table} WHERE key = $1)
    ON CONFLICT (key) DO UPDATE SET
        due = clock_timestamp() + $4 * interval '1 second',
        token = excluded.token, attempts = kept.attempts + 1
    WHERE kept.state = 'open' AND kept.due <= clock_timestamp()
        AND (excluded.handler = '' OR kept.handler IN ('', excluded.handler))
    RETURNING id, token, key, type, body, attempts, handler,
        (SELECT ordering_key FROM {table}_ordered AS ordered WHERE ordered.id = kept.id)
"""
_CLAIMED: Final = """
    SELECT state, body IS NOT NULL, handler FROM {table} WHERE key = $1
"""
_LEASE: Final = """
    UPDATE {table} AS kept
    SET due = clock_timestamp() + $2 * interval '1 second', token = $3, attempts = kept.attempts + 1
    FROM next WHERE kept.id = next.id
    RETURNING kept.id, kept.token, kept.key, kept.type, kept.body, kept.attempts, kept.handler,
        (SELECT ordering_key FROM {table}_ordered AS ordered WHERE ordered.id = kept.id)
"""
_DUE: Final = "state = 'open' AND body IS NOT NULL AND due <= now()"
_TAKE: Final = f"""
    WITH next AS (
        SELECT id FROM {{table}} WHERE {_DUE} AND ($4::text[] IS NULL OR handler = ANY ($4))
        ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) {_LEASE}
"""  # noqa: S608 - our own text
# For each handler alone, so that nothing is read that is for others; compared as rows, so that no other index
# fits.  There are more candidates than needed, because others may have locked some; few are locked here.
_TAKE_FOR: Final = f"""
    WITH candidates AS MATERIALIZED (
        SELECT one.id FROM unnest($4::text[]) AS name, LATERAL (
            SELECT id, due FROM {{table}} WHERE state = 'open' AND body IS NOT NULL
                AND (handler, due) >= (name, '-infinity') AND (handler, due) <= (name, now())
            ORDER BY handler, due, id LIMIT $1 + 100
        ) AS one ORDER BY one.due, one.id LIMIT $1 + 100
    ), next AS (
        SELECT id FROM {{table}} WHERE id = ANY (ARRAY(SELECT id FROM candidates)) AND {_DUE}
        ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) {_LEASE}
"""  # noqa: S608 - our own text
_OURS: Final = "WHERE id = $1 AND token = $2 AND state = 'open'"
_HANDLED: Final = f"UPDATE {{table}} SET state = 'handled', due = now(), body = NULL {_OURS} RETURNING id"  # noqa: S608 - our own text
_BURIED: Final = f"UPDATE {{table}} SET state = 'dead', due = now(), reason = $3 {_OURS} RETURNING id"  # noqa: S608 - our own text
_RELEASE: Final = f"""
    WITH forgotten AS (DELETE FROM {{table}} {_OURS} AND body IS NULL RETURNING id), freed AS (
        UPDATE {{table}} SET due = now() + $3 * interval '1 second', token = ''
        {_OURS} AND body IS NOT NULL RETURNING id
    )
    SELECT id FROM forgotten UNION ALL SELECT id FROM freed
"""  # noqa: S608 - our own text
_SLICE: Final = 0.02  # s that one statement of prune is to take
_PRUNE: Final = """
    DELETE FROM {{table}}{part} WHERE id = ANY (ARRAY(
        SELECT id FROM {{table}}{part} WHERE {which} due < now() - $1 * interval '1 second'
        ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED
    )) RETURNING id
"""
_PRUNE_HANDLED: Final = _PRUNE.format(part="", which="state = 'handled' AND")
_PRUNE_CLAIMS: Final = _PRUNE.format(part="", which="state = 'open' AND body IS NULL AND")
_PRUNE_DEAD: Final = """
    WITH seen AS (
        SELECT id, due FROM {table} WHERE state = 'dead' AND id > $2 ORDER BY id LIMIT $3
    ), gone AS (
        DELETE FROM {table} WHERE state = 'dead' AND id = ANY (ARRAY(
            SELECT id FROM seen WHERE due < now() - $1 * interval '1 second'
        ))
    )
    SELECT count(*), max(id) FROM seen
"""
_PRUNE_BODIES: Final = _PRUNE.format(part="_kept", which="")
_STATS: Final = """
    SELECT count(*), extract(epoch FROM min(received))::float8 FROM (
        SELECT received FROM {{table}} WHERE state = '{state}' ORDER BY {order} LIMIT $1
    ) AS first
"""
_STATS_OF: Final = {
    state: _STATS.format(state=state, order="due" if state == "handled" else "id") for state in STATES
}
_RANGE: Final = "SELECT min(id), max(id) FROM {table}"
_SAMPLES: Final = """
    SELECT start, ARRAY(
        SELECT id FROM {{table}} WHERE {which} id >= start ORDER BY id LIMIT $2
    ) AS ids FROM unnest($1::bigint[]) AS start
"""
_SAMPLES_OF: Final[dict[Sampled, str]] = {
    "open": _SAMPLES.format(which="state = 'open' AND"),
    "dead": _SAMPLES.format(which="state = 'dead' AND"),
    "all": _SAMPLES.format(which=""),
}
_BACKLOG: Final = """
    SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due)), 0)::float8 AS late,
        (SELECT count(*) FROM (SELECT id FROM {table} WHERE state = 'dead' LIMIT $1) AS letters) AS dead
    FROM (
        SELECT due FROM {table} WHERE state = 'open' AND body IS NOT NULL AND due <= now()
        ORDER BY due, id LIMIT $1
    ) AS waiting
"""
_EVENTS: Final = """
    SELECT id, key, type, coalesce(stored.body, kept.body) AS body, reason, attempts,
        extract(epoch FROM received)::float8 AS received_at, state, handler
    FROM {table} AS stored LEFT JOIN {table}_kept AS kept USING (id)
    WHERE {which} id > $1 AND id <= $2 ORDER BY id LIMIT $3
"""
_LAST_ID: Final = (1 << 63) - 1
_WALK: Final = "SELECT max(id) FROM (SELECT id FROM {table} WHERE id > $1 ORDER BY id LIMIT $2) AS slice"
_KEEP: Final = """
    WITH ended AS (
        UPDATE {table} SET state = 'handled', due = now(), body = NULL
        WHERE id = $1 AND token = $2 AND state = 'open' RETURNING id
    )
    INSERT INTO {table}_kept (id, body) SELECT id, $3 FROM ended
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, due = excluded.due RETURNING id
"""
_REVIVE: Final = """
    WITH found AS (DELETE FROM {table}_kept WHERE id = $1 RETURNING id, body)
    UPDATE {table} AS stored
    SET state = 'open', due = now(), attempts = 0, token = '',
        body = coalesce(stored.body, (SELECT body FROM found))
    WHERE id = $1 AND (state = 'dead' OR (state = 'handled' AND EXISTS (SELECT FROM found))) RETURNING id
"""
_DROP: Final = """
    WITH found AS (DELETE FROM {table}_kept WHERE id = $1 RETURNING id), droppable AS (
        SELECT id, key, state FROM {table} WHERE id = $1 AND (
            state = 'dead' OR (state = 'handled' AND EXISTS (SELECT FROM found))
            OR (state = 'open' AND body IS NOT NULL AND (token = '' OR due <= now()))
        ) FOR UPDATE
    ), gone AS (
        DELETE FROM {table} WHERE id IN (SELECT id FROM droppable WHERE key IS NULL) RETURNING id
    ), emptied AS (
        UPDATE {table} AS stored SET state = 'handled', body = NULL,
            due = CASE stored.state WHEN 'handled' THEN stored.due ELSE now() END
        WHERE id IN (SELECT id FROM droppable WHERE key IS NOT NULL) RETURNING id
    )
    SELECT id FROM gone UNION ALL SELECT id FROM emptied
"""


@attrs.define(eq=False)
class _Connected:
    """The connections of one event loop; no other one can use them."""

    opening: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    pool: Pool | None = None
    puts: GroupedPuts | None = None

    def give_up(self) -> None:
        """Cut the connections off, as far as that is possible without their loop."""
        if self.pool is not None:
            self.pool.give_up()


class PostgresStore:
    """
    Store deliveries in *table* of the database at *dsn*; the table is created if it does not exist.

    Needs the extra ``postgres``.  Give each receiver a table of its own, because its workers take whatever is
    in it.  *connections* limits the pool of this process.
    """

    def __init__(self, dsn: str, *, table: str = "invsvc_delivery", connections: int = 8) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigurationError(
                f"table: {table!r} is not a valid name. Use lower-case letters, digits and _."
            )
        self._dsn = dsn
        self._table = table
        self._connections = connections
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connected] = {}
        self._is_indexed = False

    def __repr__(self) -> str:
        return f"PostgresStore(table={self._table!r})"  # the address may contain a password

    async def open(self) -> None:
        """
        Connect, and create the table if it does not exist; does nothing if it is open.

        Raises:
            ConfigurationError: The extra ``postgres`` is not installed.
            JournalError: The database cannot be used, or the table is foreign or of a newer version.
        """
        await self._opened()

    async def close(self) -> None:
        """Close the connections of this event loop; the next use opens them again."""
        here = self._here()
        pool, here.pool, here.puts = here.pool, None, None
        if pool is not None:
            await pool.aclose()

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        """Store a delivery to be handled, also for other handlers; ``False`` if its key is known."""
        new = None
        if not further and delivery.ordering_key is None:
            here = self._by_loop.get(asyncio.get_running_loop())
            puts = here.puts if here is not None and here.puts is not None else (await self._opened())[1]
            new = await puts.put(delivery)
        if new is not None:
            return new
        return await self._ask(lambda connection: of_handlers.put(connection, self._table, delivery, further))

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Store a delivery or a leased entry as a dead letter; ``False`` if the lease was lost."""
        if isinstance(found, Entry):
            return await self._end(_BURIED, found, reason)
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
        """Store a delivery and lease it at once; also lease a known one whose lease ran out."""
        token = secrets.token_hex(8)
        values, copy = (delivery.type, delivery.body, lease, token, delivery.handler), copy_key(delivery)
        rows = await self._rows(_CLAIM, delivery.key, *values, copy)
        if rows:
            return Entry(**rows[0])
        found = await self._rows(_CLAIMED, delivery.key)
        is_own = bool(found) and found[0]["handler"] in {"", delivery.handler}
        if copy is not None and not is_own and (found or await self._rows(_CLAIMED, copy)):
            rows = await self._rows(_CLAIM, copy, *values, None)
            if rows:
                return Entry(**rows[0])
            found = await self._rows(_CLAIMED, copy)
        if found and found[0][0] != "open":
            return Standing.HANDLED
        return Standing.STORED if found and found[0][1] else Standing.BUSY

    async def take(self, *, limit: int, lease: float, handlers: Collection[str] | None = None) -> list[Entry]:
        """Lease deliveries that are due and have a body, oldest first: all, or those for *handlers*."""
        await self._pool()  # which finds out about indexes
        names = None if handlers is None else list(set(handlers))
        statement = _TAKE if names is None or not self._is_indexed else _TAKE_FOR
        values = (limit, lease, secrets.token_hex(8), names)
        rows = await self._rows(statement, *values)
        return sorted((Entry(**row) for row in rows), key=lambda entry: entry.id)

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        """Mark it as handled, and keep only *body* of it; ``False`` if the lease was lost."""
        if body is not None:
            return await self._end(_KEEP, entry, body)
        return await self._end(_HANDLED, entry)

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """End the lease, so that it is due after *delay*; ``False`` if the lease was lost."""
        return bool(await self._rows(_RELEASE, entry.id, entry.token, delay))

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        """End the lease and store the event for handlers; ``False`` if the lease was lost."""
        return await self._ask(
            lambda connection: of_handlers.assign(connection, self._table, entry, deliveries)
        )

    async def give(self, event: StoredEvent, handler: str) -> bool:
        """Store a copy of *event* for one more handler; ``False`` if that one has had it, or it cannot be."""
        if is_copy(event.key):
            return False
        return await self._ask(lambda connection: of_handlers.give(connection, self._table, event, handler))

    async def events(
        self, *, state: State | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredEvent]:
        """Return events in one state, or in any, by ascending id, from beyond the id *after*."""
        which = "" if state is None else f"state = '{STATES[STATES.index(state)]}' AND"
        statement = _EVENTS.replace("{which}", which)
        if state != "handled":
            return [StoredEvent(**row) for row in await self._rows(statement, after, _LAST_ID, limit)]
        found: list[StoredEvent] = []
        while len(found) < limit:  # no index has their ids in order: look at some of all at a time
            ((last,),) = await self._rows(_WALK, after, WALKED)
            if last is None:
                break
            rows = await self._rows(statement, after, last, limit - len(found))
            found += [StoredEvent(**row) for row in rows]
            after = last
        return found

    async def dead_letters(self, *, limit: int = 100) -> list[StoredEvent]:
        """Return the first dead letters."""
        return await self.events(state="dead", limit=limit)

    async def revive(self, event: StoredEvent) -> bool:
        """Make a dead letter, or a handled event whose body was kept, due again."""
        return bool(await self._rows(_REVIVE, event.id))

    async def drop(self, event: StoredEvent) -> bool:
        """Delete the body of an event that nobody is to handle any more; its key stays."""
        return await self._ask(
            lambda connection: of_handlers.leave_order(connection, self._table, event, _DROP)
        )

    async def counts(self) -> dict[str, int]:
        """Return the number of deliveries by state, as ``stats`` does: ``open``, ``handled``, ``dead``."""
        return {state: found.count for state, found in (await self.stats()).items()}

    async def stats(self) -> dict[State, StateStats]:
        """Return the number and the oldest of the events in each state; over 100,000, an estimate."""
        found: dict[State, StateStats] = {}
        for state in STATES:
            ((count, oldest),) = await self._rows(_STATS_OF[state], EXACT + 1)
            found[state] = StateStats(count, oldest)
        estimates: dict[Sampled, int] = {which: await self._estimate(which) for which in needed(found)}
        return estimated(found, estimates)

    async def _estimate(self, which: Sampled) -> int:
        ((first, last),) = await self._rows(_RANGE)
        rows = await self._rows(_SAMPLES_OF[which], starts(first, last), SAMPLE)
        return estimate(dict(rows), last)

    async def backlog(self) -> Backlog:
        """Return what waits now."""
        (row,) = await self._rows(_BACKLOG, COUNTED)
        return Backlog(**row)

    async def prune(
        self, *, older_than: float, bodies: float | None = None, dead: float | None = None
    ) -> int:
        """
        Delete what was handled longer ago; such an event would be handled again if it came again.

        Before that, a large table of an older version of this package gets its missing indexes, while others
        use it.
        """
        await self._index()
        await self._prune_all(_PRUNE_CLAIMS, older_than)
        await self._prune_all(_PRUNE_BODIES, older_than if bodies is None else bodies)
        if dead is not None:
            await self._prune_dead(dead)
        return await self._prune_all(_PRUNE_HANDLED, older_than)

    async def _prune_all(self, statement: str, age: float) -> int:
        async def run(rows: int) -> int:
            return len(await self._rows(statement, age, rows))

        return await in_slices(run, seconds=_SLICE)

    async def _prune_dead(self, age: float) -> None:
        after = 0

        async def run(rows: int) -> int:
            nonlocal after
            ((seen, last),) = await self._rows(_PRUNE_DEAD, age, after, rows)
            after = last or after
            return int(seen)

        await in_slices(run, seconds=_SLICE)

    async def _index(self) -> None:
        pool = await self._pool()
        if self._is_indexed or self._connections < postgres_indexes.CONNECTIONS:
            return
        try:
            await postgres_indexes.build(pool, self._table)
            self._is_indexed = True
        except JournalError as error:  # without the right to, the store is slower and not wrong
            _log.warning("Indexes of table %s could not be built: %s", self._table, error)

    async def _end(self, statement: str, entry: Entry, *values: object) -> bool:
        if entry.ordering_key is None:
            return bool(await self._rows(statement, entry.id, entry.token, *values))
        return await self._ask(
            lambda connection: of_handlers.end(connection, self._table, entry, statement, values)
        )

    async def _ask(self, act: Callable[[Any], Awaitable[bool]]) -> bool:  # Any: asyncpg's connection
        pool = await self._pool()
        return await pool.ask(act)

    async def _rows(self, statement: str, *values: object) -> Any:  # Any: rows of asyncpg
        pool = await self._pool()
        return await pool.fetch(statement.format(table=self._table), *values)

    async def _pool(self) -> Pool:
        here = self._by_loop.get(asyncio.get_running_loop())
        return here.pool if here is not None and here.pool is not None else (await self._opened())[0]

    async def _opened(self) -> tuple[Pool, GroupedPuts]:
        try:
            from invsvc_async.events.stores.postgres_puts import GroupedPuts
            from invsvc_async.storage.postgres_pool import Pool
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"PostgresStore: {error.name} is not installed. Install invsvc-async[postgres]."
            ) from None
        here = self._here()
        async with here.opening:
            if here.pool is None or here.puts is None:
                # Each statement is tried once, because the sender waits for only 10 s.
                pool = Pool(
                    self._dsn,
                    "the event store's database",
                    size=self._connections,
                    patience=_TIMEOUT,
                    retry=False,
                )
                await pool.connect(self._prepare)
                here.pool, here.puts = pool, GroupedPuts(pool, self._table)
            return here.pool, here.puts

    def _here(self) -> _Connected:
        """Return what belongs to this event loop, and forget those that are closed by now."""
        for loop in list(self._by_loop):  # a copy: another loop may add its own
            if loop.is_closed() and (left := self._by_loop.pop(loop, None)) is not None:
                left.give_up()
        return self._by_loop.setdefault(asyncio.get_running_loop(), _Connected())

    async def _prepare(self, connection: Any) -> None:  # Any: asyncpg has no types
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass($1)", self._table) is None:
            await connection.execute(_SCHEMA.format(table=self._table))
            found: str | None = f"{_MARK}1"
        else:
            found = await connection.fetchval("SELECT obj_description(to_regclass($1))", self._table)
        version = (found or "").removeprefix(_MARK)
        if version in _STEPS:
            mark = f"{_MARK}{_VERSION}"
            await connection.execute(_STEPS[version].format(table=self._table, mark=mark))
        elif found != f"{_MARK}{_VERSION}":
            raise JournalError(
                f"table {self._table}: it is marked {found!r}. Update this package, or choose another table."
            )
        self._is_indexed = await postgres_indexes.build_small(connection, self._table)
