"""One run of a batch: feeds the open entries of the journal and then the input, and yields results."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.batch.checkpoint import Intaken
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.file_check import FileWrites, sound
from invsvc_async.batch.identity import thing_of
from invsvc_async.batch.intake import Intake, LeftEntries, chunks
from invsvc_async.batch.item import Item
from invsvc_async.batch.result import Progress, Result
from invsvc_async.batch.run_status import note_status, note_total
from invsvc_async.client import options_of
from invsvc_async.durable.intents import Packed, unpack, was_seen_undone, without_lost_sends
from invsvc_async.durable.last_writes import learn
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Resumed, Verdict
from invsvc_async.transport.write_register import can_overtake
from invsvc_async.writes.new_intent import request_of
from invsvc_async.writes.state_reads import StateReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.checkpoint import Checkpoint
    from invsvc_async.batch.deliveries import Deliveries
    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.item import Store
    from invsvc_async.batch.journals.sqlite import SqliteBatch
    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.history import Reading
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.write import Write

__all__ = ["Run", "note_in_flight", "untaken"]

log: logging.Logger = logging.getLogger("invsvc_async.batch")

_PAGE = 128  # entries read at once
_CLOCKS_AGREE = 600.0  # s for which one reading of the service's clock is valid
_TICK = 0.2  # s between reports of progress, and between notes of which results were taken
_NOTED = 5  # ticks between notes of the status
_TO_STORE = 1.0  # s that the journal of a stopped run has to store that
_NO_SECRETS = (
    "on_secret: is not set, and this batch creates webhooks. Their secrets are shown only once, and no "
    "journal stores them. Pass on_secret=… (invsvc batch --secrets-to FILE) to keep them."
)

_AMID = (
    "It was not sent, but writes before it may have been. Correct this and run again; finished writes are "
    "skipped."
)


class Run:
    """One run of a batch: an async iterator of results."""

    item_type: ClassVar[type[Item]] = Item  # made of the entries that are not done

    def __init__(self, batch: Batch, writes: Writes) -> None:
        self._batch, self._writes = batch, writes
        self._engine: Engine | None = None
        self._intake: Intake | None = None
        self._intaken: Intaken | None = None  # how far the input was
        self._left = LeftEntries()  # when the input contains them, they are not skipped: this run does them
        self._feeding: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._untaken: AsyncIterator[tuple[Result, Deliveries]] = self._read_untaken()
        # The latest result, until the next one is asked for.
        self._last: tuple[Result, Deliveries] | None = None
        self._saving: asyncio.TimerHandle | None = None
        self._began = self._over = 0.0
        self._limits: Counter[str] = Counter()  # ticks at which something limited the run
        self._verdicts: Counter[Verdict] = Counter()
        self._clock_reading: Reading | None = None  # shows the service's clock
        self.ended: bool = False  # nothing is under way, and nothing will be; results may be left

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Result:
        self._take_last()
        if self._engine is None and (earlier := await self._next_untaken()) is not None:
            return earlier
        if self._engine is None and self.ended:  # stopped before it began
            raise StopAsyncIteration
        engine = self._engine or self._start()
        while True:
            try:
                result = await engine.next_result()
            except BaseException:  # cancelled
                await self.stop(0.0)
                raise
            if result is not None:
                self._verdicts[result.verdict] += 1
                self._last = result, self._batch.entries.deliveries
                return result
            if self.ended:
                break
            await self.stop(0.0)  # yield what ends meanwhile before the end
        self._report()
        await self._save_taken()
        if (failure := engine.take_failure()) is not None:
            raise failure
        raise StopAsyncIteration

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and shelve the rest."""
        engine = self._engine
        if engine is None or self.ended:
            self.ended = True
            await self._save_taken()
            return
        engine.halt()
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait([self._feeding])
        await engine.stop(grace)
        self._end()
        await self._save_taken()

    def progress(self) -> Progress:
        """Return the progress."""
        done = self._verdicts.total()
        now = self._over or asyncio.get_running_loop().time()
        seconds = now - self._began if self._began else 0.0
        running = None if self.ended else self._engine
        paused, next_probe = (None, None) if running is None else running.pause
        return Progress(
            done=done,
            skipped=0 if self._intake is None else self._intake.skipped,
            under_way=0 if self._engine is None else self._engine.under_way,
            settling=0 if self._engine is None else self._engine.settling,
            rate=done / seconds if seconds else 0.0,
            seconds=seconds,
            verdicts=dict(self._verdicts),
            paused=paused,
            next_probe=next_probe,
            limited_by=paused or (None if running is None else running.limited_by),
        )

    # --- which results were taken

    async def _next_untaken(self) -> Result | None:
        """Return the next result that an earlier run did not get rid of, or ``None``."""
        if self.ended:
            return None
        try:
            self._last = await anext(self._untaken, None)
        except BaseException:  # cancelled, or the journal cannot be read: the rest is for the next run
            self.ended = True
            raise
        return None if self._last is None else self._last[0]

    async def _read_untaken(self) -> AsyncIterator[tuple[Result, Deliveries]]:
        entries = cast("SqliteBatch", self._batch.entries)
        entries.deliveries.restart()
        async for each in untaken(entries.deliveries, entries.untaken):
            yield each

    def _take_last(self) -> None:
        """Note that the latest result was taken, because the next one is asked for."""
        if self._last is None:
            return
        result, deliveries = self._last
        deliveries.take(result.position or 0)
        self._last = None
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(_TICK, self._save_soon)

    def _save_soon(self) -> None:
        self._saving = None
        with suppress(JournalError):  # of a batch that is closed
            self._note_input()
            self._batch.entries.save_taken()

    def _note_input(self) -> None:
        """Store how far the input is in the journal."""
        if self._intaken is None:
            return
        checkpoint, is_whole = self._intaken.checkpoint(), self._intaken.is_stored
        if is_whole:
            self._intaken = None
        if is_whole or checkpoint is not None:
            cast("SqliteBatch", self._batch.entries).note_input(checkpoint, is_whole=is_whole)

    async def _save_taken(self) -> None:
        """Store which results were taken and how far the input is, if that has changed."""
        if self._saving is not None or self._intaken is not None:
            if self._saving is not None:
                self._saving.cancel()
                self._saving = None
            with suppress(JournalError):
                self._note_input()
                saving = asyncio.ensure_future(self._batch.entries.save_taken())
                await asyncio.wait([saving], timeout=_TO_STORE)

    def _start(self) -> Engine:
        batch = self._batch
        engine = self._engine = Engine(
            options_of(batch.client),
            concurrency=batch.concurrency,
            rate=batch.rate,
            same_mode=batch.same_mode,
            stop_after=batch.stop_after,
        )
        self._began = asyncio.get_running_loop().time()
        self._feeding = asyncio.create_task(self._feed(engine))
        self._tick()
        return engine

    def _end(self) -> None:
        if self.ended:  # stopped by two tasks at once
            return
        self.ended = True
        loop = asyncio.get_running_loop()
        self._over = loop.time()
        if self._ticking is not None:
            self._ticking.cancel()
            self._note_status()

    def _tick(self) -> None:
        if self._batch.on_progress is not None:
            self._report()
        assert self._engine is not None
        if self._engine.held and (why := self._engine.limited_by) is not None:
            self._limits[why.partition(":")[0]] += 1
            if self._limits.total() % _NOTED == 1:
                self._note_status()
        self._ticking = asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _note_status(self) -> None:
        seconds = {name: round(ticks * _TICK, 1) for name, ticks in self._limits.items()}
        note_status(self._batch.entries, self.progress(), seconds)

    def _report(self) -> None:
        session = options_of(self._batch.client).session
        session.tell(self._batch.on_progress, self.progress())

    # --- feeding

    async def _feed(self, engine: Engine) -> None:
        try:
            await self._feed_all(engine)
            restored, skipped = self._batch.restored, self._intake.skipped if self._intake is not None else 0
            if restored is not None and restored.is_open and (restored.met or skipped):
                await self._batch.entries.close_restored()  # what comes later is new
            engine.finish()
        except JournalError as error:
            engine.fail(error)
        except Exception as error:  # noqa: BLE001 - any error of the input ends the run
            engine.end(error)  # once the answers to what is in flight are there

    async def _feed_all(self, engine: Engine) -> None:
        batch = self._batch
        async with sound(self._writes, batch.client, batch.entries.checkpoint) as writes:
            entries = cast("SqliteBatch", batch.entries)
            before = writes.checkpoint if isinstance(writes, FileWrites) else None
            note_total(entries, writes)
            run = await entries.begin_input(before) if self._has_input else 0
            wrote_before = await entries.has_last_writes()
            skipped = await self._feed_left(engine, entries, before)
            if not self._has_input:
                return
            intaken = self._intaken = Intaken(run, before)
            session = options_of(batch.client).session
            self._intake = Intake(
                entries, entries, session, engine.held, run, tag=batch.tag, on_secret=batch.on_secret,
                on_met=engine.meet, left=self._left, epoch=batch.epoch, restored=batch.restored,
            )  # fmt: skip
            self._intake.skipped = skipped
            async with aclosing(chunks(writes)) as source:
                async for some in source:
                    end = writes.reached() if isinstance(writes, FileWrites) else None
                    part = intaken.next()
                    self._intake.run = part.run
                    items = await self._taken(self._intake, some)
                    for item in items:
                        item.on_stored = part.note_stored
                    part.open += len(items)
                    part.end = end
                    if wrote_before:
                        await self._last_writes(items)
                    for item in items:
                        self._look_for_secrets(item)
                        await engine.room()
                        engine.add(item)
            intaken.ended = True

    @property
    def _has_input(self) -> bool:
        return not (isinstance(self._writes, tuple) and not self._writes)

    async def _feed_left(self, engine: Engine, entries: SqliteBatch, before: Checkpoint | None) -> int:
        """Feed what an earlier run left. Return how many finished writes there are before a checkpoint."""
        skipped = 0 if before is None else before.writes
        async for page in _pages(partial(entries.done, Verdict.UNKNOWN)):
            await self._close_lines(page)
        in_flight: dict[str, int] = {}
        async for page in _pages(entries.in_flight):
            note_in_flight(in_flight, page, [self._item(entry, entries) for entry in page])
        async for page in _pages(entries.not_done):
            items = [self._item(entry, entries) for entry in page]
            for entry in page:
                self._left.add(entry.seq)
                skipped -= before is not None and any(a <= entry.run <= b for a, b in before.runs)
            for item in await self._taken_up(page, items, in_flight):
                await engine.room()
                item.waits = item.names_reader
                engine.add(item)
        return skipped

    async def _taken(self, intake: Intake, writes: list[Write[Any]]) -> list[Item]:  # Any: of any operation
        """Return the items of *writes*. An error says what happened to the writes before it."""
        try:
            return await intake.take(writes)
        except InvalidRequestError as error:
            raise InvalidRequestError(error.problems, hint=_AMID) from error

    # --- what other writes left

    async def _close_lines(self, unknown: list[Entry]) -> None:
        """
        Close the lines of the things to which *unknown* writes may still be applied.

        Only the service's clock shows how long ago a write was sent, so this needs one read.
        """
        view = options_of(self._batch.client)
        session, reading = view.session, self._clock_reading
        if reading is not None and reading.ended < session.clock.now() - _CLOCKS_AGREE:
            reading = None
        for entry in unknown:
            if entry.intent is None:  # lost with an outbox's journal
                continue
            intent = self._intent(entry)
            operation = BY_NAME[intent.operation]
            line = thing_of(request_of(intent), intent.scope.team, intent.tag)
            if line is None:
                continue
            if reading is None and operation.reader is not None:
                looks = StateReader(view.without_team(), intent, partial(_same, intent), own=None)
                reading = self._clock_reading = await looks.look(operation.reader, lane="settle")
            resumed = Resumed(at=session.clock.now(), journaled=True, sender_gone=True)
            known = Known(operation, intent, (resumed,) if reading is None else (resumed, reading))
            if known.free_at > resumed.at:
                session.writes.lines.close(line, intent.identity, known.free_at, session.clock)

    async def _taken_up(
        self, entries: list[Entry], items: list[Item], in_flight: Mapping[str, int]
    ) -> list[Item]:
        """
        Return *items*, which are not done, and mark those that a later write has overtaken.

        *in_flight* has, for each thing, the last write that may have been sent and is not done.
        """
        done = await self._last_writes(items)
        for entry, item in zip(entries, items, strict=True):
            if item.intent is None or item.thing is None:
                continue
            last_done = done.get(item.thing, 0)
            if last_done > entry.seq:
                item.restored = None  # the state that the journal knows is that of a later write
            if max(last_done, in_flight.get(item.thing, 0)) > entry.seq:
                item.intent = attrs.evolve(item.intent, newest=False)
            else:
                item.intent = without_lost_sends(item.intent)
        return items

    async def _last_writes(self, items: Iterable[Item]) -> Mapping[str, int]:
        """Learn what finished writes left of the things of *items*. Return the last one of each thing."""
        things = {item.thing for item in items if item.thing is not None}
        rows = await self._batch.entries.last_writes(sorted(things)) if things else []
        learn(options_of(self._batch.client).session.writes, rows)
        if self._batch.restored is not None:
            for row in rows:
                self._batch.restored.learn(row)
        return {row.thing: row.seq for row in rows}

    def _intent(self, entry: Entry) -> Intent:
        if entry.common is None or entry.intent is None:
            raise JournalError(f"entry {entry.key!r}: it is open but has no intent. The journal is damaged.")
        packed = Packed(common=entry.common, text=entry.intent)
        return unpack(entry.key, packed, self._batch.entries.commons)

    def _item(self, entry: Entry, store: Store) -> Item:
        """Make the item of an entry that is not done."""
        batch, intent = self._batch, self._intent(entry)
        if batch.restored is not None:
            intent = batch.restored.of_entry(entry.seq, intent)
        session = options_of(batch.client).session
        return self.item_type(
            key=entry.key,
            content=entry.content,
            run=entry.run,
            thing=thing_of(request_of(intent), intent.scope.team, intent.tag),
            entries=store,
            on_secret=batch.on_secret,
            intent=intent,
            fed=False,
            stored=True,
            own=session.writes.own,
            restored=batch.restored,
        )

    def _look_for_secrets(self, item: Item) -> None:
        if self._batch.on_secret is None and item.creates_webhook:
            self._batch.warn_once(_NO_SECRETS)


