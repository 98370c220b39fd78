"""
Run a batch that machines share: hand its input out in chunks, and work on those that are handed to this
worker.

Must never send what belongs to a chunk that another worker has taken over.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import attrs

from invsvc_async.batch.entries import Entry, LostChunkError, State
from invsvc_async.batch.intake import Intake, chunks
from invsvc_async.batch.pack import pack
from invsvc_async.batch.postgres import ChunkStore, PostgresBatch
from invsvc_async.batch.run import Run
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.handing import Handed
    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.items import Item

__all__ = ["SharedRun"]

CHUNK = 200  # writes handed out together
AHEAD = 40  # chunks that may wait in the queue before the input is held up
_POLL = 0.2  # s between looks for work
_BEATS = 4  # signs of life in the time after which a silent worker counts as dead
_LEASE = 0.8  # of that time: what a worker trusts since its last sign of life


@attrs.define(eq=False)
class _Work:
    """One chunk in this worker's hands."""

    handed: Handed
    store: ChunkStore
    open: int = 0  # items under way
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)


class SharedRun(Run):
    """
    One worker's part of a shared batch: its results are those of what it did itself.

    With *lasting* it goes on waiting for work until it is stopped; otherwise it ends when the whole batch
    is done.
    """

    def __init__(self, batch: Batch, writes: Writes, *, lasting: bool = False) -> None:
        super().__init__(batch, writes)
        self._entries = cast("PostgresBatch", batch.entries)
        self._lasting = lasting
        self._clock = batch.client._view.session.clock  # noqa: SLF001 - one package
        self._work: dict[str, _Work] = {}  # by token
        self._given = False  # the input is handed out
        self._beating: asyncio.Task[None] | None = None

    async def stop(self, grace: float) -> None:
        """Stop as any run does, and give the chunks that are left back."""
        await super().stop(grace)
        if self._beating is not None:
            self._beating.cancel()
        work, self._work = self._work, {}
        if work:
            await self._entries.idle()
            with suppress(
                JournalError
            ):  # without the database, they are taken over once this worker is silent
                await self._entries.release(list(work))
                for each in work.values():
                    await self._entries.steadily(partial(self._entries.chunks.give_back, each.handed))

    async def _feed_all(self, engine: Engine) -> None:
        self._beating = asyncio.create_task(self._beat())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._give())
                await self._take(engine, group)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    # --- handing the input out

    async def _give(self) -> None:
        batch, entries = self._batch, self._entries
        run = await entries.next_run()
        held: dict[str, Item] = {}
        session = batch.client._view.session  # noqa: SLF001 - one package
        # The items made here only become entries; they are run as what is handed back.
        nowhere = ChunkStore(entries, 0, "", 0.0, self._clock)
        intake = self._intake = Intake(entries, nowhere, session, held, run, tag=batch.tag, on_secret=None)
        async with aclosing(chunks(self._writes, batch.client, at_once=CHUNK)) as source:
            async for writes in source:
                fresh = await intake.take(writes)
                if fresh:
                    await entries.hand_out([(self._entry(item), item.thing) for item in fresh])
                while await entries.open_chunks() > AHEAD:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(_POLL)
        self._given = True

    def _entry(self, item: Item) -> Entry:
        assert item.write is not None
        self._look_for_secrets(item)
        packed = pack(item.write.intent, self._entries.commons)
        return Entry(
            key=item.key, content=item.content, state=State.TO_DO, run=item.run,
            operation=item.write.intent.operation, common=packed.common, intent=packed.text,
        )  # fmt: skip

    # --- working

    async def _take(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        while True:
            queue = self._entries.chunks
            handed = await self._entries.steadily(queue.take) if engine.is_hungry else None
            if handed is not None:
                group.create_task(self._do(engine, handed))
            elif (
                self._given and not self._work and not self._lasting and not await self._entries.open_chunks()
            ):
                return
            else:
                await asyncio.sleep(_POLL)

    async def _do(self, engine: Engine, handed: Handed) -> None:
        """Do one chunk to its end, or until it is another worker's."""
        now, token = self._clock.now(), uuid4().hex
        done, free = await self._entries.take(handed.chunk, token)
        until = now + _LEASE * self._entries.settings.silence
        store = ChunkStore(self._entries, handed.chunk, token, until, self._clock)
        work = self._work[token] = _Work(handed, store)
        with suppress(LostChunkError):
            while not done:
                await self._do_all(engine, work, sender_gone=free)
                done = await self._entries.close_chunk(handed.chunk, token)
            await self._entries.steadily(partial(self._entries.chunks.end, handed))
        self._work.pop(token, None)

    async def _do_all(self, engine: Engine, work: _Work, *, sender_gone: bool) -> None:
        for entry in await self._entries.of_chunk(work.store.chunk, 0):
            item = self._item(entry, work.store)
            item.lease, item.sender_gone = work.store, sender_gone
            item.on_end = lambda: self._ended(work)
            await engine.room()
            work.open += 1
            engine.add(item)
        while work.open:
            work.ended.clear()
            await work.ended.wait()

    def _ended(self, work: _Work) -> None:
        work.open -= 1
        work.ended.set()

    async def _beat(self) -> None:
        """Give signs of life, learn which chunks are still this worker's, and take its part of the pace."""
        silence = self._entries.settings.silence
        while True:
            await asyncio.sleep(silence / _BEATS)
            work = dict(self._work)
            if not work:
                continue
            now = self._clock.now()
            with suppress(JournalError):
                mine, everywhere = await self._entries.owned(list(work))
                alive = [each.handed for token, each in work.items() if token in mine]
                await self._entries.steadily(partial(self._entries.chunks.beat, alive))
                for token, each in work.items():
                    each.store.lost = token not in mine
                    each.store.until = now if each.store.lost else now + _LEASE * silence
                if self._engine is not None and everywhere:
                    self._engine.share_pace(len(mine) / everywhere)
