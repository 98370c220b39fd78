"""The consumers of an outbox's verdicts, among which the verdicts are divided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from invsvc_async.batch.replaced import with_replacements
from invsvc_async.batch.result import Result, outcome_in
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.members import Sign
from invsvc_async.outbox.pauses import pause_after

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncGenerator

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.outbox.changes import VerdictChanges
    from invsvc_async.outbox.entries import OutboxEntries
    from invsvc_async.outbox.opening import OutboxOpening


_ONLOOKER = Sign(sends=False)
_AT_ONCE = 16  # verdicts taken together


class Consumers:
    """The consumers in this process of the verdicts of *entries*."""

    def __init__(
        self,
        entries: OutboxEntries,
        clock: Clock,
        opening: OutboxOpening,
        changes: VerdictChanges,
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._opening = opening
        self._changes = changes
        # and what shows they live
        self._consumers: dict[Consumer, tuple[Leases, asyncio.Task[None]]] = {}
        self._leaving = asyncio.Lock()  # of one of them at a time

    async def results(self, failed: Counter[str]) -> AsyncGenerator[Result]:
        """
        Yield verdicts. Those whose keys are in *failed* once the next one is asked for are yielded again.

        *failed* has how often that was so.
        """
        self._opening.check_open()
        leases = Leases(self._entries.store, self._clock, gives=True)
        consumer = Consumer(leases)
        await leases.beat(_ONLOOKER)
        self._consumers[consumer] = leases, asyncio.create_task(leases.live(_ONLOOKER))
        try:
            while self._opening.is_open:
                changed = self._changes.hear()
                entry = await consumer.next(_AT_ONCE)
                if entry is None:
                    await self._changes.until(changed)
                    continue
                outcome = outcome_in(entry, self._entries.store.commons)
                [result] = await with_replacements(
                    self._entries, [Result.of(entry, outcome=outcome)]
                )
                yield result
                if times := failed[entry.key]:
                    consumer.give_back(entry, pause_after(times))
                else:
                    consumer.acknowledge(entry)
        finally:
            await self._leave(consumer)

    async def _leave(self, consumer: Consumer) -> None:
        """End *consumer*, if it runs. Unacknowledged results are then free for other consumers."""
        async with self._leaving:
            if consumer in self._consumers:
                leases, living = self._consumers[consumer]
                living.cancel()
                await consumer.save()
                await leases.end()
                del self._consumers[consumer]
                self._changes.wake()

    async def end(self) -> None:
        """End all consumers, such as those after a break in ``async for``."""
        for consumer in [*self._consumers]:
            await self._leave(consumer)

    def forget(self) -> None:
        """Forget all consumers: the event loop of their tasks is closed."""
        self._consumers.clear()
