"""
The processes that use a store: their signs of life, and who counts as living.

A process has a name.  The *token* that it sets on what it owns, such as a lane or a verdict that it gives, is
its name, a dot and more: so ``LIKE name || '.%'`` finds the tokens of a process.

A sign of life is a time in the table ``members``, of the database's clock.  A process is silent, and counts
as dead, once its last one is older than its own ``silence`` and than that of the process that asks.  What a
process does about that is in ``durable/leases.py``; how lanes change hands, in ``lanes``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


# Whether a row of ``members`` is of a living process.  ``sends`` is -1 once a process has ended.  $1 is the
# silence of the process that asks; the process itself may have another one in its address.  Of both silences
# the longer one counts, so a process that is configured for long silences is not taken for dead by one that
# is configured for short ones.
_LIVES: Final = """sends >= 0
    AND seen > {now} - CASE WHEN silence > {arg 1 float8} THEN silence ELSE {arg 1 float8} END"""
_LIVING: Final = f"SELECT name FROM {{s}}members WHERE name {{any 2 text}} AND {_LIVES}"
# A process lives: its name, and its silence.
SEEN: Final = """
INSERT INTO {s}members (name, seen, begun, silence, sends)
    VALUES ({arg 1 text}, {now}, {now}, {arg 2 float8}, 0)
    ON CONFLICT (name) DO UPDATE SET seen = excluded.seen
"""
_SHOW: Final = """
INSERT INTO {s}members (name, seen, begun, silence, sends, hungry, status)
    VALUES ({arg 1 text}, {now}, {now}, {arg 2 float8}, {arg 3 smallint}, {arg 4 smallint}, {arg 5 text})
    ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, sends = excluded.sends, hungry = excluded.hungry,
        status = coalesce(excluded.status, members.status)
"""
_STILL_OWNED: Final = "SELECT owner FROM {s}lanes WHERE owner {any 1 text}"
# Signs of life of others that are in the future: they were given before the database's clock was set back.
_SIGNS_AHEAD: Final = """
SELECT name, seen, silence FROM {s}members WHERE name <> $1 AND sends >= 0 AND seen > {now}
"""
_AGE: Final = """
UPDATE {s}members SET seen = {now} - {arg 3 float8} WHERE name = $1 AND seen = {arg 2 float8}
"""
_SENDING: Final = f"""
SELECT count(*), count(CASE WHEN hungry = 1 AND name <> {{arg 2 text}} THEN 1 END) FROM {{s}}members
    WHERE sends = 1 AND {_LIVES}
"""
_END_MEMBER: Final = """
UPDATE {s}members SET sends = -1, hungry = 0, seen = {now}, status = coalesce({arg 2 text}, status)
    WHERE name = {arg 1 text}
"""
_DELETE_MEMBER: Final = "DELETE FROM {s}members WHERE name = $1"
# Members that have been silent, or have ended, for over a day.  A member that lanes still name is dead, too,
# but is kept, so that people see whose those lanes are (``owner_of`` in ``lists``).
_FORGET_DEAD: Final = """
DELETE FROM {s}members WHERE seen < {now} - 86400 - {arg 1 float8}
    AND NOT EXISTS (SELECT 1 FROM {s}lanes l WHERE l.owner LIKE {s}members.name || '.%')
"""
# The living processes, for one that waits for their ends.  A sign of life in the far future does not count
# here: a process that is gone may have left it before the clock was set back.
_MEMBERS: Final = f"""
SELECT status FROM {{s}}members WHERE {_LIVES}
    AND seen < {{now}} + CASE WHEN silence > {{arg 1 float8}} THEN silence ELSE {{arg 1 float8}} END
    ORDER BY begun
"""
_WITH_STATUS: Final = """
SELECT status, begun, seen, {now} - seen, sends FROM {s}members WHERE status IS NOT NULL ORDER BY begun, name
"""


class SignAhead(NamedTuple):
    """A sign of life in the future: whose, its time by the database's clock, and its silence (s)."""

    name: str
    seen: float
    silence: float


