"""
The claims of keys in one process: those that runs ask for at the same time are made in one statement.

The statements are in ``store/claims``.  When a process counts as dead is decided in ``leases``.  How a run
waits for others is in ``run_waits``, and how it ends in ``run_ends``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.run_ends import TO_END, RunEnds
from invsvc_async.durable.run_waits import RunWaits
from invsvc_async.durable.store import claims as in_store
from invsvc_async.durable.store.claims import Claimed, Taken, ToClaim
from invsvc_async.durable.store.conditions import FREED
from invsvc_async.durable.store.lanes import lost_entry
from invsvc_async.durable.store.order import begin as begin_in_store
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.keyed_run import KeyedRun
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.claims import Claim, Seen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.order import Turn


T = TypeVar("T")
_AT_ONCE = 256  # entries claimed in one statement


class _Asked(NamedTuple):
    """
    A wanted claim, and the future for the result; ``None`` if the result is not known.

    ``ended`` is done once nothing is inserted for it any more, also if nobody awaits the result.
    """

    run: KeyedRun
    entry: Entry
    future: asyncio.Future[Claim | None]
    ended: asyncio.Future[None]


class Claims:
    """
    The statements of the runs of keys in this process, in *store*, the store of the journal of *life*.

    They claim together, in one statement.  They wait for runs of others by *waits*, and end by *ends*.
    """

    def __init__(self, life: JournalLife, store: Store) -> None:
        self.store: Store = store
        self.waits: RunWaits = RunWaits(life, store)
        self.ends: RunEnds = RunEnds(store, self.waits)
        # By key: what is to be claimed in the next statement.
        self._asked: dict[str, _Asked] = {}
        self._asked_now: dict[str, _Asked] = {}  # in the current one
        self._claiming: asyncio.Task[None] | None = None

    async def claim(self, run: KeyedRun, entry: Entry) -> Claim:
        """
        Insert *entry* in the lane of *run*, together with other claims, as TO DO if *run* is not next.

        If it is inserted, *run* knows that even if it is cancelled now.

        Raises:
            LostEntryError: The lane belongs to another process.
            JournalError: The journal cannot be used.
        """
        while True:
            loop = asyncio.get_running_loop()
            asked = _Asked(run, entry, loop.create_future(), loop.create_future())
            self._asked[run.name] = asked
            if self._claiming is None or self._claiming.done():
                self._claiming = loop.create_task(self._claim_all())
                self._claiming.add_done_callback(self._fail_claims)
            try:
                claim = await asked.future
            except asyncio.CancelledError:
                # What was inserted for it, or is about to be, is released before the next run of the key.
                self.ends.wait_for(run.name, asked.ended)
                raise
            if claim is not None:
                return claim
            # It was inserted by somebody else while the statement ran; or the lane is lost.
            if not await in_store.is_owned(self.store, run.lane):
                run.lane.doubt()
                raise lost_entry()

    async def _claim_all(self) -> None:
        while self._asked:
            self._choose()
            asked = self._asked_now
            # The process has one lane at a time.  The entry of a run that asked while it had another one is
            # inserted in this lane, too; its secret is returned by the same process under either token.
            lane = next(iter(asked.values())).run.lane
            claims: dict[str, Claim] | None = None
            try:
                given = [
                    ToClaim(each.entry, each.run.secret_by) for each in asked.values()
                ]
                claims = await in_store.claim(self.store, lane, given)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                for each in asked.values():
                    settle(each.future, None, error)
            for name, each in asked.items():
                found = None if claims is None else claims.get(name)
                is_awaited = claims is not None and not each.future.done()
                is_asked_again = name in self._asked
                if is_awaited:
                    _answer(each, found, lane)
                elif not is_asked_again:
                    # The statement failed, or the run was cancelled: nobody goes on with its entry.
                    # What the statement has inserted for it, if its reply was lost, was not sent.
                    self.ends.end_run(name, lane, unsent=each.entry.intent)
                each.ended.set_result(None)
            self._asked_now = {}

    def _choose(self) -> None:
        """
        Choose the claims that the next statement makes.

        Each is in at least one of the two sets all the time, so that an exception of a signal handler leaves
        none without an answer.
        """
        # One for each thing: the next one has to see it.
        firsts: dict[str, str] = {}
        for name, asked in self._asked.items():
            firsts.setdefault(asked.run.thing or name, name)
        for name in sorted([*firsts.values()][:_AT_ONCE]):
            self._asked_now[name] = self._asked[name]
            del self._asked[name]

    def _fail_claims(self, claiming: asyncio.Task[None]) -> None:
        """Fail the claims without an answer: an exception of a signal handler has ended *claiming*."""
        if self._claiming is not claiming:
            return
        unanswered = {**self._asked_now, **self._asked}
        self._asked_now = {}
        self._asked = {}
        self._claiming = None
        for name, asked in unanswered.items():
            if asked.ended.done():
                continue
            is_awaited = not asked.future.done()
            if is_awaited or asked.future.cancelled():
                # It may have been inserted.
                self.ends.end_run(name, asked.run.lane, unsent=asked.entry.intent)
            if is_awaited:
                settle(asked.future, None, _interrupted(claiming))
            asked.ended.set_result(None)

    async def look(self, name: str, mine: str | None = None) -> Seen | None:
        """Return the entry of a key as it is now; one in the lane of the token *mine* is not held."""
        return await in_store.look(self.store, name, mine)

    async def take(self, entry: Entry, lane: Lane) -> Taken | None:
        """
        Move *entry* to *lane*; return ``None`` if a living process has the entry, or has changed it.

        Raises:
            LostEntryError: The lane belongs to another process.
            AnotherIsHeldError: See ``store/order``.
        """
        is_there_already = entry.lane == lane.number
        if is_there_already:  # by an earlier try, of which only the reply was lost
            return Taken(is_gone=False)
        taking = in_store.take(self.store, entry, lane, lane.number)
        return await self._in_lane(lane, entry.key, taking)

    async def free(self, entry: Entry, lane: Lane) -> bool:
        """
        Free *entry* for any run; return ``False`` if a living process has the entry, or has changed it.

        No run here has the entry, so none has to wait for a move that is cancelled.

        Raises:
            LostEntryError: *lane*, of this process, belongs to another one.
        """
        freeing = in_store.take(self.store, entry, lane, FREED)
        return await _doubting(lane, freeing) is not None

    async def reopen(
        self,
        entry: Entry,
        state: State,
        lane: Lane,
    ) -> bool:
        """
        Reopen *entry*, which is done, in *lane*; return ``False`` if it has changed since.

        Raises:
            LostEntryError: The lane belongs to another process.
            AnotherIsHeldError: See ``store/order``.
        """
        reopening = in_store.reopen_seen(self.store, entry, state, lane)
        return await self._in_lane(lane, entry.key, reopening)

    async def note_who_returns(self, run: KeyedRun) -> None:
        """Note which process returns the secret of a new webhook."""
        if run.secret_by is not None:
            await in_store.note_teller(self.store, run.seq, run.secret_by)

    async def note_returned(self, seq: int) -> None:
        """Note that a secret was returned; if the note cannot be stored, later runs call the secret lost."""
        with suppress(JournalError):
            await in_store.note_returned(self.store, seq)

    async def note_anew(self, run: KeyedRun, entry: Entry, *, is_moved: bool) -> int:
        """
        Store *entry*, with which *run* begins anew; return the place of the entry.

        If it *is_moved* to another thing, who waits for it to change the one before looks again.

        Raises:
            LostEntryError: Another process has it.
            JournalError: The journal cannot be used.
        """
        noting = in_store.note_anew(self.store, entry, run.lane, is_moved=is_moved)
        place = await self._in_lane(run.lane, run.name, noting)
        if is_moved:
            self.waits.notify(run.lane.number)
        return place

    async def begin(self, run: KeyedRun, entry: Entry) -> Turn:
        """
        Store *entry* as being sent if the turn of *run* has come.

        Raises:
            LostEntryError: Another process has it.
            JournalError: The journal cannot be used.
        """
        beginning = begin_in_store(
            self.store, entry, run.lane, run.beside, run.waits_for
        )
        return await self._in_lane(run.lane, run.name, beginning)

    async def _in_lane(self, lane: Lane, name: str, act: Coroutine[Any, Any, T]) -> T:
        """Await *act*, of a run of the key *name*, to its end."""
        return await _doubting(lane, self.ends.to_its_end(name, act))

    async def end(self) -> None:
        """End what is under way beside the runs, all of which have ended."""
        self.ends.begin_close()
        self.waits.end()
        # What a claim inserts for runs that were cancelled has to be released.
        if self._claiming is not None:
            await asyncio.wait([self._claiming], timeout=TO_END)
        await self.ends.close()


async def _doubting(lane: Lane, act: Awaitable[T]) -> T:
    """Await *act*; doubt *lane* if another process has taken it over."""
    try:
        return await act
    except LostEntryError:
        lane.doubt()
        raise


def _interrupted(task: asyncio.Task[None]) -> JournalError:
    error = None if task.cancelled() else task.exception()
    why = "" if error is None else f" by {type(error).__name__}"
    return JournalError(
        f"journal: the claim of the key was interrupted{why}. Nothing was sent. Run it again under the "
        "same key."
    )


def _answer(asked: _Asked, found: Claim | None, lane: Lane) -> None:
    """Pass on to a run what came of its claim in *lane*."""
    if isinstance(found, Claimed):
        asked.run.note_claimed(
            found, lane
        )  # now: it may be cancelled before it goes on
    asked.future.set_result(found)
