"""
Say what keeps intents beyond the life of the process; never keep one here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.outcome import Outcome
    from invsvc_async.reconcile.intent import Intent

__all__ = ["Journal"]


class Journal(Protocol):
    """A durable place for the intents of single writes."""

    async def open(self) -> None:
        """Take hold of it; raises JournalError in words where another owner has it."""
        ...

    async def sending(self, intent: Intent) -> None:
        """
        Store *intent*, durably, before the first byte of a send; replaces an earlier revision of its key.
        """
        ...

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Note, without waiting and without fail, how far a cancelled write got; not *sent*: provably nothing of
        it left.
        """
        ...

    async def settled(self, outcome: Outcome[object]) -> None:
        """Note what became of it; one whose fate is unknown stays open."""
        ...

    def open_intents(self) -> AsyncIterator[Intent]:
        """Walk the intents whose fate is open, as stored by a process before this one."""
        ...

    async def aclose(self) -> None:
        """Let go of it, with everything stored."""
        ...
