"""
Entries that are deleted: one that people drop, and old ones, which are pruned.

A script may be run again: the earlier run was rolled back, or was done and only its reply was lost.  The
caller gives a collection that outlasts the runs, *tried*.  After its last statement, each run notes there
what it has deleted, and the next run looks which of that is gone, so was not rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.entry import Entry, State, entry_in, is_same_row
from invsvc_async.durable.records import may_be_sent
from invsvc_async.durable.store.conditions import is_aside, lane_of
from invsvc_async.durable.store.due import make_due_again
from invsvc_async.durable.store.restored import marked
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.durable.store.tables import change_counts
from invsvc_async.storage.dialect import MOST, Script, not_found, slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.opening import Store


class Dropped(NamedTuple):
    """The number of an entry that was deleted, and the lane where later writes may have waited behind it."""

    seq: int
    lane: int | None


def may_drop(
    key: str,
    *,
    done: bool = True,
    seen: Entry | None = None,
) -> Script[Entry | None]:
    """
    Lock the entry of *key*, and return it; return ``None`` if the entry must not be deleted.

    An entry may be deleted if nothing of it was sent.  In a store that was restored, that is not known of the
    entries of the copy.  With *done*, one that has a verdict may be deleted, too.  With *seen*, only if it is
    still as it was seen.
    """
    found = yield entry_sql.LOCK_OF_KEY, (key,)
    if not found:
        return None
    entry = entry_in(found[0])
    if seen is not None and not is_same_row(entry, seen):
        return None
    if entry.state is State.DONE:
        if done:
            return entry
        return None
    is_of_copy = entry.seq <= (yield from marked()).through
    if is_of_copy or may_be_sent(entry):
        return None
    return entry


def drop(
    key: str,
    tried: list[Dropped],
    *,
    done: bool,
    seen: Entry | None = None,
) -> Script[Dropped | None]:
    """
    Delete the entry of *key* if ``may_drop`` allows it; return ``None`` if not.

    In a batch, *done* is false: its input would send the write again.  A process that is about to send the
    write finds that its entry is gone, and does not.

    If an earlier run has deleted it, the key may be that of another write by now, which stays.
    """
    yield store_sql.COMMIT_DURABLY, ()
    for earlier in tried:
        if not (yield entry_sql.LOCK_NUMBER, (earlier.seq,)):
            return earlier
    entry = yield from may_drop(key, done=done, seen=seen)
    if entry is None:
        return None
    # Only batches count their entries, and what is dropped from a batch has no verdict.
    yield from change_counts({(State.TO_DO, "", 0): -1})
    yield entry_sql.DROP, (entry.seq,)
    yield entry_sql.DELETE_UNHEARD, ([entry.seq],)
    if entry.state is State.DONE and entry.thing is not None:
        yield entry_sql.FORGET_LEFT, ([(entry.thing, entry.place)],)
    dropped = Dropped(entry.seq, None)
    if is_aside(entry.lane):
        yield from make_due_again(entry.thing, entry.place)
        dropped = Dropped(entry.seq, lane_of(entry.lane))
    tried.append(dropped)
    return dropped


async def old_entries(
    store: Store,
    before: int,
    after: int,
    last: int,
    *,
    unacknowledged: bool,
) -> list[tuple[int, str]]:
    """
    Return numbers and keys of the entries that may be pruned, *after* a number, up to the *last*.

    They were done before the time *before* (epoch ms).
    """
    rows = await store.rows(
        entry_sql.FIND_OLD, before, int(unacknowledged), after, last
    )
    return [(seq, key) for seq, key in rows]


def prune(
    before: int,
    seqs: Sequence[int],
    *,
    unacknowledged: bool,
    tried: set[int],
    empties: bool = False,
) -> Script[set[int]]:
    """
    Delete the entries *seqs* that ``old_entries`` still finds; return their numbers.

    With *empties*, as in a batch, their keys, digests and verdicts stay.  Only batches count entries, so no
    count changes.
    """
    statement = entry_sql.EMPTY if empties else entry_sql.PRUNE
    gone = yield from not_found(tried, entry_sql.LOCK_NOT_PRUNED)
    for some in slices(seqs, MOST):
        rows = yield statement, (before, int(unacknowledged), some)
        if things := [(thing, place) for _, thing, place in rows if thing is not None]:
            yield entry_sql.FORGET_LEFT, (things,)
        if rows:
            yield entry_sql.DELETE_UNHEARD, ([seq for seq, *_ in rows],)
        gone.update(seq for seq, *_ in rows)
    tried |= gone
    return gone
