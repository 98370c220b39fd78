"""Deliveries that are stored together in a SQLite file: all that wait for one commit, in few statements."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from invsvc_async.events.stores.sqlite_handlers import complete
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from invsvc_async.events.stores import Delivery

__all__ = ["put_all"]

_MOST: Final = 32  # deliveries of one statement; each number has a statement of its own, which stays prepared
_PUT: Final = """
    INSERT INTO delivery (key, type, body, handler, state, due, since, reason, received)
    SELECT column1, column2, column3, column4, 'open', ?1, ?1, '', ?2 FROM (VALUES {rows}) WHERE true
    ON CONFLICT (key) DO NOTHING
"""
_ROW: Final = "(?, ?, ?, ?)"
_AFTER: Final = "SELECT key FROM delivery WHERE id > ? AND key IS NOT NULL"


def put_all(
    db: sqlite3.Connection, deliveries: Sequence[Delivery], *, received: float, now: float
) -> list[bool]:
    """Store deliveries to be handled, which have no ordering key; ``False`` for each whose key is known."""
    results: list[bool] = []
    for some in slices(deliveries, _MOST):
        results += _put_some(db, some, received=received, now=now)
    return results


def _put_some(
    db: sqlite3.Connection, deliveries: Sequence[Delivery], *, received: float, now: float
) -> list[bool]:
    """Store them by one statement: each releases the GIL several times, for which a busy loop waits."""
    values: list[object] = [now, received]
    for each in deliveries:
        # sqlite3 looks for an adapter of each value of another type than these, also of bytes.
        values += (each.key, each.type, None if each.body is None else bytearray(each.body), each.handler)
    made = db.execute(_statement(len(deliveries)), values)
    if made.rowcount == len(deliveries):
        return [True] * len(deliveries)
    # The rows that were added have the highest ids.
    first = 0 if made.lastrowid is None else made.lastrowid - made.rowcount
    added = {key for (key,) in db.execute(_AFTER, (first,))} if made.rowcount else set()
    results: list[bool] = []
    for each in deliveries:
        is_new = each.key is None or each.key in added
        results.append(is_new)
        if is_new:
            added.discard(each.key)  # it may be among them twice
        else:
            complete(db, each, (), now=now)
    return results


@cache
def _statement(deliveries: int) -> str:
    return _PUT.format(rows=", ".join([_ROW] * deliveries))
