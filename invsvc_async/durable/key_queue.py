"""
What a keyed write waits for before it may be sent: the earlier writes to the same thing.

=========================================  ===============================================================
an earlier write that is not done          what a run does before its own first send
=========================================  ===============================================================
a run of it has begun, here or elsewhere   waits for the end of that run
nobody has it, nothing of it was sent      passes it over, after a moment in which a run of it may begin
nobody has it, it may have been sent       settles it by reads; if it may not read it, it waits until that
                                           one can have no effect any more
=========================================  ===============================================================

A later write may be stored as being sent, and be cancelled before it leaves.  So a run looks for a moment
whether it stays so, before it counts itself as overtaken by it.

A create that may have been sent is acquired in its turn (``in_turn``).  Before that, other creates of the URL
that may have been sent are waited for if a process has them, and settled by reads if nobody has them.

Then ``store/order`` decides whether the write is sent, in ``begin``, which finds what has changed since: then
the run waits once more.  A later one that is run alone need not wait for earlier ones that nobody runs; those
are overtaken once it is sent.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.durable.entry import AnotherIsHeldError
from invsvc_async.durable.last_writes import close_line, learn
from invsvc_async.durable.store.claims import Abandoned, Finished, Held
from invsvc_async.durable.store.conditions import ENDED, FREED
from invsvc_async.durable.store.order import (
    WritesBeside,
    ahead_of,
    entries_at,
    in_doubt_of,
    things_in_doubt,
    unknown_beside,
)
from invsvc_async.durable.store.states import Left
from invsvc_async.durable.unknown_writes import UnknownWrites
from invsvc_async.storage.dialect import MOST, slices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from invsvc_async.durable.entry import Entry, VerdictAt
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_runs import KeyRuns
    from invsvc_async.durable.keyed_run import KeyedRun
    from invsvc_async.durable.left_keys import LeftKeys
    from invsvc_async.durable.store.order import Ahead
    from invsvc_async.durable.stored_keys import StoredKeys
    from invsvc_async.transport.client_core import ClientOptions


T = TypeVar("T")

_LOOK: Final = 0.02  # s between looks whether a run of an earlier write begins
# s in which it may: a program that runs its keys again may not start with the first one.  For as long, a
# later write that is about to leave may be cancelled.
_MOMENT: Final = 0.25


class Queue:
    """The order of the writes to each thing in the journal of *claims*, for the *runs* of this process."""

    def __init__(
        self,
        claims: Claims,
        runs: KeyRuns,
        left: LeftKeys,
        stored: StoredKeys,
        life: JournalLife,
    ) -> None:
        self._claims = claims
        self._runs = runs
        self._left = left
        self._stored = stored
        self._life = life
        self._store = claims.store
        self._unknown = UnknownWrites(self._store, stored.intent_in)

    async def wait(self, run: KeyedRun) -> None:
        """
        Wait until the earlier writes to the thing of *run* are done, or are passed over.

        Afterwards the run knows whether a later write was sent, and what it has found ``beside`` its own, as
        ``begin`` compares it.  Its client knows what the last write left.
        """
        assert run.thing is not None
        clock = run.options.core.clock
        begun = clock.now()
        run.beside = WritesBeside()
        ahead = await self._until_none_ahead(run, run.thing)
        run.beside = run.beside._replace(last=ahead.last)
        run.overtaken = ahead.is_overtaken
        if ahead.last:
            left = Left(run.thing, ahead.team, ahead.state, ahead.stamp)
            learn(run.options, [left])
        if ahead.has_unknown:
            verdicts = await unknown_beside(self._store, run.thing, run.seq)
            run.beside = run.beside._replace(unknown=verdicts)
            await self._claims.waits.while_open(
                self._close_lines(verdicts, run.options)
            )
        run.waited += clock.now() - begun

    def leave_thing(self, run: KeyedRun) -> None:
        """Wake the runs here that wait for *run*, which has moved to another thing."""
        self._runs.wake_waiters(run.name)

    async def in_turn(self, run: KeyedRun, acquire: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *acquire*, which acquires a create that may have been sent, in its turn."""
        while True:
            await self.wait(run)
            with suppress(AnotherIsHeldError):
                return await acquire()
            await self._claims.waits.while_open(asyncio.sleep(_LOOK))

    async def _until_none_ahead(self, run: KeyedRun, thing: str) -> Ahead:
        """Wait for the earlier writes to *thing*, in turn; return what is known once there is none."""
        after = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + _MOMENT
        while True:
            ahead = await ahead_of(
                self._store, thing, run.place, after, run.seq, run.waits_for
            )
            if ahead.key is None:
                if ahead.is_being_overtaken and loop.time() < until:
                    await self._claims.waits.while_open(asyncio.sleep(_LOOK))
                    continue
                return ahead
            if await self._is_passed(run, ahead, ahead.key, until):
                after = ahead.place

    async def things_in_doubt(self) -> set[str]:
        """Return the things of writes in doubt, but for those of other living processes."""
        lane = await self._life.own_lane()
        return await things_in_doubt(self._store, lane.number)

    async def close_line(
        self, thing: str, options: ClientOptions, *, is_beside_own: bool
    ) -> None:
        """
        Close the line of *thing* as long as writes in doubt may have an effect.

        *is_beside_own* is whether keyed ones count that this process has.
        """
        own = (await self._life.own_lane()).number if is_beside_own else FREED
        verdicts = await in_doubt_of(self._store, thing, own)
        await self._claims.waits.while_open(self._close_lines(verdicts, options))

    async def _close_lines(
        self, verdicts: Sequence[VerdictAt], options: ClientOptions
    ) -> None:
        """Close the lines of writes in doubt, with these *verdicts*, as long as they may have an effect."""
        not_closed_yet = self._unknown.fresh(verdicts, options.core.clock.now())
        for some in slices(not_closed_yet, MOST):
            entries = await entries_at(self._store, some)
            await self._unknown.close_lines(
                entries, options, since=self._life.alone_since
            )

    async def _is_passed(
        self,
        run: KeyedRun,
        ahead: Ahead,
        key: str,
        until: float,
    ) -> bool:
        """
        Wait for the earlier write *key*, or settle it; return whether it is passed over instead.

        Afterwards it is looked at again.
        """
        found = await self._claims.look(key, run.lane.token)
        if found is None or not _is_at(found.entry, run.thing, ahead.place):
            return False  # it was forgotten, or done anew to another thing
        match found:
            case Finished():
                return False
            case Held():
                # A run of it here may wait for what this one has, so this one waits for the entry alone.
                await self._claims.waits.wait(found)
                return False
            case Abandoned(entry=entry) if self._runs.has(key):
                is_acquired = entry.lane == run.lane.number
                if run.in_doubt and not is_acquired:
                    return True  # it waits as this one does; whoever acquires its entry first goes first
                await self._runs.until_end(key)
                return False
            case Abandoned(sent=False):
                return await self._is_passed_unsent(run, ahead, found.entry, until)
            case Abandoned():
                return await self._is_passed_sent(run, found.entry)

    async def _is_passed_sent(self, run: KeyedRun, entry: Entry) -> bool:
        """Settle a write that nobody has; pass it over if this client may not read the thing."""
        if await self._left.may_settle(entry, run.options):
            settled = await self._left.settle(entry.key, run.options)
            # A create may have to wait for another one, which comes later: so does this run.
            return run.creates and settled is None
        if not await self._is_free(run, entry):
            return False
        # It is not known here whether its process has ended, so what was sent may arrive for all of its
        # windows.  `begin` is told not to wait for it.
        intent = await self._stored.intent_in(entry)
        close_line(run.options.core, entry.thing or "", intent, sender_gone=False)
        run.beside = run.beside._replace(
            passed=(*run.beside.passed, entry.intent or "")
        )
        return True

    async def _is_passed_unsent(
        self,
        run: KeyedRun,
        ahead: Ahead,
        entry: Entry,
        until: float,
    ) -> bool:
        """Pass over a write that nobody has, unless a run of it begins in a moment."""
        # Once a later write to the thing has had an effect, or was sent, no run may send this one any more.
        is_before_last_effect = ahead.place <= ahead.last
        may_be_sent_yet = not (is_before_last_effect or ahead.is_overtaken)
        if may_be_sent_yet and asyncio.get_running_loop().time() < until:
            await self._claims.waits.while_open(asyncio.sleep(_LOOK))
            return False
        return await self._is_free(run, entry)

    async def _is_free(self, run: KeyedRun, entry: Entry) -> bool:
        """
        Free *entry* for any run, before this run passes over it, unless it is free.

        Its process may only be frozen or cut off: then it has lost the entry, and finds that it is overtaken
        before it sends, or sends again. Return ``False`` if it lives again, or the entry was changed.
        """
        if entry.lane in (FREED, ENDED):
            return True
        return await self._claims.free(entry, run.lane)


def _is_at(entry: Entry, thing: str | None, place: int) -> bool:
    """Return whether *entry* is of a write to *thing*, at *place* in the order of that."""
    return (entry.thing, entry.place) == (thing, place)
