"""The journal as one run of a write uses it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.client_core import ClientOptions
    from invsvc_async.writes.journal import WriteJournal
    from invsvc_async.writes.register import WriteRegister


class RunJournal:
    """
    Where one run stores its intent and its verdict: the client's *journal*, or that of a batch or a key.

    A write may be in the client's journal already when a batch or a key takes it up. Once the other journal
    has it, the client's must not have it too: two processes could settle it.
    """

    __slots__ = ("_is_told_all", "_journal", "_writes")

    def __init__(self, journal: WriteJournal, writes: WriteRegister) -> None:
        self._journal = journal
        self._writes = writes
        self._is_told_all = True

    @property
    def is_of_client(self) -> bool:
        """Whether it is the client's journal."""
        return self._journal is self._writes.journal

    def tell_verdict_only(self) -> None:
        """
        From here on, tell the journal of the verdict alone: not that the run was cancelled, or was heard.

        So the entry stays as it is. Runs of keys call this: another run, or nobody, is to hear the verdict.
        """
        self._is_told_all = False

    def sending(self, intent: Intent) -> Awaitable[float | None]:
        """Store *intent* before a send. Return until when it may be sent (local s), or ``None``."""
        return self._journal.sending(intent)

    def settled(self, outcome: Outcome[object]) -> Awaitable[None]:
        """Store the verdict, before the application gets it."""
        return self._journal.settled(outcome)

    def move_here(self, intent: Intent) -> None:
        """Remove *intent* from the client's journal, if that is another journal: *intent* is here now."""
        if self.is_of_client:
            return
        of_client = self._writes.journal
        if of_client is None:
            return
        if self._writes.open_writes.leave_journal(intent.identity):
            of_client.shelved(intent, sent=False)

    async def take_claims_on(self, listed: Collection[str]) -> None:
        """
        Learn which creates made the webhooks with the ids *listed*, as the journal has that.

        One of the user's own does not have it: the protocol of journals has no such question.

        Raises:
            JournalError: The journal cannot be used.
        """
        take = getattr(self._journal, "take_claims_on", None)
        if take is not None:
            await take(listed)

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Note how far the run got, which was interrupted."""
        if self._is_told_all:
            self._journal.shelved(intent, sent=sent)

    def heard_soon(self, identity: str) -> None:
        """Note in the next round of the loop, when the awaiter has the verdict, that it was heard."""
        if self._is_told_all:
            asyncio.get_running_loop().call_soon(self._journal.heard, identity)


def journal_of(options: ClientOptions) -> RunJournal | None:
    """Return the journal of a write with these *options*, if there is one."""
    writes = options.core.writes
    journal = options.journal or writes.journal
    if journal is None:
        return None
    return RunJournal(journal, writes)
