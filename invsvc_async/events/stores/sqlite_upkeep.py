"""What operators do with the SQLite file of an event store: list, count, revive, drop, prune, shrink."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.events.stores import COUNTED, EXACT, STATES, Backlog, State, StateStats, StoredEvent
from invsvc_async.events.stores.estimates import SAMPLE, WALKED, estimate, estimated, needed, starts
from invsvc_async.events.stores.sqlite_handlers import leave_order
from invsvc_async.events.stores.sqlite_schema import begin

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from invsvc_async.events.stores.estimates import Sampled

__all__ = [
    "OLD", "backlog", "checkpoint", "drop", "events", "keep_body", "prune_dead", "revive", "shrink_some",
    "stats", "write_aside",
]  # fmt: skip

# Bodies of handled events are in a table of their own, so that an older file gets it without being rewritten.
# ``received`` is compared because SQLite may give the id of a deleted row to a new one.
_KEPT: Final = "SELECT body FROM kept WHERE kept.id = delivery.id AND kept.received = delivery.received"
_EVENTS: Final = f"""
    SELECT id, key, type, coalesce(body, ({_KEPT})), reason, attempts, received, state, handler
    FROM {{source}} id > ? AND id <= ? ORDER BY id LIMIT ?
"""  # noqa: S608 - our own text
_SOURCES: Final[dict[State | None, str]] = {
    None: "delivery WHERE",
    "open": "open_event CROSS JOIN delivery USING (id) WHERE",  # not reordered: by id of open ones
    "handled": "delivery WHERE state = 'handled' AND",
    "dead": "delivery WHERE state = 'dead' AND",
}
_SAME: Final = "id = ? AND received = ? AND key IS ?"
_REVIVE: Final = f"""
    UPDATE delivery
    SET state = 'open', due = ?, since = ?, token = '', attempts = 0, body = coalesce(body, ({_KEPT}))
    WHERE {_SAME} AND (state = 'dead' OR (state = 'handled' AND EXISTS ({_KEPT})))
"""  # noqa: S608 - our own text
_DROPPABLE: Final = f"""
    {_SAME} AND (
        state = 'dead' OR (state = 'handled' AND EXISTS ({_KEPT}))
        OR (state = 'open' AND body IS NOT NULL AND (token = '' OR due <= ?))
    )
"""
# Ids of one state, in the order of an index, so that no bodies are read.
_FIRST: Final = {
    "open": "SELECT id FROM open_event ORDER BY id LIMIT ?",
    "handled": "SELECT id FROM delivery WHERE state = 'handled' ORDER BY due LIMIT ?",
    "dead": "SELECT id FROM delivery WHERE state = 'dead' ORDER BY id LIMIT ?",
}
_SAMPLED: Final[dict[Sampled, str]] = {
    "open": "SELECT id FROM open_event WHERE id >= ? ORDER BY id LIMIT ?",
    "dead": "SELECT id FROM delivery WHERE state = 'dead' AND id >= ? ORDER BY id LIMIT ?",
    "all": "SELECT id FROM delivery WHERE id >= ? ORDER BY id LIMIT ?",
}
# Two subqueries: SQLite reads the whole table for two aggregates, and one row for each alone.
_RANGE: Final = "SELECT (SELECT min(id) FROM delivery), (SELECT max(id) FROM delivery)"
_LAST_ID: Final = (1 << 63) - 1
_PRUNE: Final = "DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE {1} due < ? LIMIT ?)"
OLD: Final = {
    "claims": _PRUNE.format("delivery", "state = 'open' AND body IS NULL AND"),
    "handled": _PRUNE.format("delivery", "state = 'handled' AND"),
    "bodies": _PRUNE.format("kept", ""),
}
_SLICE_OF_DEAD: Final = """
    SELECT count(*), max(id) FROM (
        SELECT id FROM delivery WHERE state = 'dead' AND id > ? ORDER BY id LIMIT ?
    )
