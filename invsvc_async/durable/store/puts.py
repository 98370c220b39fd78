"""
What a process stores of its entries: that a write is about to be sent, was not sent, or has ended.

A *put* is an entry as it is to be from now on, the lane of this process that it is in, and what its write
left of its thing.  The stores collect puts, and store them in groups (``put``, in ``sqlite`` and
``postgres``).  A put in a lane that another process has is refused: its future fails with LostEntryError, and
PostgreSQL's store doubts the lane.  A file has one process, so there a put of an end counts as stored if the
entry has ended already; a put of a send is refused then.  There are two kinds:

- *by number*: the entry was read from the store, or claimed.  It is updated if it is still open.
- *unkeyed*: the entry of a client's write without a key of the user's own.  Its first put inserts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.entry import Entry, columns_of
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.storage.dialect import MOST, slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.states import Left
    from invsvc_async.storage.dialect import Cell, Script


class Put(NamedTuple):
    """
    An entry as it is to be, its lane, and what its write *left* of its thing.

    With an end, *left* is given exactly if the write may have had an effect and is no create (``left_by`` in
    ``durable/last_writes``): the place of its thing in ``states`` then says who is overtaken.  Of an unkeyed
    put, no state is given.
    """

    entry: Entry
    lane: OwnedLane
    left: Left | None


class PutsOfGroup(NamedTuple):
    """
    The last put of each entry of a group.

    ``lefts`` are the rows of what those by number left, of five columns; ``changed`` the keys of the unkeyed
    ones that left something, each with its thing.
    """

    unkeyed: list[Put]
    by_number: list[Put]
    lefts: list[tuple[Cell, ...]]
    changed: list[tuple[str, str]]


def last_puts(given: Iterable[Put]) -> PutsOfGroup:
    """Return the last put that was *given* for each entry."""
    unkeyed: dict[str, Put] = {}
    by_number: dict[int, Put] = {}
    lefts: dict[int, tuple[Cell, ...]] = {}
    changed: dict[str, tuple[str, str]] = {}
    for each in given:
        entry, _, left = each
        if not entry.seq:
            unkeyed[entry.key] = each
            if left is not None:
                changed[entry.key] = entry.key, left.thing
            continue
        by_number[entry.seq] = each
        if left is not None:
            lefts[entry.seq] = entry.seq, left.thing, left.team, left.state, left.stamp
    return PutsOfGroup(
        [*unkeyed.values()],
        [*by_number.values()],
        [*lefts.values()],
        [*changed.values()],
    )


def put_unkeyed(
    given: Sequence[Put], changed: Sequence[tuple[str, str]] = ()
) -> tuple[str, Sequence[Cell]]:
    """
    Return the statement that inserts or updates entries by their keys, and its values.

    It returns the keys of those whose lanes are still owned: others are not stored.  In PostgreSQL, it also
    notes those that have *changed* their things.  In a file, ``NOTE_CHANGED_IN_FILE`` does that.
    """
    rows = [
        (
            entry.key,
            lane.number,
            lane.token,
            entry.operation,
            entry.thing,
            *columns_of(entry),
        )
        for entry, lane, _ in given
    ]
    lanes = list({lane.number for _, lane, _ in given})
    if changed:
        return entry_sql.PUT_UNKEYED_AND_NOTE, (rows, lanes, changed)
    return entry_sql.PUT_UNKEYED, (rows, lanes)


def put_in_database(
    given: Sequence[Put],
    lefts: Sequence[tuple[Cell, ...]],
    *,
    counted: bool,
    is_again: bool,
) -> tuple[str, Sequence[Cell]]:
    """
    Return the statement that updates entries by their numbers in PostgreSQL, and its values.

    It returns the numbers of those that are stored, with the times of their verdicts: their lanes are still
    owned, and they have no end, or are given the end that they have.  What follows from an end is stored with
    it.

    *counted* is whether the store keeps counts, *is_again* whether an earlier try may have stored an end that
    somebody can have reopened in its lane since.
    """
    rows = [
        (
            entry.seq,
            entry.key,
            lane.number,
            lane.token,
            entry.taker,
            *columns_of(entry),
        )
        for entry, lane, _ in given
    ]
    lanes = list({lane.number for _, lane, _ in given})
    has_lefts = bool(lefts)
    text = entry_sql.PUT_IN_DATABASE[counted, has_lefts, is_again]
    return text, (rows, lanes, lefts) if has_lefts else (rows, lanes)


def put_in_file(
    entries: Sequence[Entry], lefts: Sequence[tuple[Cell, ...]]
) -> Script[set[int]]:
    """
    Update *entries* by their numbers in a file; return those of entries that could not be updated.

    They are gone, or done: an entry that was dropped, or that another write under its key replaced, stays so.
    """
    for part in slices(lefts, MOST):
        yield entry_sql.NOTE_LEFT_IN_FILE, (part,)
    lost: set[int] = set()
    for some in slices(entries, MOST):
        changed = yield (
            entry_sql.PUT_IN_FILE,
            ([(entry.seq, *columns_of(entry)) for entry in some],),
        )
        if len(changed) < len(some):
            # Which of them were not changed is not known.  Those that were have the state that was put.  An
            # entry that is done, and is put as done, counts as stored: in a file, its end is of this process,
            # or a person's finding, which stays.
            states = dict(
                (yield entry_sql.STATES_OF_NUMBERS, ([entry.seq for entry in some],))
            )
            lost.update(
                entry.seq for entry in some if states.get(entry.seq) != entry.state
            )
    return lost
