"""
What a process stores of its entries: that a write is about to be sent, was not sent, or has ended.

A *put* is an entry as it is to be from now on, the lane of this process that it is in, and what its write
left of its thing.  The stores collect puts, and store them in groups (``put``, in ``sqlite`` and
``postgres``); here are the statements.  There are two kinds:

- *by number*: the entry was read from the store, or claimed.  It is updated, unless it has an end already.
- *by key*: the entry of a client's write without a key of the user's own.  Its first put inserts it.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.durable.entry import (
    CHANGING,
    CHANGING_NAMES,
    SET_CHANGING,
    Entry,
    State,
    columns_of,
)
from invsvc_async.durable.store.conditions import OPEN
from invsvc_async.storage.dialect import MOST, slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.states import Left
    from invsvc_async.storage.dialect import Cell, Script


# --- by key, in both databases

# The entry enters as being sent, in no order (place 0), and with no digest, because its key is made up.  One
# that is there is updated, unless another process has taken it over: then it is in another lane.
_PUT_BY_KEY: Final = f"""
WITH durable AS MATERIALIZED (SELECT {{durably}} AS done),
owned AS MATERIALIZED (SELECT id, owner FROM {{s}}lanes WHERE id {{any 2 bigint}} ORDER BY id {{share}})
INSERT INTO {{s}}entries AS e
    (place, key, lane, digest, operation, state, common, intent, verdict, outcome, done_at)
SELECT 0, given.key, given.lane, '', given.operation, given.state, given.common, given.intent, given.verdict,
    given.outcome, given.done_at
FROM durable CROSS JOIN {{rows 1 key:text lane:bigint token:text operation:text {CHANGING}}}
    JOIN owned ON owned.id = given.lane AND owned.owner = given.token WHERE true
ON CONFLICT (key) DO UPDATE SET state = excluded.state, common = excluded.common, intent = excluded.intent,
    verdict = excluded.verdict, outcome = excluded.outcome, done_at = excluded.done_at
    WHERE e.lane = excluded.lane
RETURNING key
"""

# --- by number, in PostgreSQL: one statement for a group
#
#     durable makes the commit wait for the disk
#     owned   the lanes, locked until the commit; an entry is stored if its lane still has the token
#     stored  the entries that are stored.  A send changes no column of an index.  The key is compared,
#             because in a database that was put back from a copy, a number may be another key's.  An entry
#             that has an end is stored only if it is this one: an earlier try has stored it, and its reply
#             was lost
#     told    who gives the verdict of each that gets one now.  An end that an earlier try has stored is not
#             noted again: it may be acknowledged by now.  ``{told}`` leaves out those of a client's journal
#
# After that come ``_COUNTED``, in a store that keeps counts, and ``_NOTED_STATES``, if writes left something.

# Processes compare the times of verdicts, so a verdict gets the time of the database, not that of a process.
# If the service's answers show that the database's clock is behind, it gets the given time, which is later
# (``durable/done_at.py``).
_DONE_AT: Final = (
    "done_at = CASE WHEN given.done_at IS NOT NULL"
    " THEN coalesce(e.done_at, greatest(given.done_at, CAST({ms} AS bigint))) END"
)
_SET_VALUES: Final = ", ".join(
    _DONE_AT if name == "done_at" else f"{name} = given.{name}"
    for name in CHANGING_NAMES
)
# If an earlier try may have stored this end, and the entry is TO DO now, somebody may have reopened it since,
# which must not be undone.
#
# The end of a write that was never sent finds TO DO as well, although no try has stored it.  It is refused,
# too.  Its process then reads the entry again, and decides again, which is safe since nothing was sent.
_NOT_REOPENED: Final = (
    f" AND (e.state <> {State.TO_DO:d} OR given.state <> {State.DONE:d})"
)
# What the entries were before, b, tells what to count, and which ends are new.  If somebody reopens or stores
# an entry just now, b is outdated, and the entry is not stored.
_WHAT_TO_COUNT: Final = """, e.state AS state, coalesce(e.verdict, '') AS verdict, e.flags AS flags,
    b.state AS state_before, coalesce(b.verdict, '') AS verdict_before, b.flags AS flags_before"""


def _stored(*, counted: bool, is_again: bool) -> str:
    """Return the part of the statement that stores entries; *is_again*: an earlier try may have done so."""
    what_to_count = _WHAT_TO_COUNT if counted else ""
    not_reopened = _NOT_REOPENED if is_again else ""
    return f"""
