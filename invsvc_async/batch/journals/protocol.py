"""The protocol of a batch's journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from invsvc_async.batch.checkpoint import Checkpoint
    from invsvc_async.batch.deliveries import Deliveries
    from invsvc_async.batch.result import Summary
    from invsvc_async.durable.entry import Entry, Mark
    from invsvc_async.durable.intents import Commons
    from invsvc_async.durable.last_writes import LastWrite
    from invsvc_async.reconcile.history import Verdict

__all__ = ["Entries"]


class Entries(Protocol):
    """The journal of one batch, in a file or a database."""

    commons: Commons
    deliveries: Deliveries

    async def open(self) -> None:
        """Open the journal, or raise JournalError."""
        ...

    async def aclose(self) -> None:
        """Store everything and close the journal."""
        ...

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about the whole batch; set it to *value* first if it is unknown."""
        ...

    async def facts(self, prefix: str) -> Mapping[str, str]:
        """Return the facts whose names begin with *prefix*."""
        ...

    def put_fact(self, name: str, value: str | None) -> Awaitable[None]:
        """Set a fact about the whole batch to *value*, or delete it, soon; it need not be awaited."""
        ...

    async def checkpoint(self) -> Checkpoint | None:
        """Return how far the latest input was taken in, if that is known."""
        ...

    async def close_inputs(self) -> int:
        """Mark incomplete inputs as complete, as far as they were read; return how many there were."""
        ...

    async def close_restored(self) -> None:
        """Note that the input was read again since the journal was restored."""
        ...

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """Return the stored entries of *keys*, and note that the input of *run* contains them."""
        ...

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are not done, in input order."""
        ...

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are done."""
        ...

    async def finished(
        self, verdict: Verdict | None, since: int, limit: int, until: int | None = None
    ) -> list[Entry]:
        """Return the next page of entries that are done, after position *since*, in that order."""
        ...

    async def last_position(self) -> int:
        """Return a position up to which all finished entries can be read."""
        ...

    def save_taken(self) -> Awaitable[None]:
        """Store which results were taken, in the next transaction."""
        ...

    async def summary(self) -> Summary:
        """Return the counts of entries."""
        ...

    async def reopen(self, verdict: Verdict, *, keep_sends: bool, keys: Sequence[str] | None = None) -> int:
        """
        Reopen the entries with *verdict*, all or those of *keys*; return how many.

        Without *keep_sends*, they are reopened as if they had never been sent.
        """
        ...

    async def reopen_as_newest(
        self, keep_sends: Mapping[Verdict, bool], keys: Sequence[str] | None = None
    ) -> int:
        """
        Reopen entries at the end of the order, so that they overtake what came after them; return how many.

        They keep their order among themselves. *keep_sends* has each verdict that is meant.
        """
        ...

    async def last_writes(self, things: Sequence[str]) -> list[LastWrite]:
        """Return the last finished write to each of *things*, and the state it left."""
        ...

    async def prune(self, before: int) -> int:
        """Reduce entries done before *before* (epoch ms) to key, digest and verdict; return how many."""
        ...

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Return (webhook id, key) of the latest untagged creates."""
        ...
