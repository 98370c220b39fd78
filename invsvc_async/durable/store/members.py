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
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.store.statements import store_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


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


def living(silence: float, tokens: Iterable[str | None]) -> Script[set[str]]:
    """
    Return the processes of *tokens* that are not silent.

    Run it after the rows with these tokens are locked: a process may have shown meanwhile that it lives.
    """
    names = sorted({member_of(token) for token in tokens if token is not None})
    if not names:
        return set()
    found = yield store_sql.LIVING_OF_NAMES, (silence, names)
    return {name for (name,) in found}


def last_sign(token: str) -> Script[float | None]:
    """
    Return when the process of *token* has last given a sign of life, by the database's clock (s).

    ``None`` if it has ended, so that it gives no more.
    """
    found = yield store_sql.LAST_SIGN, (member_of(token),)
    return found[0][0] if found else None


def living_members(silence: float) -> Script[list[str]]:
    """Return, of each living process that uses the store, its number and host, as its status says."""
    found = yield store_sql.STATUS_OF_LIVING, (silence,)
    said = (json.loads(status or "{}") for (status,) in found)
    return [f"pid {each.get('pid', '?')} on {each.get('host', '?')}" for each in said]


def show(
    name: str,
    silence: float,
    tokens: list[str],
    sign: Sign,
) -> Script[LifeSigns]:
    """Store a sign of life of *name*; return which *tokens* own lanes, and what other processes do."""
    yield (
        store_sql.SIGN_OF_LIFE_WITH_STATUS,
        (name, silence, int(sign.sends), int(sign.hungry), sign.status),
    )
    mine = yield store_sql.OWNED_TOKENS, (tokens,)
    [(members, hungry)] = yield store_sql.COUNT_SENDING, (silence, name)
    ahead = [SignAhead(*row) for row in (yield store_sql.SIGNS_AHEAD, (name,))]
    return LifeSigns({owner for (owner,) in mine}, max(members, 1), hungry, ahead)


async def make_old(
    store: Store,
    name: str,
    seen: float,
    silence: float,
) -> None:
    """
    Make the last sign of life of *name* older, so that it is *silence* s old.

    Only if it is still the one given at the time *seen*: a later one shows that the process lives.  A sign in
    the future, from before the store's clock was set back, would otherwise show a dead process as living.
    """
    await store.rows(store_sql.MAKE_SIGN_OLDER, name, seen, silence)


async def forget_the_dead(store: Store) -> None:
    """Delete the signs of life of processes that are long gone."""
    await store.rows(store_sql.DELETE_LONG_DEAD, store.silence)


async def note_end(
    store: Store,
    name: str,
    status: str | None,
) -> None:
    """
    Note that the process *name* has ended, so that nobody need wait for its silence.

    With a last *status*, which people see.  A process that has never given one is deleted.
    """
    await store.rows(store_sql.DELETE_MEMBER_WITHOUT_STATUS, name)
    await store.rows(store_sql.END_MEMBER, name, status)


async def forget(store: Store, name: str) -> None:
    """Delete the sign of life of the process *name*, once the process has ended."""
    await store.rows(store_sql.DELETE_MEMBER, name)


async def with_status(store: Store) -> list[MemberStatus]:
    """Return the processes that have given a status, the longest-running first."""
    return [
        MemberStatus(*row) for row in await store.rows(store_sql.MEMBERS_WITH_STATUS)
    ]
