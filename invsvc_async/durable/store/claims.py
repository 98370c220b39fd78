"""
The entries of keys: claiming, looking, taking over, reopening and releasing.

A claim inserts an entry unless its key has one.  An entry is taken only out of a lane that nobody living
owns: the script of a take-over checks that, under the locks of both lanes.  It is taken and reopened only as
it was seen, under a lock on its row.  It is released and stored only by the owner of its lane: ``RELEASE``
and ``PUT_IN_DATABASE`` check that; for ``begin`` and ``note_anew``, their scripts do (``check_owned``).  A
file has one process.  Who returns a secret is noted without a check.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from invsvc_async.durable.entry import Entry, State, entry_in, written_of
from invsvc_async.durable.store.adding import add, numbers
from invsvc_async.durable.store.conditions import ENDED, FREED, Teller
from invsvc_async.durable.store.lanes import (
    check_owned,
    has_other_living_owner,
    has_silent_sender,
    lost_entry,
    note_silent_sender,
)
from invsvc_async.durable.store.order import check_alone
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.statements import entry_sql, key_sql, store_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.postgres import PostgresStore
    from invsvc_async.storage.dialect import Cell, Script


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
    teller: str | None


# --- claiming


async def claim(
    store: Store,
    lane: OwnedLane,
    given: Sequence[ToClaim],
) -> dict[str, Claim]:
    """
    Insert new entries in *lane*, unless their keys have entries; return the claims by key.

    An entry that is given as being sent, but is not next to its thing (``order``), is inserted as TO DO.  Two
    writes to one thing are not *given* together: the second has to see the first.

    A key is missing in the result if the lane is lost, or another process has inserted its entry meanwhile.
    If the reply was lost, the next try finds its own entries, by their intents: nothing of them was sent.

    Costs one round trip, and no other one to know the entries that were there; one more if the entries have a
    common part that this process has not stored yet.
    """
    if isinstance(store, SqliteStore):
        script = partial(_insert, given, store.commons.texts, lane, store.silence)
        return await store.run(script)
    return await _claim_in_database(store, lane, given)


async def _claim_in_database(
    store: PostgresStore,
    lane: OwnedLane,
    given: Sequence[ToClaim],
) -> dict[str, Claim]:
    rows = [(*written_of(entry), teller) for entry, teller in given]
    await store.store_commons()
    found = await store.rows(
        key_sql.CLAIM, store.silence, rows, lane.number, lane.token
    )
    wanted = {entry.key: entry for entry, _ in given}
    claims: dict[str, Claim] = {}
    for key, seq, is_next, row in found:
        if seq is not None:
            claims[key] = Claimed(seq, bool(is_next))  # NULL: not known, so no
        elif row is not None:
            seen = _seen_in(row, lane.token)
            claims[key] = _claimed_before(seen, wanted[key], lane) or seen
    return claims


def _claimed_before(seen: Seen, wanted: Entry, lane: OwnedLane) -> Claimed | None:
    """
    Return the claim of the entry that was *seen*, if an earlier try has inserted it as *wanted*.

    Each new intent has a text of its own.  Whether a TO DO entry was next is not known any more: so, no.
    """
    entry = seen.entry
    is_ours = isinstance(seen, Abandoned) and entry.lane == lane.number
    if is_ours and entry.intent == wanted.intent:
        return Claimed(entry.seq, entry.state is State.SENDING)
    return None


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
    has_things = any(entry.thing is not None for entry, _ in given)
    if made and has_things:
        rows = yield key_sql.NOT_NEXT, ([*made.values()], lane.number)
        not_next = {seq for (seq,) in rows}
    tellers = [
        (made[entry.key], teller)
        for entry, teller in given
        if teller and entry.key in made
    ]
    if tellers:
        yield key_sql.SET_TELLER, (tellers,)
    claims: dict[str, Claim] = {
        key: Claimed(seq, seq not in not_next) for key, seq in made.items()
    }
    if others := known.keys() - made:
        for row in (yield key_sql.LOOK, (silence, [*others])):
            seen = _seen_in(row, lane.token)
            claims[seen.entry.key] = seen
    return claims


async def is_owned(store: Store, lane: OwnedLane) -> bool:
    """Return whether this process still owns *lane*; waits for a take-over that is under way."""
    return bool(await store.rows(store_sql.LOCK_LANE_IF_OWNED, lane.number, lane.token))


# --- looking


async def look(
    store: Store,
    key: str,
    mine: str | None = None,
) -> Seen | None:
    """
    Return the entry of *key* as it is now; ``None`` if there is none.

    One in the lane of the token *mine* is not held: the process that asks has no other run of it.
    """
    rows = await store.rows(key_sql.LOOK, store.silence, [key])
    if not rows:
        return None
    return _seen_in(rows[0], mine)


async def is_there(store: Store, key: str) -> bool:
    """Return whether *key* has an entry."""
    return bool(await store.rows(key_sql.HAS_KEY, key))


async def released_in_doubt(store: Store) -> list[Entry]:
    """
    Return the entries that may have been sent, and are in ``FREED`` or ``ENDED``, oldest first.

    Those of keys in lanes without a living owner come there once the lanes are taken over (``move_entries``
    of ``lanes``).
    """
    return await store.entries(key_sql.RELEASED_IN_DOUBT, [FREED, ENDED])


async def load_common_of(store: Store, entry: Entry) -> None:
    """Load the common part of the intent of *entry*, which another process has stored."""
    # To select an entry loads what it lacks.
    await store.entries(entry_sql.OF_NUMBER, entry.seq)


def _seen_in(row: Sequence[Cell], mine: str | None) -> Seen:
    """Return what *row* of ``key_sql.LOOK`` shows; what is in the lane of the token *mine* is not held."""
    *fields, owner, lives, teller = row
    entry = entry_in(fields)
    if entry.state is State.DONE:
        return Finished(entry, Teller(teller), bool(lives))
    if lives and owner != mine:
        return Held(entry, owner)
    return Abandoned(entry, entry.state is State.SENDING)


# --- taking over, and releasing


async def take(
    store: Store,
    seen: Entry,
    mine: OwnedLane,
    to: int,
) -> Taken | None:
    """
    Move an entry, as it was *seen*, to the lane *to*: that of this process, or ``FREED``, for any run.

    Return ``None`` if a living process has the entry, or it was changed since.

    Raises:
        LostEntryError: The lane *mine*, of this process, belongs to another one.
        AnotherIsHeldError: See ``order``.
    """
    return await store.run(partial(_take, seen, to, mine, store.silence))


def _take(
    seen: Entry,
    to: int,
    mine: OwnedLane,
    silence: float,
) -> Script[Taken | None]:
    before = seen.lane
    yield from check_owned(mine)
    lanes = yield store_sql.LOCK_LANE, (before,)
    owner = lanes[0][0] if lanes else None
    if (yield from has_other_living_owner(owner, mine.token, silence)):
        return None
    if to == mine.number:
        yield from check_alone(seen, seen.state, mine, silence)
    move = key_sql.MOVE_ENTRY, (seen.seq, to)
    if not (yield from _change(seen, replace(seen, lane=to), move)):
        return None
    # A lane that is there without an owner was released by its process, which is done with it.  ``FREED`` has
    # no row in ``lanes``, nor has a lane that was deleted, so these do not say that.  The note of a silent
    # sender is about the whole store, for an hour: whose entries that one had is not noted.
    was_released = before == ENDED or (bool(lanes) and owner is None)
    is_gone = was_released and not (yield from has_silent_sender())
    is_of_silent = owner is not None and owner != mine.token
    if is_of_silent:
        yield from note_silent_sender()
    return Taken(is_gone=is_gone)


async def reopen_seen(
    store: Store,
    seen: Entry,
    state: State,
    mine: OwnedLane,
) -> bool:
    """
    Reopen an entry that is done, as it was *seen*, in *state*, in the lane of this process.

    Return ``False`` if it was changed since.

    Raises:
        LostEntryError: The lane *mine*, of this process, belongs to another one.
        AnotherIsHeldError: See ``order``.
    """
    return await store.run(partial(_reopen_seen, seen, state, mine, store.silence))


def _reopen_seen(
    seen: Entry,
    state: State,
    mine: OwnedLane,
    silence: float,
) -> Script[bool]:
    yield from check_owned(mine)
    yield from check_alone(seen, state, mine, silence)
    reopened = replace(
        seen,
        lane=mine.number,
        state=state,
        verdict=None,
        outcome=None,
        done_at=None,
    )
    reopening = key_sql.REOPEN_SEEN, (seen.seq, mine.number, int(state))
    return (yield from _change(seen, reopened, reopening))


def _change(
    seen: Entry, wanted: Entry, statement: tuple[str, Sequence[Cell]]
) -> Script[bool]:
    """
    Run *statement*, with its values, which changes an entry to *wanted*; return whether the entry is so.

    It is run only if the entry is as it was *seen*.  Another run may have had it since, sent it, and released
    it where it was seen: then this one must not go on with what was sent before.
    """
    rows = yield key_sql.LOCK_ENTRY, (seen.seq,)
    there = [entry_in(fields) for *fields, _ in rows]
    if there == [wanted]:  # by an earlier try, whose reply was lost
        return True
    if there != [seen]:
        return False
    yield statement
    return True


async def release(
    store: Store,
    key: str,
    lane: OwnedLane,
    unsent: str | None = None,
) -> None:
    """
    Release the open entry of *key* for any run, if *lane* still has it and belongs to this process.

    If it has the intent *unsent*, it becomes TO DO: it was inserted as one that is being sent, and was not.
    """
    await store.rows(key_sql.RELEASE, key, lane.number, lane.token, unsent)


async def note_anew(
    store: Store,
    entry: Entry,
    lane: OwnedLane,
    *,
    is_moved: bool,
) -> int:
    """
    Store the digest, the intent and the thing of *entry*, with which a write in *lane* is done anew.

    They are stored together: the digest says which write the key has, and the intent is what is sent if that
    one is resumed.  *is_moved* is whether the entry had another thing; then it gets a new place at the end of
    the order (``order``).  Return its place.

    Raises:
        LostEntryError: Another process has the lane, and may send what the entry has; or the entry is gone.
    """
    common = [each for each in store.commons.fresh() if each[0] == entry.common]
    script = partial(_note_anew, entry, lane, common, is_moved=is_moved)
    return await store.run(script)


def _note_anew(
    entry: Entry,
    lane: OwnedLane,
    common: Sequence[tuple[int, str]],
    *,
    is_moved: bool,
) -> Script[int]:
    yield from check_owned(lane)
    place = entry.place
    if is_moved and entry.thing is not None:
        # This comes before the number is taken: a claim for the thing then has its place before this one, or
        # waits for this transaction, and is not next.
        yield key_sql.ENTER_ORDER, (entry.thing,)
        [place] = yield from numbers(1)
    yield entry_sql.INSERT_COMMONS, (common,)
    noted = yield (
        key_sql.NOTE_ANEW,
        (
            entry.seq,
            lane.number,
            entry.thing,
            place,
            entry.digest,
            entry.common,
            entry.intent,
        ),
    )
    if not noted:
        raise lost_entry()
    return place


async def note_teller(store: Store, seq: int, teller: str) -> None:
    """Note that the process of the token *teller* returns the secret of a new webhook."""
    await store.rows(key_sql.SET_TELLER, [(seq, teller)])


async def note_returned(store: Store, seq: int) -> None:
    """Note that the secret of a new webhook was returned."""
    await store.rows(entry_sql.DELETE_UNHEARD, [seq])
