"""
Writes that wait for their time, beside the lanes in which writes are sent.

A write that is not to be sent before a time is stored *aside*: in the lane that ``aside_of`` gives for its
own one.  Nobody reads that lane to send, so such writes cost nothing until they are due.  The owner of the
lane moves them into it then.

A write to the same thing that comes behind one of those waits, too.  The statement that reads a lane tells
which of its entries are behind one that is aside (``open_in`` of the store): that keeps the order.  The
reader moves these aside as well, so that they are not read again and again.  Each comes back when the first
of those before it does, and is looked at again.  A wrong time delays a write, but does not change the order.

``not_before`` is the time that the user gave; ``due_at`` the one at which the entry comes, or came, back into
its lane.  Both are epoch ms, compared with the clock of the database, or for a file with that of the process.

Only the owner of a lane moves entries, under a lock on the lane's row, and not while it reads lanes: a read
that has begun behind the place of an entry that comes back would find only the writes behind that entry, as
if they had to wait for nothing.
"""

from __future__ import annotations

import time
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.durable.store.conditions import aside_of, lane_of
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.storage.dialect import MOST, slices

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


_AT_ONCE: Final = 200  # entries that one transaction moves


class Due(NamedTuple):
    """
    What became due.

    ``lanes`` are the lanes to which entries came back, each with the place after which it has to be read
    again. ``next_in`` is in how many seconds the next entry is due, 0.0 if one may be due by now; ``None``:
    none waits.
    """

    lanes: Mapping[int, int]
    next_in: float | None


class NotDue(NamedTuple):
    """How many writes are not due, up to the most asked for, and when the first one is (epoch ms)."""

    many: int
    first: int | None


async def bring_back(store: Store, lanes: Collection[OwnedLane]) -> Due:
    """Move entries that are due back into their *lanes*, some of each, and tell when to do so again."""
    by_number = {lane.number: lane for lane in lanes}
    aside, now = await _next_due_in(store, [*by_number])
    if not aside:
        return Due({}, None)
    due = [by_number[lane] for lane, due_at in aside.items() if due_at <= now]
    if not due:
        return Due({}, (min(aside.values()) - now) / 1000)
    return Due(await store.run(partial(_bring_back, due, now)), 0.0)


async def _next_due_in(
    store: Store, lanes: Sequence[int]
) -> tuple[dict[int, int], float]:
    """Return when the next entry of each of *lanes* is due, and the time by which that counts (epoch ms)."""
    if not lanes:
        return {}, 0.0
    rows = await store.rows(
        entry_sql.NEXT_DUE, [(aside_of(number),) for number in lanes]
    )
    found = {lane_of(aside): due_at for aside, due_at, _ in rows if due_at is not None}
    # In a file, the statement's time is of this machine as well.  ``time.time`` is the function that gives
    # ``done_at`` there, so that all times of a file's entries are of one clock.
    now = rows[0][2] if store.is_shared else time.time()
    return found, now * 1000


def _bring_back(lanes: Sequence[OwnedLane], now: float) -> Script[dict[int, int]]:
    """
    Move what is due into its lane; return the place before the first of what came back, by lane.

    What an earlier run has moved, whose reply was lost, is not among it.  It is read with the next sign of
    life, at which the dispatcher reads its lanes from their beginnings.
    """
    owned = yield from _still_owned(lanes)
    before: dict[int, int] = {}
    for number in sorted(owned):
        values = aside_of(number), number, int(now), ceil(_AT_ONCE / len(owned))
        places = [place for (place,) in (yield entry_sql.COME_BACK, values)]
        if places:
            before[number] = min(places) - 1
    return before


def _still_owned(lanes: Collection[OwnedLane]) -> Script[set[int]]:
    """Return which of *lanes* are still owned; they stay so until the commit."""
    owners = dict(
        (yield store_sql.LOCK_LANES_IN_SHARE, ([lane.number for lane in lanes],))
    )
    return {lane.number for lane in lanes if owners.get(lane.number) == lane.token}


async def move_aside(
    store: Store,
    behind: Sequence[int],
    lanes: Collection[OwnedLane],
) -> None:
    """Move aside the entries of *lanes* that are still *behind* entries that wait for their time."""
    await store.run(partial(_move_aside, behind, lanes))


def _move_aside(seqs: Sequence[int], lanes: Collection[OwnedLane]) -> Script[None]:
    owned = yield from _still_owned(lanes)
    for some in slices(seqs, MOST):
        found = yield entry_sql.FIRST_BEFORE, (some,)
        moved = [
            (seq, aside_of(lane), due_at)
            for seq, lane, due_at in found
            if due_at is not None and lane in owned
        ]
        if moved:
            yield entry_sql.MOVE_ASIDE, (moved,)


def make_due_again(thing: str | None, place: int) -> Script[None]:
    """Make writes to *thing* due that were behind *place*: the write aside there was deleted or ended."""
    if thing is not None:
        yield entry_sql.MAKE_DUE, (thing, place)


def note_times(new: Sequence[Entry]) -> Script[None]:
    """Note the times of *new* entries that have a time, and were inserted aside."""
    if times := [(e.key, e.not_before) for e in new if e.not_before is not None]:
        yield entry_sql.NOTE_TIMES, (times,)


async def first(
    store: Store,
    lanes: int,
    limit: int,
) -> list[Entry]:
    """Return the first entries that are aside, in the store with so many *lanes*."""
    return await store.entries(entry_sql.FIRST_ASIDE, _all_aside(lanes), limit)


async def count(store: Store, lanes: int, most: int) -> NotDue:
    """Count the entries whose time has not come, in the store with so many *lanes*, up to *most*."""
    asides = [(lane,) for lane in _all_aside(lanes)]
    [(many, at)] = await store.rows(entry_sql.COUNT_NOT_DUE, asides, most)
    return NotDue(int(many), at)


def _all_aside(lanes: int) -> list[int]:
    return [aside_of(lane) for lane in range(1, lanes + 1)]