async def untaken(
    deliveries: Deliveries, page_after: Callable[[int, int], Awaitable[list[Entry]]]
) -> AsyncIterator[tuple[Result, Deliveries]]:
    """Yield the results after the last of *deliveries*, and add them to it, until another run has them."""
    while not deliveries.is_lost and (page := await page_after(deliveries.last, _PAGE)):
        for entry in page:
            deliveries.add(entry.position or deliveries.last)
        for entry in page:
            result = Result.of(entry)
            if result.secret == "not stored":  # noqa: S105 - a state; a run that is over had it
                result = attrs.evolve(result, secret="lost")  # noqa: S106 - the same
            yield result, deliveries


async def _pages(
    page: Callable[[int, int], Awaitable[list[Entry]]],
) -> AsyncIterator[list[Entry]]:
    """Yield all pages of entries in their order."""
    after = 0
    while entries := await page(after, _PAGE):
        yield entries
        after = entries[-1].seq


def note_in_flight(last: dict[str, int], entries: list[Entry], items: list[Item]) -> None:
    """Note in *last* the last entry of each thing that may have been sent. *items* are those of *entries*."""
    for entry, item in zip(entries, items, strict=True):
        if item.thing is None or item.intent is None or not can_overtake(entry.operation):
            continue
        if item.in_doubt and not was_seen_undone(item.intent):
            last[item.thing] = max(entry.seq, last.get(item.thing, 0))


def _same(intent: Intent) -> Intent:
    return intent