WITH durable AS MATERIALIZED (SELECT {{durably}} AS done),
owned AS MATERIALIZED (SELECT id, owner FROM {{s}}lanes WHERE id {{any 2 bigint}} ORDER BY id {{share}}),
stored AS (
    UPDATE {{s}}entries AS e SET {_SET_VALUES}
    FROM durable CROSS JOIN {{rows 1 seq:bigint key:text lane:bigint token:text taker:text {CHANGING}}}
        JOIN owned ON owned.id = given.lane AND owned.owner = given.token
        JOIN {{s}}entries AS b ON b.seq = given.seq
    WHERE e.seq = given.seq AND e.key = given.key AND e.lane = given.lane AND b.state = e.state
        AND (e.{OPEN}{not_reopened} OR e.verdict = given.verdict AND e.outcome = given.outcome)
    RETURNING e.seq, e.place, e.done_at, given.taker, b.{OPEN} AS was_open {what_to_count}
), told AS (
    INSERT INTO {{s}}unheard (seq, taker) SELECT seq, taker FROM stored
        WHERE was_open AND done_at IS NOT NULL {{told}} ON CONFLICT DO NOTHING
)
"""


_COUNTED: Final = """
, counted AS (
    INSERT INTO {s}counts AS c (part, state, verdict, flags, many)
    SELECT {part}, state, verdict, flags, sum(one) FROM (
        SELECT state, verdict, flags, 1 AS one FROM stored
        UNION ALL SELECT state_before, verdict_before, flags_before, -1 FROM stored
    ) AS changed GROUP BY state, verdict, flags HAVING sum(one) <> 0 ORDER BY state, verdict, flags
    ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = c.many + excluded.many
)
"""
# The place says who is overtaken, so it does not fall.  The state is what the write left that ended last,
# even if its place is lower.  An end that an earlier try has stored leaves nothing again: since then, another
# process may have stored what a later write left.
#
# Two writes to one thing are not stored together, but if they were, the statement would fail for all entries:
# hence DISTINCT.
_NOTED_STATES: Final = """
, kept AS (
    INSERT INTO {s}states AS s (thing, place, team, state, stamp)
    SELECT DISTINCT ON (given.thing) given.thing, place, given.team, given.state, given.stamp
    FROM {rows 3 seq:bigint thing:text team:text state:text stamp:bigint} JOIN stored USING (seq)
    WHERE was_open ORDER BY given.thing, place DESC
    ON CONFLICT (thing) DO UPDATE SET place = greatest(s.place, excluded.place), team = excluded.team,
        state = excluded.state, stamp = excluded.stamp
)
"""


def _put_text(*, counted: bool, has_lefts: bool, is_again: bool) -> str:
    stored = _stored(counted=counted, is_again=is_again)
    more = f"{_COUNTED if counted else ''}{_NOTED_STATES if has_lefts else ''}"
    return f"{stored}{more} SELECT seq FROM stored"


_PUT_IN_DATABASE: Final = {
    (counted, has_lefts, is_again): _put_text(
        counted=counted, has_lefts=has_lefts, is_again=is_again
    )
    for counted, has_lefts, is_again in product((False, True), repeat=3)
}

# --- by number, in a file: triggers do what follows from an end, but for what writes leave (``tables``)

_PUT_IN_FILE: Final = f"""
UPDATE {{s}}entries AS e SET {SET_CHANGING} FROM {{rows 1 seq:bigint {CHANGING}}}
    WHERE e.seq = given.seq AND e.{OPEN} {{changed}}
