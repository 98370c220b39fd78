"""What a prune deletes from the journal of an outbox in SQLite, a slice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

__all__ = ["delete", "drop", "empty_states", "old_in"]

_ENTRIES, _THINGS = 200, 1000  # that one transaction looks at
# Not the last one: SQLite would give its number again, and the states of things refer to these numbers.
_OLD = f"""
SELECT seq, key, state = 2 AND done_at < ? AND verdict <> '{Verdict.UNKNOWN}' AND (run = 1 OR ?)
    AND seq < (SELECT max(seq) FROM entries)
FROM entries WHERE seq > ? ORDER BY seq LIMIT {_ENTRIES}
"""  # noqa: S608 - our own text
_LAST_THING = "SELECT max(thing) FROM (SELECT thing FROM states WHERE thing > ? ORDER BY thing LIMIT ?)"
_EMPTY_STATES = """
UPDATE states SET team = NULL, state = NULL, stamp = NULL WHERE thing > ? AND thing <= ?
    AND state IS NOT NULL AND NOT EXISTS (SELECT 1 FROM entries WHERE entries.seq = states.seq)
"""


def old_in(
    before: int, after: int, connection: sqlite3.Connection, *, unacknowledged: bool
) -> tuple[list[str], int | None]:
    """Return which of the next entries after *after* to delete, by key, and the last of these entries."""
    rows = connection.execute(_OLD, (before, unacknowledged, after)).fetchall()
    return [key for _, key, is_old in rows if is_old], rows[-1][0] if rows else None


def delete(keys: Sequence[str], connection: sqlite3.Connection) -> None:
    """Delete entries."""
    connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])


def empty_states(after: str, connection: sqlite3.Connection) -> str | None:
    """Delete the states that deleted entries left, of some things after *after*; return the last of these."""
    last: str | None = connection.execute(_LAST_THING, (after, _THINGS)).fetchone()[0]
    if last is not None:
        connection.execute(_EMPTY_STATES, (after, last))
    return last


def drop(key: str, connection: sqlite3.Connection) -> None:
    """
    Delete the entry of *key*, which may be the last one.

    SQLite gives the numbers of the last entries again once these are deleted. What was written last to a
    thing stays later than all entries there are, and becomes earlier than all to come: hence the half.
    """
    delete([key], connection)
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
    connection.execute("UPDATE states SET seq = ? + 0.5 WHERE seq > ?", (last, last))
