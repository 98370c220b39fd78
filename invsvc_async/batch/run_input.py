"""The input of a run: on its way into the store, from which the dispatcher sends it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from typing import TYPE_CHECKING

from invsvc_async.batch.entries import summary_of
from invsvc_async.batch.file_check import Checkpoint, FileWrites, Writes, sound
from invsvc_async.batch.intake import Asked, Intake, chunks
from invsvc_async.batch.run_status import TOTAL
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.store.lists import count_unfinished
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.restored import close_restored
from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from invsvc_async.batch.dispatcher import Dispatcher
    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.result import Summary
    from invsvc_async.batch.sending import Sending
    from invsvc_async.writes.write import AnyWrite


_AHEAD = 8_000  # writes that are open before the input of a shared batch has to wait
_LOOK = 0.2  # s between counts of what is open, and looks whether other processes have begun
_NO_SECRETS = (
    "on_secret: is not set, and this batch creates webhooks. Their secrets are shown only once, and no "
    "journal stores them. Pass on_secret=… (invsvc batch --secrets-to FILE) to keep them."
)
_AMID = (
    "It was not sent, but writes before it may have been. Correct this and run again; finished writes are "
    "skipped."
)


class RunInput:
    """
    The input of one run, *writes*: stored a part at a time, as far ahead as *dispatcher* needs.

    With *lasting*, the run goes on after the input, until it is stopped.
    """

    def __init__(
        self,
        writes: Writes,
        sending: Sending,
        entries: BatchEntries,
        dispatcher: Dispatcher,
        *,
        lasting: bool,
    ) -> None:
        self._writes = writes
        self._sending = sending
        self._entries = entries
        self._dispatcher = dispatcher
        self._lasting = lasting
        self._intake: Intake | None = None
        self._began: float | None = None  # by the store's clock, s

    @property
    def skipped(self) -> int:
        """How many writes of the input were finished before."""
        if self._intake is None:
            return 0
        return self._intake.skipped

    async def close_others(self) -> None:
        """Close inputs of dead processes, begun before this input, which has their writes, too."""
        if self._began is not None:
            await self._entries.input_notes.close_of_dead(self._began)

    async def feed(self) -> None:
        """Check the input and store it, and send what is open meanwhile, until the run is over."""
        entries = self._entries
        async with sound(
            self._writes, self._sending.client, entries.input_notes.checkpoint
        ) as writes:
            summary = await summary_of(entries)
            self._dispatcher.earlier_writes.has_any = summary.done > 0
            # Of another input than a file, nobody knows how many writes it has before its end.
            total = None
            if isinstance(writes, FileWrites):
                total = str(writes.good)
            entries.facts.put(TOTAL, total)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._dispatcher.feed(self._is_over))
                    if self._dispatcher.awaited_input.is_open:
                        await self._give(writes, summary)
            except ExceptionGroup as several:  # The first one has cancelled the others.
                first = several.exceptions[0]
                raise first from first.__cause__
        restored = self._sending.restored
        if restored is None or not restored.is_open:
            return
        if restored.met or self.skipped:
            # The input was read to its end, so those of its writes that may have been sent since the copy was
            # made are in the journal, in doubt. Any write that comes later counts as new.
            await entries.store.run(close_restored)

    async def _is_over(self) -> bool:
        if self._dispatcher.awaited_input.is_open or self._lasting:
            return False
        return not (await self._entries.count(1, Chosen(state="open")))[0]

    async def _give(
        self, writes: Iterable[AnyWrite] | AsyncIterable[AnyWrite], summary: Summary
    ) -> None:
        entries = self._entries
        name = self._dispatcher.leases.name
        before = writes.checkpoint if isinstance(writes, FileWrites) else None
        self._began = begun = await entries.input_notes.begin(name)
        may_know = summary.total > 0
        intake = self._intake = Intake(
            self._sending, entries, may_know=may_know, begun=begun
        )
        if before is not None:
            # The part of the file that was read before is not read again. What is open of it is not skipped:
            # this run does it. The journal may have more that is open, of other inputs.
            still_open = summary.to_do + summary.sending
            finished_before = before.writes - still_open
            intake.skipped = max(finished_before, 0)
        with closing(intake):
            await self._until_wanted()
            async with aclosing(chunks(writes)) as source:
                async for some in source:
                    if isinstance(writes, FileWrites):
                        reached = writes.reached()
                    else:
                        reached = None
                    try:
                        asked = await intake.take(some)
                    except InvalidRequestError as error:
                        # The advice tells what has become of the writes before it.
                        raise InvalidRequestError(error.problems, hint=_AMID) from error
                    await self._store(intake, asked, reached)
                    await self._until_wanted()
            await entries.input_notes.end(name)
        restored = self._sending.restored
        if restored is not None and (restored.met or self.skipped):
            restored.awaits_input = False
        self._dispatcher.awaited_input.close()

    async def _until_wanted(self) -> None:
        """Wait until more of the input is needed: by this process if it is alone, or by any."""
        restored = self._sending.restored
        while True:
            if restored is not None and self._dispatcher.awaited_input.is_awaited:
                # All that is open may wait for the end of the input.
                return
            if self._dispatcher.leases.living > 1:
                if await count_unfinished(self._entries.store) < _AHEAD:
                    return
                await asyncio.sleep(_LOOK)
            elif await set_within(self._dispatcher.news.caught_up, _LOOK):
                await self._dispatcher.engine.room.until_available()
                return

    async def _store(
        self,
        intake: Intake,
        asked: list[Asked],
        reached: Checkpoint | None,
    ) -> None:
        """Store the new writes of *asked*, to be read from the store by the owners of their lanes."""
        entries = self._entries
        dispatcher = self._dispatcher
        for each in asked:
            dispatcher.awaited_input.keep(each)
        made = [each.entry for each in asked if each.entry is not None]
        if not made and reached is None:
            return
        new = {each.entry.key: each for each in asked if each.entry is not None}
        self._warn_of_lost_secrets(new.values())
        added = await entries.input_notes.add(made, dispatcher.leases.name, reached)
        # Others have been stored meanwhile, by other processes.
        for key, known in added.others.items():
            intake.meet(known, new[key])
        lanes = {entry.lane for entry in made}
        if added.new:
            dispatcher.news.read_again(lanes, min(added.new.values()) - 1)
        of_others = lanes - {*dispatcher.leases.lanes}
        if of_others:
            await entries.store.notify(*map(str, sorted(of_others)))

    def _warn_of_lost_secrets(self, new: Iterable[Asked]) -> None:
        """Warn once if *new* writes create webhooks, and nothing keeps their secrets."""
        sending = self._sending
        if sending.on_secret is not None:
            return
        if any(each.spec.kind.has_secret for each in new):
            sending.core.warn_once("secrets of a batch", _NO_SECRETS)
