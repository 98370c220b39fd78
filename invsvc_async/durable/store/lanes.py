"""
The lanes of a store, each with the token of its owner: taking, releasing and moving lanes.

Who takes a lane sets its own token on it, under a lock on the lane's row.  In PostgreSQL, each put of an
entry checks the token under that lock, so after a take-over, the puts of the previous owner are rejected.  In
a file there is no take-over while a process has it open: puts rely on the lock of the file.

In a batch or an outbox, all writes to one thing are in one lane, so the owner of the lane alone keeps their
order.  In the journal of a client, each process has a lane of its own, with the keys that it runs, so writes
to one thing may be in several lanes: there ``order`` keeps their order.

For a batch or an outbox, an owner for each entry was tried instead, taken with ``FOR UPDATE SKIP LOCKED``, on
PostgreSQL 18, with 300,000 waiting entries, four processes, and 200 entries a fetch.  With 50,000 things, a
fetch costs 4 ms of the server instead of 0.9.  With ten things it costs 1.1 s instead of 0.4 ms: each fetch
looks again at all entries behind one that another process has.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.store.conditions import ENDED, FREED
from invsvc_async.durable.store.fact_names import TAKER
from invsvc_async.durable.store.members import living, member_of
from invsvc_async.durable.store.statements import store_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


class OwnedLane(Protocol):
    """A lane of this process, for as long as *token* is on the lane."""

    number: int
    token: str

    def doubt(self) -> None:
        """Note that something was not stored, so another process may have the lane."""
        ...


class TakenLane(OwnedLane, Protocol):
    """
    A lane that was taken over.

    ``has_ended`` is whether nobody sends what is in it any more: its last owner has released it, and no owner
    before that one may be only silent.
    """

    has_ended: bool


class LaneOwner(NamedTuple):
    """
    The owner of a lane: its *token*, the last status of the process, as JSON, and its last sign of life.

    ``sign`` is when that was given, by the database's clock (s), or ``None`` if the process has ended, and
    ``silent`` is how long ago it was, or its end (s).  It counts as dead ``silence`` s after the sign.
    In a file, silence has no end, so ``is_alive`` is false only once the end of the process is noted: whether
    it lives, the lock of the file shows.
    """

    token: str
    status: str | None
    sign: float | None
    silent: float | None
    silence: float
    is_alive: bool


def lane_for(key: str, thing: str | None, lanes: int) -> int:
    """Return which of the *lanes* of a store is for a write: the same for all writes to one thing."""
    if lanes == 1:
        return 1
    name = (thing or key).encode(errors="surrogatepass")
    return 1 + int.from_bytes(blake2b(name, digest_size=8).digest()) % lanes


def lost_entry() -> LostEntryError:
    """Return the error for a change by a process that another one took for dead."""
    return LostEntryError(
        "the journal of this process now belongs to another. Nothing was sent."
    )


def check_owned(lane: OwnedLane) -> Script[None]:
    """Raise LostEntryError if *lane* belongs to another process; else this one keeps it until the commit."""
    if not (yield store_sql.LOCK_LANE_IF_OWNED, (lane.number, lane.token)):
        raise lost_entry()


def take_lanes(
    tokens: str,
    silence: float,
    most: int,
    credential: str,
    unanswered: Sequence[str],
    taker: str | None,
) -> Script[dict[int, bool]]:
    """
    Acquire up to *most* lanes that have no owner, or a silent one; return by number whether the owner of each
    has ended (``TakenLane``).

    Only those of *credential* are taken, a pattern of ``LIKE``.  The new tokens begin with *tokens*, and end
    with the lane's number.  *unanswered* are the beginnings of the tokens of all tries without a reply, also
    *tokens*: this script may have been run already.
    *taker* is the token of the process that gives the verdicts of what it sends, if it does.
    """
    rows = yield store_sql.LOCK_UNOWNED_LANES, (silence, most, credential)
    alive = yield from living(silence, (owner for _, owner in rows))
    # This process lives, even if it seems silent because the database's clock was set ahead.
    alive.add(member_of(tokens))
    has_free = any(owner is None for _, owner in rows)
    silent_before = has_free and (yield from has_silent_sender())
    taken = {
        lane: owner is None and not silent_before
        for lane, owner in rows
        if owner is None or member_of(owner) not in alive
    }
    # What earlier tries have taken belongs to this process; whether its owner has ended is not known now.
    for earlier in unanswered:
        for (lane,) in (yield store_sql.LOCK_LANES_OF_TRY, (earlier,)):
            taken[lane] = False
    if taken:
        yield store_sql.TAKE_LANES, ([(lane, f"{tokens}{lane}") for lane in taken],)
    # PostgreSQL gets the taker with each put; in a file, the trigger that notes a verdict reads this fact.
    if taken and taker is not None:
        yield store_sql.SET_FACT_OF_FILE, (TAKER, taker)
    if any(owner is not None for lane, owner in rows if lane in taken):
        yield from note_silent_sender()
    return taken


def note_silent_sender() -> Script[None]:
    """
    Note that something was taken from a process that may be only silent.

    As the last statement of a transaction: all take-overs change this one row, and wait for each other here.
    """
    yield store_sql.NOTE_SILENT, ()


def has_silent_sender() -> Script[bool]:
    """Return whether a process from which something was taken may still have a request under way."""
    return bool((yield store_sql.WAS_SILENT, ()))


def rest_of_silence(silence: float) -> Script[float]:
    """
    Return for how long (s) a process from which something was taken may still send; at most 0: it may not.

    It may if it only seemed silent, because the database's clock was set: it sends until its lease is over.
    *silence* is that of this store; another process may have a longer one.
    """
    found = yield store_sql.REST_OF_SILENCE, (silence,)
    return float(found[0][0]) if found else 0.0


def new_lane(token: str, credential: str) -> Script[int]:
    """Make a lane that belongs to *token*."""
    # An earlier try may have made it, and its reply was lost.
    found = yield store_sql.LANE_OF_TOKEN, (token,)
    [(lane,)] = found or (yield store_sql.INSERT_LANE, (token, credential))
    return int(lane)


def end_lane(number: int, token: str) -> Script[None]:
    """Delete the lane of a process that ends, or release the lane if it has open entries."""
    if not (yield store_sql.LOCK_LANE_TO_END, (number, token)):
        return
    if (yield store_sql.HAS_OPEN_IN_LANE, (number,)):
        yield store_sql.FREE_LANE, (number,)
    else:
        yield store_sql.DELETE_LANE, (number,)


def has_other_living_owner(
    owner: str | None,
    mine: str | None,
    silence: float,
) -> Script[bool]:
    """Return whether *owner*, a token, is of a living process, and is not *mine*, that of this process."""
    if owner is None or owner == mine:
        return False
    return member_of(owner) in (yield from living(silence, [owner]))


async def move_entries(
    store: Store,
    taken: Sequence[TakenLane],
    to: OwnedLane,
) -> dict[str, bool]:
    """
    Move the entries of the *taken* lanes to the lane *to*, and delete those lanes.

    Return the keys of the open entries that are in *to* afterwards, in the order of their numbers, and
    whether each write has a verdict.  Keys of the user's own are not among them.  Those of the *taken* lanes
    are moved to ``FREED`` or ``ENDED``, for any run of the key; those in *to* have runs in this process.

    Raises:
        LostEntryError: The lane *to* belongs to another process.
    """
    return await store.run(partial(_move_entries, taken, to))


def _move_entries(taken: Sequence[TakenLane], to: OwnedLane) -> Script[dict[str, bool]]:
    ended = {lane.number for lane in taken if lane.has_ended}
    tokens = {lane.number: lane.token for lane in (*taken, to)}
    owners = dict((yield store_sql.LOCK_LANES, ([*tokens],)))
    if owners.get(to.number) != to.token:
        raise lost_entry()
    ours = sorted(
        lane
        for lane, owner in owners.items()
        if owner == tokens[lane] and lane != to.number
    )
    of_ended = ended.intersection(ours)
    of_silent = {*ours} - ended
    yield store_sql.MOVE_KEYED, (sorted(of_ended), ENDED)
    yield store_sql.MOVE_KEYED, (sorted(of_silent), FREED)
    # What is left in those lanes has keys that clients made up.
    yield store_sql.MOVE_REST, (ours, to.number)
    yield store_sql.DELETE_LANES, (ours,)
    rows = yield store_sql.UNKEYED_IN_LANE, (to.number,)
    return {key: state == State.DONE for key, state in rows}


async def release_lanes(store: Store, tokens: list[str]) -> None:
    """Release the lanes that *tokens* own."""
    await store.rows(store_sql.RELEASE_LANES, tokens)


async def owner_of(store: Store, lane: int) -> LaneOwner | None:
    """Return which process owns *lane*; ``None``: nobody does."""
    rows = await store.rows(store_sql.STATUS_OF_OWNER, lane)
    if not rows or rows[0][0] is None:
        return None
    token, status, sign, silent, silence, sends = rows[0]
    has_ended = silent is None or sends == -1
    if has_ended:
        return LaneOwner(token, status, None, silent, store.silence, is_alive=False)
    # As in ``members``, the longer silence counts: of the process, or of the one that asks.
    silence = max(silence, store.silence)
    return LaneOwner(token, status, sign, silent, silence, is_alive=silent < silence)
