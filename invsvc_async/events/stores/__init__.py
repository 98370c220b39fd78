"""
Say what a store of deliveries must do, and choose one by its address; never touch a disk or a database.

A store answers two questions durably: was this event handled, and which events wait?  It hands out an event
under a lease: while that runs nobody else gets the event; when it ran out (the holder died) somebody does.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DeadLetter", "Delivery", "Entry", "Standing", "Store", "open_store"]


@attrs.frozen(kw_only=True)
class Delivery:
    """
    What a receiver asks a store to keep.

    ``key`` is the event's ``dedupe_key``; ``body`` is ``None`` where only the claim is kept, because the
    sender still has the event and sends it again.
    """

    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Entry:
    """
    A delivery that is ours until its lease runs out.

    ``token`` is new for every lease: who lost it can no longer say what became of the event.  ``attempts``
    counts the leases, this one included.
    """

    id: int
    token: str
    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    attempts: int


@attrs.frozen(kw_only=True)
class DeadLetter:
    """An event that is kept for a person to look at; ``received_at`` in seconds since the epoch."""

    id: int
    key: str | None
    type: str
    body: bytes = attrs.field(repr=False)
    reason: str
    attempts: int
    received_at: float


class Standing(Enum):
    """Why a claim was not given."""

    HANDLED = "handled"
    """It was handled before, or is a dead letter."""
    STORED = "stored"
    """The store holds it whole, and a worker will handle it."""
    BUSY = "busy"
    """Somebody else is handling it right now, and the sender should come back."""


@runtime_checkable
class Store(Protocol):
    """
    Keep deliveries; every method may raise ``JournalError`` where the store is down.

    All durations are in seconds.  When ``put`` or ``claim`` returns, it is as durable as it will be.
    """

    async def open(self) -> None:
        """Make ready, and fail early where the store cannot be used; again is harmless."""
        ...

    async def close(self) -> None:
        """Let go of files and connections; nothing that was kept is lost."""
        ...

    async def put(self, delivery: Delivery) -> bool:
        """Keep a delivery to be handled; ``False`` if its key is known."""
        ...

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Make a dead letter of what arrived, or of what we hold (``False`` if the lease was lost)."""
        ...

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Keep a delivery and take it at once; take over one whose lease ran out."""
        ...

    async def take(self, *, limit: int, lease: float) -> Sequence[Entry]:
        """Take waiting deliveries that are due and whole, oldest first."""
        ...

    async def handled(self, entry: Entry) -> bool:
        """Record that it is handled and drop its body; ``False`` if the lease was lost."""
        ...

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """
        Give it back, to be taken again after *delay*; ``False`` if the lease was lost.

        One without a body may be forgotten, for its sender still has it.
        """
        ...

    async def dead_letters(self, *, limit: int = 100) -> Sequence[DeadLetter]:
        """List dead letters, oldest first."""
        ...

    async def revive(self, letter: DeadLetter) -> bool:
        """Let a dead letter be handled again; ``False`` if it is none any more."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Count the deliveries by state: ``open``, ``handled``, ``dead``."""
        ...

    async def prune(self, *, older_than: float) -> int:
        """
        Forget what was handled longer ago, and say how much; it would be handled anew if it came again.

        Claims without a body that nobody ended since then are forgotten too.
        """
        ...


def open_store(address: str) -> Store:
    """Choose by address: ``postgresql://…`` is a ``PostgresStore``, else it is a ``SqliteStore``'s path."""
    if address.startswith(("postgresql://", "postgres://")):
        from invsvc_async.events.stores.postgres import PostgresStore

        return PostgresStore(address)
    from invsvc_async.events.stores.sqlite import SqliteStore

    return SqliteStore(address)
