"""
The entries of keys: claiming, looking, taking over, reopening and releasing.

A claim inserts an entry unless its key has one.  An entry is taken only out of a lane that nobody living
owns: the script of a take-over checks that, under the locks of both lanes.  It is released and stored only by
the owner of its lane, and reopened only from the verdict that was seen: each statement checks that by itself.
Who returns a secret is noted without a check.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from invsvc_async.durable.entry import (
    ENTRY,
    WRITTEN,
    WRITTEN_NAMES,
    Entry,
    State,
    entry_in,
    written_of,
)
from invsvc_async.durable.store.adding import add
from invsvc_async.durable.store.conditions import ENDED, FREED, OPEN
from invsvc_async.durable.store.lanes import (
    LOCK_IF_OWNED,
    LOCK_OWNER,
    check_owned,
    has_other_living_owner,
    has_silent_sender,
    note_silent_sender,
)
from invsvc_async.durable.store.members import dead, unowned
from invsvc_async.durable.store.order import check_alone
from invsvc_async.durable.store.restored import MARK_IS_OPEN
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.verdicts import DELETE_UNHEARD
from invsvc_async.reconcile.enums import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.postgres import PostgresStore
    from invsvc_async.storage.dialect import Cell, Script


class Teller(IntEnum):
    """
    Who has to return the secret of a new webhook.  The statements give these numbers.

    That is what ``unheard`` has in the journal of a client, with that process as ``taker``.  In batches and
    outboxes, ``unheard`` has something else: the verdicts that nobody has acknowledged (``verdicts``).
    """

    NOBODY = 0  # it was returned, or there is none
    LIVING = 1  # a living process has to
    GONE = 2  # a process that is gone had to, so the secret is lost


_TELLER: Final = (
    f"CASE WHEN u.seq IS NULL THEN {Teller.NOBODY:d}"
    f" WHEN {dead('u.taker')} THEN {Teller.GONE:d} ELSE {Teller.LIVING:d} END"
)
# An entry, the token of its lane, whether a living process has it (1 or 0), and a ``Teller``.
_FOUND: Final = f"""
SELECT {ENTRY}, l.owner, CASE WHEN {unowned("l.owner")} THEN 0 ELSE 1 END AS lives,
    {_TELLER} AS teller
FROM {{s}}entries AS e LEFT JOIN {{s}}lanes AS l ON l.id = e.lane LEFT JOIN {{s}}unheard AS u ON u.seq = e.seq
"""
_LOOK: Final = f"{_FOUND} WHERE e.key {{any 2 text}}"
_GIVEN: Final = f"{WRITTEN} taker:text"
_NUMBER: Final = "nextval('{s}entries_seq_seq')"
_WRITTEN_COLUMNS: Final = ", ".join(WRITTEN_NAMES)
# The values of a new entry, of a row that has ``is_whole`` and ``is_next`` (below).  An entry of a thing that
# is not next, or of which that is not known (NULL), enters as TO DO, whatever state it was given.
_VALUES_IF_NEXT: Final = ", ".join(
    f"CASE WHEN is_whole AND (thing IS NULL OR is_next) THEN state ELSE {State.TO_DO:d} END"
    if name == "state"
    else name
    for name in WRITTEN_NAMES
)
# PostgreSQL claims keys in one statement, which also returns the entries that were there:
#
#     durable makes the commit wait for the disk
#     whole   is_whole: the database has all keys, since it was not restored from a copy.  Otherwise no write
#             is next.  A run looks for the mark of a copy before it claims.  But this connection may be the
#             first one to the copy: then ``connected`` of the store has set the mark since.  A run whose
#             write is not next looks for the mark once more before it sends
#     owned   the lane, if it is still this process's; it stays so until the commit
#     new     what is given under keys that have no entry, if the lane is owned
#     line    for each thing in new, its row of states, locked until the commit, so the numbers of the entries
#             of a thing are in the order of their commits.  ``newest`` becomes the number of the new entry,
#             and ``before`` the number that ``newest`` was; ``is_next``: see below
#     made    the inserted entries; none under a key for which another process was faster
#     told    who has to return the secrets of webhooks that they create
#
# A write is next (``order``) if ``before`` is 0: its row of states is new, so no write to the thing is known.
# Or if ``before`` is an entry of this lane that was applied; that may be read as of the statement's start,
# because it stays so.  ``before`` is NULL if the row was there but named no claim: something else has made
# it, or a retry has removed the name.  Then ``is_next`` is NULL, too, and counts as no.
_CLAIM: Final = f"""
WITH durable AS MATERIALIZED (SELECT {{durably}} AS done),
whole AS (SELECT NOT EXISTS ({MARK_IS_OPEN}) AS is_whole),
owned AS MATERIALIZED (SELECT id FROM {{s}}lanes WHERE id = $3 AND owner = $4 {{share}}),
new AS MATERIALIZED (
    SELECT owned.id, given.* FROM durable CROSS JOIN owned CROSS JOIN {{rows 2 {_GIVEN}}}
    WHERE NOT EXISTS (SELECT 1 FROM {{s}}entries AS e WHERE e.key = given.key)
), line AS (
    INSERT INTO {{s}}states AS s (thing, place, newest, before)
    SELECT thing, 0, {_NUMBER}, 0 FROM new WHERE thing IS NOT NULL ORDER BY thing
    ON CONFLICT (thing) DO UPDATE SET before = s.newest, newest = {_NUMBER}
    RETURNING thing, newest, before = 0 OR EXISTS (
        SELECT 1 FROM {{s}}entries WHERE seq = before AND lane = $3 AND verdict = '{Verdict.APPLIED}'
    ) AS is_next
), made AS (
    INSERT INTO {{s}}entries (seq, place, lane, {_WRITTEN_COLUMNS})
    SELECT number, number, id, {_VALUES_IF_NEXT}
    FROM (SELECT coalesce(newest, {_NUMBER}) AS number, * FROM new LEFT JOIN line USING (thing)) AS numbered
        CROSS JOIN whole
    ON CONFLICT (key) DO NOTHING RETURNING seq, key
), told AS (
    INSERT INTO {{s}}unheard (seq, taker)
    SELECT made.seq, given.taker FROM made JOIN {{rows 2 {_GIVEN}}} USING (key) WHERE given.taker IS NOT NULL
)
SELECT given.key, made.seq, is_whole AND (given.thing IS NULL OR is_next), found
FROM whole CROSS JOIN {{rows 2 {_GIVEN}}} LEFT JOIN made USING (key) LEFT JOIN line USING (thing)
    LEFT JOIN LATERAL ({_FOUND} WHERE e.key = given.key) AS found ON true