class LifeSigns(NamedTuple):
    """
    The facts about the processes of a store that a process finds when it gives a sign of life.

    ``mine`` are the tokens of the process that still own lanes.  ``send`` is how many processes send, at
    least 1, because lanes are divided by that number.  ``hungry`` is how many others have nothing to send.
    ``ahead`` are signs of life in the future.
    """

    mine: set[str]
    send: int
    hungry: int
    ahead: Sequence[SignAhead]


class MemberStatus(NamedTuple):
    """
    The last *status* of a process, as JSON, and its signs of life.

    ``begun`` and ``seen`` are the times of its first and last sign of life, by the database's clock (s);
    ``silent`` is how long ago the last one was (s).  ``sends`` is -1 once it has ended.
    """

    status: str
    begun: float
    seen: float
    silent: float
    sends: int


class Sign(NamedTuple):
    """A sign of life of a process: whether it sends, whether it has nothing to send, and the status."""

    sends: bool = True
    hungry: bool = False
    status: str | None = None


def member_of(token: str) -> str:
    """Return the name of the process that has set *token*."""
    return token.partition(".")[0]


def dead(owner: str) -> str:
    """
    Return the condition that the process of a token in the column *owner* counts as dead.

    In each statement that has one of these conditions, $1 is the silence of the store (s).
    """
    return f"NOT EXISTS (SELECT 1 FROM {{s}}members WHERE {owner} LIKE name || '.%' AND {_LIVES})"


def dead_member(name: str) -> str:
    """Return the condition that the process called *name*, a column or an expression, counts as dead."""
    return dead(f"({name} || '.')")


def unowned(owner: str) -> str:
    """Return the condition that no living process has what the token in the column *owner* has."""
    return f"{owner} IS NULL OR {dead(owner)}"


def owned(owner: str) -> str:
    """Return the condition that a living process has it: the contrary of ``unowned``."""
    return f"{owner} IS NOT NULL AND NOT ({dead(owner)})"


def living(silence: float, tokens: Iterable[str | None]) -> Script[set[str]]:
    """
    Return the processes of *tokens* that are not silent.

    Run it after the rows with these tokens are locked: a process may have shown meanwhile that it lives.
    """
    names = sorted({member_of(token) for token in tokens if token is not None})
    found = (yield _LIVING, (silence, names)) if names else ()
    return {name for (name,) in found}


def living_members(silence: float) -> Script[list[str]]:
    """Return, of each living process that uses the store, its number and host, as its status says."""
    found = yield _MEMBERS, (silence,)
    said = (json.loads(status or "{}") for (status,) in found)
    return [f"pid {each.get('pid', '?')} on {each.get('host', '?')}" for each in said]


def show(name: str, silence: float, tokens: list[str], sign: Sign) -> Script[LifeSigns]:
    """Store a sign of life of *name*; return which *tokens* own lanes, and what other processes do."""
    yield _SHOW, (name, silence, int(sign.sends), int(sign.hungry), sign.status)
    mine = yield _STILL_OWNED, (tokens,)
    [(members, hungry)] = yield _SENDING, (silence, name)
    ahead = [SignAhead(*row) for row in (yield _SIGNS_AHEAD, (name,))]
    return LifeSigns({owner for (owner,) in mine}, max(members, 1), hungry, ahead)


async def make_old(store: Store, name: str, seen: float, silence: float) -> None:
    """
    Make the last sign of life of *name* older, so that it is *silence* s old.

    Only if it is still the one given at the time *seen*: a later one shows that the process lives.
    """
    await store.rows(_AGE, name, seen, silence)


async def forget_the_dead(store: Store) -> None:
    """Delete the signs of life of processes that are long gone."""
    await store.rows(_FORGET_DEAD, store.silence)


async def note_end(store: Store, name: str, status: str | None) -> None:
    """Note that the process *name* has ended, with *status*; delete it if it has never given one before."""
    await store.rows(f"{_DELETE_MEMBER} AND status IS NULL", name)
    await store.rows(_END_MEMBER, name, status)


async def forget(store: Store, name: str) -> None:
    """Delete the sign of life of the process *name*, which has ended."""
    await store.rows(_DELETE_MEMBER, name)


async def with_status(store: Store) -> list[MemberStatus]:
    """Return the processes that have given a status, the longest-running first."""
    return [MemberStatus(*row) for row in await store.rows(_WITH_STATUS)]
