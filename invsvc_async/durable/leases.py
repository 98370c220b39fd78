"""
The owners of the lanes of a store, and until when an owner may rely on its lanes.

- A process that takes a lane sets its own token on it, under a lock on the lane's row.
- Each store of an entry checks the token under that lock.  After a take-over, those of the previous owner are
  rejected.
- Nothing is sent before it is stored as ``SENDING``.  The new owner reads the entries after the take-over, so
  it sees every send that the previous owner has made or can still make, and settles it before it sends.
- It first waits as long as such a send may take, because one stored just before may start just after.

A process shows that it lives by a time in the table ``members``, of the database's clock.  Lanes of one that
is silent are taken over, after the seconds of ``silence`` in the address of its store.  In a file, the lock
of the file shows it: what an earlier process left is free.

If the database's clock is set back, signs of life are in the future.  A process that lives replaces its own
soon.  Each process looks whether one of another stays the same for as long as silence may last, by its own
steady clock, and then makes it old, unless it was changed meanwhile.  If the database's clock is set forward,
processes that live may lose their lanes, which is as safe as if they had been silent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import attrs

from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.entry import Entry, LostLaneError
from invsvc_async.durable.facts import SET
from invsvc_async.durable.tables import TAKER
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.last_writes import Left
    from invsvc_async.durable.store import Store
    from invsvc_async.storage.dialect import Script


log: logging.Logger = logging.getLogger("invsvc_async.writes")

# signs of life in the time after which a silent process counts as dead
_BEATS: Final = 4
LEASE: Final = 0.8  # of that time: how long a process relies on its last sign of life
# s between signs of life in a file, whose lock shows who lives
_LONGEST: Final = 3600.0
_PAUSE: Final = 0.2  # s between checks whether a lease is valid again
_AWAY: Final = (
    "the journal's database is away (this process could not give a sign of life). Check that its server can "
    "be reached."
)

# Others may count a process as living for a shorter time than it does itself: the longer one holds.
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
# Signs of others that were made before the database's clock was set back.
_AHEAD: Final = """
SELECT name, seen, silence FROM {s}members WHERE name <> $1 AND sends >= 0 AND seen > {now}
"""
_AGE: Final = """
UPDATE {s}members SET seen = {now} - {arg 3 float8} WHERE name = $1 AND seen = {arg 2 float8}
"""
_SENDING: Final = f"""
SELECT count(*), count(CASE WHEN hungry = 1 AND name <> {{arg 2 text}} THEN 1 END) FROM {{s}}members
    WHERE sends = 1 AND {_LIVES}
"""
_END: Final = """
UPDATE {s}members SET sends = -1, hungry = 0, seen = {now}, status = coalesce({arg 2 text}, status)
    WHERE name = {arg 1 text}
"""
_NEW: Final = "INSERT INTO {s}lanes (owner, credential) VALUES ($1, $2) RETURNING id"
_TAKE: Final = """
UPDATE {s}lanes AS l SET owner = given.token
FROM {rows 1 id:bigint token:text} WHERE l.id = given.id
"""
# Members that are gone for good, and of which nothing is left.
_FORGET: Final = """
DELETE FROM {s}members WHERE seen < {now} - 86400 - {arg 1 float8}
    AND NOT EXISTS (SELECT 1 FROM {s}lanes l WHERE l.owner LIKE {s}members.name || '.%')
"""


# Those that live.  If a clock was set back, one that is gone may have left a sign in the far future.
_MEMBERS: Final = f"""
SELECT status FROM {{s}}members WHERE {_LIVES}
    AND seen < {{now}} + CASE WHEN silence > {{arg 1 float8}} THEN silence ELSE {{arg 1 float8}} END
    ORDER BY begun
