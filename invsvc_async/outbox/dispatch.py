"""The dispatching of an outbox: a process that sends the writes that transactions have committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from invsvc_async.batch.dispatcher import Dispatcher
from invsvc_async.batch.item import Item
from invsvc_async.batch.restored import restored_of
from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.durable.store.restored import close_restored
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.sending import Sending
    from invsvc_async.outbox.entries import OutboxEntries
    from invsvc_async.reconcile.outcome import AnyOutcome


# how often a process begins a write anew that is proven absent each time
MOST_ROUNDS = 10


class OutboxItem(Item, kw_only=True, eq=False):
    """
    One write of an outbox. Its entry keeps the intent, because an outcome is rebuilt from both.

    A write that is proven absent is sent again. Each round lasts a settle window or two, so it needs no
    pause.
    """

    keeps_outcome = True

    async def settled(self, outcome: AnyOutcome) -> None:
        """Store the outcome, or put the write back."""
        if self._may_be_sent_again(outcome):
            self._put_back(outcome)
        else:
            await super().settled(outcome)

    def _may_be_sent_again(self, outcome: AnyOutcome) -> bool:
        """Return whether the write is proven absent, and its policy and its earlier rounds allow another."""
        if outcome.verdict is not Verdict.NOT_APPLIED:
            return False
        if outcome.evidence.cause != "absent":
            return False
        policy = outcome.started_as.policy
        if policy.resend == "never" or policy.max_resends <= 0:
            return False
        return self.times_put_back + 1 < MOST_ROUNDS


async def dispatch(
    sending: Sending,
    entries: OutboxEntries,
    *,
    grace: float,
    on_verdict: Callable[[], None],
) -> None:
    """
    Send what is committed, until cancelled. What is under way then has *grace* seconds.

    *on_verdict* is called when verdicts were stored.

    Raises:
        JournalError: The database stayed away.
        BatchStoppedError: The service refuses the credential.
        TransportError: The outbox was restored from a copy, and the service cannot be reached.
    """
    restored = sending.restored = await restored_of(entries.store, sending.client)
    if restored is not None and all(
        e.seq > restored.through for e in await entries.not_done(1)
    ):
        await entries.store.run(close_restored)
    dispatcher = Dispatcher(sending, entries, OutboxItem, on_verdict)
    engine = dispatcher.engine

    async def leave() -> None:
        """End what is under way, and release the rest."""
        await dispatcher.stop(grace)
        on_verdict()
        await dispatcher.end()

    await dispatcher.start_beating("outbox")
    engine.feeding.start(dispatcher.feed())
    try:
        while await engine.next_finished() is not None:
            on_verdict()
    finally:
        ending = [asyncio.create_task(leave())]
        await until_ended(
            ending, lambda: ending.append(asyncio.create_task(engine.stop(0.0)))
        )
        ending[0].result()
    if (failure := engine.run_end.take_error()) is not None:
        raise failure