"""
# In a file, entries that were inserted as being sent, but are not next (``order``), become TO DO in the same
# transaction.  A place in ``states`` is the number of an entry, unless a forced retry has given it: then no
# entry is found, and the new one is not next.
_NOT_NEXT: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d} WHERE seq {{any 1 bigint}} AND thing IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {{s}}entries AS o WHERE o.thing = e.thing AND o.{OPEN} AND o.seq <> e.seq)
    OR EXISTS (SELECT 1 FROM {{s}}entries AS u WHERE u.thing = e.thing AND u.verdict = '{Verdict.UNKNOWN}')
    OR EXISTS (SELECT 1 FROM {{s}}states AS s WHERE s.thing = e.thing AND NOT EXISTS (
        SELECT 1 FROM {{s}}entries WHERE seq = s.place AND lane = $2 AND verdict = '{Verdict.APPLIED}'
    ))
) RETURNING seq
"""
_SET_TELLER: Final = """
INSERT INTO {s}unheard (seq, taker) SELECT seq, taker FROM {rows 1 seq:bigint taker:text} WHERE true
    ON CONFLICT (seq) DO UPDATE SET taker = excluded.taker
"""
_MOVE_ENTRY: Final = f"""
UPDATE {{s}}entries SET lane = $3 WHERE seq = $1 AND lane = $2 AND {OPEN} RETURNING seq
"""
_WAS_MOVED: Final = (
    f"SELECT seq FROM {{s}}entries WHERE seq = $1 AND lane = $2 AND {OPEN}"
)
_REOPEN_SEEN: Final = f"""
UPDATE {{s}}entries SET lane = $5, state = $4, verdict = NULL, outcome = NULL, done_at = NULL, flags = 0
    WHERE seq = $1 AND state = {State.DONE:d} AND verdict = $2 AND done_at = $3 RETURNING seq
"""
_DIGEST: Final = (
    f"UPDATE {{s}}entries SET digest = $3 WHERE seq = $1 AND lane = $2 AND {OPEN}"
)
_IF_OWNED: Final = f"""
WHERE key = $1 AND lane = $2 AND {OPEN}
    AND EXISTS (SELECT 1 FROM {{s}}lanes WHERE id = $2 AND owner = $3)
"""
RELEASE: Final = f"UPDATE {{s}}entries SET lane = {FREED} {_IF_OWNED}"
_RELEASE_UNSENT: Final = (
    f"UPDATE {{s}}entries SET lane = {FREED}, state = {State.TO_DO:d} {_IF_OWNED}"
)
_HAS_KEY: Final = "SELECT 1 FROM {s}entries WHERE key = $1"
_IN_DOUBT_IN_LANES: Final = (
    f"e.lane {{any 1 bigint}} AND e.{OPEN} AND e.state = {State.SENDING:d}"
)


