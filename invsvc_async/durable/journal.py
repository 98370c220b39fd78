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
import re
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

import attrs

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import in_doubt, pack
from invsvc_async.durable.key_claims import ENDED, FREED
from invsvc_async.durable.keys import Keys
from invsvc_async.durable.leases import Leases, end_lane, new_lane
from invsvc_async.durable.places import store_at
from invsvc_async.durable.records import (
    intent_of,
    is_answered,
    outcome_of,
    store_or_log,
    verdict_record,
)
from invsvc_async.durable.restored import FACT, last_of
from invsvc_async.durable.sqlite_store import SqliteStore
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Set as AbstractSet
    from pathlib import Path

    from invsvc_async.durable.intents import Commons, Packed
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store import Store
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState
    from invsvc_async.writes.driver import Driver
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["ClientJournal", "without_names"]

log: logging.Logger = logging.getLogger("invsvc_async.writes")

T = TypeVar("T")
_PAGE: Final = 256  # entries read or removed at once
_PATIENCE: Final = 10.0  # s that a write waits for a database that is away
_NAMES: Final = ("namespace", "same_mode", "complete")  # in the query of an address
_HEARD_AFTER: Final = 0.05  # s until verdicts that the application has had are removed, together
_DEAD_AT_ONCE: Final = 20  # lanes of dead processes taken over in one transaction
_KEYED: Final = (
    "UPDATE {s}entries SET lane = $2 WHERE lane {any 1 bigint} AND done_at IS NULL AND digest <> ''"
)
_SILENT: Final = "Writes wait until this process has given a sign of life again."
_OPEN, _DONE = f"e.state < {State.DONE:d}", f"e.state = {State.DONE:d}"


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
        self.session: ClientState | None = None
        self.keys: Keys = Keys(
            self, self._store, namespace=named.get("namespace"), same_mode="same_mode" in named,
            complete="complete" in named,
        )  # fmt: skip
        self.opened: float = 0.0  # local s
        self._leases: Leases | None = None
        self._lane: Lane | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the first opening
        self._opening = asyncio.Lock()
        self._taking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        # All that follow are by the identity of intents, which is the key of their entries.
        self._mine: dict[str, Lane] = {}  # entries that this process has stored
        self._left: dict[str, bool] = {}  # entries of others: whether their sender is provably gone
        self._done: set[str] = set()  # entries with a verdict
        self._sent: dict[str, Packed] = {}  # what was stored before the last send, until the verdict
        self._closing = asyncio.Event()
        self._is_removing = False
        self._heard: set[str] = set()  # of those with a verdict, the ones that are about to be removed
        self._removing: set[asyncio.Task[None]] = set()
        self._removed_by: dict[str, asyncio.Task[None]] = {}  # entries whose removal is under way

    @property
    def is_shared(self) -> bool:
        """Whether processes share it: what a dead one left is then taken over by ``recover``."""
        return self._store.silence < inf

    def bind(self, session: ClientState) -> None:
        """Make this the journal of the client of *session*."""
        self.session = session

    def run_keyed(self, spec: WriteSpec) -> Awaitable[Driver[Any]]:  # Any: of any operation
        """Run a write under its key, once for all processes; return the run that has its verdict."""
        return self.keys.run(spec)

    @property
    def has_company(self) -> bool:
        """Whether other processes use it now."""
        return self._leases is not None and self._leases.living > 1

    @property
    def _credential(self) -> str:
        session = self.session
        return "" if session is None else session.credential.fingerprint(session.base_url) or ""

    async def open(self) -> None:
        """
        Open it, and begin to give signs of life; does nothing if it is open.

        Raises:
            JournalError: The file or database cannot be used; another process has the file, which is named;
                it is damaged, no journal of a client, or of another version.
            ConfigurationError: It belongs to another event loop.

        """
        if self._closed:
            raise JournalError("journal: the client is closed, so nothing was sent. Open a new client.")
        self._loop = self._loop or asyncio.get_running_loop()
        self._check_loop()
        if self._leases is not None:
            return
        async with self._opening:
            if self._leases is None:
                await self._store.open_for(self.session, same_mode=False)
                clock = SystemClock() if self.session is None else self.session.clock
                leases = Leases(self._store, clock)
                try:
                    await leases.forget_the_dead()
                    await leases.beat()
                    lane = await self._new_lane(leases)
                    if not self.is_shared:
                        await self._take(leases, lane, None)
                except BaseException:
                    await self._store.aclose()
                    raise
                self._leases, self._lane, self.opened = leases, lane, clock.now()
                if self.session is not None:
                    self.session.opened("journal", leases)
                if self.is_shared:
                    self._beating = asyncio.create_task(leases.live(warning=_SILENT))

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "journal: its client belongs to the event loop that used it first. Make one client for each "
                "loop."
            )

    async def _new_lane(self, leases: Leases) -> Lane:
        token = leases.token()
        return leases.hold(await self._store.run(lambda: new_lane(token, self._credential)), token)

    async def own_lane(self) -> Lane:
        """Return the lane of this process: a new one, if another process took it for dead."""
        await self.open()
        assert self._leases is not None
        if self._lane is not None and not self._lane.lost and not self._lane.doubtful:
            return self._lane
        async with self._opening:
            if self._lane is None or self._lane.lost or self._lane.doubtful:
                await self._leases.beat()
                if self._lane is None or self._lane.lost:
                    self._lane = await self._new_lane(self._leases)
        return self._lane

    # --- what a write stores

    async def sending(self, intent: Intent) -> float:
        """
        Store *intent*, durably, before a send of it; return until when it may be sent (local s).

        Raises:
            JournalError: It cannot be stored, or another process has taken it over; the send must not happen.

        """
        try:
            return await self._sending(intent)
        except LostLaneError as error:
            reason = f"{intent.operation} ({intent.key}): this process gave no sign of life for too long, and"
            raise JournalError(
                f"{reason} another one finds out what became of this write. Nothing was sent now."
            ) from error
        except JournalError as error:
            if not self.is_shared:
                raise
            raise JournalError(f"{error} {intent.operation} ({intent.key}) was not sent now.") from error

    async def _sending(self, intent: Intent) -> float:
        identity = intent.identity
        while (removing := self._removed_by.get(identity)) is not None:  # it would remove what is stored now
            await asyncio.wait((removing,))
        lane, is_new = self._mine.get(identity), False
        if lane is None:
            lane, is_new = await self.own_lane(), True
            self._mine[identity] = lane
        elif self._closed:
            await self.open()  # says so
        self._left.pop(identity, None)
        self._reopen(identity)
        while True:
            try:
                await self.hold(lane)
                packed = self._sent[identity] = pack(intent, self._store.commons)
                await lane.put(self._entry(State.SENDING, intent, packed))
            except LostLaneError:
                lost = lane
                if is_new:  # nothing of it was stored, if only the lane belongs to another process
                    lane = self._mine[identity] = await self.own_lane()
                if lane is lost:
                    raise
            else:
                return lane.until

    async def hold(self, lane: Lane) -> None:
        """
        Wait until the lease of *lane* is valid.

        Raises:
            LostLaneError: Another process has it for good.
            JournalError: The database is away.

        """
        if lane.leases.clock.now() <= lane.until:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await lane.hold()
        except TimeoutError:
            raise JournalError(
                "the journal's database is away (this process could not give a sign of life). Check that its "
                "server can be reached."
            ) from None

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Store the progress of a cancelled write, without waiting.

        If provably no byte of it left, it is removed. A verdict that is already stored stays.
        """
        lane = self._lane_of(intent.identity)
        if lane is None or intent.identity in self._done:
            return
        self._sent.pop(intent.identity, None)
        if sent:
            lane.put(self._entry(State.SENDING, intent))
        else:
            self._removed_by[intent.identity] = self._start(self._remove({intent.identity}))

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict of a write; with UNKNOWN it stays open.

        A verdict that cannot be stored is logged, and the write stays open in the journal.
        """
        identity = outcome.started_as.identity
        lane = self._lane_of(identity)
        if lane is None:  # it was never sent under this journal
            return
        self._reopen(identity)
        packed = self._sent.pop(identity, None)
        if outcome.verdict is Verdict.UNKNOWN:
            self._left.pop(identity, None)  # this process does not recover it again
            entry = self._entry(State.SENDING, outcome.intent)
        else:
            self._done.add(identity)
            as_sent = packed is not None and is_answered(outcome)
            entry = self._entry(
                State.DONE,
                outcome.started_as if as_sent else outcome.intent,
                packed if as_sent else None,
                verdict=outcome.verdict.value,
                outcome=verdict_record(outcome),
            )
        self._mine[identity] = lane
        await store_or_log(lane.put(entry), outcome)

    def _lane_of(self, identity: str) -> Lane | None:
        """Return the lane that has the entry of *identity*, if this process has it."""
        return self._mine.get(identity) or (self._lane if identity in self._left else None)

    def heard(self, identity: str) -> None:
        """
        Remove the verdict of *identity*, which the application has had, together with others, soon.

        An open intent stays.
        """
        if identity in self._done and not self._closed:
            self._heard.add(identity)
            if not self._is_removing:
                self._is_removing = True
                self._start(self._remove_heard())

    async def _remove_heard(self) -> None:
        """Remove verdicts between one and two periods after they were heard: tasks may pass them on."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while waiting := frozenset(self._heard):
                await set_within(self._closing, _HEARD_AFTER)
                heard = waiting & self._heard
                self._heard -= heard
                self._removed_by.update(dict.fromkeys(heard, task))
                self._done -= heard
                for key in heard:  # no longer what another process has left
                    self._left.pop(key, None)
                    if self._lane is not None:
                        self._mine.setdefault(key, self._lane)
                await self._remove(heard)
        finally:
            self._is_removing = False

    async def _remove(self, keys: AbstractSet[str]) -> None:
        """Delete entries, once what is pending for them is stored."""
        try:
            await self._store.idle()
            lanes = {*self._mine.values(), *([] if self._lane is None else [self._lane])}
            numbers = [lane.number for lane in lanes]
            with suppress(JournalError):  # then they are given, or settled, once more
                for some in slices(sorted(keys), _PAGE):
                    text = "DELETE FROM {s}entries WHERE key {any 1 text} AND lane {any 2 bigint}"
                    await self._store.rows(text, some, numbers)
                for key in keys:
                    self._mine.pop(key, None)
        finally:
            for key in keys:
                if self._removed_by.get(key) is asyncio.current_task():
                    del self._removed_by[key]

    def _start(self, removing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:  # Any: as of any coroutine
        task = asyncio.get_running_loop().create_task(removing)
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)
        return task

    def _reopen(self, identity: str) -> None:
        """Cancel the removal of *identity*: something else is about to be stored under it."""
        self._done.discard(identity)
        self._heard.discard(identity)

    def _entry(
        self, state: State, intent: Intent, packed: Packed | None = None, **done: Any
    ) -> Entry:  # Any: fields of Entry
        """Return the entry of *intent*, whose packed form may be known, with more fields in *done*."""
        packed = packed or pack(intent, self._store.commons)
        return Entry(
            key=intent.identity, state=state, operation=intent.operation, common=packed.common,
            intent=packed.text, **done,
        )  # fmt: skip

    # --- what others have left

    async def take_over(self, *, same_mode: bool) -> None:
        """
        Acquire what dead processes of this base URL and credential left, or what any credential left.

        What is in a file was acquired when it was opened.

        Raises:
            JournalError: The database stayed away.

        """
        async with self._taking:
            lane = await self.own_lane()
            assert self._leases is not None
            if self.is_shared:
                await self._leases.beat()
                await self._take(self._leases, lane, None if same_mode else self._credential)

    async def _take(self, leases: Leases, lane: Lane, credential: str | None) -> None:
        """Move the entries of dead processes to *lane*."""
        taken: list[Lane] | None = None
        while taken is None or len(taken) == _DEAD_AT_ONCE:
            taken = await leases.take(_DEAD_AT_ONCE, credential=credential)
            # Also those of an earlier recovery that was cancelled, or failed, before it moved them.
            others = [each for each in leases.lanes.values() if each is not lane]
            keys, done = await self._store.run(partial(_move, others, lane))
            for each in others:
                leases.lanes.pop(each.number, None)
            # Not if a move was made whose reply was lost: nothing is known of those senders any more.
            gone = bool(others) and all(each.was_free for each in others)
            for key in keys:
                if key not in self._mine:
                    self._left.setdefault(key, gone)
                    if key in done:
                        self._done.add(key)

    def sender_is_gone(self, identity: str) -> bool:
        """Return whether the process that may have sent *identity* is provably done with it."""
        return self._left.get(identity, False)

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents that were taken over, oldest first; unreadable ones are logged."""
        await self.open()
        found = await self._store.rows("SELECT value FROM {s}facts WHERE name = $1", FACT)
        through = last_of(found[0][0] if found else None)
        async for entry, intent in self._walk(_OPEN, intent_of):
            if intent.newest and self.is_shared:  # others may have written to the same thing since
                intent = attrs.evolve(intent, newest=None)  # noqa: PLW2901 - the same
            yield in_doubt(intent) if entry.seq <= through else intent

    async def unheard(self) -> AsyncIterator[Outcome[Any]]:  # Any: the operation says what its value is
        """Iterate over the verdicts that were taken over, oldest first; unreadable ones are logged."""
        async for entry, outcome in self._walk(_DONE, outcome_of):
            self._done.add(entry.key)
            yield outcome

    async def _walk(self, which: str, read: Callable[[Entry, Commons], T]) -> AsyncIterator[tuple[Entry, T]]:
        await self.open()
        keys = [key for key in self._left if key not in self._heard]
        for some in slices(keys, _PAGE):
            for entry in await self._store.entries(f"e.key {{any 1 text}} AND {which} ORDER BY e.seq", some):
                if entry.key not in self._left or entry.key in self._heard:  # heard of meanwhile
                    continue
                try:
                    found = read(entry, self._store.commons)
                except JournalError as error:
                    if not self.is_shared:
                        raise
                    log.error("left in the journal: %s", error)  # noqa: TRY400 - the message is enough
                else:
                    yield entry, found

    async def aclose(self) -> None:
        """
        Close it, with everything stored, even if it is cancelled. What is open is left to other processes.

        Raises:
            ConfigurationError: It belongs to another event loop, which is not closed.

        """
        try:
            await asyncio.sleep(0)  # the application is about to get what was just returned
        finally:
            if self._loop is not None and self._loop.is_closed():
                # Connections cannot be used in another loop: others notice that this process is silent.
                was_closed, self._closed = self._closed, True
                if isinstance(self._store, SqliteStore) and self._leases is not None and not was_closed:
                    self._store.forget([*self._heard])
                    await self._store.aclose()
            await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        if self._loop is not None:
            self._check_loop()
        self._closed = True
        self._closing.set()
        try:
            await self.keys.end()
            await self._leave()
        finally:  # also if that was cancelled: signs of life would keep others from what is open
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            await self._store.aclose()

    async def _leave(self) -> None:
        """Store what is pending, and release the lane, if the database answers."""
        leases, lane = self._leases, self._lane
        if leases is None or lane is None:
            return
        with suppress(JournalError):
            async with self._store.hurried():
                if self._removing:
                    await asyncio.wait([*self._removing])
                await self._store.idle()
                await self._store.run(partial(end_lane, lane))
                await self._store.rows("DELETE FROM {s}members WHERE name = $1", leases.name)


