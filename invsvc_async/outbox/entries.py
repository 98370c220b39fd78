"""The writes of an outbox, some of which transactions of the application insert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.durable.entries import Entries

if TYPE_CHECKING:
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import ClientState

__all__ = ["OutboxEntries"]


class OutboxEntries(Entries, ABC):
    """The writes of one outbox."""

    database: ClassVar[Database]

    @abstractmethod
    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """Open it, for the base URL and credential of *session*."""

    @abstractmethod
    async def insert(self, connection: object, intent: Intent, content: bytes, thing: str | None) -> bool:
        """
        Insert a write to *thing* in the transaction of *connection*; return whether its key was new.

        *content* is the digest of its request.

        Raises:
            JournalError: What the entry refers to could not be stored.
            Exception: The error of the driver.

        """

    @abstractmethod
    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the entry of *key*, as the transaction of *connection* sees it."""

    async def begin_sending(self) -> None:
        """
        Check that sends may be made.

        Raises:
            JournalError: They may not.

        """
        await self.store.check_place()
