"""
The keys of entries that are deleted from an outbox in SQLite, whose rows are in the application's own file.

The two files have no transaction in common, a kill may come at any time, and the application enqueues
whenever it wants, also while no process has the store.  As long as there is a row, no other write gets its
key, and whoever enqueues the same write is told that it is there.  So the order is this:

1. ``deleting``: one transaction of the store deletes the entries, and notes what it has deleted.  An entry
   that turns out to be one that has to stay is not among it, and its row stays, too.
2. One transaction of the application's file deletes the rows of what was noted.  This frees the keys.
3. The note is deleted.

If something intervenes after the first step, the note is found before any other row is moved or deleted, at
the latest when the store is opened again.  ``FileDeletions.settle`` (``outbox/file_deletions``) then looks
which of the rows are left:

- None of its key: the second step was done.  The key is free, and may have another write by now, as a new
  row.
- A row that was moved, of an entry that was open: the entry comes back as it was, with its place.  Nobody was
  told that it is dropped, but somebody may have enqueued the same write since, and have been told that it is
  there.  It was not sent meanwhile, because the store did not have it.  ``settle`` puts it back.
- A row that was moved, of an entry that had a verdict: its row is deleted now.  Who enqueued the same
  write since was told that it is there, which was so: that write was done with.

The other order, first the row, would give the key to another write, although the entry may turn out to be one
that stays.  Without a note, a row without an entry could not be told from one whose entry is not in an older
copy of the store, and which may have been sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from invsvc_async.durable.store.statements import entry_sql, store_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from invsvc_async.storage.dialect import Script


T = TypeVar("T")
# By the key of each entry: its columns (``entry_sql.TO_PUT_BACK``) if it was open, else ``None``.
Deleted: TypeAlias = "dict[str, list[Any] | None]"  # Any: of each column its own

_NOTE: Final = "freed keys"  # the name of the fact


def deleting(
    keys: Sequence[str],
    deletion: Callable[[], Script[T]],
) -> Script[tuple[T, list[str]]]:
    """
    Run *deletion* of entries of *keys*; return its result, and the keys that are free now.

    What it has deleted is noted, in place of an earlier note: the caller has settled that one before.
    """
    rows = yield entry_sql.TO_PUT_BACK, (keys,)
    open_before = {row[0]: [*row[1:]] for row in rows}
    result = yield from deletion()
    free = yield from without_entries(keys)
    deleted: Deleted = {key: open_before.get(key) for key in free}
    if deleted:
        yield store_sql.SET_FACT, (_NOTE, json.dumps(deleted))
    return result, free


def noted() -> Script[Deleted]:
    """Return what was deleted and not settled."""
    found = yield store_sql.GET_FACT, (_NOTE,)
    deleted: Deleted = json.loads(found[0][0]) if found else {}
    return deleted


def forget() -> Script[None]:
    """Delete the note: the rows are deleted."""
    yield store_sql.DELETE_FACT, (_NOTE,)


def settle(
    deleted: Deleted,
    moved: Collection[str],
) -> Script[list[int]]:
    """
    Insert the *deleted* entries again that were open and still have rows, and delete the note.

    *moved* are the keys of the rows that are marked as moved.  Return the lanes of the entries.
    """
    back = [
        (key, *columns)
        for key, columns in deleted.items()
        if columns is not None and key in moved
    ]
    if back:
        yield entry_sql.PUT_BACK, (back,)
    yield from forget()
    return [lane for _, _, _, lane, *_ in back]


def without_entries(keys: Sequence[str]) -> Script[list[str]]:
    """Return the keys among *keys* without an entry in the store."""
    known = {key for key, *_ in (yield entry_sql.SELECT_KNOWN, (keys,))}
    return [key for key in keys if key not in known]