"""
_STATES_OF: Final = "SELECT seq, state FROM {s}entries WHERE seq {any 1 bigint}"
# Before the entries are updated: an end that is there leaves nothing again.
_NOTE_STATES: Final = f"""
INSERT INTO {{s}}states AS s (thing, place, team, state, stamp)
SELECT given.thing, e.place, given.team, given.state, given.stamp
FROM {{rows 1 seq:bigint thing:text team:text state:text stamp:bigint}}
    JOIN {{s}}entries AS e ON e.seq = given.seq
WHERE e.{OPEN} ON CONFLICT (thing) DO UPDATE SET place = max(s.place, excluded.place), team = excluded.team,
    state = excluded.state, stamp = excluded.stamp
"""


class Put(NamedTuple):
    """An entry as it is to be, its lane, and what its write *left* of its thing."""

    entry: Entry
    lane: OwnedLane
    left: Left | None


class PutsOfGroup(NamedTuple):
    """The last put of each entry of a group; and the rows of what those by number left, of five columns."""

    by_key: list[Put]
    by_number: list[Put]
    lefts: list[tuple[Cell, ...]]


def last_puts(given: Iterable[Put]) -> PutsOfGroup:
    """Return the last put that was *given* for each entry."""
    by_key: dict[str, Put] = {}
    by_number: dict[int, Put] = {}
    lefts: dict[int, tuple[Cell, ...]] = {}
    for each in given:
        entry, _, left = each
        if not entry.seq:
            by_key[entry.key] = each
            continue
        by_number[entry.seq] = each
        if left is not None:
            lefts[entry.seq] = entry.seq, left.thing, left.team, left.state, left.stamp
    return PutsOfGroup([*by_key.values()], [*by_number.values()], [*lefts.values()])


def put_by_key(given: Sequence[Put]) -> tuple[str, Sequence[Cell]]:
    """
    Return the statement that inserts or updates entries by their keys, and its values.

    It returns the keys of those whose lanes are still owned.
    """
    rows = [
        (entry.key, lane.number, lane.token, entry.operation, *columns_of(entry))
        for entry, lane, _ in given
    ]
    return _PUT_BY_KEY, (rows, list({lane.number for _, lane, _ in given}))


def put_in_database(
    given: Sequence[Put],
    lefts: Sequence[tuple[Cell, ...]],
    *,
    counted: bool,
    is_again: bool,
) -> tuple[str, Sequence[Cell]]:
    """
    Return the statement that updates entries by their numbers in PostgreSQL, and its values.

    It returns the numbers of those that are stored.  *counted* is whether the store keeps counts, *is_again*
    whether an earlier try may have stored an end that somebody can have reopened in its lane since.
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
    text = _PUT_IN_DATABASE[counted, has_lefts, is_again]
    return text, (rows, lanes, lefts) if has_lefts else (rows, lanes)


def put_in_file(
    entries: Sequence[Entry], lefts: Sequence[tuple[Cell, ...]]
) -> Script[set[int]]:
    """
    Update *entries* by their numbers in a file; return those of entries that could not be updated.

    They are gone, or done: an entry that was dropped, or that another write under its key replaced, stays so.
    """
    for part in slices(lefts, MOST):
        yield _NOTE_STATES, (part,)
    lost: set[int] = set()
    for some in slices(entries, MOST):
        changed = yield (
            _PUT_IN_FILE,
            ([(entry.seq, *columns_of(entry)) for entry in some],),
        )
        if len(changed) < len(some):
            # Which of them were not changed is not known.  Those that were have the state that was put.  An
            # entry that is done, and is put as done, counts as stored: nobody else stores its end in a file.
            states = dict((yield _STATES_OF, ([entry.seq for entry in some],)))
            lost.update(
                entry.seq for entry in some if states.get(entry.seq) != entry.state
            )
    return lost
