"""
The journal of a client: the intents of single writes, in a file or in a database that processes share.

An intent is stored before the first byte of its write.  Its verdict is stored before the application gets
it, and removed once the application has it.  Each process has one lane for its entries.  What a dead one left
is moved to the lane of the process that takes it over; from then on, what the dead one may still store is
rejected.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from invsvc_async.concurrency.cancellation import finished
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import Commons, Packed, in_doubt, pack
from invsvc_async.durable.keys import Keys
from invsvc_async.durable.leases import Lane, Leases
from invsvc_async.durable.records import done_entry, entry_of, intent_of, outcome_of
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.durable.store.lanes import end_lane, move_entries, new_lane
from invsvc_async.durable.store.members import forget as forget_member
from invsvc_async.durable.store.opening import Store, store_at, without_names
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.unkeyed import entries_of, remove
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
_PAGE: Final = 256  # entries read or removed at once
_PATIENCE: Final = 10.0  # s that a write waits for a database that is away
# s until verdicts that the application has had are removed, together
_HEARD_AFTER: Final = 0.05
# s between tries to move what was taken over, and the first ones to open
_AGAIN: Final = 1.0
_SELDOM: Final = 30.0  # s at most between tries to open
_DEAD_AT_ONCE: Final = 20  # lanes of dead processes taken over in one transaction
_SILENT: Final = "Writes wait until this process has given a sign of life again."


@attrs.define
class _Write:
    """An entry in a *lane* of this process."""

    lane: Lane
    # if another process has left it: whether that is provably done with it
    gone: bool | None = None
    done: bool = False  # it has a verdict
    # what was stored before the last send, until the verdict
    sent: Packed | None = None


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
        self._closed = False  # or about to be
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the first opening
        # Tasks of their own: whoever awaits them may be cancelled, and again while it would clean up.
        self._opening: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._making_lane = asyncio.Lock()
        self._taking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        # By the identity of intents, which is the key of their entries.
        self._writes: dict[str, _Write] = {}
        self._heard: set[str] = set()  # that are about to be removed
        self._removed: frozenset[str] = frozenset()  # that are removed now
        # of which a person found that they are applied, or is about to
        self._resolved: set[str] = set()
        self._removal = asyncio.Lock()
        self._remover: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._unclosed: weakref.finalize[..., ClientJournal] | None = None
        # While its database has not been reached since the start of the client: why, and what tries again.
        self._away: JournalError | None = None
        self._arriving: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether processes share the journal: ``recover`` then takes over what a dead process left."""
        return self._store.silence < inf

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
            await self._reach()
        except JournalError as error:
            if self._away is None:
                raise
            raise JournalError(
                f"journal: it has not been reached since the start, so nothing was sent. {error}",
                is_away=error.is_away,
            ) from error

    async def _reach(self) -> None:
        if self._closed:
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
            await self._reach()
        except JournalError as error:
            if not (error.is_away and self._store.starts_away):
                raise
            log.error(
                "The client starts without its journal, and refuses writes until then: %s",
                error,
            )
            self._away = error
            self._arriving = asyncio.create_task(
                self._arrive(), name="invsvc journal opening"
            )

    async def _arrive(self) -> None:
        """Open it, again and again, until its database is there."""
        pause = _AGAIN
        while self._leases is None and not self._closed:
            await set_within(self._closing, pause)
            pause = min(2 * pause, _SELDOM)
            try:
                await self._reach()
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
                await self._take(leases, lane, None)
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
            and not self._closed
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
        while identity in self._removed:  # that would remove what is stored now
            async with self._removal:
                pass
        write = self._writes.get(identity)
        is_new = write is None or write.gone is not None
        if write is None:
            write = self._writes[identity] = _Write(await self.own_lane())
        elif self._closed:
            await self.open()  # says so
        write.gone = None
        write.done = False
        self._heard.discard(identity)
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
                if is_new:  # nothing of it was stored, if only the lane belongs to another process
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
            self._remove(intent.identity)

    async def settled(self, outcome: Outcome[object]) -> None:
        """Store the verdict of a write; with UNKNOWN, or after a failure (logged), the write stays open."""
        started = outcome.started_as
        commons = self._store.commons
        write = self._writes.get(started.identity)
        # never sent under this journal, or resolved
        if write is None or started.identity in self._resolved:
            return
        self._heard.discard(started.identity)
        is_done = outcome.verdict is not Verdict.UNKNOWN
        if is_done:
            entry = done_entry(outcome, write.sent, commons, key=started.identity)
        else:
            write.gone = None  # this process does not recover it again
            entry = entry_of(
                State.SENDING, outcome.intent, commons, key=started.identity
            )
        try:
            storing = write.lane.put(entry)
            write.sent = None
            # only now: what is not about to be stored is to be shelved
            write.done = is_done
            await storing
            write.lane.leases.done += write.done
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
        if write is not None and write.done and not self._closed:
            self._remove(identity)

    def _remove(self, identity: str) -> None:
        self._heard.add(identity)
        if self._remover is None or self._remover.done():
            self._remover = asyncio.get_running_loop().create_task(self._remove_heard())

    async def _remove_heard(self) -> None:
        """Remove entries between one and two periods after they were heard: tasks may pass verdicts on."""
        try:
            while waiting := frozenset(self._heard):
                await set_within(self._closing, _HEARD_AFTER)
                async with self._removal:
                    self._removed = waiting & self._heard
                    self._heard -= self._removed
                    writes = [self._writes[key] for key in self._removed]
                    for write in writes:
                        write.gone = None
                        write.done = False
                    await self._store.idle()  # what is pending for them is stored
                    lanes = list({write.lane.number for write in writes})
                    # then they are given, or settled, once more
                    with suppress(JournalError):
                        for some in slices(sorted(self._removed), _PAGE):
                            await remove(self._store, some, lanes)
                        for key in self._removed:
                            del self._writes[key]
                    self._removed = frozenset()
        finally:
            self._removed = frozenset()
            self._remover = None

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
                try:
                    await self._take(
                        self._leases, lane, None if same_mode else self._credential
                    )
                except (asyncio.CancelledError, JournalError):
                    self.keys.claims.start(self._move_taken(self._leases))
                    raise

    async def _move_taken(self, leases: Leases) -> None:
        """Move the entries of lanes that were taken over: runs of their keys would wait for this process."""
        is_moved = False
        while not (is_moved or self._closed):
            await asyncio.sleep(_AGAIN)
            with suppress(JournalError):
                async with self._taking:
                    await self._take(leases, await self.own_lane(), None, most=0)
                is_moved = True

    async def _take(
        self,
        leases: Leases,
        lane: Lane,
        credential: str | None,
        *,
        most: int = _DEAD_AT_ONCE,
    ) -> None:
        """Move the entries of up to *most* dead processes at once, and those that were taken, to *lane*."""
        taken: list[Lane] | None = None
        while taken is None or len(taken) == _DEAD_AT_ONCE:
            taken = await leases.take(most, credential=credential)
            # Also those of an earlier recovery that was cancelled, or failed, before it moved them.
            others = [each for each in leases.lanes.values() if each is not lane]
            moved = await move_entries(self._store, others, lane)
            for each in others:
                leases.lanes.pop(each.number, None)
            # Not if a move was made whose reply was lost: nothing is known of those senders any more.
            gone = bool(others) and all(each.was_free for each in others)
            for key, is_done in moved.items():
                self._note_taken(key, lane, is_done=is_done, gone=gone)

    def _note_taken(self, key: str, lane: Lane, *, is_done: bool, gone: bool) -> None:
        """Note an entry that is in *lane* now, unless it is a write of this process that was sent since."""
        write = self._writes.setdefault(key, _Write(lane, gone, is_done))
        if write.gone is not None:
            write.lane = lane
            write.done = write.done or is_done

    def sender_is_gone(self, identity: str) -> bool:
        """Return whether the process that may have sent *identity* is provably done with it."""
        write = self._writes.get(identity)
        return write is not None and write.gone is True

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents that were taken over, oldest first; unreadable ones are logged."""
        await self.open()
        through = (await self.keys.doubts.mark()).through
        async for entry, intent in self._walk(intent_of, done=False):
            # others may have written to the same thing since
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
                write is not None and write.gone is not None and key not in self._heard
            )

        for some in slices([*filter(is_left, self._writes)], _PAGE):
            for entry in await entries_of(self._store, some, done=done):
                if not is_left(entry.key):  # heard of meanwhile
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
            was_closed = self._closed
            self._closed = True
            if not isinstance(self._store, SqliteStore):
                self._store.abandon()
                return
            if self._leases is not None and not was_closed:
                self._store.forget([*self._heard])
            await self._store.aclose()
            return
        if self._loop is not None:
            self._check_loop()
        if self._ending is None or (self._ending.done() and not self._is_closed):
            self._ending = asyncio.create_task(self._close())
        await finished(self._ending)

    async def _close(self) -> None:
        await asyncio.sleep(0)  # the application is about to get what was just returned
        self._closed = True
        self._closing.set()
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
                if self._remover is not None:
                    await asyncio.wait([self._remover])
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
