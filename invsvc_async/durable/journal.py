"""
The journal of a client: the intents of single writes, in a file or in a database that processes share.

An intent is stored before the first byte of its write.  Its verdict is stored before the application gets
it, and removed once the application has it.  Each process has one lane for its entries.  What a dead one left
is moved to the lane of the process that takes it over; from then on, what the dead one may still store is
rejected.

When it is opened and closed is in ``journal_life``.  What others have left is taken over, and read, by
``left_writes``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.durable.entry import LostEntryError, State
from invsvc_async.durable.intents import in_doubt, pack
from invsvc_async.durable.journal_life import JournalLife
from invsvc_async.durable.keys import Keys
from invsvc_async.durable.last_writes import take_claims_on
from invsvc_async.durable.left_writes import LeftWrites
from invsvc_async.durable.own_lane import credential_of
from invsvc_async.durable.records import done_entry, entry_of, intent_of, outcome_of
from invsvc_async.durable.removal import Removal, Sender, StoredWrite
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.durable.store.opening import Store, store_at, without_names
from invsvc_async.durable.store.states import Left
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.history import Verdict
from invsvc_async.writes.line_names import replaced_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from invsvc_async.durable.resolve import Resolution, Resolved
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.client_core import ClientCore


log: logging.Logger = logging.getLogger("invsvc_async.writes")

_AGAIN: Final = 1.0  # s between tries to move what was taken over


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
        # By the identity of intents, which is the key of their entries.
        self._writes: dict[str, StoredWrite] = {}
        close_began = asyncio.Event()
        self._removal = Removal(self._store, self._writes, close_began)
        self._left = LeftWrites(self._store, self._writes, self._removal)
        self.life: JournalLife = JournalLife(
            self._store, self._left, self._removal, close_began
        )
        self.keys: Keys = Keys(self, self._store, named)
        self._taking = asyncio.Lock()
        # of which a person found that they are applied, or is about to
        self._resolved: set[str] = set()

    @property
    def is_shared(self) -> bool:
        """Whether processes share the journal: ``recover`` then takes over what a dead process left."""
        return self._store.is_shared

    def bind(self, core: ClientCore) -> None:
        """Make this the journal of the client of *core*."""
        self.life.core = core

    def wait_for_database(self, patience: float) -> None:
        """
        Set the time for which writes wait for a database that is away to *patience* s; ten are usual.

        A write that waits keeps its place before others to the same thing; after an error it has none.
        """
        self._store.patience = patience
        if self.life.own is not None:
            self.life.own.leases.patience = patience

    async def open(self) -> None:
        """Open the journal, as :meth:`JournalLife.open`, with the same errors; nothing if it is open."""
        await self.life.open()

    async def start(self) -> None:
        """Open the journal; go on without its database if that is away, and the address allows it."""
        await self.life.start()

    @property
    def problem(self) -> str | None:
        """Why its database has not been reached since the start; ``None`` once it has."""
        return self.life.problem

    async def aclose(self) -> None:
        """Close the journal, as :meth:`JournalLife.aclose`, with the same errors."""
        await self.life.aclose(self.keys.claims.end)

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
        except LostEntryError as error:
            write = self._writes.get(intent.identity)
            if write is not None and write.is_stored:
                why = (
                    "this process gave no sign of life for too long, and another one finds out "
                    "what became of this write."
                )
            else:
                why = (
                    "another process has it in the journal. If that one has ended, "
                    "client.recover() takes over what it left."
                )
            raise JournalError(f"{name}: {why} Nothing was sent now.") from error
        except JournalError as error:
            if not self.is_shared:
                raise
            raise JournalError(
                f"{error} {name} was not sent now.", is_away=error.is_away
            ) from error

    async def _sending(self, intent: Intent) -> float:
        identity = intent.identity
        # It is about to be removed if an earlier try was cancelled before it left, or its verdict was heard.
        # Removed now, it gets another number: it is sent after all that was sent meanwhile.
        await self._removal.remove_now(identity)
        write = self._writes.get(identity)
        is_new = write is None or write.is_left
        if write is None:
            write = self._writes[identity] = StoredWrite(await self.life.own_lane())
        elif self.life.is_closing:
            await self.life.open()  # raises the error of a closed journal
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
                        thing=self._replaced_by(intent),
                    )
                )
            except LostEntryError:
                lost = write.lane
                # Of a new one, nothing was stored in this lane, so that only the lane may belong to another
                # process.  Has that one the entry, too, then the next attempt is refused as well.
                if is_new:
                    write.lane = await self.life.own_lane()
                if write.lane is lost:
                    if is_new:
                        del self._writes[identity]
                    raise
            else:
                write.is_stored = True
                return write.lane.until

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Store the progress of a cancelled write, without waiting.

        If provably no byte of it left, it is removed. A verdict that is already stored stays.
        """
        write = self._writes.get(intent.identity)
        if write is None:
            return
        if write.done or intent.identity in self._resolved:
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
            # It is done once its entry is queued to be stored, and not before: `shelved` does nothing for a
            # write that is done, and one whose entry was not queued has to be shelved.
            storing = write.lane.put(entry, self._left_by(outcome) if is_done else None)
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

    async def take_claims_on(self, listed: Collection[str]) -> None:
        """Note which creates of the journal made the webhooks with the ids *listed*."""
        await self.life.open()
        core = self.life.core
        assert core is not None
        await take_claims_on(core.writes, self._store, listed)

    async def resolve(self, intent: Intent, finding: Resolution) -> AnyOutcome:
        """
        Store what a person has found out about a write without a key of the user's own; return its outcome.

        Raises:
            JournalError: A run of it lives, or as :func:`invsvc_async.durable.resolve.resolve`.
        """
        await self.life.open()
        identity = intent.identity
        core = self.life.core
        assert core is not None
        if core.under_way.is_running(identity):
            raise is_being_done(intent.key)
        write = self._writes.get(identity)
        mine = None if write is None else write.lane.token
        was_resolved = identity in self._resolved
        self._resolved.add(identity)  # a run that begins meanwhile stores nothing
        made: dict[str, Resolved] = {}
        try:
            resolved = await resolve(
                self._store,
                identity,
                finding,
                key=intent.key,
                identity=identity,
                mine=mine,
                made=made,
            )
        except BaseException:
            # That it was applied is final, if it was stored before the error.
            may_be_final = finding.applied and (made or was_resolved)
            if not may_be_final:
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
        if write is None or not write.done:
            return
        if not self.life.is_closing:
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
            await self.life.open()
            own = self.life.own
            assert own is not None
            if self.is_shared:
                await own.leases.beat()  # shows whether the lane is lost
                lane = await self.life.own_lane()
                credential = None if same_mode else credential_of(self.life.core)
                try:
                    await self._left.take(lane, credential)
                except (asyncio.CancelledError, JournalError):
                    self.keys.claims.ends.start(self._move_taken())
                    raise

    async def _move_taken(self) -> None:
        """Move the entries of lanes that were taken over: runs of their keys would wait for this process."""
        is_moved = False
        while not (is_moved or self.life.is_closing):
            await asyncio.sleep(_AGAIN)
            with suppress(JournalError):
                async with self._taking:
                    lane = await self.life.own_lane()
                    await self._left.take(lane, None, most=0)
                is_moved = True

    def sender_is_gone(self, identity: str) -> bool:
        """Return whether the process that may have sent *identity* is provably done with it."""
        write = self._writes.get(identity)
        return write is not None and write.sender is Sender.GONE

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents that were taken over, oldest first; unreadable ones are logged."""
        await self.life.open()
        through = (await self.keys.doubts.mark()).through
        async for entry, intent in self._left.read(intent_of, done=False):
            # Others may have written to the same thing since, so it is not known whether it is the newest.
            if intent.newest and self.is_shared:
                intent = attrs.evolve(intent, newest=None)  # noqa: PLW2901 - the same
            if entry.seq <= through:
                yield in_doubt(intent)
            else:
                yield intent

    async def unheard(self) -> AsyncIterator[AnyOutcome]:
        """Iterate over the verdicts that were taken over, oldest first; unreadable ones are logged."""
        await self.life.open()
        async for entry, outcome in self._left.read(outcome_of, done=True):
            self._writes[entry.key].done = True
            yield outcome

    # --- the things that writes change

    def _replaced_by(self, intent: Intent) -> str | None:
        """Return the thing that the write of *intent* replaces, as writes under keys name it."""
        core = self.life.core
        if core is None:  # without a client, there are no keys
            return None
        return replaced_by(core, intent)

    def _left_by(self, outcome: AnyOutcome) -> Left | None:
        """Return the thing that a write has changed, perhaps, without a state."""
        if outcome.verdict in NO_EFFECT:
            return None
        thing = self._replaced_by(outcome.started_as)
        if thing is None:
            return None
        return Left(thing)
