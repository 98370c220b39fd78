"""
The lanes of a store, each with the token of its owner: taking, releasing and moving lanes.

Who takes a lane sets its own token on it, under a lock on the lane's row.  In PostgreSQL, each store of an
entry checks the token under that lock, so after a take-over, those of the previous owner are rejected.  In a
file there is no take-over while a process has it open: the lock of the file is what a store relies on.

All writes to one thing are in one lane, so its owner alone keeps their order.  An owner for each entry, taken
with ``FOR UPDATE SKIP LOCKED``, was tried instead: PostgreSQL 18, 300,000 waiting entries, four processes,
200 entries a fetch.  With 50,000 things, a fetch costs 4 ms of the server instead of 0.9.  With ten things it
costs 1.1 s instead of 0.4 ms: each fetch looks again at all entries behind one that another process has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from invsvc_async.durable.entry import LostLaneError, State
from invsvc_async.durable.store.conditions import ENDED, FREED, KEYED, OPEN, UNKEYED
from invsvc_async.durable.store.facts import SET, TAKER
from invsvc_async.durable.store.members import living, member_of, unowned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


MINE: Final = "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner = $2 {share}"
_NEW: Final = "INSERT INTO {s}lanes (owner, credential) VALUES ($1, $2) RETURNING id"
OWNER: Final = "SELECT owner FROM {s}lanes WHERE id = $1 {update}"
_OF_TOKEN: Final = "SELECT id FROM {s}lanes WHERE owner = $1"
_FREE_LANES: Final = f"""
SELECT id, owner FROM {{s}}lanes AS l WHERE ({unowned("l.owner")}) AND credential LIKE $3
    ORDER BY id LIMIT {{arg 2 bigint}} {{skip}}
