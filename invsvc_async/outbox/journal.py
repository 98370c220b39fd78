"""
The journal of a client in PostgreSQL: the intents of single writes of many processes.

Each process has one chunk for its entries, and gives signs of life.  What a dead one left is moved to the
chunk of the process that takes it over; from then on, the database rejects what the dead one may still store.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.journals.postgres_epoch import PlaceError
from invsvc_async.batch.restored import FACT, last_of
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.journal.doubt import in_doubt
from invsvc_async.journal.entry import Entry, LostChunkError, State
from invsvc_async.journal.epoch import SETTLED
from invsvc_async.journal.full_outcome_record import intent_of, outcome_of, store_or_log, verdict_record
from invsvc_async.journal.packed_intent import pack
from invsvc_async.outbox.leases import Lane, Leases
from invsvc_async.outbox.run import BEATS
from invsvc_async.outbox.schema import SharedEntries
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.postgres_pool import DURABLY
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from invsvc_async.batch.journals.chunk_fencing import _Given
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.session import ClientState

__all__ = ["SharedJournal"]

log: logging.Logger = logging.getLogger("invsvc_async.writes")

_PATIENCE = 10.0  # s that a write waits for a database that is away
_PAGE = 256  # entries read at once
_HEARD_AFTER = 0.05  # s until verdicts that the application has had are removed, together
_DEAD_AT_ONCE = 20  # chunks of dead processes taken over in one transaction

_MORE = """
ALTER TABLE chunks ADD COLUMN credential text NOT NULL DEFAULT '';
CREATE INDEX in_chunk ON entries (chunk);
"""
# As for the entries of a batch, but a new entry is inserted.  An entry that another process has taken over is
# in another chunk, and stays as it is.
_STORE = f"""
WITH durable AS MATERIALIZED (SELECT {DURABLY}),
given AS (
    SELECT t.* FROM durable, unnest(
        $1::text[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::text[],
        $7::bigint[], $8::text[], $9::text[], $10::bigint[])
    AS t (key, chunk, token, state, operation, verdict, common, intent, outcome, done_at)
), owned AS MATERIALIZED (SELECT id, owner FROM chunks WHERE id = ANY ($2) ORDER BY id FOR SHARE)
INSERT INTO entries AS e
    (key, chunk, content, state, run, operation, verdict, common, intent, outcome, done_at)
SELECT g.key, g.chunk, '', g.state, 0, g.operation, g.verdict, g.common, g.intent, g.outcome, g.done_at
FROM given g JOIN owned o ON o.id = g.chunk AND o.owner = g.token
ON CONFLICT (key) DO UPDATE SET state = excluded.state, verdict = excluded.verdict,
    common = excluded.common, intent = excluded.intent, outcome = excluded.outcome, done_at = excluded.done_at
    WHERE e.chunk = excluded.chunk
RETURNING key
"""  # noqa: S608 - our own text
_NEW_CHUNK = "INSERT INTO chunks (owner, credential) VALUES ($1, $2) RETURNING id"
_MOVE = "UPDATE entries SET chunk = $2 WHERE chunk = ANY ($1)"
_GONE = "DELETE FROM chunks WHERE id = ANY ($1)"
_OPEN, _DONE = f"state < {State.DONE:d}", f"state = {State.DONE:d}"


class JournalEntries(SharedEntries):
    """The entries of the journal at *address*."""

    _apart = False  # a chunk has its credential, so that a new one can be told to take over

    def __init__(self, address: str) -> None:
        super().__init__(address, "journal")
        self.patience = _PATIENCE

    async def _fill(self, connection: Any) -> None:  # Any: asyncpg's
        await connection.execute(_MORE)

    async def connected(self, connection: Any) -> None:  # Any: as above
        """Check a new connection: the server may have been restored, or be another one meanwhile."""
        try:
            await super().connected(connection)
        except PlaceError:
            self._stored_commons.clear()
            async with connection.transaction(isolation="read_committed"):
                self._place = await self._checked_place(connection)

    async def _checked_place(self, connection: Any) -> dict[str, str]:  # Any: as above
        """Return the place; in another one than before, note that what is open may have been sent since."""
        try:
            return await super()._checked_place(connection)
        except PlaceError as error:
            log.error(SETTLED, str(error).partition(". ")[0])  # noqa: TRY400 - the message is enough
        self._restored = True
        try:
            return await super()._checked_place(connection)
        finally:
            self._restored = False

    async def through(self) -> int:
        """Return the number of the last entry that may have been sent since a copy was made, or 0."""
        text = await self.fact(FACT)
        return 0 if text is None else last_of(text)

    async def _store(self, given: list[_Given]) -> set[tuple[str, int]]:
        await self._store_commons()
        names = ("state", "operation", "verdict", "common", "intent", "outcome", "done_at")
        columns: list[list[Any]] = [
            [each.entry.key for each in given],
            [each.chunk for each in given],
            [each.token for each in given],
            *([getattr(each.entry, name) for each in given] for name in names),
        ]  # fmt: skip
        return {(row["key"], 0) for row in await self.fetch(_STORE, *columns)}

    async def move(self, taken: list[Lane], to: Lane) -> list[str]:
        """Move the entries of chunks that were *taken* to the chunk *to*; return all keys that it has."""

        async def move(connection: Any) -> list[str]:  # Any: asyncpg's
            tokens = {lane.chunk: lane.token for lane in (*taken, to)}
            text = "SELECT id, owner FROM chunks WHERE id = ANY ($1) ORDER BY id FOR UPDATE"
            rows = await connection.fetch(text, [*tokens])
            if not any(row["id"] == to.chunk and row["owner"] == to.token for row in rows):
                raise LostChunkError("the journal of this process now belongs to another.")
            mine = {row["id"] for row in rows if row["owner"] == tokens[row["id"]]}
            ours = sorted(mine - {to.chunk})
            await connection.execute(_MOVE, ours, to.chunk)
            await connection.execute(_GONE, ours)
            found = await connection.fetch("SELECT key FROM entries WHERE chunk = $1", to.chunk)
            return [row["key"] for row in found]

        return await self.ask(move)

    async def page(self, keys: Sequence[str], which: str) -> list[Entry]:
        """Return those entries of *keys* that are open, or those that are done."""
        return await self._entries(f"key = ANY ($1) AND {which} ORDER BY seq", list(keys))

    async def new_chunk(self, token: str, credential: str) -> int:
        """Make a chunk that belongs to *token*."""

        async def make(connection: Any) -> int:  # Any: asyncpg's
            text = "SELECT id FROM chunks WHERE owner = $1"
            found = await connection.fetchval(text, token)  # the reply of an earlier try may have been lost
            return int(found or await connection.fetchval(_NEW_CHUNK, token, credential))

        return await self.ask(make)

    async def remove(self, keys: Sequence[str], lanes: Sequence[Lane]) -> None:
        """Delete the entries of *keys*, if they are in one of *lanes*."""
        chunks = [lane.chunk for lane in lanes]
        await self.fetch("DELETE FROM entries WHERE key = ANY ($1) AND chunk = ANY ($2)", list(keys), chunks)

    async def end(self, lane: Lane) -> None:
        """Delete the chunk of a process that ends; if it has entries, release it."""

        async def end(connection: Any) -> None:  # Any: asyncpg's
            text = "SELECT 1 FROM chunks WHERE id = $1 AND owner = $2 FOR UPDATE"
            if not await connection.fetchval(text, lane.chunk, lane.token):
                return
            if await connection.fetchval("SELECT 1 FROM entries WHERE chunk = $1 LIMIT 1", lane.chunk):
                await connection.execute("UPDATE chunks SET owner = NULL WHERE id = $1", lane.chunk)
            else:
                await connection.execute(_GONE, [lane.chunk])

        await self.ask(end)


class SharedJournal:
    """
    The journal in the PostgreSQL database at *address*, for any number of processes and machines.

    It contains the open writes, and the verdicts that no application has had yet, of all processes. Bodies
    are stored in plain text, because they may be sent again.
    """

    def __init__(self, address: str) -> None:
        self._entries = JournalEntries(address)
        self._session: ClientState | None = None
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
        self._heard: set[str] = set()  # of those, the ones that are about to be removed
        self._removing: set[asyncio.Task[None]] = set()
        self._removed_by: dict[str, asyncio.Task[None]] = {}  # entries whose removal is under way

    def bind(self, session: ClientState) -> None:
        """Make this the journal of the client of *session*."""
        self._session = session

    @property
    def _credential(self) -> str:
        assert self._session is not None
        return self._session.credential.fingerprint(self._session.base_url) or ""

    async def open(self) -> None:
        """
        Connect, and begin to give signs of life; does nothing if it is open.

        Raises:
            JournalError: The database cannot be used, or its schema is of another version.
            ConfigurationError: It belongs to another event loop.

        """
        if self._closed:
            raise JournalError("journal: the client is closed, so nothing was sent. Open a new client.")
        if self._session is None:
            raise ConfigurationError("journal: belongs to no client. Pass it to one.")
        self._loop = self._loop or asyncio.get_running_loop()
        self._check_loop()
        async with self._opening:
            if self._leases is None:
                await self._entries.open_for(self._session, same_mode=False)
                leases = Leases(self._entries, self._session.clock)
                try:
                    await self._entries.check_place()
                    await leases.forget_the_dead()
                    await leases.beat()
                    self._lane = await self._new_lane(leases)
                except BaseException:
                    await self._entries.aclose()
                    raise
                self._leases = leases
                self._beating = asyncio.create_task(self._beat(leases))

    def _check_loop(self) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "journal: its client belongs to the event loop that used it first. Make one client for each "
                "loop."
            )

    async def _new_lane(self, leases: Leases) -> Lane:
        token = leases.token()
        return leases.hold(await self._entries.new_chunk(token, self._credential), token)

    async def _beat(self, leases: Leases) -> None:
        while True:
            await asyncio.sleep(self._entries.silence / BEATS)
            try:
                await leases.beat()
            except JournalError as error:
                raise_if_cancelled()
                log.warning("%s Writes wait until this process has given a sign of life again.", error)

    async def _own_lane(self) -> Lane:
        """Return the chunk of this process: a new one, if another process took it for dead."""
        await self.open()
        assert self._leases is not None
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
        except LostChunkError as error:
            reason = f"{intent.operation} ({intent.key}): this process gave no sign of life for too long, and"
            raise JournalError(
                f"{reason} another one finds out what became of this write. Nothing was sent now."
            ) from error
        except JournalError as error:
            raise JournalError(f"{error} {intent.operation} ({intent.key}) was not sent now.") from error

    async def _sending(self, intent: Intent) -> float:
        identity = intent.identity
        while (removing := self._removed_by.get(identity)) is not None:  # it would remove what is stored now
            await asyncio.wait((removing,))
        lane, is_new = self._mine.get(identity), False
        if lane is None:
            lane, is_new = await self._own_lane(), True
            self._mine[identity] = lane
        self._left.pop(identity, None)
        self._reopen(identity)
        while True:
            try:
                return await self._store_send(intent, lane)
            except LostChunkError:
                lost = lane
                if is_new:  # nothing of it was stored, if only the chunk belongs to another process
                    lane = self._mine[identity] = await self._own_lane()
                if lane is lost:
                    raise

    async def _store_send(self, intent: Intent, lane: Lane) -> float:
        try:
            async with asyncio.timeout(self._entries.patience):
                await lane.hold()
        except TimeoutError:
            raise self._entries.away("this process could not give a sign of life") from None
        await lane.put(self._entry(State.SENDING, intent))
        return lane.until

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Store the progress of a cancelled write, without waiting.

        If provably no byte of it left, it is removed. A verdict that is already stored stays.
        """
        lane = self._mine.get(intent.identity) or (self._lane if intent.identity in self._left else None)
        if lane is None or intent.identity in self._done:
            return
        if sent:
            lane.put(self._entry(State.SENDING, intent))
        else:
            self._removed_by[intent.identity] = self._start(self._remove({intent.identity}))

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict of a write; with UNKNOWN it stays open.

        A verdict that cannot be stored is logged, and the write stays open in the database.
        """
        identity = outcome.started_as.identity
        lane = self._mine.get(identity) or (self._lane if identity in self._left else None)
        if lane is None:  # it was never sent under this journal
            return
        self._reopen(identity)
        if outcome.verdict is Verdict.UNKNOWN:
            self._left.pop(identity, None)  # this process does not recover it again
            entry = self._entry(State.SENDING, outcome.intent)
        else:
            self._done.add(identity)
            entry = self._entry(
                State.DONE,
                outcome.intent,
                verdict=outcome.verdict.value,
                outcome=verdict_record(outcome),
                done_at=0,
            )
        self._mine[identity] = lane
        await store_or_log(lane.put(entry), outcome)

    def heard(self, identity: str) -> None:
        """
        Remove the verdict of *identity*, which the application has had, together with others, soon.

        An open intent stays.
        """
        if identity in self._done and self._leases is not None:
            if not self._heard:
                self._start(self._remove_heard())
            self._heard.add(identity)

    async def _remove_heard(self) -> None:
        await asyncio.sleep(_HEARD_AFTER)  # for others, and for tasks that pass the verdict on
        heard, self._heard = self._heard, set()
        task = asyncio.current_task()
        assert task is not None
        self._removed_by.update(dict.fromkeys(heard, task))
        self._done -= heard
        for key in heard:  # no longer what another process has left
            self._left.pop(key, None)
            if self._lane is not None:
                self._mine.setdefault(key, self._lane)
        await self._remove(heard)

    async def _remove(self, keys: set[str]) -> None:
        """Delete entries, once what is pending for them is stored."""
        try:
            await self._entries.idle()
            with suppress(JournalError):  # then they are given, or settled, once more
                lanes = {*self._mine.values(), *([] if self._lane is None else [self._lane])}
                await self._entries.remove(sorted(keys), list(lanes))
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

    def _entry(self, state: State, intent: Intent, **done: Any) -> Entry:  # Any: fields of Entry
        packed = pack(intent, self._entries.commons)
        return Entry(
            key=intent.identity, state=state, operation=intent.operation, common=packed.common,
            intent=packed.text, **done,
        )  # fmt: skip

    # --- what others have left

    async def take_over(self, *, same_mode: bool) -> None:
        """
        Acquire what dead processes of this base URL and credential left, or what any credential left.

        Raises:
            JournalError: The database stayed away.

        """
        async with self._taking:
            lane = await self._own_lane()
            assert self._leases is not None
            await self._leases.beat()
            taken: list[Lane] | None = None
            while taken is None or len(taken) == _DEAD_AT_ONCE:
                credential = None if same_mode else self._credential
                taken = await self._leases.take(_DEAD_AT_ONCE, credential=credential)
                # Also those of an earlier recovery that was cancelled, or failed, before it moved them.
                others = [each for each in self._leases.lanes.values() if each is not lane]
                keys = await self._entries.move(others, lane)
                for each in others:
                    self._leases.lanes.pop(each.chunk, None)
                # Not if a move was made whose reply was lost: nothing is known of those senders any more.
                gone = bool(others) and all(each.was_free for each in others)
                for key in keys:
                    if key not in self._mine:
                        self._left.setdefault(key, gone)

    def sender_is_gone(self, identity: str) -> bool:
        """Return whether the process that may have sent *identity* is provably done with it."""
        return self._left.get(identity, False)

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents that were taken over, oldest first; unreadable ones are logged."""
        await self.open()
        through = await self._entries.through()
        async for entry in self._walk(_OPEN):
            try:
                intent = intent_of(entry, self._entries.commons)
                if intent.newest:  # of its own process: the others may have written to the same thing since
                    intent = attrs.evolve(intent, newest=None)
                yield in_doubt(intent) if entry.seq <= through else intent
            except JournalError as error:
                log.error("left in the journal: %s", error)  # noqa: TRY400 - the message is enough

    async def unheard(self) -> AsyncIterator[Outcome[Any]]:  # Any: the operation says what its value is
        """Iterate over the verdicts that were taken over, oldest first; unreadable ones are logged."""
        async for entry in self._walk(_DONE):
            self._done.add(entry.key)
            try:
                yield outcome_of(entry, self._entries.commons)
            except JournalError as error:
                log.error("left in the journal: %s", error)  # noqa: TRY400 - the message is enough

    async def _walk(self, which: str) -> AsyncIterator[Entry]:
        await self.open()
        keys = [key for key in self._left if key not in self._heard]
        for some in slices(keys, _PAGE):
            for entry in await self._entries.page(some, which):
                yield entry

    async def aclose(self) -> None:
        """
        Disconnect, with everything stored, even if it is cancelled. What is open is left to other processes.

        Raises:
            ConfigurationError: It belongs to another event loop, which is not closed.

        """
        try:
            await asyncio.sleep(0)  # the application is about to get what was just returned
        finally:
            if self._loop is not None and self._loop.is_closed():
                self._closed = True  # its connections cannot be used: others notice that it is silent
            await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        if self._loop is not None:
            self._check_loop()
        self._closed = True
        try:
            await self._leave()
        finally:  # also if that was cancelled: signs of life would keep others from what is open
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.wait([self._beating])
            await self._entries.aclose()

    async def _leave(self) -> None:
        """Store what is pending, and release the chunk, if the database answers."""
        if self._leases is None or self._lane is None:
            return
        with suppress(JournalError):
            async with self._entries.hurried():
                if self._removing:
                    await asyncio.wait([*self._removing])
                await self._entries.idle()
                await self._entries.end(self._lane)
                await self._entries.leave(self._leases.name)
