"""One run of a batch: sends what the journal has and then the input, and yields results."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import aclosing, closing
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.dispatcher import Dispatcher
from invsvc_async.batch.entries import summary_of
from invsvc_async.batch.file_check import Checkpoint, FileWrites, Writes, sound
from invsvc_async.batch.intake import Asked, Intake, chunks
from invsvc_async.batch.item import Item
from invsvc_async.batch.notices import BEAT
from invsvc_async.batch.replaced import with_replacements
from invsvc_async.batch.result import Progress, Result, Summary, kept_outcome
from invsvc_async.batch.run_status import TOTAL, Status
from invsvc_async.concurrency.async_iterable import OnlyAsync
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.records import verdict_and_record
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.lists import count_open
from invsvc_async.durable.store.restored import close_restored
from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.history import Verdict
    from invsvc_async.writes.write import AnyWrite


log: logging.Logger = logging.getLogger("invsvc_async.batch")

_TICK = 0.2  # s between reports of progress
_NOTED = 5  # ticks between notes of the status
_PAGE = 128  # results that others have left, taken over at once
_AHEAD = 8_000  # writes that are open before the input of a shared batch has to wait
_LOOK = 0.2  # s between counts of what is open, and looks whether other processes have begun
_SOON = 0.05  # s before looking again whether other processes have ended; each time after that, twice as long
_NO_SECRETS = (
    "on_secret: is not set, and this batch creates webhooks. Their secrets are shown only once, and no "
    "journal stores them. Pass on_secret=… (invsvc batch --secrets-to FILE) to keep them."
)
_AMID = (
    "It was not sent, but writes before it may have been. Correct this and run again; finished writes are "
    "skipped."
)


class Run(OnlyAsync):
    """
    One run of a batch: an async iterator of results.

    It ends when the whole batch is done, also what other processes do of it. With *lasting*, it goes on until
    it is stopped. *before* is the run before it in this process.
    """

    def __init__(
        self, batch: Batch, writes: Writes, *, lasting: bool, before: Run | None
    ) -> None:
        self._batch = batch
        self._writes = writes
        self._lasting = lasting
        self._before = before
        has_input = not (isinstance(writes, tuple) and not writes)
        self._dispatcher = Dispatcher(
            batch.sending, batch.entries, Item, has_input=has_input
        )
        self._engine = self._dispatcher.engine
        self._results = Consumer(self._dispatcher.leases)
        # Results that were given. They are acknowledged once the next one is asked for.
        self._given: list[Entry] = []
        # Several tasks may ask for results; one of them begins the run.
        self._beginning = asyncio.Lock()
        # Whether results that other runs have left are being given, so that they need not be prepared for
        # again.
        self._is_giving_left = False
        self._intake: Intake | None = None
        self._input_began: float | None = None  # by the store's clock, s
        self._ticking: asyncio.TimerHandle  # set once the run has begun
        self._began = self._over = 0.0
        self._status: Status | None = None  # ``None`` until the run has begun
        self._limited = 0  # ticks at which something limited the run
        self._verdicts: Counter[Verdict] = Counter()
        # Nothing is under way, and nothing will be. Results may be left.
        self.ended: bool = False

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Result:
        """
        Return the next result.

        First those that earlier runs have left, then those of this run, and last those that other processes
        have left which ended meanwhile. What was given before is acknowledged first: whoever asks for the
        next one has it. At the end, the inputs of processes that are gone are closed, once it is certain that
        they are.
        """
        while self._given:
            self._results.acknowledge(self._given.pop())
        if (earlier := await self._begin_after_left()) is not None:
            return earlier
        if (own := await self._next_own()) is not None:
            return own
        if (
            self._engine.complete
            and (late := await self._next_left(self._until_decided)) is not None
        ):
            return late
        if self._engine.complete and self._input_began is not None:
            await self._batch.entries.inputs.close_of_dead(self._input_began)
        self._report()
        await self.end()
        if (failure := self._engine.take_failure()) is not None:
            raise failure
        raise StopAsyncIteration

    async def _begin_after_left(self) -> Result | None:
        """Return the next result that an earlier run has left; once there is none, begin this run."""
        async with self._beginning:
            if self._status is not None or self.ended:
                return None
            earlier = await self._next_left(self._begin)
            if earlier is None and not self.ended:
                self._start()
            return earlier

    async def _next_own(self) -> Result | None:
        """Return the next result of this run, unless another run has given it; ``None`` at the end."""
        while (item := await self._next_finished()) is not None:
            assert item.finished is not None
            entry = item.finished[0]
            if await self._results.has(entry):
                result = Result.of(*item.finished)
                self._verdicts[result.verdict] += 1
                self._given.append(entry)
                return result
        return None

    async def _next_finished(self) -> Item | None:
        """Return the next write that has its result; ``None`` at the end, when nothing is under way."""
        while (
            self._status is not None
        ):  # A run that was stopped before it began has none.
            try:
                item = await self._engine.next_finished()
            except BaseException:  # It is cancelled.
                await self.stop(0.0)
                raise
            if item is not None or self.ended:
                return item
            await self.stop(0.0)  # What ends meanwhile is given before the end.
        return None

    async def _next_left(self, prepare: Callable[[], Awaitable[None]]) -> Result | None:
        """
        Return the next result that another run left, earlier or at the same time as this run.

        *prepare* is awaited before the first one.
        """
        try:
            if not self._is_giving_left:
                await prepare()
                self._is_giving_left = True
            found = await self._results.next(_PAGE)
        except BaseException:
            # It is cancelled, or the journal cannot be read. The rest is for the next run.
            self.ended = True
            raise
        if found is None:
            self._is_giving_left = False
            return None
        self._given.append(found)
        return await self._told_again(found)

    async def _told_again(self, entry: Entry) -> Result:
        """Return the result of *entry*, whose run ended before anybody got the value, or a secret in it."""
        entries = self._batch.entries
        outcome = kept_outcome(entry, entries.store.commons)
        if verdict_and_record(entry)[1].had != "returned":
            [result] = await with_replacements(
                entries, [Result.of(entry, outcome=outcome)]
            )
            return result
        if outcome is not None:
            outcome = attrs.evolve(outcome, secret="lost")
        result = Result.of(entry, outcome=outcome)
        return attrs.evolve(result, secret="lost")

    async def _begin(self) -> None:
        if self._before is not None:
            await self._before.end()
            self._before = None
        await self._dispatcher.begin("batch")

    async def _until_decided(self) -> None:
        """
        Wait until each further process is known to live, or to be dead.

        The processes of a batch end at about the same time, so one that was silent just now may still be
        there.
        """
        entries = self._batch.entries
        now = await entries.inputs.now()
        pause = _SOON
        await entries.store.tell(BEAT)  # Those that live show it at once.
        while await entries.inputs.is_undecided(now, self._dispatcher.leases.name):
            await asyncio.sleep(pause)
            pause = min(2 * pause, entries.store.silence / 4)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and shelve the rest."""
        if self._status is not None and not self.ended:
            await self._dispatcher.stop(grace)
            if not self.ended:  # Another task may have stopped it meanwhile.
                self.ended = True
                self._over = asyncio.get_running_loop().time()
                self._ticking.cancel()
                self._status.store(self._batch.entries, self.progress(), ended=True)
        self.ended = True
        await self._results.save()

    async def end(self) -> None:
        """Stop the run: the next one returns the results that were not taken."""
        await self.stop(0.0)
        await self._dispatcher.end()

    # --- progress

    def progress(self) -> Progress:
        """Return the progress."""
        done = self._verdicts.total()
        engine = self._engine
        now = self._over or asyncio.get_running_loop().time()
        seconds = now - self._began if self._began else 0.0
        runs = self._status is not None and not self.ended
        paused, next_probe = engine.pause if runs else (None, None)
        return Progress(
            done=done,
            skipped=0 if self._intake is None else self._intake.skipped,
            under_way=engine.under_way,
            settling=engine.settling,
            rate=done / seconds if seconds else 0.0,
            seconds=seconds,
            verdicts=dict(self._verdicts),
            paused=paused,
            next_probe=next_probe,
            limited_by=engine.limited_by if runs else None,
        )

    def _start(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self._engine.feed(self._feed())
        self._status = Status.of_this_process()
        self._status.store(self._batch.entries, self.progress())
        self._tick(self._status)

    def _tick(self, status: Status) -> None:
        if self._batch.on_progress is not None:
            self._report()
        engine = self._engine
        if (paused := engine.pause[0]) is not None:
            status.note_pause(paused)
        if engine.is_busy and (limit := engine.limited_by) is not None:
            name = limit.partition(":")[0]
            status.seconds[name] = round(status.seconds.get(name, 0.0) + _TICK, 1)
            self._limited += 1
            is_first_of_several = self._limited % _NOTED == 1
            if is_first_of_several:
                status.store(self._batch.entries, self.progress())
        self._ticking = asyncio.get_running_loop().call_later(_TICK, self._tick, status)

    def _report(self) -> None:
        self._batch.sending.core.tell(self._batch.on_progress, self.progress())

    # --- feeding

    async def _feed(self) -> None:
        entries = self._batch.entries
        async with sound(
            self._writes, self._batch.client, entries.inputs.checkpoint
        ) as writes:
            summary = await summary_of(entries)
            self._dispatcher.earlier.has_any = summary.done > 0
            # Of another input than a file, nobody knows how many writes it has before its end.
            entries.facts.put(
                TOTAL, str(writes.good) if isinstance(writes, FileWrites) else None
            )
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._dispatcher.feed(self._is_over))
                    if self._dispatcher.has_input:
                        await self._give(writes, summary)
            except ExceptionGroup as several:  # The first one has cancelled the others.
                first = several.exceptions[0]
                raise first from first.__cause__
        restored = self._batch.sending.restored
        skipped = self._intake.skipped if self._intake else 0
        if restored is not None and restored.is_open and (restored.met or skipped):
            await entries.store.run(close_restored)  # What comes later is new.

    async def _is_over(self) -> bool:
        if self._dispatcher.has_input or self._lasting:
            return False
        return not (await self._batch.entries.count("open", 1))[0]

    # --- the input

    async def _give(
        self, writes: Iterable[AnyWrite] | AsyncIterable[AnyWrite], summary: Summary
    ) -> None:
        entries = self._batch.entries
        name = self._dispatcher.leases.name
        before = writes.checkpoint if isinstance(writes, FileWrites) else None
        self._input_began = begun = await entries.inputs.begin(name)
        may_know = summary.total > 0
        intake = self._intake = Intake(
            self._batch.sending, entries, may_know=may_know, begun=begun
        )
        if before is not None:
            # Of the part of the file that was read before, what is open is not skipped: this run does it.
            is_open = summary.to_do + summary.sending
            intake.skipped = max(before.writes - is_open, 0)
        with closing(intake):
            await self._room()
            async with aclosing(chunks(writes)) as source:
                async for some in source:
                    reached = (
                        writes.reached() if isinstance(writes, FileWrites) else None
                    )
                    try:
                        asked = await intake.take(some)
                    except InvalidRequestError as error:
                        # The advice tells what has become of the writes before it.
                        raise InvalidRequestError(error.problems, hint=_AMID) from error
                    await self._store(intake, asked, reached)
                    await self._room()
            await entries.inputs.end(name)
        self._dispatcher.end_input()

    async def _room(self) -> None:
        """Wait until more of the input is needed: by this process if it is alone, or by any."""
        while True:
            if self._dispatcher.leases.living > 1:
                if await count_open(self._batch.entries.store) < _AHEAD:
                    return
                await asyncio.sleep(_LOOK)
            elif await set_within(self._dispatcher.caught_up, _LOOK):
                await self._engine.until_room()
                return

    async def _store(
        self, intake: Intake, asked: list[Asked], reached: Checkpoint | None
    ) -> None:
        """Store the new writes of *asked*, to be read from the store by the owners of their lanes."""
        entries = self._batch.entries
        dispatcher = self._dispatcher
        for each in asked:
            dispatcher.keep(each)
        made = [each.entry for each in asked if each.entry is not None]
        if not made and reached is None:
            return
        new = {each.entry.key: each for each in asked if each.entry is not None}
        self._warn_of_lost_secrets(new.values())
        added = await entries.inputs.add(made, dispatcher.leases.name, reached)
        # Others have been stored meanwhile, by other processes.
        for key, known in added.others.items():
            intake.meet(known, new[key])
        lanes = {entry.lane for entry in made}
        if added.new:
            dispatcher.read_again(lanes, min(added.new.values()) - 1)
        of_others = lanes - {*dispatcher.leases.lanes}
        if of_others:
            await entries.store.tell(*map(str, sorted(of_others)))

    def _warn_of_lost_secrets(self, new: Iterable[Asked]) -> None:
        """Warn once if *new* writes create webhooks, and nothing keeps their secrets."""
        sending = self._batch.sending
        if sending.on_secret is None and any(each.spec.kind.has_secret for each in new):
            sending.core.warn_once("secrets of a batch", _NO_SECRETS)
