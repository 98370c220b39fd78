"""
One worker of a shared batch: divides its input into chunks, and works on the chunks that it gets.

It must not send writes of a chunk that another worker has taken over.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from contextlib import aclosing, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import attrs
from msgspec.structs import replace

from invsvc_async.batch.file_check import FileWrites, sound
from invsvc_async.batch.intake import Intake, chunks
from invsvc_async.batch.journals.chunk_fencing import ChunkStore, token_of
from invsvc_async.batch.journals.chunk_queue import QUEUED
from invsvc_async.batch.journals.chunk_workers import Sign
from invsvc_async.batch.run import Run, note_in_flight, untaken
from invsvc_async.batch.run_status import note_total
from invsvc_async.client import options_of
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, LostChunkError, State
from invsvc_async.durable.intents import pack
from invsvc_async.durable.last_writes import take_claims
from invsvc_async.errors import JournalError
from invsvc_async.storage.postgres_pool import AWAY, PATIENCE
from invsvc_async.writes.new_intent import intent_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.checkpoint import Checkpoint
    from invsvc_async.batch.deliveries import Deliveries
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.journals.chunk_queue import Handed
    from invsvc_async.batch.journals.chunk_workers import Offer
    from invsvc_async.batch.journals.postgres import PostgresBatch
    from invsvc_async.batch.result import Progress, Result
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.write import Write

__all__ = ["SharedRun"]

MOST, LEAST = 200, 20  # writes in a chunk
ROUNDS = 8  # writes in a chunk for each slot, within those limits: the last chunk has only one worker
AHEAD = 40  # chunks in the queue before the input has to wait
_KEPT = 10_000  # writes with readers, at most: those of other workers are not needed
_COURTESY = 0.2  # s in which others may take the rest of a chunk that was divided
_POLL = 0.2  # s before the first poll for work without signals; each later one waits twice as long
_SLOWEST = 2.0  # s
_SOON = 0.05  # s before looking again whether other runs have ended; each time after that, twice as long
_TIDY = 60.0  # s between clean-ups by one worker
_BEATS = 4  # heartbeats in the time after which a silent worker counts as dead
_LEASE = 0.8  # of that time: how long a worker relies on its last heartbeat
_IDLE_BEATS = 3  # heartbeats after which an idle worker gives a sign of life, and looks for work


@attrs.define(eq=False)
class _Work:
    """One chunk that this worker has."""

    handed: Handed
    store: ChunkStore
    sender_gone: bool  # the worker that had it before is provably done with it
    divided: bool  # others got a part of it
    open: int = 0  # items under way
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)


class SharedRun(Run):
    """
    The run of one worker of a shared batch.

    Its results are those of its own writes, and those that a run which is gone left.

    With *lasting*, it waits for work until it is stopped. Otherwise it ends when the whole batch is done.
    """

    def __init__(self, batch: Batch, writes: Writes, *, lasting: bool = False) -> None:
        super().__init__(batch, writes)
        self._entries = cast("PostgresBatch", batch.entries)
        self._lasting = lasting
        self._clock = options_of(batch.client).session.clock
        self._name = uuid4().hex
        self._numbers = count(1)
        self._run_number = 0
        self._relies_until = 0.0  # on being the only one who gives its results
        self._late: AsyncIterator[tuple[Result, Deliveries]] = self._read_late()
        self._before: Checkpoint | None = None  # where the input began
        self._left_by: Counter[int] = Counter()  # open writes, by the run whose input contained them
        self._work: dict[str, _Work] = {}  # by token
        self._given = asyncio.Event()  # a chunk was queued, or the input has ended
        self._room = asyncio.Event()  # a chunk is done
        self._signals = False  # whether the workers' signals arrive
        self._tidied = self._clock.now()
        self._looks = True  # for work, which is a sign of life
        self._polls = 0  # in a row, without work
        self._done = 0  # writes
        self._measured = (0.0, 0, 0.0)  # at what time, what was done by then, and how many per second
        self._giving = True
        self._with_readers: OrderedDict[str, WriteSpec] = OrderedDict()
        self._beating: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def __anext__(self) -> Result:
        """Return the next result. It ends once this worker has returned its chunks."""
        while True:
            try:
                result = await super().__anext__()
            except StopAsyncIteration:
                late = await self._next_late()
                if late is None:
                    await self._end_run()
                    raise
                result = late
            while self._clock.now() > self._relies_until:  # this process may be stopped while it asks
                await self._keep_giving()
            if self._is_mine():
                return result

    async def _next_late(self) -> Result | None:
        """Return the next result of a run that has ended since this one began, or ``None``."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
        if self._engine is None or not self._engine.complete:  # it was stopped
            return None
        self._last = await anext(self._late, None)
        return None if self._last is None else self._last[0]

    async def _keep_giving(self) -> None:
        """Learn which results others have adopted, because this run may have been silent for too long."""
        last, self._last = self._last, None  # it is not given yet
        try:
            until = self._clock.now() + self._entries.reliable_for
            await self._entries.keep_giving()
        except BaseException:  # cancelled, or the database is away: the next run gives it
            await self.stop(0.0)
            raise
        self._relies_until, self._last = until, last

    def _is_mine(self) -> bool:
        """Return whether the latest result is this run's to give; if not, forget it."""
        assert self._last is not None
        result, deliveries = self._last
        if deliveries is self._entries.deliveries:
            deliveries = self._entries.deliveries_of(result.position or 0)
        self._last = None if deliveries.is_lost else (result, deliveries)
        return self._last is not None

    def progress(self) -> Progress:
        """Return the progress."""
        found = super().progress()
        runs = () if self._before is None else self._before.runs
        return attrs.evolve(found, skipped=found.skipped - sum(self._left_by[run] for run, _ in runs))

    # --- results that other runs left

    async def _read_untaken(self) -> AsyncIterator[tuple[Result, Deliveries]]:
        until = self._clock.now() + self._entries.reliable_for
        self._run_number = await self._entries.begin_run()
        self._relies_until = until
        async for each in self._read_adopted():
            yield each

    async def _read_adopted(self) -> AsyncIterator[tuple[Result, Deliveries]]:
        for deliveries, run in await self._entries.adopt():
            async for each in untaken(deliveries, partial(self._entries.untaken_of, run)):
                yield each

    async def _read_late(self) -> AsyncIterator[tuple[Result, Deliveries]]:
        """Yield what runs left that have ended since this one began, and complete their inputs."""
        entries = self._entries
        now = await entries.now()
        pauses = (_SOON * 2 ** min(polls, 9) for polls in count())  # most workers end together
        while await entries.is_undecided(now):  # noqa: ASYNC110 - only the database knows
            await asyncio.sleep(min(next(pauses), entries.settings.silence / _BEATS))
        async for each in self._read_adopted():
            yield each
        if self._has_input:
            await entries.close_inputs(of_earlier=True)

    async def stop(self, grace: float) -> None:
        """Stop as any run does, and return the remaining chunks."""
        await super().stop(grace)
        if self._engine is None:
            await self._end_run()
        if self._beating is not None:
            self._leaving = self._leaving or asyncio.create_task(self._leave(self._beating))
            await asyncio.shield(self._leaving)

    async def _end_run(self) -> None:
        """Note that this run has ended, if the database answers: others may adopt the rest of its results."""
        with suppress(JournalError):
            async with self._entries.hurried():
                await self._entries.end_run()

    async def _leave(self, beating: asyncio.Task[None]) -> None:
        """Return the remaining chunks. If the database fails, others get them after a timeout."""
        beating.cancel()
        work, self._work = self._work, {}
        with suppress(JournalError):
            async with self._entries.hurried():
                await self._entries.idle()
                await self._entries.sign(self._sign(ended=True))
                ours = await self._entries.release(list(work))
                for each in work.values():
                    if each.store.chunk in ours:
                        await self._entries.steadily(partial(self._entries.chunks.give_back, each.handed))
                if not self._entries.owes_results:  # otherwise once they are taken
                    await self._entries.end_run()

    async def _feed_all(self, engine: Engine) -> None:
        self._entries.patience = PATIENCE
        self._beating = asyncio.create_task(self._beat(engine))
        await self._entries.sign(self._sign())
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._entries.listen(self._heard, self._hears))
                group.create_task(self._give())
                await self._take(engine, group)
                self._looks = False
                listening.cancel()
        except ExceptionGroup as several:  # the first cancelled the others
            first = several.exceptions[0]
            raise first from first.__cause__

    # --- queueing the input

    async def _give(self) -> None:
        async with sound(self._writes, self._batch.client, self._entries.checkpoint) as writes:
            if self._has_input:
                await self._entries.begin_input()
                await self._entries.end_input(await self._give_out(writes))
        self._giving = False
        self._given.set()

    async def _give_out(
        self, writes: Iterable[Write[Any]] | AsyncIterable[Write[Any]]
    ) -> Checkpoint | None:  # Any: of any operation
        batch, entries, run = self._batch, self._entries, self._run_number
        before = self._before = writes.checkpoint if isinstance(writes, FileWrites) else None
        note_total(entries, writes)
        runs = (*(() if before is None else before.runs), (run, run))
        held: dict[str, Item] = {}
        session = options_of(batch.client).session
        # The items made here only become entries. They run once this worker gets their chunk.
        nowhere = ChunkStore(entries, 0, "", 0.0, self._clock)
        intake = self._intake = Intake(
            entries, nowhere, session, held, run, tag=batch.tag, on_secret=None, on_met=self._keep_readers,
            left=self._left, epoch=batch.epoch,
        )  # fmt: skip
        intake.skipped = 0 if before is None else before.writes
        end = None
        size = min(MOST, max(LEAST, ROUNDS * batch.concurrency))
        async with aclosing(chunks(writes, at_once=size)) as source:
            async for some in source:
                reached = writes.reached() if isinstance(writes, FileWrites) else None
                end = None if reached is None else replace(reached, runs=runs)
                fresh = await self._taken(intake, some)
                self._room.clear()
                if fresh:
                    given = [(self._entry(item), item.thing) for item in fresh]
                    open_chunks = await entries.hand_out(given, end)
                    self._given.set()
                else:
                    open_chunks = await entries.open_chunks()
                while open_chunks > AHEAD:
                    await self._wait(self._room)
                    self._room.clear()
                    open_chunks = await entries.open_chunks()
        return end

    def _entry(self, item: Item) -> Entry:
        assert item.spec is not None
        self._look_for_secrets(item)
        self._keep_readers(item.key, item.spec)
        intent = intent_of(item.spec)
        if self._batch.restored is not None and self._batch.restored.is_open:
            intent = self._batch.restored.of_new(intent)
        item.spec = None  # they refer to each other: break the cycle, so that both are freed at once
        packed = pack(intent, self._entries.commons)
        return Entry(
            key=item.key, content=item.content, state=State.TO_DO, run=item.run,
            operation=intent.operation, common=packed.common, intent=packed.text,
        )  # fmt: skip

    def _keep_readers(self, key: str, spec: WriteSpec) -> None:
        """Keep a write with a user-supplied reader, in case this worker gets it."""
        if spec.reader is not None or callable(spec.policy.journey_reader):
            self._with_readers[key] = spec
            if len(self._with_readers) > _KEPT:
                self._with_readers.popitem(last=False)

    # --- working

    async def _take(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        """Work on one chunk after the other, as the engine runs out of writes."""
        while True:
            await engine.hunger()
            self._given.clear()
            offer, until = await self._offered()
            work = None if offer.handed is None else await self._begin(offer.handed, offer.parts, until)
            if work is not None:
                self._polls = 0
                await self._add(engine, work)
                group.create_task(self._end_chunk(engine, work))
                if work.divided:
                    await asyncio.sleep(_COURTESY)
            elif offer.handed is None:
                if not (offer.open_chunks or self._giving or self._work or self._lasting):
                    return
                await self._wait(self._given)
                self._polls += 1

    async def _wait(self, event: asyncio.Event) -> None:
        """Wait for *event*, or until it is time to look in case that a signal was lost, or a worker was."""
        seconds = self._entries.settings.silence * _IDLE_BEATS / _BEATS
        if not self._signals:
            seconds = min(seconds, _SLOWEST, _POLL * 2 ** min(self._polls, 9))
        await set_within(event, seconds)

    def _heard(self, signal: str) -> None:
        """React to a signal of a worker."""
        if signal == QUEUED:
            self._given.set()
        else:
            self._room.set()
            if not self._lasting or self._entries.settings.slots:
                self._given.set()

    def _hears(self, signals: bool) -> None:  # noqa: FBT001 - a callback
        self._signals = signals

    async def _begin(self, handed: Handed, parts: int, until: float) -> _Work | None:
        """Become the owner of a chunk, or ``None``; leave parts of it to others who need work."""
        entries, alone = self._entries, not self._work
        if self._has(handed.chunk):
            return None
        divided = parts > 1 and await entries.divide(handed.chunk, parts)
        token = token_of(self._name, next(self._numbers))
        done, free = await entries.take(handed.chunk, token)
        if done:
            await entries.steadily(partial(entries.chunks.end, handed))
            return None
        store = ChunkStore(entries, handed.chunk, token, until, self._clock)
        work = _Work(handed, store, free, divided)
        self._work[token] = work
        if alone and self._batch.rate is not None:
            await self._join(token)
        return work

    async def _offered(self) -> tuple[Offer, float]:
        """Get a chunk from the queue, and the time until which this worker can rely on having it."""
        until = self._clock.now() + _LEASE * self._entries.settings.silence
        return await self._entries.next_chunk(self._sign()), until

    def _sign(self, *, ended: bool = False) -> Sign:
        """Return this worker's sign of life."""
        now, (before, done, rate) = asyncio.get_running_loop().time(), self._measured
        if now - before >= 1.0:
            rate = (self._done - done) / (now - before)
            self._measured = now, self._done, rate
        return Sign(self._name, self._done, rate, len(self._work), ended, self._entries.runs)

    def _has(self, chunk: int) -> bool:
        """Return whether this worker has *chunk*. It is queued again if a heartbeat was late."""
        return any(work.store.chunk == chunk for work in self._work.values())

    async def _add(self, engine: Engine, work: _Work) -> None:
        """Add the open items of a chunk to the engine."""
        for item in await self._open_items(work):
            item.lease, item.sender_gone = work.store, work.sender_gone
            if item.names_reader and (spec := self._with_readers.pop(item.key, None)) is not None:
                item.take_readers(spec)
            item.on_end = partial(self._ended, work)
            await engine.room()
            work.open += 1
            engine.add(item)

    async def _open_items(self, work: _Work) -> list[Item]:
        """
        Return the open items of a chunk, and learn what other workers left of their things.

        All open writes of one thing are in one chunk, so this stays valid while this worker has the chunk.
        """
        entries = await self._entries.of_chunk(work.store.chunk)
        items = [self._item(entry, work.store) for entry in entries]
        for entry in entries:
            if entry.run != self._run_number and not self._lasting and entry.seq not in self._left:
                self._left.add(entry.seq)
                self._left_by[entry.run] += 1
        things = sorted({item.thing for item in items if item.thing is not None})
        if things:
            await self._close_lines(await self._entries.unknown_of(things))
            writes = options_of(self._batch.client).session.writes
            take_claims(writes, await self._entries.claims_of(things))
        in_flight: dict[str, int] = {}
        note_in_flight(in_flight, entries, items)
        return await self._taken_up(entries, items, in_flight)

    async def _end_chunk(self, engine: Engine, work: _Work) -> None:
        """Finish one chunk, unless another worker takes it over."""
        with suppress(LostChunkError):
            await self._emptied(work)
            while not await self._entries.close_chunk(work.store.chunk, work.store.token):
                await self._add(engine, work)  # more writes to its things were queued meanwhile
                await self._emptied(work)
            await self._entries.steadily(partial(self._entries.chunks.end, work.handed))
        self._work.pop(work.store.token, None)
        self._given.set()
        self._room.set()

    async def _emptied(self, work: _Work) -> None:
        while work.open:
            work.ended.clear()
            await work.ended.wait()

    def _ended(self, work: _Work) -> None:
        work.open -= 1
        self._done += 1
        work.ended.set()

    # --- heartbeats

    async def _beat(self, engine: Engine) -> None:
        """
        Send heartbeats until stopped.

        Without them nothing may be sent. So an error ends the run, unless the database is away.
        """
        try:
            for number in count(1):
                await asyncio.sleep(self._entries.settings.silence / _BEATS)
                try:
                    if self._work:
                        await self._heartbeat(engine)
                    elif not self._looks and number % _IDLE_BEATS == 0 and self._entries.owes_results:
                        await self._entries.sign(self._sign())
                except JournalError as error:
                    raise_if_cancelled()
                    if not isinstance(error.__cause__, AWAY):  # it would be refused again
                        raise
        except Exception as error:  # noqa: BLE001 - any error ends the run
            engine.fail(error)

    async def _heartbeat(self, engine: Engine) -> None:
        """Check which chunks this worker still has, send a heartbeat, and update its part of the rate."""
        work = dict(self._work)
        now = self._clock.now()
        mine, workers = await self._entries.owned(list(work))
        alive = [each.handed for token, each in work.items() if token in mine]
        await self._entries.steadily(partial(self._entries.chunks.beat, alive))
        for token, each in work.items():
            each.store.lost = token not in mine
            each.store.until = now if each.store.lost else now + _LEASE * self._entries.settings.silence
        if mine:
            engine.share_pace(1 / workers)
        await self._entries.sign(self._sign())
        with suppress(JournalError):  # these can wait
            await self._entries.fold_counts()
            if now >= self._tidied + _TIDY:
                self._tidied = now
                await self._entries.tidy()

    async def _join(self, token: str) -> None:
        """Wait until the other workers have noticed this one, and left it its part of the rate."""
        _, workers = await self._entries.owned([token])
        if workers > 1:
            await asyncio.sleep(2 * self._entries.settings.silence / _BEATS)
        assert self._engine is not None
        self._engine.share_pace(1 / workers)