def _move(taken: list[Lane], to: Lane) -> Script[tuple[list[str], set[str]]]:
    """
    Move the entries of lanes that were *taken* to the lane *to*; return its keys, and which are done.

    Nobody has those with a key of the user's own then.
    """
    gone = {lane.number for lane in taken if lane.was_free}
    tokens = {lane.number: lane.token for lane in (*taken, to)}
    text = "SELECT id, owner FROM {s}lanes WHERE id {any 1 bigint} ORDER BY id {update}"
    owners = dict((yield text, ([*tokens],)))
    if owners.get(to.number) != to.token:
        raise LostLaneError("the journal of this process now belongs to another.")
    ours = sorted(lane for lane, owner in owners.items() if owner == tokens[lane] and lane != to.number)
    for number, lanes in ((ENDED, gone.intersection(ours)), (FREED, {*ours} - gone)):
        yield _KEYED, (sorted(lanes), number)
    yield "UPDATE {s}entries SET lane = $2 WHERE lane {any 1 bigint} AND done_at IS NULL", (ours, to.number)
    yield "DELETE FROM {s}lanes WHERE id {any 1 bigint}", (ours,)
    text = "SELECT key, state FROM {s}entries WHERE lane = $1 AND done_at IS NULL ORDER BY seq"
    rows = yield text, (to.number,)
    return [key for key, _ in rows], {key for key, state in rows if state == State.DONE}


def without_names(address: str | Path) -> tuple[str | Path, dict[str, str]]:
    """
    Remove ``namespace``, ``same_mode`` and ``complete`` from *address* (or a path); return both.

    Raises:
        ConfigurationError: One of them is invalid.

    """
    place, mark, query = str(address).partition("?")
    asked = parse_qsl(query, keep_blank_values=True)
    named = {name: value for name, value in asked if name in _NAMES}
    if not re.fullmatch(r"[\w.-]{1,64}", named.get("namespace", "x"), re.ASCII):
        raise ConfigurationError("journal: namespace is invalid. Use 1 to 64 of a-z, A-Z, 0-9, _, - and .")
    for name in _NAMES[1:]:
        if named.get(name, "true") != "true":
            raise ConfigurationError(f"journal: {name} is invalid. Use {name}=true, or leave it out.")
    rest = urlencode([pair for pair in asked if pair[0] not in named], safe="/,:@")
    return (f"{place}?{rest}" if rest else place) if mark and named else address, named
