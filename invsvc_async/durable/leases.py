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

The statements are in ``store/members`` and ``store/lanes``.
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
from invsvc_async.durable.entry import Entry, LostEntryError
from invsvc_async.durable.store.lanes import release_lanes, take_lanes
from invsvc_async.durable.store.members import (
    Sign,
    forget_the_dead,
    make_old,
    note_end,
    show,
)
from invsvc_async.durable.store.tables import in_version
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.store.members import SignAhead
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.states import Left


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


def pause_of(silence: float) -> float:
    """Return the time between two signs of life, if a process counts as dead after *silence* s."""
    return min(silence / _BEATS, _LONGEST)


def status_of(done: int, rate: float, lanes: int) -> str:
    """Return the status of a process that has finished *done* writes, *rate* a second, and has *lanes*."""
    said = {"done": done, "rate": round(rate, 3), "lanes": lanes}
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), **said})


class _Ahead(NamedTuple):
    """A sign of life in the future."""

    seen: float  # its time, by the database's clock (s)
    silence: float  # s after which it is old, if it does not change
    since: float  # when it was first seen (local s)


@attrs.define(eq=False)
class Lane:
    """
    A lane that the process of *leases* owns while *token* is on the lane.

    ``has_ended`` is whether its last owner has, so that nobody sends what is in it (``TakenLane``).
    """

    leases: Leases
    number: int
    token: str
    has_ended: bool = False
    lost: bool = False
    leaving: bool = False  # it is given up once nothing of it is under way
    doubtful: bool = False  # something was not stored, so another process may have it
    on_doubt: Callable[[], None] | None = None

    @property
    def until(self) -> float:
        """The end of the lease (local s)."""
        if self.lost:
            return -inf
        return self.leases.until

    async def hold(self) -> None:
        """
        Wait until the lease is valid: it may have run out only because a sign of life is late.

        Raises:
            LostEntryError: Another process has it for good.
            JournalError: The database is away for longer than a write of a client waits.
        """
        until = None
        while (now := self.leases.clock.now()) > self.until:
            if self.lost:
                raise LostEntryError(
                    f"lane {self.number} now belongs to another process. Nothing is sent for it."
                )
            until = until or now + self.leases.patience
            if now > until:
                raise JournalError(_AWAY, is_away=True)
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
        self,
        store: Store,
        clock: Clock,
        *,
        gives: bool = False,
        patience: float = inf,
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
        # The token with which this process stores verdicts that it gives itself. A new one whenever the lease
        # had run out: under the same one, nobody can have taken them. None: any consumer may give them.
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
        await self._note_earlier_ends()
        await self._age_signs(now)
        tokens = [lane.token for lane in held.values()]
        script = partial(show, self.name, silence, tokens, sign)
        found = await self.store.run(script)
        self.living = found.send
        self.hungry = found.hungry
        self._note_ahead(found.ahead)
        # The lease had run out, so others may have taken what has the token of before.
        if self._gives and now > self.until:
            self.taker = self.token()
        self.until = now + LEASE * silence
        for number, lane in held.items():
            lane.doubtful = False
            if lane.token not in found.mine:
                lane.lost = True
                self.lanes.pop(number, None)
        return self.living

    async def _note_earlier_ends(self) -> None:
        """
        Note the ends of processes that could not note them, because the store was away.

        They have used the same opening of the store.  In a file, what they have would be theirs otherwise:
        its lock says that all who use it live.
        """
        ends = self.store.ends_to_note
        for name, status in [*ends.items()]:
            await note_end(self.store, name, status)
            ends.pop(name, None)

    def _note_ahead(self, found: Sequence[SignAhead]) -> None:
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
                await make_old(self.store, name, sign.seen, sign.silence)

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
        await forget_the_dead(self.store)

    async def take(self, most: int, *, credential: str | None = None) -> list[Lane]:
        """
        Acquire up to *most* lanes that have no owner, or whose owner is silent. Call it after a beat.

        With *credential*, take only those of a client that had it.
        """
        tokens = f"{self.token()}-"
        chosen = "%" if credential is None else credential
        self._unanswered.append(tokens)
        script = partial(
            take_lanes,
            tokens,
            self.store.silence,
            most,
            chosen,
            [*self._unanswered],
            self.taker,
        )
        taking = partial(in_version, self.store.how, self.store.version, script)
        found = await self.store.run(taking)
        self._unanswered.clear()
        lanes = [
            Lane(self, number, f"{tokens}{number}", has_ended)
            for number, has_ended in sorted(found.items())
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
            await release_lanes(self.store, [lane.token for lane in lanes])
        for lane in lanes:  # only now: if that failed, they are still ours
            lane.lost = True
            self.lanes.pop(lane.number, None)

    async def leave(self) -> None:
        """
        Release all lanes; no send may be in flight.

        If the database fails, others get them once the end of this process is noted, or it is silent.
        """
        with suppress(JournalError):
            async with self.store.hurried():
                await self.store.idle()
                await self.give_up([*self.lanes.values()])
        self.lanes.clear()

    async def end(self, status: str | None = None) -> None:
        """
        Note in the store the end of this process, and its last *status*.

        Other processes then need not wait for its silence to know that it is gone.  If the database fails,
        the next sign of life of this opening of the store notes it.
        """
        try:
            async with self.store.hurried():
                await note_end(self.store, self.name, status)
        except JournalError:
            self.store.ends_to_note[self.name] = status
