"""
The runs of keys in one process, as far as they act together: claims, waits for other runs, and ends.

Who waits for another run looks from time to time, and at once when the store hears of a change in that lane.
The statements are in ``store/claims``.  When a process counts as dead is decided in ``leases``.

Processes notify each other by the number of the lane in which something has changed.  ``""`` says that some
notifications may have been missed.  Other texts are for batches.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import LostLaneError, State
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.store import claims as in_store
from invsvc_async.durable.store.claims import Claimed, Held, Taken, ToClaim
from invsvc_async.durable.store.conditions import FREED
from invsvc_async.durable.store.lanes import lost_lane
from invsvc_async.durable.store.order import begin as begin_in_store
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.transport.transport import CLOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal_life import JournalLife
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
_TO_END: Final = 1.0  # s that the journal has to store how runs have ended


class _Asked(NamedTuple):
    """A wanted claim, and the future for the result; ``None`` if the result is not known."""

    run: KeyedRun
    entry: Entry
    future: asyncio.Future[Claim | None]


class Claims:
    """
    The statements of the runs of keys in this process, in *store*, the store of the journal of *life*.

    They claim together, in one statement; wait for runs of others, which notify them; and end, also after
    they were cancelled, before the next run of the key here.
    """

    def __init__(self, life: JournalLife, store: Store) -> None:
        self._life = life
        self.store: Store = store
        self.ended: bool = False
        self._tasks: set[asyncio.Task[object]] = set()
        # By key, of these tasks: what the next run waits for.  It stores how the last run ended; or it moves
        # an entry, for a run that was cancelled meanwhile.
        self._unfinished: dict[str, asyncio.Task[Any]] = {}
        # By key: what is to be claimed in the next statement.
        self._asked: dict[str, _Asked] = {}
        self._asked_now: dict[str, _Asked] = {}  # in the current one
        self._claiming: asyncio.Task[None] | None = None
        self._waiting: dict[asyncio.Event, int] = {}  # for something in a lane
        self._listening: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        # lanes in which something has ended, of which other processes are to be notified
        self._to_notify: set[int] = set()

    async def claim(self, run: KeyedRun, entry: Entry) -> Claim:
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
            if not await in_store.is_owned(self.store, run.lane):
                run.lane.doubt()
                raise lost_lane()

    async def _claim_all(self) -> None:
        while self._asked:
            self._choose()
            asked = self._asked_now
            # The process has one lane at a time.  A run that asked in the lane before gets this one; its
            # secret is returned by the same process under either token.
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
                    self.end_run(name, lane, is_unsent=isinstance(found, Claimed))
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
            if not asked.future.done():
                settle(asked.future, None, _interrupted(claiming))
                self.end_run(name, asked.run.lane)  # it may have been inserted

    async def look(self, name: str, mine: str | None = None) -> Seen | None:
        """Return the entry of a key as it is now; one in the lane of the token *mine* is not held."""
        return await in_store.look(self.store, name, mine)

    async def take(self, entry: Entry, lane: Lane) -> Taken | None:
        """
        Move *entry* to *lane*; return ``None`` if a living process has it.

        Raises:
            LostLaneError: The lane belongs to another process.
        """
        is_there_already = entry.lane == lane.number
        if is_there_already:  # by an earlier try, of which only the reply was lost
            return Taken(is_gone=False)
        taking = in_store.take(self.store, entry, lane, lane.number)
        return await self._to_its_end(entry.key, taking)

    async def free(self, entry: Entry, lane: Lane) -> bool:
        """
        Move *entry* to where any run may take it; return ``False`` if a living process has it.

        No run here has the entry, so none has to wait for a move that is cancelled.

        Raises:
            LostLaneError: *lane*, of this process, belongs to another one.
        """
        return await in_store.take(self.store, entry, lane, FREED) is not None

    async def reopen(self, entry: Entry, state: State, lane: Lane) -> bool:
        """Reopen *entry*, which is done, in *lane*; return ``False`` if it has changed since."""
        reopening = in_store.reopen(self.store, entry, state, lane.number)
        return await self._to_its_end(entry.key, reopening)

    async def _to_its_end(self, name: str, moving: Coroutine[Any, Any, T]) -> T:
        """Await *moving*; if the wait is cancelled, *moving* goes on, and the end of the run waits for it."""
        task = self.start(moving)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._unfinished[name] = task
            raise

    async def note_who_returns(self, run: KeyedRun) -> None:
        """Note which process returns the secret of a new webhook."""
        if run.secret_by is not None:
            await in_store.note_taker(self.store, run.seq, run.secret_by)

    async def note_returned(self, seq: int) -> None:
        """Note that a secret was returned; if the note cannot be stored, later runs call the secret lost."""
        with suppress(JournalError):
            await in_store.note_heard(self.store, seq)

    async def begin(self, run: KeyedRun, entry: Entry) -> Turn:
        """
        Store *entry* as being sent if the turn of *run* has come.

        Raises:
            LostLaneError: Another process has it.
            JournalError: The journal cannot be used.
        """
        beginning = begin_in_store(
            self.store, entry, run.lane, run.passed, creates=run.creates
        )
        try:
            return await self._to_its_end(run.name, beginning)
        except LostLaneError:
            run.lane.doubt()
            raise

    # --- waiting

    async def while_open(self, waiting: Awaitable[object]) -> None:
        """Await *waiting*; raise ConfigurationError if the client is closed, or is meanwhile."""
        core = self._life.core
        assert core is not None
        if core.under_way.closed:
            if inspect.iscoroutine(waiting):
                waiting.close()  # or else it warns that it was never awaited
            raise ConfigurationError(CLOSED)
        with suppress(TimeoutError), core.under_way.until_closed():
            await waiting
            return
        raise ConfigurationError(CLOSED)

    async def wait(self, held: Held) -> None:
        """Wait until an entry is done, released, or its owner is silent."""
        if self._listening is None and self.store.is_shared:
            hearing = self.store.hear(_weakly(self._wake))
            self._listening = asyncio.get_running_loop().create_task(hearing)
        lane = held.entry.lane
        pause = _FIRST
        event = asyncio.Event()
        self._waiting[event] = lane
        try:
            while (
                isinstance(now := await self.look(held.entry.key), Held)
                and now.entry.lane == lane
            ):
                await self.while_open(set_within(event, pause))
                event.clear()
                pause = min(2 * pause, _LONGEST)
        finally:
            del self._waiting[event]

    def _wake(self, what: str) -> None:
        """Wake the waits that the notification *what* is about."""
        for event, lane in self._waiting.items():
            if what in ("", str(lane)):
                event.set()

    def notify(self, lane: int) -> None:
        """Wake all waits for something in *lane*: here and, if others use the journal, in other processes."""
        if self._waiting:
            self._wake(str(lane))
        if self._life.has_company:
            self._to_notify.add(lane)
            if self._notifying is None or self._notifying.done():
                self._notifying = asyncio.get_running_loop().create_task(
                    self._notify_others()
                )

    async def _notify_others(self) -> None:
        try:
            while self._to_notify:
                lanes = self._to_notify
                self._to_notify = set()
                # Whoever misses a notification looks by itself, a little later.
                with suppress(JournalError):
                    await self.store.tell(*map(str, lanes))
        finally:
            self._notifying = None

    # --- beside the runs

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *coroutine* beside the runs."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def end_run(
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
        earlier = self._unfinished.get(name)
        self._unfinished[name] = self.start(
            self._store_end(name, lane, entry, left, earlier, is_unsent=is_unsent)
        )

    async def _store_end(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None,
        left: Left | None,
        earlier: asyncio.Task[object] | None,
        *,
        is_unsent: bool,
    ) -> bool:
        """Do what :meth:`end_run` says, until it is done; return whether there was a verdict."""
        has_verdict = entry is not None and entry.state is State.DONE
        if earlier is not None:
            await asyncio.wait([earlier])
        while True:
            try:
                if entry is not None:
                    await lane.put(entry, left)
                if not has_verdict:
                    await in_store.release(self.store, name, lane, is_unsent=is_unsent)
                break
            except LostLaneError:  # another process has the entry, and ends it
                break
            except (
                JournalError
            ):  # the store is away: try again while the journal is open
                if self.ended:
                    break
            await asyncio.sleep(_AGAIN)
        self.notify(lane.number)
        has_no_later_end = self._unfinished[name] is asyncio.current_task()
        if has_no_later_end:
            del self._unfinished[name]
        return has_verdict

    async def until_end_is_stored(self, name: str) -> bool:
        """
        Wait until the last run of a key in this process has ended; return whether it had a verdict to store.

        Raises:
            JournalError: It has not, because the journal cannot store that.
        """
        if (task := self._unfinished.get(name)) is None:
            return False
        await self.while_open(asyncio.wait([task], timeout=_TO_LEAVE))
        if not task.done():
            raise JournalError(
                f"key {key_in(name)!r}: the journal could not store yet how its last run ended. Nothing was "
                "sent now. Run it again."
            )
        return bool(task.result())

    async def end(self) -> None:
        """End what is under way beside the runs, all of which have ended."""
        self.ended = True
        if self._listening is not None:
            self._listening.cancel()
        # What a claim inserts for runs that were cancelled has to be released.
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
        asked.run.note_claimed(
            found, lane
        )  # now: it may be cancelled before it goes on
    asked.future.set_result(found)


def _weakly(wake: Callable[[str], None]) -> Callable[[str], None]:
    """Return *wake*, a method, without a reference to its object: a client that is dropped is collected."""
    reference = weakref.WeakMethod(wake)

    def wake_if_there(what: str) -> None:
        woken = reference()
        if woken is not None:
            woken(what)

    return wake_if_there
