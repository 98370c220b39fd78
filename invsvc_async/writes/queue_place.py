"""The place of one write in the queue of its thing, and what it means for the other writes to that thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.write_register import WriteRegister

__all__ = ["QueuePlace"]

_USERS = 8  # of a queue that are remembered, if all but the first did nothing


class QueuePlace:
    """
    The place of one write in the queue *line*.

    Writes to one thing run one at a time, and the last one that had an effect counts. So each notes that it
    was the last; one that did nothing takes that back. What was left open before is overtaken by a newer one:
    it must not be sent again. *own* is the identity of the write.
    """

    def __init__(self, writes: WriteRegister, line: str | None) -> None:
        self._writes = writes
        self._line = line
        self._before: tuple[str, ...] | None = None  # the last users of the queue, before it was sent

    def use(self, own: str, now: float) -> None:
        """Note that it is sent now. Only one that another run may have sent needs an identity."""
        lines = self._writes.lines
        if self._before is None:
            self._before = lines.last_users(self._line)
        lines.use(self._line, (own,), now)

    def overtake(self, own: str) -> list[Intent]:
        """Mark the open writes before it as overtaken, and return them as they were."""
        left_open = self._writes.left_open
        before = left_open.not_overtaken(self._line, own)
        self._store(left_open.overtake(self._line, own))
        return before

    def reinstate(self, overtaken: list[Intent]) -> None:
        """Undo ``overtake``, because no byte of this write left."""
        self._store(self._writes.left_open.reinstate(overtaken))

    def _store(self, revised: list[Intent]) -> None:
        """Store intents that another write has changed, without waiting."""
        for intent in revised:
            assert self._writes.journal is not None
            self._writes.journal.shelved(intent, sent=True)

    def keep_last(self, own: str, now: float) -> None:
        """Note, before the lock is released, that this write, sent or not, was the last of its queue."""
        if self._line is not None and self._writes.lines.last_users(self._line) in (("",), (own,)):
            self._writes.lines.use(self._line, (own,), now)

    def take_back(self, own: str, now: float) -> None:
        """Note that this write was not sent after all, unless a later one was."""
        if self._before is not None and self._writes.lines.last_users(self._line) in (("",), (own,)):
            self._writes.lines.use(self._line, self._before, now)

    def did_nothing(self, own: str, now: float) -> None:
        """Note that this write did nothing, so that those before it are not overtaken by it."""
        if self._before is not None:
            users = (*(user for user in self._before if user != own), own)
            self._writes.lines.use(self._line, users[-_USERS:], now)
