"""One write of an outbox: an item of a batch that stores its whole outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.batch.item import Item
from invsvc_async.journal.entry import Entry, State
from invsvc_async.journal.verdict_record import verdict_record

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["OutboxItem"]


class OutboxItem(Item, kw_only=True, eq=False):
    """The same; its entry keeps the intent, because an outcome is rebuilt from both."""

    outcome: Outcome[Any] | None = None  # Any: of any operation

    async def settled(self, outcome: Outcome[Any]) -> None:  # Any: as above
        """Pass the secret on, then store the outcome; or put the write back, as the base class does."""
        self.outcome = outcome
        await super().settled(outcome)

    def _entry(
        self, state: State, intent: Intent, *, keep: bool = True, **done: Any
    ) -> Entry:  # Any: what Entry has of an end
        if state is not State.DONE:
            return super()._entry(state, intent, keep=keep, **done)
        assert self.outcome is not None
        done["outcome"], self.outcome = verdict_record(self.outcome), None
        return super()._entry(state, intent, **done)
