"""The look whether the list of webhooks, by which all creates are settled, is full."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from invsvc_async.api.operations import WEBHOOKS_LIST
from invsvc_async.reconcile.outcome import LIST_FULL
from invsvc_async.writes.state_reads import LIST_SIZE, StateReader

if TYPE_CHECKING:
    from invsvc_async.batch.sending import Sending
    from invsvc_async.reconcile.intent import Intent


log: logging.Logger = logging.getLogger("invsvc_async.batch")

_FULL = (
    "the list of webhooks is full: a create whose answer is lost is certain only if the list shows its tag, "
    "and otherwise UNKNOWN. %s"
)


class FullListLook:
    """The one look of a run, before its first create of a webhook. All creates wait for it."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._lock = asyncio.Lock()
        self.is_due: bool = True  # until it was made

    async def warn(self, intent: Intent) -> None:
        """Warn if the list in which *intent*, a create, will be is full."""
        async with self._lock:
            if not self.is_due:  # Another task has looked meanwhile.
                return
            if await self._is_full(intent):
                log.warning(_FULL, LIST_FULL)
            self.is_due = False

    async def _is_full(self, intent: Intent) -> bool:
        """Return whether the list is full: as this client read it last, or else by a new read."""
        sending = self._sending
        last = sending.core.writes.last_list(WEBHOOKS_LIST.name, intent.scope.team)
        if last is not None:
            return last.many >= LIST_SIZE
        looks = StateReader(
            sending.options.without_team(), intent, lambda: intent, own=None
        )
        return (await looks.look(WEBHOOKS_LIST.name, lane="settle")).full
