"""
Inline mode: an event is handled before its delivery is answered, within the sender's time limit.

The handler may fail, hang, or be cancelled with the request.  The result is stored by a separate task, which
that cancellation does not reach.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.concurrency.deadline import Deadline
from invsvc_async.errors import MalformedEventError
from invsvc_async.events.event import key_of
from invsvc_async.events.receiving.receipt import Receipt
from invsvc_async.events.receiving.stats import STORE
from invsvc_async.events.receiving.worker import ended, reason_of, report_failure
from invsvc_async.events.stores import Delivery, Entry, Standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handler import Handler
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.receiving.worker import Worker
    from invsvc_async.events.stores import Store

__all__ = ["Inline"]

_log: Final = logging.getLogger("invsvc_async.events")
_BUSY: Final = Receipt(429, "busy", headers={"Retry-After": "5"})
_DUPLICATE: Final = Receipt(200, "duplicate")
_RECORD_WITHIN: Final = 1.0  # s that the answer waits until the result is stored


class Inline:
    """
    Claim events in *store*, for *lease* seconds each, and handle them with *handle*.

    Each handler of an event claims it for itself, and all run at the same time.  An event that is sent only
    once is stored with its body, so that *worker* can retry it.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        handle: Callable[[Handler, Event, int], Awaitable[object]],
        *,
        lease: float,
        tally: Tally,
    ) -> None:
        self._store = store
        self._worker = worker
        self._handle = handle
        self._lease = lease
        self._tally = tally
        self._records: set[asyncio.Task[object]] = set()

    def answer(
        self, until: float, event: Event, handlers: Sequence[Handler], *, once: bool
    ) -> Awaitable[Receipt]:
        """
        Handle *event* until the loop time *until*; *once*: the service will not send it again.

        The answer is the worst that is due to one of *handlers*, so that the service sends the event again.
        """
        key, body = key_of(event), event.raw if once else None
        # One without a key cannot be claimed, but has to be stored if it is sent once.
        stored = once or key is not None
        answers = [
            self._answer(
                until, event, handler,
                Delivery(key=key, type=event.type, body=body, handler=handler.name) if stored else None,
            )
            for handler in handlers
        ]  # fmt: skip
        return answers[0] if len(answers) == 1 else _worst(answers)

    async def _answer(
        self, until: float, event: Event, handler: Handler, delivery: Delivery | None
    ) -> Receipt:
        loop = asyncio.get_running_loop()
        entry, is_claimed = None, delivery is None
        try:
            with Deadline(loop, until):
                if delivery is not None:
                    claim = await self._store.claim(delivery, lease=self._lease)
                    is_claimed = True
                    if self._tally.failing:
                        self._tally.worked(STORE)
                    if not isinstance(claim, Entry):
                        is_busy = claim is Standing.BUSY
                        return attrs.evolve(_BUSY if is_busy else _DUPLICATE, event=event)
                    entry = claim
                if loop.time() >= until:  # something has blocked the loop: the lease may be over
                    raise TimeoutError("the handler was not called before the deadline")  # noqa: TRY301
                timeout = handler.settings.timeout
                with nullcontext() if timeout is None else Deadline(loop, loop.time() + timeout):
                    if handler.settings.where is None or handler.wants(event):  # raises what where raises
                        await self._handle(handler, event, 1 if entry is None else entry.attempts)
        except asyncio.CancelledError:  # the sender disconnected
            if entry is not None:
                self._recorded(self._store.release(entry, delay=0))  # accept the sender's next attempt
            raise
        except Exception as error:  # noqa: BLE001 - a user-supplied store or a handler may raise anything
            failed = self._failed(event, handler, entry, error) if is_claimed else None
            return self._tally.unavailable(STORE, error, event) if failed is None else await failed
        if entry is not None:
            await self._soon(self._worker.succeeded(entry, event))
        return Receipt(200, "handled", event)

    async def stop(self, *, grace: float) -> None:
        """Wait up to *grace* seconds until all results are stored."""
        await ended(self._records, grace)

    async def _failed(self, event: Event, handler: Handler, entry: Entry | None, error: Exception) -> Receipt:
        if isinstance(error, MalformedEventError):
            return await self._bury(event, handler, entry, error)
        if entry is not None and entry.body is not None:
            await self._soon(self._worker.failed(entry, error))
            self._worker.wake()
        else:
            _log.warning("Handling %s failed; the service will send it again", event.type, exc_info=error)
            if entry is not None:
                await self._soon(self._store.release(entry, delay=0))
        return Receipt(500, "failed", event)

    async def _bury(
        self, event: Event, handler: Handler, entry: Entry | None, error: MalformedEventError
    ) -> Receipt:
        """Store an event that *handler* found malformed; sending it again would not help."""
        key = key_of(event) if entry is None else entry.key
        delivery = Delivery(key=key, type=event.type, body=event.raw, handler=handler.name)
        try:
            async with asyncio.timeout(_RECORD_WITHIN):
                if entry is not None and entry.body is None:
                    await self._store.put(delivery)
                await self._store.bury(entry or delivery, reason=reason_of(error))
        except Exception as failure:  # noqa: BLE001 - a user-supplied store may raise anything
            return self._tally.unavailable(STORE, failure, event)
        self._tally.ended("dead letter")
        return Receipt(202, "dead letter", event, error)

    async def _soon(self, record: Coroutine[Any, Any, object]) -> None:
        """Store a result, before the answer if that is quick."""
        await asyncio.wait([self._recorded(record)], timeout=_RECORD_WITHIN)

    def _recorded(self, record: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Store a result, whether or not somebody waits for it."""
        task = asyncio.create_task(record, name="invsvc events record")
        self._records.add(task)
        task.add_done_callback(self._records.discard)
        task.add_done_callback(report_failure)
        return task


async def _worst(answers: Sequence[Awaitable[Receipt]]) -> Receipt:
    receipts = await asyncio.gather(*answers)
    return max(receipts, key=lambda receipt: (receipt.status, receipt.outcome != "duplicate"))