"""
_PRUNE_DEAD: Final = "DELETE FROM delivery WHERE state = 'dead' AND id > ? AND id <= ? AND due < ?"
_SLICE_OF_ALL: Final = "SELECT max(id) FROM (SELECT id FROM delivery WHERE id > ? ORDER BY id LIMIT ?)"


def keep_body(db: sqlite3.Connection, number: int, body: bytes) -> None:
    """Keep the body of a handled event."""
    db.execute(
        "INSERT OR REPLACE INTO kept (id, received, due, body)"
        " SELECT id, received, due, ? FROM delivery WHERE id = ?",
        (body, number),
    )


def events(db: sqlite3.Connection, *, state: State | None, after: int, limit: int) -> list[StoredEvent]:
    """Return a page of events."""
    statement = _EVENTS.format(source=_SOURCES[state])
    if state != "handled":
        return [_event(*row) for row in db.execute(statement, (after, _LAST_ID, limit))]
    found: list[StoredEvent] = []
    while len(found) < limit:  # no index has their ids in order: look at some of all at a time
        (last,) = db.execute(_SLICE_OF_ALL, (after, WALKED)).fetchone()
        if last is None:
            break
        found += [_event(*row) for row in db.execute(statement, (after, last, limit - len(found)))]
        after = last
    return found


def stats(db: sqlite3.Connection) -> dict[State, StateStats]:
    """Return the number and the oldest of the events in each state."""
    found: dict[State, StateStats] = {}
    for state in STATES:
        text = f"SELECT count(*), min(id) FROM ({_FIRST[state]})"  # noqa: S608 - our own text
        count, first = db.execute(text, (EXACT + 1,)).fetchone()
        row = db.execute("SELECT received FROM delivery WHERE id = ?", (first,)).fetchone()
        found[state] = StateStats(count, row[0] if row else None)
    return estimated(found, {which: _estimate(db, which) for which in needed(found)})


def _estimate(db: sqlite3.Connection, which: Sampled) -> int:
    """Estimate how many events are open, dead, or all of them, from samples."""
    first, last = db.execute(_RANGE).fetchone()
    samples = {
        start: [number for (number,) in db.execute(_SAMPLED[which], (start, SAMPLE))]
        for start in starts(first, last)
    }
    return estimate(samples, last)


def backlog(db: sqlite3.Connection, now: float) -> Backlog:
    """Return what waits at *now* of the steady clock."""
    due, first = db.execute(
        "SELECT count(*), min(due) FROM (SELECT due FROM delivery"
        " WHERE state = 'open' AND body IS NOT NULL AND due <= ? ORDER BY due, id LIMIT ?)",
        (now, COUNTED),
    ).fetchone()
    (dead,) = db.execute(
        "SELECT count(*) FROM (SELECT id FROM delivery WHERE state = 'dead' LIMIT ?)", (COUNTED,)
    ).fetchone()
    return Backlog(due, 0.0 if first is None else now - first, dead)


def revive(db: sqlite3.Connection, event: StoredEvent, now: float) -> bool:
    """Make an event due again, at *now* of the steady clock."""
    changed = db.execute(_REVIVE, (now, now, event.id, event.received_at, event.key)).rowcount
    if changed:
        db.execute("DELETE FROM kept WHERE id = ?", (event.id,))
    return changed == 1


def drop(db: sqlite3.Connection, event: StoredEvent, *, steady: float, calendar: float) -> bool:
    """Delete a body that nobody is to handle; an event without a key goes altogether."""
    values: tuple[object, ...] = (event.id, event.received_at, event.key, steady)
    change = "DELETE FROM delivery"
    if event.key is not None:
        change = "UPDATE delivery SET due = iif(state = 'handled', due, ?), state = 'handled', body = NULL"
        values = (calendar, *values)
    before = db.execute("SELECT due FROM delivery WHERE id = ?", (event.id,)).fetchone()
    changed = db.execute(f"{change} WHERE {_DROPPABLE}", values).rowcount
    if changed:
        leave_order(db, event.id, steady, was_due=before[0] < inf)
        db.execute("DELETE FROM kept WHERE id = ?", (event.id,))
    return changed == 1


def prune_dead(db: sqlite3.Connection, before: float, *, after: int, limit: int) -> tuple[int, int]:
    """
    Delete those of the next *limit* dead letters beyond the id *after* that died before *before*.

    Returns how many it has looked at, and the last id.
    """
    seen, last = db.execute(_SLICE_OF_DEAD, (after, limit)).fetchone()
    if seen:
        db.execute(_PRUNE_DEAD, (after, last, before))
    return seen, last or after


def shrink_some(db: sqlite3.Connection, rows: int) -> int:
    """Return free pages to the file system, at most *rows*; return how many."""
    if db.execute("PRAGMA auto_vacuum").fetchone()[0] == 0:
        return 0  # an older file: only VACUUM, which rewrites it, could change that
    free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    freed = min(free, rows)
    for _ in range(freed):
        db.execute("PRAGMA incremental_vacuum(1)")  # Python's driver frees only one at a time
    return freed


def write_aside(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], int], wait: float) -> int:
    """
    Run *work* in a transaction that does not wait for the disk, so that deliveries wait only while it runs.

    A power cut may undo it.  The commits of deliveries flush it with their own.
    """
    db.isolation_level = None
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    begin(db, wait)
    changed = work(db)
    db.execute("COMMIT")
    checkpoint(db)  # disk writes would else pile up until they hold the deliveries' commits up
    return changed


def checkpoint(db: sqlite3.Connection) -> int:
    """
    Copy the log into the file; unlike a writer's own checkpoints, this one holds no writer up.

    Returns how many pages the log has.
    """
    pages: int
    [(_, pages, _)] = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return pages


def _event(number: int, key: str | None, kind: str, body: bytes | None, *rest: Any) -> StoredEvent:
    reason, attempts, received, state, handler = rest
    return StoredEvent(
        id=number,
        key=key,
        type=kind,
        body=body,
        reason=reason,
        attempts=attempts,
        received_at=received,
        state=state,
        handler=handler,
    )
