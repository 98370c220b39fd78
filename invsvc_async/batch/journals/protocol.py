"""
Say what a batch asks of the place where its entries are kept; never keep one here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.batch.result import Summary
    from invsvc_async.batch.siblings import LastWrite
    from invsvc_async.journal.entry import Entry, Mark
    from invsvc_async.journal.packed_intent import Commons
    from invsvc_async.reconcile.history import Verdict

__all__ = ["Entries"]


class Entries(Protocol):
    """The journal of one batch, on whichever machine: what can be asked of it, and done to it, as a whole."""

    commons: Commons

    async def open(self) -> None:
        """Take hold of it, or raise JournalError in words."""
        ...

    async def aclose(self) -> None:
        """Let go of it, with everything stored."""
        ...

    async def next_run(self) -> int:
        """Count one more run, and tell its number."""
        ...

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Tell a fact about the whole batch; with *value*, set it where it was not known."""
        ...

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """Find the entries of *keys*, and note that the input of *run* holds them."""
        ...

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Page through the entries that are not done, in the order in which they came."""
        ...

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Page through those that are done."""
        ...

    async def summary(self) -> Summary:
        """Count the entries."""
        ...

    async def reopen(self, verdict: Verdict, *, keep_sends: bool) -> int:
        """Make those of *verdict* to do again; without their sends where it is certain that none landed."""
        ...

    async def last_writes(self, things: Sequence[str]) -> list[LastWrite]:
        """Look up what the writes that are done left of *things*."""
        ...

    async def prune(self, before: int) -> int:
        """Empty what was done before *before* (epoch ms) of all but key, digest and verdict."""
        ...

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Give (webhook id, key) of untagged creates, the latest ones."""
        ...
