"""
The protocol of event stores, and the choice of one by its address.

A store remembers which events were handled, and which wait.  It leases events: while a lease runs, nobody
else gets the event; when it has run out, because its holder died, another worker does.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DeadLetter", "Delivery", "Entry", "Standing", "Store", "open_store"]


@attrs.frozen(kw_only=True)
class Delivery:
    """
    What a receiver stores of an event.

    ``key`` is the event's ``dedupe_key``; ``body`` is ``None`` if only the claim is stored, because the
    sender will send the event again.
    """

    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Entry:
    """
    A delivery under a lease.

    ``token`` is new for every lease, so that a holder whose lease ran out can no longer change the event.
    ``attempts`` counts the leases, including this one.
    """

    id: int
    token: str
    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    attempts: int


@attrs.frozen(kw_only=True)
class DeadLetter:
    """An event that could not be handled; ``received_at`` is in seconds since the epoch."""

    id: int
    key: str | None
    type: str
    body: bytes = attrs.field(repr=False)
    reason: str
    attempts: int
    received_at: float


class Standing(Enum):
    """Why an event was not leased."""

    HANDLED = "handled"
    """It was handled, or is a dead letter."""
    STORED = "stored"
    """It is stored with its body, and a worker will handle it."""
    BUSY = "busy"
    """It is being handled right now, and the sender should try again later."""


@runtime_checkable
class Store(Protocol):
    """
    A store of deliveries.  Every method may raise ``JournalError`` if the store is down.

    All durations are in seconds.  When ``put`` or ``claim`` returns, the delivery is durable.
    """

    async def open(self) -> None:
        """Open the store, or raise an error if it cannot be used; does nothing if it is open."""
        ...

    async def close(self) -> None:
        """Release files and connections; nothing stored is lost."""
        ...

    async def put(self, delivery: Delivery) -> bool:
        """Store a delivery to be handled; ``False`` if its key is known."""
        ...

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Store a delivery or a leased entry as a dead letter; ``False`` if the lease was lost."""
        ...

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Store a delivery and lease it at once; also lease a known one whose lease ran out."""
        ...

    async def take(self, *, limit: int, lease: float) -> Sequence[Entry]:
        """Lease deliveries that are due and have a body, oldest first."""
        ...

    async def handled(self, entry: Entry) -> bool:
        """Mark it as handled and delete its body; ``False`` if the lease was lost."""
        ...

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """
        End the lease, so that it is due after *delay*; ``False`` if the lease was lost.

        An entry without a body may be deleted, because its sender still has it.
        """
        ...

    async def dead_letters(self, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return dead letters, oldest first."""
        ...

    async def revive(self, letter: DeadLetter) -> bool:
        """Make a dead letter due again; ``False`` if it is no longer one."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the number of deliveries by state: ``open``, ``handled``, ``dead``."""
        ...

    async def prune(self, *, older_than: float) -> int:
        """
        Delete what was handled longer ago; return how many.  Such an event would be handled again.

        Abandoned claims without a body are deleted too.
        """
        ...


def open_store(address: str) -> Store:
    """
    Return the store at an address: ``postgresql://…``, or else the path of a SQLite file.

    Raises:
        ConfigurationError: It is an address of another form.
    """
    if is_postgres(address):
        from invsvc_async.events.stores.postgres import PostgresStore

        return PostgresStore(address)
    from invsvc_async.events.stores.sqlite import SqliteStore

    return SqliteStore(address)
