"""The tasks of a process that dispatches an outbox: they send, tell other processes, and give verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.concurrency.cancellation import raise_if_cancelled, until_ended
from invsvc_async.durable.store.fact_names import FAILED_TO_TELL
from invsvc_async.errors import ConfigurationError, InvsvcError
from invsvc_async.outbox.dispatch import dispatch
from invsvc_async.outbox.pauses import longest_pause, pause_after
from invsvc_async.writes.new_secret import hand_over

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from invsvc_async.batch.result import Result
    from invsvc_async.batch.sending import Sending
    from invsvc_async.outbox.changes import VerdictChanges
    from invsvc_async.outbox.consumers import Consumers
    from invsvc_async.outbox.entries import OutboxEntries


log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_WORDS = 300  # characters of an error of a callback that are stored


class Dispatching:
    """The dispatching of the writes of *entries* in this process: at most one at a time."""

    def __init__(
        self,
        sending: Sending,
        entries: OutboxEntries,
        changes: VerdictChanges,
        consumers: Consumers,
    ) -> None:
        self._sending = sending
        self._entries = entries
        self._changes = changes
        self._consumers = consumers
        self._is_running = False

    @asynccontextmanager
    async def run(
        self,
        on_result: Callable[[Result], Awaitable[None] | None] | None,
        *,
        grace: float,
    ) -> AsyncGenerator[None]:
        """
        Dispatch while the block runs, as :meth:`Outbox.dispatching` says.

        Raises:
            ConfigurationError: It runs already, or its client belongs to another event loop.
        """
        if self._is_running:
            raise ConfigurationError(
                "dispatching: this outbox does so already. Enter it once in a process."
            )
        self._sending.core.transport.check_loop()
        self._is_running = True
        send = partial(self._send, grace)
        tasks = [asyncio.create_task(self._steadily("nothing is sent", send))]
        if self._entries.store.is_shared:
            tasks.append(asyncio.create_task(self._changes.tell_others()))
        if on_result is not None:
            deliver = partial(self._deliver, on_result)
            tasks.append(
                asyncio.create_task(self._steadily("no verdict is given", deliver))
            )
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            try:
                # Otherwise a file would be closed, and given to its next owner, while a write is in flight.
                await until_ended(tasks, lambda: [task.cancel() for task in tasks])
            finally:
                self._is_running = False

    async def _send(self, grace: float) -> None:
        await self._changes.until_open()
        async with self._entries.store.in_place():
            await dispatch(
                self._sending,
                self._entries,
                grace=grace,
                on_verdict=self._changes.note_stored,
            )

    async def _steadily(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """Run *act* until cancelled, again after each failure, which is logged."""
        failures = 0
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                await act()
            except InvsvcError as error:
                log.error("outbox: %s: %s", what, error)
            except Exception:
                log.exception("outbox: %s, because of an unexpected error", what)
            lasted = asyncio.get_running_loop().time() - begun
            failures = 0 if lasted > longest_pause() else failures + 1
            raise_if_cancelled()
            await asyncio.sleep(pause_after(failures))

    async def _deliver(
        self, on_result: Callable[[Result], Awaitable[None] | None]
    ) -> None:
        await self._changes.until_open()
        failed: Counter[str] = Counter()
        async for result in self._consumers.results(failed):
            name = f"{FAILED_TO_TELL}{result.done_at} {result.key}"
            try:
                await hand_over(on_result, result)
            except (Exception, asyncio.CancelledError) as error:
                raise_if_cancelled()  # otherwise what the callback awaited was cancelled
                failed[result.key] += 1
                log.exception(
                    "outbox: on_result failed for %s; it gets this verdict again in %g s",
                    result.key,
                    pause_after(failed[result.key]),
                )
                text = f"{type(error).__name__}: {error}".replace("\0", "\ufffd")
                self._entries.facts.put(name, text[:_WORDS])
            else:
                if failed.pop(result.key, 0):
                    self._entries.facts.put(name, None)