"""


def living_members(silence: float) -> Script[list[str]]:
    """Return where the processes are that use the store, as far as they have said it."""
    found = yield _MEMBERS, (silence,)
    said = (json.loads(status or "{}") for (status,) in found)
    return [f"pid {each.get('pid', '?')} on {each.get('host', '?')}" for each in said]


def pause_of(silence: float) -> float:
    """Return the time between two signs of life, if a process counts as dead after *silence* s."""
    return min(silence / _BEATS, _LONGEST)


def dead(owner: str) -> str:
    """Return the condition that the process of a token in the column *owner* is silent longer than $1 s."""
    return f"NOT EXISTS (SELECT 1 FROM {{s}}members WHERE {owner} LIKE name || '.%' AND {_LIVES})"


_FREE: Final = f"""
SELECT id, owner FROM {{s}}lanes AS l WHERE (owner IS NULL OR {dead("l.owner")}) AND credential LIKE $3
    ORDER BY id LIMIT {{arg 2 bigint}} {{skip}}
"""


def status_of(done: int, rate: float, lanes: int) -> str:
    """Return the status of a process that has finished *done* writes, *rate* a second, and has *lanes*."""
    said = {"done": done, "rate": round(rate, 3), "lanes": lanes}
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), **said})


def member_of(token: str) -> str:
    """Return the process of a token."""
    return token.partition(".")[0]


def living(silence: float, tokens: Iterable[str | None]) -> Script[set[str]]:
    """
    Return the processes of *tokens* that are not silent.

    Run it after the rows with these tokens are locked: a process may have shown meanwhile that it lives.
    """
    names = sorted({member_of(token) for token in tokens if token is not None})
    found = (yield _LIVING, (silence, names)) if names else ()
    return {name for (name,) in found}


class _Others(NamedTuple):
    """
    The facts about the processes of a store that a process finds when it gives a sign of life.

    ``mine`` are the tokens of the process that still own lanes.  ``send`` is how many processes send,
    ``hungry`` how many others are hungry.  ``ahead`` are signs of life in the future: the process, the time
    of its sign, and its silence.
    """

    mine: set[str]
    send: int
    hungry: int
    ahead: Sequence[tuple[str, float, float]]


def _beat(name: str, silence: float, tokens: list[str], sign: Sign) -> Script[_Others]:
    """Note that the process *name* lives."""
    yield _SHOW, (name, silence, int(sign.sends), int(sign.hungry), sign.status)
    mine = yield "SELECT owner FROM {s}lanes WHERE owner {any 1 text}", (tokens,)
    [(members, hungry)] = yield _SENDING, (silence, name)
    ahead = [tuple(row) for row in (yield _AHEAD, (name,))]
    return _Others({owner for (owner,) in mine}, max(members, 1), hungry, ahead)


def _take(
    tokens: str,
    silence: float,
    most: int,
    credential: str,
    unanswered: Sequence[str],
    taker: str | None,
) -> Script[dict[int, bool]]:
    """Acquire lanes; return whether each was free. *unanswered* are beginnings of earlier tokens."""
    rows = yield _FREE, (silence, most, credential)
    alive = yield from living(silence, (owner for _, owner in rows))
    # which seems silent if the database's clock was set ahead meanwhile
    alive.add(member_of(tokens))
    taken = {
        lane: owner is None
        for lane, owner in rows
        if owner is None or member_of(owner) not in alive
    }
    # what those tries have taken is ours, and perhaps not free
    for earlier in unanswered:
        for (lane,) in (
            yield (
                "SELECT id FROM {s}lanes WHERE owner LIKE {arg 1 text} || '%' {update}",
                (earlier,),
            )
        ):
            taken[lane] = False
    if taken:
        yield _TAKE, ([(lane, f"{tokens}{lane}") for lane in taken],)
    if taken and taker is not None:
        yield f"{{sqlite}}{SET}", (TAKER, taker)
    return taken


def new_lane(token: str, credential: str) -> Script[int]:
    """Make a lane that belongs to *token*."""
    # an earlier try's reply may be lost
    found = yield "SELECT id FROM {s}lanes WHERE owner = $1", (token,)
    [(lane,)] = found or (yield _NEW, (token, credential))
    return int(lane)


def end_lane(lane: Lane) -> Script[None]:
    """Delete the lane of a process that ends, or release the lane if it has open entries."""
    owner = (lane.number, lane.token)
    if not (
        yield "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner = $2 {update}", owner
    ):
        return
    if (
        yield (
            "SELECT 1 FROM {s}entries WHERE lane = $1 AND done_at IS NULL LIMIT 1",
            (lane.number,),
        )
    ):
        yield "UPDATE {s}lanes SET owner = NULL WHERE id = $1", (lane.number,)
    else:
        yield "DELETE FROM {s}lanes WHERE id = $1", (lane.number,)


@attrs.frozen
class Sign:
    """A sign of life of a process: whether it sends, whether it has nothing to send, and the status."""

    sends: bool = True
    hungry: bool = False
    status: str | None = None


class _Ahead(NamedTuple):
    """A sign of life in the future."""

    seen: float  # its time, by the database's clock (s)
    silence: float  # s after which it is old, if it does not change
    since: float  # when it was first seen (local s)


@attrs.define(eq=False)
class Lane:
    """
    A lane that the process of *leases* owns while *token* is on the lane.

    ``was_free`` is whether its last owner has provably done with it.
    """

    leases: Leases
    number: int
    token: str
    was_free: bool = False
    lost: bool = False
    leaving: bool = False  # it is given up once nothing of it is under way
    doubtful: bool = False  # something was not stored, so another process may have it
    on_doubt: Callable[[], None] | None = None

    @property
    def until(self) -> float:
        """The end of the lease (local s)."""
        return -inf if self.lost else self.leases.until

    async def hold(self) -> None:
        """
        Wait until the lease is valid: it may have run out only because a sign of life is late.

        Raises:
            LostLaneError: Another process has it for good.
            JournalError: The database is away for longer than a write of a client waits.
        """
        until = None
        while (now := self.leases.clock.now()) > self.until:
            if self.lost:
                raise LostLaneError(
                    f"lane {self.number} now belongs to another process. Nothing is sent for it."
                )
            until = until or now + self.leases.patience
            if now > until:
                raise JournalError(_AWAY)
            await self.leases.clock.sleep(_PAUSE)

    def put(self, entry: Entry, left: Left | None = None) -> asyncio.Future[None]:
        """Store *entry*, and the state in which the write *left* its thing, if the lane is still owned."""
        return self.leases.store.put(entry, self, left)

    def doubt(self) -> None:
        """Note that something was not stored, so another process may have the lane."""
        self.doubtful = True
        if self.on_doubt is not None:
            self.on_doubt()


class Leases:
    """The signs of life of this process, and its lanes by their numbers."""

    def __init__(
        self, store: Store, clock: Clock, *, gives: bool = False, patience: float = inf
    ) -> None:
        self.name: str = uuid4().hex
        self._gives = gives  # the verdicts of what it sends
        # s that a send waits for a database that is away
        self.patience: float = patience
        self.done: int = 0  # writes of which this process has stored a verdict
        self._begun = clock.now()
        self.lanes: dict[int, Lane] = {}
        self.store: Store = store
        self.clock: Clock = clock
        self._numbers = count(1)
        # local s: others count this process as living until then, and longer
        self.until: float = 0.0
        self.living: int = 1  # how many processes send, this one included
        self.hungry: int = 0  # how many other processes have nothing to send
        # Who gives verdicts, since others cannot have taken this process for dead; None: any consumer.
        self.taker: str | None = None
        # beginnings of tokens: what was acquired with them is not known
        self._unanswered: list[str] = []
        self._ahead: dict[str, _Ahead] = {}  # signs of life in the future, by process

    def _sign(self) -> Sign:
        rate = self.done / max(self.clock.now() - self._begun, 1.0)
        return Sign(status=status_of(self.done, rate, len(self.lanes)))

    async def beat(self, sign: Sign | None = None) -> int:
        """Store a sign of life, and check which lanes are still owned; return how many processes send."""
        held = dict(self.lanes)
        sign = sign or self._sign()
        now = self.clock.now()
        silence = self.store.silence
        await self._age_signs(now)
        tokens = [lane.token for lane in held.values()]
        script = partial(_beat, self.name, silence, tokens, sign)
        found = await self.store.run(script)
        self.living = found.send
        self.hungry = found.hungry
        self._note_ahead(found.ahead)
        # others may have taken the verdicts of now
        if self._gives and now > self.until:
            self.taker = self.token()
        self.until = now + LEASE * silence
        for number, lane in held.items():
            lane.doubtful = False
            if lane.token not in found.mine:
                lane.lost = True
                self.lanes.pop(number, None)
        return self.living

    def _note_ahead(self, found: Sequence[tuple[str, float, float]]) -> None:
        """Note since when signs of life in the future are as they were *found* now."""
        before = self._ahead
        now = self.clock.now()
        self._ahead = {}
        for name, seen, silence in found:
            known = before.get(name)
            since = known.since if known is not None and known.seen == seen else now
            self._ahead[name] = _Ahead(seen, max(silence, self.store.silence), since)

    async def _age_signs(self, now: float) -> None:
        """Make signs old that had not changed, *now* (local s), for as long as silence may last."""
        for name, sign in self._ahead.items():
            if now - sign.since >= sign.silence:
                await self.store.rows(_AGE, name, sign.seen, sign.silence)

    async def live(self, sign: Sign | None = None, *, warning: str = "") -> None:
        """Show that this process lives, until cancelled; log *warning* while the database is away."""
        while True:
            await asyncio.sleep(pause_of(self.store.silence))
            try:
                await self.beat(sign)
            except JournalError as error:
                raise_if_cancelled()
                if warning:
                    log.warning("%s %s", error, warning)

    async def forget_the_dead(self) -> None:
        """Delete the signs of life of processes that are long gone."""
        await self.store.rows(_FORGET, self.store.silence)

    async def take(self, most: int, *, credential: str | None = None) -> list[Lane]:
        """
        Acquire up to *most* lanes that have no owner, or whose owner is silent. Call it after a beat.

        With *credential*, take only those of a client that had it.
        """
        tokens = f"{self.token()}-"
        chosen = "%" if credential is None else credential
        self._unanswered.append(tokens)
        script = partial(
            _take,
            tokens,
            self.store.silence,
            most,
            chosen,
            [*self._unanswered],
            self.taker,
        )
        found = await self.store.run(script)
        self._unanswered.clear()
        lanes = [
            Lane(self, number, f"{tokens}{number}", free)
            for number, free in sorted(found.items())
        ]
        self.lanes.update((lane.number, lane) for lane in lanes)
        return lanes

    def token(self) -> str:
        """Return a new token of this process."""
        return f"{self.name}.{next(self._numbers)}"

    def hold(self, number: int, token: str) -> Lane:
        """Note that this process owns the new lane *number*, and return the lane."""
        lane = self.lanes[number] = Lane(self, number, token)
        return lane

    async def give_up(self, lanes: list[Lane]) -> None:
        """Release lanes in which no send is in flight."""
        if lanes:
            tokens = [lane.token for lane in lanes]
            await self.store.rows(
                "UPDATE {s}lanes SET owner = NULL WHERE owner {any 1 text}", tokens
            )
        for lane in lanes:  # only now: if that failed, they are still ours
            lane.lost = True
            self.lanes.pop(lane.number, None)

    async def leave(self) -> None:
        """Release all lanes; no send may be in flight. If the database fails, others get them later."""
        with suppress(JournalError):
            async with self.store.hurried():
                await self.store.idle()
                await self.give_up([*self.lanes.values()])
        self.lanes.clear()

    async def end(self, status: str | None = None) -> None:
        """
        Note in the store the end of this process, and its last *status*.

        Other processes then need not wait for its silence to know that it is gone.
        """
        with suppress(JournalError):
            async with self.store.hurried():
                await self.store.rows(
                    "DELETE FROM {s}members WHERE name = $1 AND status IS NULL",
                    self.name,
                )
                await self.store.rows(_END, self.name, status)
