"""What happens to a delivery by its verdict: handled at once, stored, kept as a dead letter, or refused."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from invsvc_async.events.receiving.admission import (
    Admitted,
    Arrival,
    Receipt,
    Unreadable,
    check_age,
)
from invsvc_async.events.receiving.handler_calls import run_handler
from invsvc_async.events.receiving.stats import STORE
from invsvc_async.events.stores import Delivery

if TYPE_CHECKING:
    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handlers import EventHandler, Handlers
    from invsvc_async.events.receiving.judging import AnswerTimes, Judge
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.receiving.worker import InboxWorker, Inline

_log: Final = logging.getLogger("invsvc_async.events")


class Processing(msgspec.Struct, kw_only=True, eq=False):
    """
    What a receiver does with a delivery, from its arrival to its answer.

    ``stores_first`` is whether each event is stored before its answer, and handled by the worker. A signed
    event that is older than ``max_age`` seconds is refused.
    """

    judge: Judge
    handlers: Handlers
    worker: InboxWorker
    inline: Inline
    tally: Tally
    times: AnswerTimes
    stores_first: bool
    max_body_bytes: int
    max_age: float | None
    test_handler: EventHandler | None = None

    async def receive(self, until: float, arrival: Arrival) -> Receipt:
        """Judge a delivery, then store or handle it, until the loop time *until*."""
        if len(arrival.body) > self.max_body_bytes:
            return Receipt(413, "refused")
        verdict = await self.judge.verdict(until, arrival)
        match verdict:
            case Admitted():
                self.tally.used(verdict.by)
                return await self._admit(until, verdict)
            case Unreadable():
                self.tally.used(verdict.by)
                return await self._bury_unreadable(until, arrival, verdict)
            case Receipt():
                return verdict

    async def _admit(self, until: float, admitted: Admitted) -> Receipt:
        """Answer a delivery that is genuine and can be read."""
        event = admitted.event
        if admitted.sent == "as a test":
            return await self._handle_test(until, event)
        refusal = check_age(event, self.tally.clock(), self.max_age)
        if refusal is not None:
            return refusal
        if self.stores_first:
            return await self._keep(until, event)
        handlers = self.handlers.matching(event)
        if handlers:
            return await self.inline.answer(
                until, event, handlers, once=admitted.sent == "once"
            )
        if event.is_known:
            return Receipt(200, "ignored", event)
        return Receipt(200, "unknown", event)

    async def _bury_unreadable(
        self,
        until: float,
        arrival: Arrival,
        unreadable: Unreadable,
    ) -> Receipt:
        """
        Store an authentic delivery that cannot be read as a dead letter, for a person to look at.

        ``Inline`` does that in both modes, because it stores results before an answer.
        """
        found = Delivery(
            key=None,
            type="",
            body=arrival.body,
        )
        left = until - asyncio.get_running_loop().time()
        return await self.inline.bury_malformed(
            found,
            unreadable.error,
            claimed=None,
            within=left,
        )

    async def _keep(self, until: float, event: Event) -> Receipt:
        """Store *event* for each of its handlers; the worker calls them."""
        first, *further = self.handlers.deliveries(event)
        # ``None`` if the store knows no handlers: then there is at most one.
        handler_store = self.handlers.handler_store
        try:
            with self.times.within(until):
                if handler_store is None:
                    new = await self.worker.store.put(first)
                else:
                    new = await handler_store.put(first, further)
        except Exception as failure:  # noqa: BLE001 - a user-supplied store may raise anything
            return self.tally.unavailable(STORE, failure, event)
        self.tally.works_again(STORE)
        self.worker.wake()
        if new:
            return Receipt(200, "stored", event)
        return Receipt(200, "duplicate", event)

    async def _handle_test(self, until: float, event: Event) -> Receipt:
        """Call the handler of test events, if there is one. Whatever it does, the answer is the same."""
        if self.test_handler is not None:
            try:
                with self.times.within(until):
                    await run_handler(self.test_handler(event))
            except Exception as error:  # noqa: BLE001 - a handler may raise anything; tests are not sent again
                _log.warning(
                    "The handler of test events failed on %s",
                    event.type,
                    exc_info=error,
                )
        return Receipt(200, "test", event)