"""
_UNANSWERED: Final = (
    "SELECT id FROM {s}lanes WHERE owner LIKE {arg 1 text} || '%' {update}"
)
_TAKE: Final = """
UPDATE {s}lanes AS l SET owner = given.token
FROM {rows 1 id:bigint token:text} WHERE l.id = given.id
"""
_RELEASE: Final = "UPDATE {s}lanes SET owner = NULL WHERE owner {any 1 text}"
_LOCK_OWN: Final = "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner = $2 {update}"
_HAS_OPEN: Final = f"SELECT 1 FROM {{s}}entries WHERE lane = $1 AND {OPEN} LIMIT 1"
_FREE_OWN: Final = "UPDATE {s}lanes SET owner = NULL WHERE id = $1"
_DELETE_OWN: Final = "DELETE FROM {s}lanes WHERE id = $1"
# What was in lanes that were taken over is moved.
_LOCK_ALL: Final = (
    "SELECT id, owner FROM {s}lanes WHERE id {any 1 bigint} ORDER BY id {update}"
)
_MOVE_KEYED: Final = f"""
UPDATE {{s}}entries SET lane = $2
WHERE lane {{any 1 bigint}} AND {OPEN} AND {KEYED}
"""
# What is left in a lane after that.
_MOVE_REST: Final = (
    f"UPDATE {{s}}entries SET lane = $2 WHERE lane {{any 1 bigint}} AND {OPEN}"
)
_DELETE_ALL: Final = "DELETE FROM {s}lanes WHERE id {any 1 bigint}"
_OPEN_IN: Final = f"""
SELECT key, state FROM {{s}}entries WHERE lane = $1 AND {OPEN} AND {UNKEYED} ORDER BY seq
"""


class OwnedLane(Protocol):
    """A lane of this process, for as long as *token* is on the lane."""

    number: int
    token: str

    def doubt(self) -> None:
        """Note that something was not stored, so another process may have the lane."""
        ...


class TakenLane(OwnedLane, Protocol):
    """A lane that was taken over; ``was_free``: the last owner has provably done with it."""

    was_free: bool


def lost_lane() -> LostLaneError:
    """Return the error for a change by a process that another one took for dead."""
    return LostLaneError(
        "the journal of this process now belongs to another. Nothing was sent."
    )


def check_owned(lane: OwnedLane) -> Script[None]:
    """Raise LostLaneError if *lane* belongs to another process; otherwise it stays until the commit."""
    if not (yield MINE, (lane.number, lane.token)):
        raise lost_lane()


def take_lanes(
    tokens: str,
    silence: float,
    most: int,
    credential: str,
    unanswered: Sequence[str],
    taker: str | None,
) -> Script[dict[int, bool]]:
    """
    Acquire up to *most* lanes that have no owner, or a silent one; return whether each was free.

    The new tokens begin with *tokens*, and end with the lane's number. *unanswered* are beginnings of tokens
    of earlier tries, whose replies were lost.
    """
    rows = yield _FREE_LANES, (silence, most, credential)
    alive = yield from living(silence, (owner for _, owner in rows))
    # This process lives, even if it seems silent because the database's clock was set ahead.
    alive.add(member_of(tokens))
    taken = {
        lane: owner is None
        for lane, owner in rows
        if owner is None or member_of(owner) not in alive
    }
    # What earlier tries have taken belongs to this process; whether it was free is not known any more.
    for earlier in unanswered:
        for (lane,) in (yield _UNANSWERED, (earlier,)):
            taken[lane] = False
    if taken:
        yield _TAKE, ([(lane, f"{tokens}{lane}") for lane in taken],)
    if taken and taker is not None:
        yield f"{{sqlite}}{SET}", (TAKER, taker)
    return taken


def new_lane(token: str, credential: str) -> Script[int]:
    """Make a lane that belongs to *token*."""
    # An earlier try may have made it, and its reply was lost.
    found = yield _OF_TOKEN, (token,)
    [(lane,)] = found or (yield _NEW, (token, credential))
    return int(lane)


def end_lane(number: int, token: str) -> Script[None]:
    """Delete the lane of a process that ends, or release the lane if it has open entries."""
    if not (yield _LOCK_OWN, (number, token)):
        return
    if (yield _HAS_OPEN, (number,)):
        yield _FREE_OWN, (number,)
    else:
        yield _DELETE_OWN, (number,)


async def move_entries(
    store: Store, taken: Sequence[TakenLane], to: OwnedLane
) -> dict[str, bool]:
    """
    Move the entries of the *taken* lanes to the lane *to*, and delete those lanes.

    Return the keys of the open entries that are in *to* afterwards, in the order of their numbers, and
    whether each write has a verdict.  Entries with a key of the user's own are not among them: they are moved
    to no process, because any run of the key may have them, and those in *to* are runs of this process.

    Raises:
        LostLaneError: The lane *to* belongs to another process.
    """
    return await store.run(partial(_move_entries, taken, to))


def _move_entries(taken: Sequence[TakenLane], to: OwnedLane) -> Script[dict[str, bool]]:
    gone = {lane.number for lane in taken if lane.was_free}
    tokens = {lane.number: lane.token for lane in (*taken, to)}
    owners = dict((yield _LOCK_ALL, ([*tokens],)))
    if owners.get(to.number) != to.token:
        raise lost_lane()
    ours = sorted(
        lane
        for lane, owner in owners.items()
        if owner == tokens[lane] and lane != to.number
    )
    of_ended = gone.intersection(ours)
    of_silent = {*ours} - gone
    yield _MOVE_KEYED, (sorted(of_ended), ENDED)
    yield _MOVE_KEYED, (sorted(of_silent), FREED)
    # What is left in those lanes has keys that clients made up.
    yield _MOVE_REST, (ours, to.number)
    yield _DELETE_ALL, (ours,)
    rows = yield _OPEN_IN, (to.number,)
    return {key: state == State.DONE for key, state in rows}


async def release_lanes(store: Store, tokens: list[str]) -> None:
    """Release the lanes that *tokens* own."""
    await store.rows(_RELEASE, tokens)
