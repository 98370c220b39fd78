"""How the SQLite file of an event store stores events for several handlers, and in the order of a key."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.events.stores import Delivery, Entry, StoredEvent, copy_key, is_copy, key_for

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

__all__ = [
    "assign", "claimable", "complete", "due_for", "give", "has_copy", "insert", "insert_copy", "leave_order",
]  # fmt: skip

# The join leaves out what a process of version 2, which does not know the table, has ended.
_FIRST_OPEN: Final = """
    SELECT ordered.id FROM ordered JOIN delivery USING (id)
    WHERE ordering_key = ? AND state = 'open' ORDER BY ordered.id LIMIT 1
"""
_DUE: Final = """
    SELECT due, id FROM delivery WHERE state = 'open' AND body IS NOT NULL AND due <= ?
    ORDER BY due, id LIMIT ?
"""
_DUE_FOR: Final = "SELECT due, id FROM waiting WHERE handler = ? AND due <= ? ORDER BY due, id LIMIT ?"
_ASSIGN: Final = """
    UPDATE delivery SET due = ?, since = ?, token = '', attempts = 0, handler = ?
    WHERE id = ? AND token = ? AND state = 'open'
"""
_HAS: Final = "SELECT 1 FROM delivery WHERE key = ?"
_KNOWN: Final = "SELECT id, received, handler, state = 'open' AND body IS NULL FROM delivery WHERE key = ?"
_COMPLETE: Final = "UPDATE delivery SET body = ? WHERE key = ? AND state = 'open' AND body IS NULL"
# An open one that is for no handler yet will be for all that it fits.
_GIVEN: Final = """
    SELECT type, coalesce(body, (
        SELECT body FROM kept WHERE kept.id = delivery.id AND kept.received = delivery.received
    )) FROM delivery
    WHERE id = ? AND received = ? AND key IS ? AND handler <> ? AND NOT (state = 'open' AND handler = '')
"""


def insert(
    db: sqlite3.Connection,
    delivery: Delivery,
    *,
    received: float,
    due: float,
    state: str = "open",
    reason: str = "",
) -> int | None:
    """Add a delivery and return its number, or ``None`` if its key is known."""
    key = delivery.ordering_key
    made = db.execute(
        "INSERT INTO delivery (key, type, body, state, due, since, reason, received, handler)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (
            delivery.key,
            delivery.type,
            delivery.body,
            state,
            due if key is None else _turn(db, key, due),
            due,
            reason,
            received,
            delivery.handler,
        ),
    )
    number = made.lastrowid if made.rowcount == 1 else None
    if number is not None and key is not None:
        _enter_order(db, number, key)
    return number


def due_for(db: sqlite3.Connection, handlers: Collection[str] | None, *, now: float, limit: int) -> list[int]:
    """Return the numbers of what is due at *now*, oldest first: of all, or for *handlers*."""
    if handlers is None:
        found = db.execute(_DUE, (now, limit)).fetchall()
    else:  # each alone, so that none is read that is for others
        found = [row for name in set(handlers) for row in db.execute(_DUE_FOR, (name, now, limit))]
    return [number for _, number in sorted(found)[:limit]]


def insert_copy(
    db: sqlite3.Connection, key: str | None, number: int, delivery: Delivery, *, received: float, now: float
) -> bool:
    """Add the event with *key* and *number* for one more handler; ``False`` if that one has had it."""
    copy = attrs.evolve(delivery, key=key_for(delivery.handler, key, number, received))
    return insert(db, copy, received=received, due=now) is not None


def claimable(db: sqlite3.Connection, delivery: Delivery) -> Delivery:
    """Return *delivery* under the key that its handler has, because its own, or that of a copy, is known."""
    row = db.execute("SELECT handler FROM delivery WHERE key = ?", (delivery.key,)).fetchone()
    if not delivery.handler or (row is not None and row[0] in {"", delivery.handler}):
        return delivery
    return attrs.evolve(delivery, key=copy_key(delivery))


def has_copy(db: sqlite3.Connection, delivery: Delivery) -> bool:
    """
    Return whether the delivery's handler has had a copy of the event.

    Then the event's own key does not tell: it was another handler's claim, which may be deleted.
    """
    key = copy_key(delivery)
    return key is not None and db.execute(_HAS, (key,)).fetchone() is not None


def complete(db: sqlite3.Connection, delivery: Delivery, further: Sequence[Delivery], *, now: float) -> None:
    """Store what claims of a known event lack: its body, and copies for handlers that have not claimed it."""
    number, received, handler, is_claim = db.execute(_KNOWN, (delivery.key,)).fetchone()
    if not (is_claim or further):
        return
    for each in (delivery, *further):
        is_own = handler in {"", each.handler} or not each.handler
        key = delivery.key if is_own else key_for(each.handler, delivery.key, number, received)
        db.execute(_COMPLETE, (each.body, key))
        if is_claim and not is_own:
            insert_copy(db, delivery.key, number, each, received=received, now=now)


def leave_order(db: sqlite3.Connection, number: int, now: float, *, was_due: bool = True) -> None:
    """Remove a delivery from those of its ordering key; if it was the due one, make the next one due."""
    rows = db.execute("DELETE FROM ordered WHERE id = ? RETURNING ordering_key", (number,)).fetchall()
    if rows and was_due:
        db.execute(
            f"UPDATE delivery SET due = ?, since = ? WHERE id = ({_FIRST_OPEN})",  # noqa: S608 - our own text
            (now, now, rows[0][0]),
        )


def assign(db: sqlite3.Connection, entry: Entry, deliveries: Sequence[Delivery], now: float) -> bool:
    """End a lease and store the event for handlers."""
    first, *further = deliveries
    key = first.ordering_key
    due = now if key is None else _turn(db, key, now)
    if db.execute(_ASSIGN, (due, now, first.handler, entry.id, entry.token)).rowcount != 1:
        return False
    if key is not None:
        _enter_order(db, entry.id, key)
    (received,) = db.execute("SELECT received FROM delivery WHERE id = ?", (entry.id,)).fetchone()
    for each in further:
        insert_copy(db, entry.key, entry.id, each, received=received, now=now)
    return True


def give(db: sqlite3.Connection, event: StoredEvent, handler: str, now: float) -> bool:
    """Store a copy of an event for one more handler."""
    row = db.execute(_GIVEN, (event.id, event.received_at, event.key, handler)).fetchone()
    if row is None or row[1] is None or is_copy(event.key):
        return False
    copy = Delivery(key=None, type=row[0], body=row[1], handler=handler)
    return insert_copy(db, event.key, event.id, copy, received=event.received_at, now=now)


def _turn(db: sqlite3.Connection, key: str, due: float) -> float:
    """Return when a new delivery is due: never, while others with its ordering key are open."""
    return due if db.execute(_FIRST_OPEN, (key,)).fetchone() is None else inf


def _enter_order(db: sqlite3.Connection, number: int, key: str) -> None:
    # Replaced: SQLite may give the number of a deleted delivery to a new one.
    db.execute("INSERT OR REPLACE INTO ordered (id, ordering_key) VALUES (?, ?)", (number, key))
