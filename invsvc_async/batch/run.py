"""One run of a batch: sends what the journal has and then the input, and yields results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from invsvc_async.batch.dispatcher import Dispatcher
from invsvc_async.batch.given_results import GivenResults, told_again, until_decided
from invsvc_async.batch.item import Item
from invsvc_async.batch.result import Result
from invsvc_async.batch.run_input import RunInput
from invsvc_async.batch.run_progress import RunProgress
from invsvc_async.concurrency.async_iterable import OnlyAsync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.file_check import Writes


class Run(OnlyAsync):
    """
    One run of a batch: an async iterator of results.

    It ends when the whole batch is done, also what other processes do of it. With *lasting*, it goes on until
    it is stopped. *before* is the run before it in this process.
    """

    def __init__(
        self,
        batch: Batch,
        writes: Writes,
        *,
        lasting: bool,
        before: Run | None,
    ) -> None:
        self._before = before
        self._entries = batch.entries
        has_input = not (isinstance(writes, tuple) and not writes)
        self._dispatcher = Dispatcher(
            batch.sending, batch.entries, Item, has_input=has_input
        )
        self._engine = self._dispatcher.engine
        self._run_input = RunInput(
            writes, batch.sending, batch.entries, self._dispatcher, lasting=lasting
        )
        self._results = GivenResults(self._dispatcher.leases)
        self.progress: RunProgress = RunProgress(
            self._engine, batch.entries, self._run_input, batch.on_progress
        )
        # Several tasks may ask for results; one of them starts the run.
        self._starting = asyncio.Lock()

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Result:
        """
        Return the next result.

        First the unclaimed results of earlier runs, then those of this run, and last the unclaimed ones of
        processes that ended meanwhile. What was given before is acknowledged first: whoever asks for the next
        one has it. At the end, the inputs of processes that are gone are closed, once it is certain that they
        are.
        """
        self._results.acknowledge()
        if (unclaimed := await self._start_after_unclaimed()) is not None:
            return unclaimed
        if (own := await self._next_own()) is not None:
            return own
        if (
            self._engine.feeding.is_complete
            and (unclaimed := await self._next_unclaimed(self._until_decided))
            is not None
        ):
            return unclaimed
        if self._engine.feeding.is_complete:
            await self._run_input.close_others()
        self.progress.report()
        await self.end()
        if (failure := self._engine.run_end.take_error()) is not None:
            raise failure
        raise StopAsyncIteration

    async def _start_after_unclaimed(self) -> Result | None:
        """Return the next unclaimed result of an earlier run; once there is none, start this run."""
        async with self._starting:
            if self.progress.has_begun or self.progress.has_ended:
                return None
            unclaimed = await self._next_unclaimed(self._prepare)
            if unclaimed is None and not self.progress.has_ended:
                self._start()
            return unclaimed

    async def _next_own(self) -> Result | None:
        """Return the next result of this run, unless another run has given it; ``None`` at the end."""
        while (item := await self._next_finished()) is not None:
            assert item.finished is not None
            entry = item.finished[0]
            if await self._results.may_give(entry):
                result = Result.of(*item.finished)
                self.progress.count(result.verdict)
                self._results.note(entry)
                return result
        return None

    async def _next_finished(self) -> Item | None:
        """Return the next write that has its result; ``None`` at the end, when nothing is under way."""
        # A run that was stopped before it began has none.
        while self.progress.has_begun:
            try:
                item = await self._engine.next_finished()
            except BaseException:  # It is cancelled.
                await self.stop(0.0)
                raise
            if item is not None or self.progress.has_ended:
                return item
            await self.stop(0.0)  # What ends meanwhile is given before the end.
        return None

    async def _next_unclaimed(
        self, prepare: Callable[[], Awaitable[None]]
    ) -> Result | None:
        """
        Return the next unclaimed result: of another run, earlier or at the same time as this run.

        *prepare* is awaited before the first one.
        """
        try:
            found = await self._results.next_unclaimed(prepare)
        except BaseException:
            # It is cancelled, or the journal cannot be read. The rest is for the next run.
            self.progress.give_up()
            raise
        if found is None:
            return None
        result = await told_again(found, self._entries)
        # Only now, since whoever is cancelled above has not got it.
        self._results.note(found)
        return result

    async def _prepare(self) -> None:
        """End the run before, and start to give signs of life."""
        if self._before is not None:
            await self._before.end()
            self._before = None
        await self._dispatcher.start_beating("batch")

    def _start(self) -> None:
        self._engine.feeding.start(self._run_input.feed())
        self.progress.start()

    async def _until_decided(self) -> None:
        await until_decided(self._entries, self._dispatcher.leases.name)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and shelve the rest."""
        if self.progress.is_running:
            await self._dispatcher.stop(grace)
        self.progress.end()
        await self._results.save()

    async def end(self) -> None:
        """Stop the run: the next one returns the results that were not taken."""
        await self.stop(0.0)
        await self._dispatcher.end()