class Claimed(NamedTuple):
    """
    The key had no entry, and has one now, in the lane of the run.

    ``seq`` is its number, and its place.  ``is_next`` is whether it waits for no other write to its thing.
    """

    seq: int
    is_next: bool


class Finished(NamedTuple):
    """The write of the key has a verdict; ``lives``: the lane of the entry belongs to a living process."""

    entry: Entry
    teller: Teller
    lives: bool


class Held(NamedTuple):
    """The entry of the key belongs to a living process, *by* the token of its lane."""

    entry: Entry
    by: str


class Abandoned(NamedTuple):
    """
    The entry of the key is not done, and no living process has it, except perhaps the asking one.

    ``sent`` is whether the write may have been sent.
    """

    entry: Entry
    sent: bool


Seen: TypeAlias = Finished | Held | Abandoned  # of a key that has an entry
Claim: TypeAlias = Claimed | Seen


class Taken(NamedTuple):
    """An entry is in the lane of the run; ``is_gone``: its last process is provably done with it."""

    is_gone: bool


class ToClaim(NamedTuple):
    """A new *entry*, and the token of the process that has to return the secret of the new webhook."""

    entry: Entry
    taker: str | None


# --- claiming


async def claim(
    store: Store, lane: OwnedLane, given: Sequence[ToClaim]
) -> dict[str, Claim]:
    """
    Insert new entries in *lane*, unless their keys have entries; return the claims by key.

    An entry that is given as being sent, but is not next to its thing (``order``), is inserted as TO DO.  Two
    writes to one thing are not *given* together: the second has to see the first.

    A key is missing in the result if the lane is lost, or another process has inserted its entry meanwhile.
    If the reply was lost, the next try finds its own entries: they are ``Abandoned``, not ``Claimed``.

    Costs one round trip, and no other one to know the entries that were there.
    """
    if isinstance(store, SqliteStore):
        script = partial(_insert, given, store.commons.texts, lane, store.silence)
        return await store.run(script)
    return await _claim_in_database(store, lane, given)


async def _claim_in_database(
    store: PostgresStore, lane: OwnedLane, given: Sequence[ToClaim]
) -> dict[str, Claim]:
    rows = [(*written_of(entry), taker) for entry, taker in given]
    await store.store_commons()
    found = await store.rows(_CLAIM, store.silence, rows, lane.number, lane.token)
    claims: dict[str, Claim] = {}
    for key, seq, is_next, row in found:
        if seq is not None:
            claims[key] = Claimed(seq, bool(is_next))  # NULL: not known, so no
        elif row is not None:
            claims[key] = _seen_in(row, lane.token)
    return claims


def _insert(
    given: Sequence[ToClaim],
    commons: Mapping[int, str],
    lane: OwnedLane,
    silence: float,
) -> Script[dict[str, Claim]]:
    """Insert entries in a file; return as ``claim``."""
    ours: set[int] = set()
    entries = [replace(entry, lane=lane.number) for entry, _ in given]
    known = yield from add(entries, commons, ours=ours)
    made = {key: seq for key, (seq, *_) in known.items() if seq in ours}
    not_next: set[int] = set()
    if made and any(entry.thing is not None for entry, _ in given):
        rows = yield _NOT_NEXT, ([*made.values()], lane.number)
        not_next = {seq for (seq,) in rows}
    tellers = [
        (made[entry.key], taker)
        for entry, taker in given
        if taker and entry.key in made
    ]
    if tellers:
        yield _SET_TELLER, (tellers,)
    claims: dict[str, Claim] = {
        key: Claimed(seq, seq not in not_next) for key, seq in made.items()
    }
    if others := known.keys() - made:
        for row in (yield _LOOK, (silence, [*others])):
            seen = _seen_in(row, lane.token)
            claims[seen.entry.key] = seen
    return claims


async def is_owned(store: Store, lane: OwnedLane) -> bool:
    """Return whether this process still owns *lane*."""
    return bool(await store.rows(LOCK_IF_OWNED, lane.number, lane.token))


# --- looking


async def look(store: Store, key: str, mine: str | None = None) -> Seen | None:
    """
    Return the entry of *key* as it is now; ``None`` if there is none.

    One in the lane of the token *mine* is not held: the process that asks has no other run of it.
    """
    rows = await store.rows(_LOOK, store.silence, [key])
    return _seen_in(rows[0], mine) if rows else None


async def is_there(store: Store, key: str) -> bool:
    """Return whether *key* has an entry."""
    return bool(await store.rows(_HAS_KEY, key))


