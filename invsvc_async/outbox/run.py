"""The run of a dispatcher: what is common to both databases."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.batch.restored import restored_of
from invsvc_async.batch.run import Run
from invsvc_async.client import options_of
from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.errors import JournalError
from invsvc_async.outbox.item import OutboxItem
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.item import Item
    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.intent import Intent

__all__ = ["OutboxRun"]


class OutboxRun(Run):
    """
    A run of a batch that lasts until it is stopped, and whose input are the writes of an outbox.

    In the end, what is under way has *grace* seconds. *on_verdict* is called when verdicts were stored.
    """

    item_type: ClassVar[type[Item]] = OutboxItem

    def __init__(self, batch: Batch, grace: float, on_verdict: Callable[[], None]) -> None:
        super().__init__(batch, ())
        self._grace = grace
        self._on_verdict = on_verdict
        self._wake = asyncio.Event()  # there may be something to send

    async def dispatch(self) -> None:
        """
        Send what is committed, until cancelled.

        Raises:
            JournalError: The database stayed away.
            BatchStoppedError: The service refuses the credential.
            TransportError: The outbox was restored from a copy, and the service cannot be reached.

        """
        await self._recall_restore()
        engine = self._start()
        try:
            while await engine.next_result() is not None:
                self._on_verdict()
        finally:
            leaving = asyncio.create_task(self._leave())
            ending = [leaving]
            await until_ended(ending, lambda: ending.append(asyncio.create_task(self.stop(0.0))))
            leaving.result()
        if (failure := engine.take_failure()) is not None:
            raise failure

    async def _recall_restore(self) -> None:
        """Learn which entries may have been sent after the copy from which the outbox was restored."""
        batch = self._batch
        batch.restored = await restored_of(batch.entries.fact, batch.client)
        if batch.restored is not None:
            left = await batch.entries.not_done(0, 1)
            if not left or left[0].seq > batch.restored.through:
                await batch.entries.close_restored()

    async def _close_lines(self, unknown: list[Entry]) -> None:
        """As the base class. Those that this version cannot read are waited for, together."""
        last = 0  # when the last of those got its verdict, epoch ms: their things are not known
        for entry in unknown:
            try:
                await super()._close_lines([entry])
            except JournalError:
                last = max(last, entry.done_at or 0)
        if last:
            await self._outlast(last)

    async def _outlast(self, done_at: int) -> None:
        """Wait until what got its verdict at *done_at* can no longer take effect."""
        options = options_of(self._batch.client)
        policy = options.reconcile
        longest = options.timeouts.attempt + policy.settle_after_loss
        longest += 2 * policy.clock_slack + policy.clock_band
        since = time.time() - done_at / 1000
        if since < longest:
            await options.session.clock.sleep(min(longest - since, longest))

    async def _leave(self) -> None:
        """End what is under way, and shelve the rest."""
        await self.stop(self._grace)
        self._on_verdict()

    def _is_of_copy(self, entry: Entry) -> bool:
        """Return whether *entry* may have been sent after the copy from which the outbox was restored."""
        restored = self._batch.restored
        return restored is not None and entry.seq <= restored.through

    def _check(self, intent: Intent, *, in_doubt: bool) -> None:
        """
        Check that this client may send or settle *intent*.

        Raises:
            InvalidRequestError: It belongs to another base URL, data mode or credential.

        """
        view = options_of(self._batch.client).without_team()
        check_scope(view, intent, same_mode=self._batch.same_mode, in_doubt=in_doubt)
