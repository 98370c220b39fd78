"""
Writes that transactions of the application have enqueued.

In PostgreSQL they insert entries themselves, by statements in the SQL that drivers have in common.  In SQLite
they insert rows in the application's own file (``application_table``), which are moved into the store.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec.structs import asdict, replace

from invsvc_async.durable.entry import WRITTEN_NAMES, State, written_of
from invsvc_async.durable.records import verdict_of_lost
from invsvc_async.durable.store.adding import add
from invsvc_async.durable.store.conditions import aside_of
from invsvc_async.durable.store.due import note_times
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.storage.dialect import Cell

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


Statement: TypeAlias = tuple[str, tuple[Cell, ...]]  # and its values


class TakenIn(NamedTuple):
    """
    The numbers of the rows taken in, and a number below those of new entries; ``None`` without new entries.

    ``has_times`` is whether some of them are not to be sent before a time.
    """

    rows: Sequence[int]
    before: int | None
    has_times: bool

    @property
    def many(self) -> int:
        """How many rows were taken in."""
        return len(self.rows)


NOTHING_TAKEN: Final = TakenIn((), None, has_times=False)


# --- in a transaction of the application


def later_columns_of(new: Entry) -> dict[str, Cell]:
    """
    Return the values of *new* for columns that tables of 0.1.0 lack, by the names of the columns.

    Errors show these names to users, and the application's SQLite file stores them (``more``).
    """
    given = asdict(new.noted) | {"team": new.team, "not_before": new.not_before}
    return {name: value for name, value in given.items() if value not in {None, ""}}


# --- the same, in PostgreSQL


def insert_into(schema: str, new: Entry, lane: int) -> Statement:
    """
    Build the statement that inserts *new* in *lane*, and notifies; no row if the key is not new.

    One with a time before which it is not sent is inserted aside, beside that lane (``due``).
    """
    # A column that has its default is not named: it may not be there yet, in tables of an earlier version.
    given = {
        name: value
        for name, value in zip(WRITTEN_NAMES, written_of(new), strict=True)
        if value not in {None, ""}
    }
    if new.not_before is not None:
        lane = aside_of(lane)
        given |= {"not_before": new.not_before, "due_at": new.not_before}
    text = entry_sql.enqueue(schema, (*given,), is_alone=new.thing is None)
    lock = _lock_of(schema, new.thing)
    return text, (schema, str(lane), lane, lock, *given.values())


def _lock_of(schema: str, thing: str | None) -> int:
    digest = blake2b(f"{schema} {thing}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def compared_in(schema: str, new: Entry) -> Statement:
    """Build the statement that selects whether the entry of the key of *new* is the same write."""
    return entry_sql.COMPARE_ENQUEUED.format(schema=schema), (new.key, new.digest)


def common_into(schema: str, new: Entry, text: str) -> Statement:
    """
    Build the statement that stores the *text* of the common part of *new*.

    It selects the names of the columns that *new* needs and the tables lack: then, nothing is stored.
    """
    needed = " ".join(later_columns_of(new))
    return entry_sql.ENQUEUE_COMMON.format(schema=schema), (new.common, text, needed)


# --- a retry waits for such transactions


def lock_things(schema: str, keys: Sequence[str]) -> Script[None]:
    """
    Lock the things of the entries of *keys*, as transactions of the application do in PostgreSQL.

    A retry that puts the entries at the end of the order does so first.  What a transaction of the
    application that is under way has enqueued has its number already.  If the retry was sent before that
    transaction commits, the retry would overtake what was enqueued.  So the end of the transaction is waited
    for.  Only briefly: this script holds locks meanwhile, and if the script and the transaction wait for each
    other, PostgreSQL may end the transaction.  If the wait takes too long, the script fails, and is run
    again.
    """
    things = yield entry_sql.THINGS_OF_KEYS, (keys,)
    if locks := sorted({_lock_of(schema, thing) for (thing,) in things}):
        [(before,)] = yield entry_sql.GET_LOCK_TIMEOUT, ()
        yield entry_sql.SET_LOCK_TIMEOUT, ("300ms",)
        yield entry_sql.LOCK_FOR_ENQUEUING, ([(lock,) for lock in locks],)
        yield entry_sql.SET_LOCK_TIMEOUT, (before,)


# --- from the application's file, in SQLite


async def take_in(store: Store, new: Sequence[Entry], blocked: set[str]) -> TakenIn:
    """
    Insert the entries of *new* rows, as far as they can be.

    A row whose key has an entry with the same digest was moved before a kill.  If the entry of its key is
    another write, an earlier version of the package has freed the key although the entry stayed, or the
    application's file is an older copy, which did not have the earlier row.  The entry is then deleted, once
    it has a verdict, and that was acknowledged; if nobody acknowledges verdicts here, that is not waited for.
    Until then the row has to wait, and those that come behind it and write to the same thing, but no others.
    *blocked* are the things of earlier rows that wait; those of these rows are added.
    """
    taken = await store.run(partial(_take_in, new, store.commons.texts, blocked))
    numbers = {*taken.rows}
    blocked.update(row.thing for row in new if row.thing and row.seq not in numbers)
    return taken


def _take_in(
    new: Sequence[Entry],
    commons: Mapping[int, str],
    blocked: Collection[str],
) -> Script[TakenIn]:
    digests = {row.key: row.digest for row in new}
    there = yield entry_sql.SELECT_KNOWN, ([*digests],)
    others = {
        key: (seq, state)
        for key, seq, digest, state, _ in there
        if digest != digests[key]
    }
    unheard: set[int] = set()
    if others:
        unheard = {seq for (seq,) in (yield entry_sql.UNHEARD_OF_KEYS, ([*others],))}
    blocking = {
        key
        for key, (seq, state) in others.items()
        if state != State.DONE or seq in unheard
    }
    taken: list[Entry] = []
    waiting: set[str | None] = {*blocked}
    for row in new:
        if row.key not in blocking and row.thing not in waiting:
            taken.append(row)
        elif row.thing is not None:
            waiting.add(row.thing)
    if replaced := [row.key for row in taken if row.key in others]:
        yield entry_sql.DELETE_UNHEARD_OF_KEYS, (replaced,)
        yield entry_sql.DELETE_REPLACED, (replaced,)
    numbers: set[int] = set()
    if taken:
        yield from add([_placed(row) for row in taken], commons, ours=numbers)
        yield from note_times(taken)
    before = min(numbers) - 1 if numbers else None
    has_times = any(row.not_before is not None for row in taken)
    return TakenIn(
        rows=[row.seq for row in taken],
        before=before,
        has_times=has_times,
    )


def _placed(row: Entry) -> Entry:
    """Return the entry of *row*, beside its lane if it is not to be sent before a time."""
    if row.not_before is None:
        return row
    return replace(row, lane=aside_of(row.lane))


async def end_lost(store: Store, moved: Sequence[Entry]) -> None:
    """Insert an entry with the verdict UNKNOWN for each row that is marked as *moved* and has no entry."""
    await store.run(partial(_end_lost, moved))


def _end_lost(moved: Sequence[Entry]) -> Script[None]:
    known = {
        key for key, *_ in (yield entry_sql.SELECT_KNOWN, ([row.key for row in moved],))
    }
    if lost := [row for row in moved if row.key not in known]:
        yield from add(lost, {}, ours=set())
        ended = verdict_of_lost(lost[0])  # It says the same of each.
        values = int(State.DONE), ended.verdict, ended.outcome, ended.done_at
        yield entry_sql.END_LOST, (*values, [row.key for row in lost])
