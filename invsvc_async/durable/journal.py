"""
The journal of a client: the intents of single writes, in a file or in a database that processes share.

An intent is stored before the first byte of its write.  Its verdict is stored before the application gets
it, and removed once the application has it.  Each process has one lane for its entries.  What a dead one left
is moved to the lane of the process that takes it over; from then on, what the dead one may still store is
rejected.

=============  =================================  ============================================================
the journal    is known by                        what happens
=============  =================================  ============================================================
not opened     no ``_leases``                     ``open`` opens it, in the task ``_opening``
away           ``_away``: why                     ``start`` went on without its database: the task
                                                  ``_arriving`` tries to open it, and each write does
open           ``_leases``, and the ``_lane``     the task ``_beating`` gives signs of life, if it is shared
closing        ``_is_closing``; ``_close_began``  the task ``_ending`` ends the other tasks, stores what is
               is set                             pending, and releases the lane; nothing is opened
closed         ``_is_closed``                     ``_ending`` is not started again
=============  =================================  ============================================================

A journal whose event loop was closed before it only gets to ``_is_closing``: see ``aclose``.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from invsvc_async.concurrency.cancellation import finished
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import Commons, in_doubt, pack
from invsvc_async.durable.keys import Keys
from invsvc_async.durable.leases import Lane, Leases
from invsvc_async.durable.records import done_entry, entry_of, intent_of, outcome_of
from invsvc_async.durable.removal import PAGE, Removal, Sender, StoredWrite
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.durable.store.lanes import end_lane, move_entries, new_lane
from invsvc_async.durable.store.members import forget as forget_member
from invsvc_async.durable.store.opening import Store, store_at, without_names
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.unkeyed import entries_of
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.dialect import slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from invsvc_async.durable.resolve import Resolution
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.client_core import ClientCore


log: logging.Logger = logging.getLogger("invsvc_async.writes")

T = TypeVar("T")
_PATIENCE: Final = 10.0  # s that a write waits for a database that is away
# s between tries to move what was taken over, and the first ones to open
_AGAIN: Final = 1.0
_SELDOM: Final = 30.0  # s at most between tries to open
_DEAD_AT_ONCE: Final = 20  # lanes of dead processes taken over in one transaction
_SILENT: Final = "Writes wait until this process has given a sign of life again."


class ClientJournal:
    """
    The journal of ``Client(journal=…)``.

    In a file, ``"calls.db"``, it belongs to one process at a time.  In a PostgreSQL database,
    ``"postgresql://…"``, any number of processes and machines share it.  It contains the open writes, and the
    verdicts that no application has had yet.  Bodies are stored in plain text, because they may be sent
    again; a file's mode is 0600.

    One that was put back from an older copy is recognised. That is logged as an error, and its open writes
    are settled as if they had been sent since.

    Raises:
        ConfigurationError: The address is invalid, or the extra ``postgres`` is not installed.
    """

    def __init__(self, address: str | Path) -> None:
        address, named = without_names(address)
        self._store: Store = store_at(address, "journal")
        self.core: ClientCore | None = None
        self.keys: Keys = Keys(self, self._store, named)
        self.opened: float = 0.0  # local s
        self._leases: Leases | None = None
        self._lane: Lane | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the first opening
        # The life of the journal: see the top of the file.  The tasks are of their own: whoever awaits them
        # may be cancelled, and again while it would clean up.
        self._opening: asyncio.Task[None] | None = None
        self._away: JournalError | None = None
        self._arriving: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_closing = False  # or closed
        self._close_began = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._unclosed: weakref.finalize[..., ClientJournal] | None = None
        self._making_lane = asyncio.Lock()
        self._taking = asyncio.Lock()
        # By the identity of intents, which is the key of their entries.
        self._writes: dict[str, StoredWrite] = {}
        self._removal = Removal(self._store, self._writes, self._close_began)
        # of which a person found that they are applied, or is about to
        self._resolved: set[str] = set()

    @property
    def is_shared(self) -> bool:
        """Whether processes share the journal: ``recover`` then takes over what a dead process left."""
        return self._store.is_shared

    def bind(self, core: ClientCore) -> None:
        """Make this the journal of the client of *core*."""
        self.core = core

    @property
    def has_company(self) -> bool:
        """Whether other processes use it now."""
        return self._leases is not None and self._leases.living > 1

    @property
    def _credential(self) -> str:
        core = self.core
        return "" if core is None else core.credential.fingerprint(core.base_url) or ""

    async def open(self) -> None:
        """
        Open it, and begin to give signs of life; does nothing if it is open.

        Raises:
            JournalError: The file or database cannot be used; another process has the file, which is named;
                it is damaged, no journal of a client, or of another version.
            ConfigurationError: It belongs to another event loop.
        """
        try:
            await self._ensure_open()
        except JournalError as error:
            if self._away is None:
                raise
            raise JournalError(
                f"journal: it has not been reached since the start, so nothing was sent. {error}",
                is_away=error.is_away,
            ) from error

    async def _ensure_open(self) -> None:
        """Open the journal, unless it is open, in one task for all callers."""
        if self._is_closing:
            raise JournalError(
                "journal: the client is closed, so nothing was sent. Open a new client."
            )
        self._loop = self._loop or asyncio.get_running_loop()
        self._check_loop()
        if self._leases is not None:
            self._go_on_beating(self._leases)
            return
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_note_failure)
        await asyncio.shield(self._opening)

    async def start(self) -> None:
        """
        Open the journal as ``open`` does; go on without its database if the database is away.

        The address must allow that, or else the error is raised.  Each write then tries to open the journal,
        and is refused if that fails.  A task tries, too, until it succeeds.
        """
        if self._arriving is not None and not self._arriving.done():
            return
        try:
            await self._ensure_open()
        except JournalError as error:
            if not (error.is_away and self._store.starts_away):
                raise
            log.error(
                "The client starts without its journal, and refuses writes until then: %s",
                error,
            )
            self._away = error
            self._arriving = asyncio.create_task(
                self._open_when_reached(), name="invsvc journal opening"
            )

    async def _open_when_reached(self) -> None:
        """Try to open it, again and again, until its database is there."""
        pause = _AGAIN
        while self._leases is None and not self._is_closing:
            await set_within(self._close_began, pause)
            pause = min(2 * pause, _SELDOM)
            try:
                await self._ensure_open()
            except JournalError as error:
                self._away = error
        if self._leases is not None:
            self._away = None
            log.warning("The client's journal can be reached again")

    @property
    def problem(self) -> str | None:
        """Why its database has not been reached since the start; ``None`` once it has."""
        return (
            None if self._away is None or self._leases is not None else str(self._away)
        )

    async def _open(self) -> None:
        """Open the store, and begin to give signs of life. If that fails, close the store."""
        clock = SystemClock() if self.core is None else self.core.clock
        try:
            if self._unclosed is None:
                self._unclosed = weakref.finalize(self, self._store.abandon)
                self._unclosed.atexit = False
            await self._store.open_for(self.core, same_mode=False)
            leases = Leases(self._store, clock, patience=_PATIENCE)
            await leases.forget_the_dead()
            await leases.beat()
            lane = await self._new_lane(leases)
            if not self.is_shared:
                await self._take_left(leases, lane, None)
        except BaseException:
            await self._store.aclose()
            raise
        self._go_on_beating(leases)
        if self.core is not None:
            self.core.opened("journal", leases)
        self.opened = clock.now()
        self._lane = lane
        self._leases = leases

    def _go_on_beating(self, leases: Leases) -> None:
        """Start the task for the signs of life, unless it runs: a signal handler may have ended it."""
        if (
            self.is_shared
            and not self._is_closing
            and (self._beating is None or self._beating.done())
        ):
            self._beating = asyncio.create_task(leases.live(warning=_SILENT))
            weakref.finalize(self, _end_soon, self._beating).atexit = False

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "journal: its client belongs to the event loop that used it first. Make one client for each "
                "loop."
            )

    async def _new_lane(self, leases: Leases) -> Lane:
        token = leases.token()
        return leases.hold(
            await self._store.run(lambda: new_lane(token, self._credential)), token
        )

    async def own_lane(self) -> Lane:
        """Return the lane of this process; make a new lane if another process took this process for dead."""
        await self.open()
        assert self._leases is not None
        assert self._lane is not None
        if self._lane.lost or self._lane.doubtful:
            async with self._making_lane:
                if self._lane.lost or self._lane.doubtful:
                    await self._leases.beat()
                if self._lane.lost:
                    self._lane = await self._new_lane(self._leases)
        return self._lane

    # --- what a write stores

    async def sending(self, intent: Intent) -> float:
        """
        Store *intent*, durably, before a send of it; return until when it may be sent (local s).

        Raises:
            JournalError: It cannot be stored, or another process has taken it over; the send must not happen.
        """
        name = f"{intent.operation} ({intent.key})"
        if intent.identity in self._resolved:
            raise JournalError(
                f"{name}: it was resolved by a person meanwhile. Nothing was sent now."
            )
        try:
            return await self._sending(intent)
        except LostLaneError as error:
            raise JournalError(
                f"{name}: this process gave no sign of life for too long, and another one finds out what "
                "became of this write. Nothing was sent now."
            ) from error
        except JournalError as error:
            if not self.is_shared:
                raise
            raise JournalError(
                f"{error} {name} was not sent now.", is_away=error.is_away
            ) from error

    async def _sending(self, intent: Intent) -> float:
        identity = intent.identity
        await self._removal.until_removed(
            identity
        )  # which would remove what is stored now
        write = self._writes.get(identity)
        is_new = write is None or write.is_left
        if write is None:
            write = self._writes[identity] = StoredWrite(await self.own_lane())
        elif self._is_closing:
            await self.open()  # raises the error of a closed journal
        write.sender = Sender.HERE
        write.done = False
        self._removal.keep(identity)
        while True:
            try:
                await write.lane.hold()
                write.sent = pack(intent, self._store.commons)
                await write.lane.put(
                    entry_of(
                        State.SENDING,
                        intent,
                        self._store.commons,
                        write.sent,
                        key=identity,
                    )
                )
            except LostLaneError:
                lost = write.lane
                # Of a new one nothing was stored, so that only the lane may belong to another process.
                if is_new:
                    write.lane = await self.own_lane()
                if write.lane is lost:
                    raise
            else:
                return write.lane.until

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Store the progress of a cancelled write, without waiting.

        If provably no byte of it left, it is removed. A verdict that is already stored stays.
        """
        write = self._writes.get(intent.identity)
        if write is None or write.done or intent.identity in self._resolved:
            return
        write.sent = None
        if sent:
            write.lane.put(
                entry_of(
                    State.SENDING, intent, self._store.commons, key=intent.identity
                )
            )
        else:
            self._removal.soon(intent.identity)

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict of a write; with UNKNOWN, or after a failure (logged), the write stays open.

        An UNKNOWN write of a key, or of a batch, is done instead: its next run, or a retry, reopens it.
        """
        started = outcome.started_as
        commons = self._store.commons
        write = self._writes.get(started.identity)
        # Nothing of it was sent under this journal, or a person has resolved it.
        if write is None or started.identity in self._resolved:
            return
        self._removal.keep(started.identity)
        is_done = outcome.verdict is not Verdict.UNKNOWN
        if is_done:
            entry = done_entry(outcome, write.sent, commons, key=started.identity)
        else:
            write.sender = Sender.HERE  # this process does not recover it again
            entry = entry_of(
                State.SENDING, outcome.intent, commons, key=started.identity
            )
        try:
            # It is done once the store has accepted the entry, and not before: `shelved` does nothing for a
            # write that is done, and one whose entry is refused has to be shelved.
            storing = write.lane.put(entry)
            write.sent = None
            write.done = is_done
            await storing
            if write.done:
                write.lane.leases.done += 1
        except JournalError as error:
            log.error(
                "%s %s: its verdict is not stored: %s",
                started.operation,
                started.key,
                error,
            )

    async def resolve(self, intent: Intent, finding: Resolution) -> AnyOutcome:
        """
        Store what a person has found out about a write without a key of the user's own; return its outcome.

        Raises:
            JournalError: A run of it lives, or as :func:`invsvc_async.durable.resolve.resolve`.
        """
        await self.open()
        identity = intent.identity
        core = self.core
        assert core is not None
        if core.under_way.is_running(identity):
            raise is_being_done(intent.key)
        write = self._writes.get(identity)
        mine = None if write is None else write.lane.token
        self._resolved.add(identity)  # a run that begins meanwhile stores nothing
        try:
            resolved = await resolve(
                self._store,
                identity,
                finding,
                key=intent.key,
                identity=identity,
                mine=mine,
            )
        except BaseException:
            self._resolved.discard(identity)
            raise
        if not finding.applied:  # it may be sent again
            self._resolved.discard(identity)
        note(core, resolved)
        core.writes.keep_ended(identity, resolved.outcome)
        if write is not None:
            write.done = True
            self.heard(identity)
        return resolved.outcome

    def heard(self, identity: str) -> None:
        """
        Remove the verdict of *identity*, which the application has had, together with others, soon.

        An open intent stays.
        """
        write = self._writes.get(identity)
        if write is not None and write.done and not self._is_closing:
            self._removal.soon(identity)

    # --- what others have left

    async def take_over(self, *, same_mode: bool) -> None:
        """
        Acquire the entries that dead processes with this base URL and credential left.

        With *same_mode*, the credential may be any.
        The entries of a file were acquired when the file was opened.

        Raises:
            JournalError: The database stayed away.
        """
        async with self._taking:
            await self.open()
            assert self._leases is not None
            if self.is_shared:
                await self._leases.beat()  # shows whether the lane is lost
                lane = await self.own_lane()
                credential = None if same_mode else self._credential
                try:
                    await self._take_left(self._leases, lane, credential)
                except (asyncio.CancelledError, JournalError):
                    self.keys.claims.start(self._move_taken(self._leases))
                    raise

    async def _move_taken(self, leases: Leases) -> None:
        """Move the entries of lanes that were taken over: runs of their keys would wait for this process."""
        is_moved = False
        while not (is_moved or self._is_closing):
            await asyncio.sleep(_AGAIN)
            with suppress(JournalError):
                async with self._taking:
                    lane = await self.own_lane()
                    await self._take_left(leases, lane, None, most=0)
                is_moved = True

    async def _take_left(
        self,
        leases: Leases,
        lane: Lane,
        credential: str | None,
        *,
        most: int = _DEAD_AT_ONCE,
    ) -> None:
        """
        Acquire the lanes of dead processes, up to *most* at once, and move their entries to *lane*.

        With a *most* of 0, only lanes that an earlier call has taken, also if its reply was lost.
        """
        taken: list[Lane] | None = None
        while taken is None or len(taken) == _DEAD_AT_ONCE:
            taken = await leases.take(most, credential=credential)
            await self._move_others(leases, lane)

    async def _move_others(self, leases: Leases, lane: Lane) -> None:
        """
        Move the entries of all further lanes of this process to *lane*, and give up the lanes.

        They are those just taken, and those of an earlier recovery that was cancelled, or failed, before it
        moved them.  Which of their entries came out of which lane is not known, so the senders count as gone
        only if all of them are.  Without another lane, a move was made whose reply was lost: then nothing is
        known of the senders any more.
        """
        others = [each for each in leases.lanes.values() if each is not lane]
        moved = await move_entries(self._store, others, lane)
        for each in others:
            leases.lanes.pop(each.number, None)
        are_all_gone = bool(others) and all(each.was_free for each in others)
        sender = Sender.GONE if are_all_gone else Sender.ELSEWHERE
        for key, is_done in moved.items():
            self._note_taken(key, lane, sender, is_done=is_done)

    def _note_taken(
        self, key: str, lane: Lane, sender: Sender, *, is_done: bool
    ) -> None:
        """Note an entry that is in *lane* now, unless it is a write of this process that was sent since."""
        write = self._writes.get(key)
        if write is None:
            self._writes[key] = StoredWrite(lane, sender, is_done)
        elif write.is_left:
            write.lane = lane
            write.done = write.done or is_done

    def sender_is_gone(self, identity: str) -> bool:
        """Return whether the process that may have sent *identity* is provably done with it."""
        write = self._writes.get(identity)
        return write is not None and write.sender is Sender.GONE

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents that were taken over, oldest first; unreadable ones are logged."""
        await self.open()
        through = (await self.keys.doubts.mark()).through
        async for entry, intent in self._walk(intent_of, done=False):
            # Others may have written to the same thing since, so it is not known whether it is the newest.
            if intent.newest and self.is_shared:
                intent = attrs.evolve(intent, newest=None)  # noqa: PLW2901 - the same
            yield in_doubt(intent) if entry.seq <= through else intent

    async def unheard(self) -> AsyncIterator[AnyOutcome]:
        """Iterate over the verdicts that were taken over, oldest first; unreadable ones are logged."""
        async for entry, outcome in self._walk(outcome_of, done=True):
            self._writes[entry.key].done = True
            yield outcome

    async def _walk(
        self, read: Callable[[Entry, Commons], T], *, done: bool
    ) -> AsyncIterator[tuple[Entry, T]]:
        await self.open()

        def is_left(key: str) -> bool:
            write = self._writes.get(key)
            return (
                write is not None and write.is_left and not self._removal.is_soon(key)
            )

        for some in slices([*filter(is_left, self._writes)], PAGE):
            for entry in await entries_of(self._store, some, done=done):
                was_heard_meanwhile = not is_left(entry.key)
                if was_heard_meanwhile:
                    continue
                try:
                    found = read(entry, self._store.commons)
                except JournalError as error:
                    if not self.is_shared:
                        raise
                    log.error("left in the journal: %s", error)
                else:
                    yield entry, found

    async def aclose(self) -> None:
        """
        Close the journal once everything is stored, even if the call is cancelled.

        Open writes are left to other processes.
        A second call waits for the first one.

        Raises:
            ConfigurationError: The journal belongs to another event loop, which is not closed.
        """
        if self._loop is not None and self._loop.is_closed():
            # Connections cannot be used in another loop: others notice that this process is silent.
            was_closed = self._is_closing
            self._is_closing = True
            if not isinstance(self._store, SqliteStore):
                self._store.abandon()
                return
            if self._leases is not None and not was_closed:
                self._store.forget([*self._removal.heard])
            await self._store.aclose()
            return
        if self._loop is not None:
            self._check_loop()
        if self._ending is None or (self._ending.done() and not self._is_closed):
            self._ending = asyncio.create_task(self._close())
        await finished(self._ending)

    async def _close(self) -> None:
        await asyncio.sleep(0)  # the application is about to get what was just returned
        self._is_closing = True
        self._close_began.set()
        try:
            for opening in (self._arriving, self._opening):
                if opening is not None and not opening.done():
                    opening.cancel()
                    await asyncio.wait([opening])
            await self.keys.claims.end()
            await self._leave()
        finally:  # also if that was cancelled: signs of life would keep others from what is open
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            await self._store.aclose()
            self._is_closed = True

    async def _leave(self) -> None:
        """Store what is pending, and release the lane, if the database answers."""
        leases = self._leases
        lane = self._lane
        if leases is None or lane is None:
            return
        with suppress(JournalError):
            async with self._store.hurried():
                if self._removal.task is not None:
                    await asyncio.wait([self._removal.task])
                await self._store.idle()
                await self._store.run(partial(end_lane, lane.number, lane.token))
                await forget_member(self._store, leases.name)


def _note_failure(opening: asyncio.Task[None]) -> None:
    """Mark the error of a failed opening as retrieved: the task that awaited it may have been cancelled."""
    if not opening.cancelled():
        opening.exception()


def _end_soon(task: asyncio.Task[None]) -> None:
    """Cancel *task* from any thread, because the journal that started it is gone."""
    with suppress(RuntimeError):  # its loop is closed
        task.get_loop().call_soon_threadsafe(task.cancel)
