"""
How the PostgreSQL event store stores events for several handlers, and in the order of a key.

What changes the open deliveries of an ordering key has the lock of that key, taken before anything else.
Each function runs in a transaction on *connection*, and formats its statements with *table*.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.events.stores import key_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.events.stores import Delivery, Entry, StoredEvent

__all__ = ["TO_3", "assign", "end", "give", "leave_order", "put"]

# ``ordered`` has the open deliveries that have an ordering key.  All but one of a key are due at 'infinity'.
TO_3: Final = """
    ALTER TABLE {table} ADD COLUMN IF NOT EXISTS handler text NOT NULL DEFAULT '';
    CREATE TABLE IF NOT EXISTS {table}_ordered (id bigint PRIMARY KEY, ordering_key text NOT NULL);
    CREATE INDEX IF NOT EXISTS {table}_ordered_key ON {table}_ordered (ordering_key, id);
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock($1)"
# The join leaves out what a process of version 2, which does not know the table, has ended.
_FIRST_OPEN: Final = """
    SELECT id FROM {table}_ordered JOIN {table} USING (id)
    WHERE ordering_key = $1 AND state = 'open' ORDER BY id LIMIT 1
"""
_INSERT: Final = """
    INSERT INTO {table} (key, type, body, state, due, handler, received)
    VALUES ($1, $2, $3, 'open', CASE WHEN $5 THEN 'infinity' ELSE clock_timestamp() END, $4,
        coalesce((SELECT received FROM {table} WHERE id = $6), now()))
    ON CONFLICT (key) DO NOTHING RETURNING id, extract(epoch FROM received)::float8
"""
_ASSIGN: Final = """
    UPDATE {table} SET token = '', attempts = 0, handler = $3,
        due = CASE WHEN $4 THEN 'infinity' ELSE clock_timestamp() END
    WHERE id = $1 AND token = $2 AND state = 'open' RETURNING id, extract(epoch FROM received)::float8
"""
# As in a put without an order: a claim has no body until one comes.
_KNOWN: Final = """
    SELECT id, extract(epoch FROM received)::float8 AS received_at, handler,
        state = 'open' AND body IS NULL AS is_claim
    FROM {table} WHERE key = $1 FOR UPDATE
"""
_COMPLETE: Final = "UPDATE {table} SET body = $2 WHERE key = $1 AND state = 'open' AND body IS NULL"
_ORDER: Final = "INSERT INTO {table}_ordered (id, ordering_key) VALUES ($1, $2)"
_KEY_OF: Final = "SELECT ordering_key FROM {table}_ordered WHERE id = $1"
_WAS_DUE: Final = "SELECT due < 'infinity' FROM {table} WHERE id = $1"
_LEAVE: Final = "DELETE FROM {table}_ordered WHERE id = $1"
_ADVANCE: Final = f"UPDATE {{table}} SET due = clock_timestamp() WHERE id = ({_FIRST_OPEN})"  # noqa: S608 - our own text
# An open one that is for no handler yet will be for all that it fits.
_GIVEN: Final = """
    SELECT type, coalesce(stored.body, kept.body) AS body, key,
        extract(epoch FROM received)::float8 AS received_at
    FROM {table} AS stored LEFT JOIN {table}_kept AS kept USING (id)
    WHERE id = $1 AND handler <> $2 AND NOT (state = 'open' AND handler = '')
"""


async def put(
    connection: Any, table: str, delivery: Delivery, further: Sequence[Delivery]
) -> bool:  # Any: asyncpg has no types
    """Store a delivery and *further* ones; ``False`` if the key is known."""
    await _lock(connection, table, [delivery, *further])
    while (row := await _insert(connection, table, delivery, delivery.key)) is None:
        known = await connection.fetchrow(_KNOWN.format(table=table), delivery.key)
        if known is not None:
            await _complete(connection, table, known, delivery, further)
            return False
    await _insert_copies(connection, table, delivery.key, row, further)
    return True


async def end(connection: Any, table: str, entry: Entry, statement: str, values: Sequence[object]) -> bool:
    """End a delivery that has an ordering key by *statement*, and make the next one due."""
    await _lock(connection, table, [entry])
    if not await connection.fetch(statement.format(table=table), entry.id, entry.token, *values):
        return False
    await _advance(connection, table, entry.id, entry.ordering_key)
    return True


