"""The writes of an outbox, some of which transactions of the application insert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.scripts import find_old, prune

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    async def delete_done(self, before: int, *, unacknowledged: bool) -> int:
        """
        Delete entries done before *before* (epoch ms), in many short transactions; return how many.

        UNKNOWN ones stay, and so do those whose verdict nobody has acknowledged, unless *unacknowledged*.
        """
        count = 0
        async for after, last in self.parts():
            count += await self._prune(before, after, last, unacknowledged=unacknowledged)
        return count

    async def _prune(self, before: int, after: int, last: int, *, unacknowledged: bool) -> int:
        find = partial(find_old, before, after, last, unacknowledged=unacknowledged)
        gone: set[int] = set()
        if old := await self.store.run(find):
            await self._forget([*old.values()])
            await self.store.run(partial(prune, before, [*old], unacknowledged=unacknowledged, gone=gone))
        return len(gone)

    async def _forget(self, keys: Sequence[str]) -> None:
        """Delete what is stored elsewhere of *keys*, whose entries are about to be deleted."""
