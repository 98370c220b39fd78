"""The writes of an outbox, some of which transactions of the application insert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.store.reopening import Reopened, reopen
from invsvc_async.durable.store.unheard import forget_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.outbox.enqueuing import Enqueuing
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore


class OutboxEntries(Entries):
    """The writes of one outbox; *enqueuing* inserts them."""

    def __init__(
        self,
        store: Store,
        core: ClientCore,
        enqueuing: Enqueuing,
        *,
        same_mode: bool,
    ) -> None:
        super().__init__(store, core, same_mode=same_mode)
        self.enqueuing: Enqueuing = enqueuing

    def _reopen(
        self,
        keys: Sequence[str],
        verdicts: Sequence[str],
        tried: dict[int, Reopened],
        *,
        at_end: bool,
    ) -> Script[list[Reopened]]:
        """Reopen entries as of any store; as the at_end, after what open transactions have enqueued."""
        if at_end:
            yield from self.enqueuing.lock_things(keys)
        return (yield from reopen(keys, verdicts, tried, at_end=at_end))

    async def prune(self, before: int, *, unacknowledged: bool = False) -> int:
        """Delete old entries, as of any store, and the errors of verdicts that are as old."""
        await forget_errors(self.store, before)
        return await super().prune(before, unacknowledged=unacknowledged)
