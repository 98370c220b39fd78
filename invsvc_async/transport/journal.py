"""
The protocol of a journal: a durable place for the intents and verdicts of single writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["Journal"]


class Journal(Protocol):
    """
    A durable place for the intents of single writes, and for their verdicts until the application has them.

    Of each write it sees ``sending`` before every send, then ``settled``, then ``heard``; or ``shelved`` if
    the write was cancelled.
    """

    async def open(self) -> None:
        """Acquire it; raises JournalError, with the owner's name, if another process has it."""
        ...

    async def sending(self, intent: Intent) -> None:
        """
        Store *intent*, durably, before the first byte of a send; replaces what is stored of its identity.
        """
        ...

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Note how far a cancelled write got, without waiting and without raising.

        Not *sent* means that provably nothing of it left.  A verdict that is stored already stays.
        """
        ...

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict, durably, before the application gets it; a write that is UNKNOWN stays open.

        Returns without an error if it cannot be stored: the application gets the verdict all the same, and
        the write stays open here.
        """
        ...

    def heard(self, identity: str) -> None:
        """
        Note that the application has the verdict of *identity*, which may go; neither waits nor raises.

        Identities that are unknown or open, and calls after the close, change nothing.
        """
        ...

    def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the intents without a verdict that a process before this one stored."""
        ...

    def unheard(self) -> AsyncIterator[Outcome[Any]]:  # Any: each intent's operation says what its value is
        """
        Iterate over the verdicts of a process before this one that no application has had.

        The outcomes are rebuilt from what was stored: without history, and without a webhook's secret.
        """
        ...

    async def aclose(self) -> None:
        """Release it, with everything stored."""
        ...