async def released_in_doubt(store: Store) -> list[Entry]:
    """Return the entries of keys that no process has and that may have been sent, oldest first."""
    return await store.entries(f"{_IN_DOUBT_IN_LANES} ORDER BY e.seq", [FREED, ENDED])


async def load_common_of(store: Store, entry: Entry) -> None:
    """Load the common part of the intent of *entry*, which another process has stored."""
    await store.entries(
        "e.seq = $1", entry.seq
    )  # To select an entry loads what it lacks.


def _seen_in(row: Sequence[Cell], mine: str | None) -> Seen:
    """Return what *row* of ``_FOUND`` shows; what is in the lane of the token *mine* is not held."""
    *fields, owner, lives, teller = row
    entry = entry_in(fields)
    if entry.state is State.DONE:
        return Finished(entry, Teller(teller), bool(lives))
    if lives and owner != mine:
        return Held(entry, owner)
    return Abandoned(entry, entry.state is State.SENDING)


# --- taking over, and releasing


async def take(store: Store, entry: Entry, mine: OwnedLane, to: int) -> Taken | None:
    """
    Move *entry*, as it was seen, to the lane *to*: that of this process, or ``FREED``, for any run.

    Return ``None`` if a living process has the entry, or it was changed since.

    Raises:
        LostLaneError: The lane *mine*, of this process, belongs to another one.
        AnotherInDoubtError: See ``order``.
    """
    return await store.run(partial(_take, entry, to, mine, store.silence))


def _take(
    entry: Entry, to: int, mine: OwnedLane, silence: float
) -> Script[Taken | None]:
    seq, before = entry.seq, entry.lane
    yield from check_owned(mine)
    lanes = yield LOCK_OWNER, (before,)
    owner = lanes[0][0] if lanes else None
    if (yield from has_other_living_owner(owner, mine.token, silence)):
        return None
    if to == mine.number:
        yield from check_alone(entry, entry.state, silence)
    moved = yield _MOVE_ENTRY, (seq, before, to)
    if not moved:  # An earlier try may have moved it, and its reply was lost.
        moved = yield _WAS_MOVED, (seq, to)
    if not moved:
        return None
    # A lane that is there without an owner was released by its process, which is done with it.  ``FREED`` has
    # no row in ``lanes``, nor has a lane that was deleted, so these do not say that.
    was_released = before == ENDED or (bool(lanes) and owner is None)
    is_gone = was_released and not (yield from has_silent_sender())
    is_of_silent = owner is not None and owner != mine.token
    if is_of_silent:
        yield from note_silent_sender()
    return Taken(is_gone=is_gone)


async def reopen_seen(store: Store, entry: Entry, state: State, lane: int) -> bool:
    """
    Reopen *entry*, which is done, in *state* and *lane*, for the next run of its key.

    Return ``False`` if the entry has changed since it was seen.  Whether this process still owns *lane* is
    not checked: if nobody does, the entry is free for any run, and what this process puts of it is refused.

    Raises:
        AnotherInDoubtError: See ``order``.
    """
    return await store.run(partial(_reopen_seen, entry, state, lane, store.silence))


def _reopen_seen(entry: Entry, state: State, lane: int, silence: float) -> Script[bool]:
    yield from check_alone(entry, state, silence)
    values = entry.seq, entry.verdict, entry.done_at, int(state), lane
    return bool((yield _REOPEN_SEEN, values))


async def release(
    store: Store, key: str, lane: OwnedLane, *, is_unsent: bool = False
) -> None:
    """
    Release the open entry of *key* for any run, if *lane* still has it and belongs to this process.

    One that *is_unsent*, although it was inserted as one that is being sent, becomes TO DO.
    """
    text = _RELEASE_UNSENT if is_unsent else RELEASE
    await store.rows(text, key, lane.number, lane.token)


async def note_digest(store: Store, seq: int, lane: OwnedLane, digest: str) -> None:
    """
    Store the *digest* of another body, with which an open entry in *lane* is done anew.

    Raises:
        LostLaneError: Another process has the lane, and may send the body that the entry has.
    """
    await store.run(partial(_note_digest, seq, lane, digest))


def _note_digest(seq: int, lane: OwnedLane, digest: str) -> Script[None]:
    yield from check_owned(lane)
    yield _DIGEST, (seq, lane.number, digest)


async def note_taker(store: Store, seq: int, taker: str) -> None:
    """Note that the process of the token *taker* returns the secret of a new webhook."""
    await store.rows(_SET_TELLER, [(seq, taker)])


async def note_heard(store: Store, seq: int) -> None:
    """Note that the secret of a new webhook was returned."""
    await store.rows(DELETE_UNHEARD, [seq])
