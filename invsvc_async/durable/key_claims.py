"""
The runs of keys in one process, as far as they act together: claims, waits for other runs, and ends.

Who waits for another run looks from time to time, and at once when the store hears of a change in that lane.
The statements are in ``store/claims``.  When a process counts as dead is decided in ``leases``.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import LostLaneError, State
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.store.claims import (
    Claimed,
    Held,
    Taken,
    ToClaim,
    claim,
    is_owned,
    look,
    note_heard,
    note_taker,
    release,
    reopen,
    take,
)
from invsvc_async.durable.store.lanes import lost_lane
from invsvc_async.durable.store.order import begin
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.transport.transport import CLOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.keyed_run import KeyedRun
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.claims import Claim, Seen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.order import Turn
    from invsvc_async.durable.store.states import Left


T = TypeVar("T")
_AT_ONCE = 256  # entries claimed in one statement
# s between looks at what is waited for, in case no notification comes: the owner of a lane may fall silent.
_FIRST = 0.2
_LONGEST = 2.0
_AGAIN: Final = 1.0  # s between tries to store how a run ended
_TO_LEAVE: Final = 10.0  # s for which the next run waits for that
_TO_END: Final = 1.0  # s that the journal has to store what runs have left


class Claimant(Protocol):
    """A run of a key: its lane, and the number, place and turn of the entry once that is inserted."""

    name: str
    thing: str | None
    taker: str | None
    lane: Lane
    seq: int
    place: int
    is_next: bool


class _Asked(NamedTuple):
    """A wanted claim, and the future for the result; ``None`` if the result is not known."""

    run: Claimant
    entry: Entry
    future: asyncio.Future[Claim | None]


class Claims:
    """The entries of keys in *store*, the store of *journal*, and the waits for entries in this process."""

    def __init__(self, journal: ClientJournal, store: Store) -> None:
        self._journal = journal
        self.store: Store = store
        self.ended: bool = False
        self._tasks: set[asyncio.Task[object]] = set()
        # of them, those that end runs, by key
        self._leaving: dict[str, asyncio.Task[Any]] = {}
        # By key: what is to be claimed in the next statement.
        self._asked: dict[str, _Asked] = {}
        self._asked_now: dict[str, _Asked] = {}  # in the current one
        self._claiming: asyncio.Task[None] | None = None
        self._waiting: dict[asyncio.Event, int] = {}  # for something in a lane
        self._hearing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        # lanes of which other processes are to be told that something has ended
        self._told: set[int] = set()

    @property
    def alone_since(self) -> float:
        """The local time since which only this process can have sent anything: the opening of a file."""
        return inf if self._journal.is_shared else self._journal.opened

    async def claim(self, run: Claimant, entry: Entry) -> Claim:
        """
        Insert *entry* in the lane of *run*, together with other claims, as TO DO if *run* is not next.

        If it is inserted, *run* knows that even if it is cancelled now.

        Raises:
            LostLaneError: The lane belongs to another process.
            JournalError: The journal cannot be used.
        """
        while True:
            future: asyncio.Future[Claim | None] = (
                asyncio.get_running_loop().create_future()
            )
            self._asked[run.name] = _Asked(run, entry, future)
            if self._claiming is None or self._claiming.done():
                self._claiming = asyncio.get_running_loop().create_task(
                    self._claim_all()
                )
                self._claiming.add_done_callback(self._fail_claims)
            claim = await future
            if claim is not None:
                return claim
            # It was inserted by somebody else while the statement ran; or the lane is lost.
            if not await is_owned(self.store, run.lane):
                run.lane.doubt()
                raise lost_lane()

    async def _claim_all(self) -> None:
        while self._asked:
            self._choose()
            asked = self._asked_now
            lane = next(iter(asked.values())).run.lane
            claims: dict[str, Claim] | None = None
            try:
                given = [ToClaim(each.entry, each.run.taker) for each in asked.values()]
                claims = await claim(self.store, lane, given)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                for each in asked.values():
                    settle(each.future, None, error)
            for name, each in asked.items():
                found = None if claims is None else claims.get(name)
                if claims is not None and not each.future.done():
                    _answer(each, found, lane)
                elif (
                    name not in self._asked
                ):  # it may have been inserted, and its run goes no further
                    self.leave(name, lane, is_unsent=isinstance(found, Claimed))
            self._asked_now = {}

    def _choose(self) -> None:
        """Choose the claims that the next statement makes: each is always in one of the two sets."""
        # One for each thing: the next one has to see it.
        firsts: dict[str, str] = {}
        for name, asked in self._asked.items():
            firsts.setdefault(asked.run.thing or name, name)
        for name in sorted([*firsts.values()][:_AT_ONCE]):
            self._asked_now[name] = self._asked[name]
            del self._asked[name]

    def _fail_claims(self, claiming: asyncio.Task[None]) -> None:
        """Fail what a task has not answered that a signal handler's exception has ended."""
        if self._claiming is not claiming:
            return
        unanswered = {**self._asked_now, **self._asked}
        self._asked_now = {}
        self._asked = {}
        self._claiming = None
        for name, asked in unanswered.items():
            if not asked.future.done():
                settle(asked.future, None, _interrupted(claiming))
                self.leave(name, asked.run.lane)  # it may have been inserted

    async def look(self, name: str, mine: str | None = None) -> Seen | None:
        """Return the entry of a key as it is now; one in the lane of the token *mine* is not held."""
        return await look(self.store, name, mine)

    async def take(
        self, entry: Entry, lane: Lane, *, to: int | None = None
    ) -> Taken | None:
        """
        Move *entry* to *lane*, or to the lane number *to*; return ``None`` if a living process has it.

        Raises:
            LostLaneError: The lane belongs to another process.
        """
        # only the reply to an earlier try was lost
        if entry.lane == lane.number and to is None:
            return Taken(is_gone=False)
        if to is not None:
            return await take(self.store, entry, lane, to)
        taking = take(self.store, entry, lane, lane.number)
        return await self._to_its_end(entry.key, taking)

    async def reopen(self, entry: Entry, state: State, lane: Lane) -> bool:
        """Reopen *entry*, which is done, in *lane*; return ``False`` if it has changed since."""
        reopening = reopen(self.store, entry, state, lane.number)
        return await self._to_its_end(entry.key, reopening)

    async def _to_its_end(self, name: str, moving: Coroutine[Any, Any, T]) -> T:
        """Await *moving*; if the wait is cancelled, *moving* goes on, and the end of the run waits for it."""
        task = self.start(moving)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._leaving[name] = task
            raise

    async def note_taker(self, run: KeyedRun) -> None:
        """Note who returns the secret of a new webhook."""
        if run.taker is not None:
            await note_taker(self.store, run.seq, run.taker)

    async def note_heard(self, seq: int) -> None:
        """Note that a secret was returned; if the note cannot be stored, later runs call the secret lost."""
        with suppress(JournalError):
            await note_heard(self.store, seq)

    async def begin(self, run: KeyedRun, entry: Entry) -> Turn:
        """
        Store *entry* as being sent if the turn of *run* has come.

        Raises:
            LostLaneError: Another process has it.
            JournalError: The journal cannot be used.
        """
        beginning = begin(self.store, entry, run.lane, run.passed, creates=run.creates)
        try:
            return await self._to_its_end(run.name, beginning)
        except LostLaneError:
            run.lane.doubt()
            raise

    # --- waiting

    async def until_closed(self, waiting: Awaitable[object]) -> None:
        """Await *waiting*; raise ConfigurationError if the client is closed, or is meanwhile."""
        core = self._journal.core
        assert core is not None
        if not core.under_way.closed:
            with suppress(TimeoutError), core.under_way.until_closed():
                await waiting
                return
        elif inspect.iscoroutine(waiting):
            waiting.close()
        raise ConfigurationError(CLOSED)

    async def wait(self, held: Held) -> None:
        """Wait until an entry is done, released, or its owner is silent."""
        if self._hearing is None and self._journal.is_shared:
            # Weakly: a client that is dropped without being closed is to be collected.
            woken = weakref.WeakMethod(self._woken)
            hearing = self.store.hear(lambda what: (wake := woken()) and wake(what))
            self._hearing = asyncio.get_running_loop().create_task(hearing)
        lane = held.entry.lane
        pause = _FIRST
        event = asyncio.Event()
        self._waiting[event] = lane
        try:
            while (
                isinstance(now := await self.look(held.entry.key), Held)
                and now.entry.lane == lane
            ):
                await self.until_closed(set_within(event, pause))
                event.clear()
                pause = min(2 * pause, _LONGEST)
        finally:
            del self._waiting[event]

    def _woken(self, what: str) -> None:
        for event, lane in self._waiting.items():
            if what in ("", str(lane)):
                event.set()

    def tell(self, lane: int) -> None:
        """Wake all waits for something in *lane*: here and, if others use the journal, in other processes."""
        if self._waiting:
            self._woken(str(lane))
        if self._journal.has_company:
            self._told.add(lane)
            if self._telling is None or self._telling.done():
                self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._told:
                told, self._told = self._told, set()
                with suppress(JournalError):  # there is a look behind it
                    await self.store.tell(*map(str, told))
        finally:
            self._telling = None

    # --- beside the runs

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *coroutine* beside the runs."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None = None,
        left: Left | None = None,
        *,
        is_unsent: bool = False,
    ) -> None:
        """
        End a run of a key before the next run in this process: store *entry*, and release it if open.

        One that *is_unsent*, although it was inserted as one that is being sent, is released as TO DO.
        """
        earlier = self._leaving.get(name)
        self._leaving[name] = self.start(
            self._left(name, lane, entry, left, earlier, is_unsent=is_unsent)
        )

    async def _left(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None,
        left: Left | None,
        earlier: asyncio.Task[object] | None,
        *,
        is_unsent: bool,
    ) -> bool:
        """Do what :meth:`leave` says, until it is done; return whether there was a verdict."""
        has_verdict = entry is not None and entry.state is State.DONE
        if earlier is not None:
            await asyncio.wait([earlier])
        while True:
            with suppress(JournalError):
                with suppress(LostLaneError):  # another process has it
                    if entry is not None:
                        await lane.put(entry, left)
                    if not has_verdict:
                        await release(self.store, name, lane, is_unsent=is_unsent)
                break
            if self.ended:
                break
            await asyncio.sleep(_AGAIN)
        self.tell(lane.number)
        if self._leaving[name] is asyncio.current_task():
            del self._leaving[name]
        return has_verdict

    async def until_left(self, name: str) -> bool:
        """
        Wait until the last run of a key in this process has ended; return whether it had a verdict to store.

        Raises:
            JournalError: It has not, because the journal cannot store that.
        """
        if (task := self._leaving.get(name)) is None:
            return False
        await self.until_closed(asyncio.wait([task], timeout=_TO_LEAVE))
        if not task.done():
            raise JournalError(
                f"key {key_in(name)!r}: the journal could not store yet how its last run ended. Nothing was "
                "sent now. Run it again."
            )
        return bool(task.result())

    async def end(self) -> None:
        """End what is under way beside the runs, all of which have ended."""
        self.ended = True
        if self._hearing is not None:
            self._hearing.cancel()
        # what it inserts for runs that were cancelled is to be released
        if self._claiming is not None:
            await asyncio.wait([self._claiming], timeout=_TO_END)
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=_TO_END)


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
        # Now: its run may be cancelled before it goes on.
        run = asked.run
        run.lane = lane
        run.seq = run.place = found.seq
        run.is_next = found.is_next
    asked.future.set_result(found)
