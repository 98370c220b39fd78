"""One write of an outbox: an item of a batch that stores its whole outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.batch.item import Item
from invsvc_async.durable.records import verdict_record
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from invsvc_async.durable.records import Record
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["OutboxItem"]

MOST_ROUNDS = 10  # how often a process begins a write anew that is proven absent each time


class OutboxItem(Item, kw_only=True, eq=False):
    """
    The same; its entry keeps the intent, because an outcome is rebuilt from both.

    A write that is proven absent is sent again. Each round lasts a settle window or two, so it needs no
    pause.
    """

    secret_in_results = False
    keeps_applied = True

    async def settled(self, outcome: Outcome[Any]) -> None:  # Any: as above
        """Pass the secret on, then store the outcome; or put the write back."""
        if self._is_sent_again(outcome):
            self._put_back(outcome)
            return
        await super().settled(outcome)

    def _is_sent_again(self, outcome: Outcome[Any]) -> bool:  # Any: as above
        policy = outcome.started_as.policy
        absent = outcome.verdict is Verdict.NOT_APPLIED and outcome.evidence.cause == "absent"
        may = policy.resend != "never" and policy.max_resends > 0
        return absent and may and self.times_put_back + 1 < MOST_ROUNDS

    def _stored(self, outcome: Outcome[Any], record: Record) -> str:  # noqa: ARG002 - it makes a fuller one
        return verdict_record(outcome)