async def leave_order(connection: Any, table: str, event: StoredEvent, statement: str) -> bool:
    """Drop an event by *statement*; if it was the due one of its ordering key, make the next one due."""
    key = await connection.fetchval(_KEY_OF.format(table=table), event.id)
    if key is not None:
        await connection.execute(_LOCK, _number_of(table, key))
    # Read under the lock: meanwhile it may have become the due one.
    was_due = await connection.fetchval(_WAS_DUE.format(table=table), event.id)
    if not await connection.fetch(statement.format(table=table), event.id):
        return False
    if key is not None:
        await _advance(connection, table, event.id, key if was_due else None)
    return True


async def assign(connection: Any, table: str, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
    """End a lease and store the event for handlers."""
    await _lock(connection, table, deliveries)
    first, *further = deliveries
    waits = await _waits(connection, table, first)
    values = (entry.id, entry.token, first.handler, waits)
    row = await connection.fetchrow(_ASSIGN.format(table=table), *values)
    if row is None:
        return False
    if first.ordering_key is not None:
        await connection.execute(_ORDER.format(table=table), entry.id, first.ordering_key)
    await _insert_copies(connection, table, entry.key, row, further)
    return True


async def give(connection: Any, table: str, event: StoredEvent, handler: str) -> bool:
    """Store a copy of an event for one more handler."""
    found = await connection.fetchrow(_GIVEN.format(table=table), event.id, handler)
    if found is None or found["body"] is None:
        return False
    key = key_for(handler, found["key"], event.id, found["received_at"])
    values = (key, found["type"], found["body"], handler, False, event.id)
    return bool(await connection.fetch(_INSERT.format(table=table), *values))


async def _lock(connection: Any, table: str, found: Sequence[Delivery | Entry]) -> None:
    """Lock ordering keys until the transaction ends, always in the same sequence."""
    numbers = {_number_of(table, each.ordering_key) for each in found if each.ordering_key is not None}
    for number in sorted(numbers):
        await connection.execute(_LOCK, number)


def _number_of(table: str, key: str) -> int:
    digest = hashlib.sha256(f"{table}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def _waits(connection: Any, table: str, delivery: Delivery) -> bool:
    """Whether another delivery with its ordering key is open."""
    if delivery.ordering_key is None:
        return False
    return await connection.fetchval(_FIRST_OPEN.format(table=table), delivery.ordering_key) is not None


async def _insert(
    connection: Any, table: str, delivery: Delivery, key: str | None, first: int | None = None
) -> Any:
    waits = await _waits(connection, table, delivery)
    values = (key, delivery.type, delivery.body, delivery.handler, waits, first)
    row = await connection.fetchrow(_INSERT.format(table=table), *values)
    if row is not None and delivery.ordering_key is not None:
        await connection.execute(_ORDER.format(table=table), row[0], delivery.ordering_key)
    return row


async def _complete(
    connection: Any, table: str, known: Any, delivery: Delivery, further: Sequence[Delivery]
) -> None:
    """Store what claims of a known event lack: its body, and copies for handlers that have not claimed it."""
    for each in (delivery, *further):
        is_own = known["handler"] in {"", each.handler} or not each.handler
        copy = key_for(each.handler, delivery.key, known["id"], known["received_at"])
        key = delivery.key if is_own else copy
        await connection.execute(_COMPLETE.format(table=table), key, each.body)
        if known["is_claim"] and not is_own:
            await _insert(connection, table, each, key, known["id"])


async def _insert_copies(
    connection: Any, table: str, key: str | None, first: Any, further: Sequence[Delivery]
) -> None:
    number, received_at = first
    for each in further:
        await _insert(connection, table, each, key_for(each.handler, key, number, received_at), number)


async def _advance(connection: Any, table: str, number: int, key: str | None) -> None:
    """Remove a delivery from the order; with *key*, make the next one due."""
    await connection.execute(_LEAVE.format(table=table), number)
    if key is not None:
        await connection.execute(_ADVANCE.format(table=table), key)
