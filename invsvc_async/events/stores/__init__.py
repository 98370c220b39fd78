"""
The protocol of event stores, and the choice of one by its address.

A store remembers which events were handled, and which wait.  It leases events: while a lease runs, nobody
else gets the event; when it has run out, because its holder died, another worker does.
"""

from __future__ import annotations

import os
from enum import Enum
from secrets import token_hex
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    Unpack,
    runtime_checkable,
)

import attrs

from invsvc_async.errors import ConfigurationError
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "COUNTED",
    "STATES",
    "Backlog",
    "CatchUpStore",
    "Delivery",
    "Entry",
    "HandlerStore",
    "Standing",
    "State",
]
__all__ += [
    "StateStats",
    "Store",
    "StoredEvent",
    "choose_store",
    "made_up_key",
    "open_store",
    "shown_key",
]

State: TypeAlias = Literal["open", "handled", "dead"]
_MADE_UP: Final = "\n"  # begins no key of the service: those are printable
_NEEDED: Final = (
    "open",
    "close",
    "put",
    "bury",
    "claim",
    "take",
    "handled",
    "release",
    "prune",
)
COUNTED: Final = 10_000  # events that ``Backlog`` counts
STATES: Final[tuple[State, ...]] = ("open", "handled", "dead")


@attrs.frozen(kw_only=True)
class Delivery:
    """
    What a receiver stores of an event.

    ``key`` is the event's ``dedupe_key``, of a signed event after its family (``sat:evt_…``,
    ``invoice_batch:evt_…``), because each family has ids of its own.  ``body`` is ``None`` if only the claim
    is stored, because the sender will send the event again.  It is for the handler called ``handler``, or for
    all if that is empty.  Those with one ``ordering_key`` are handled one after the other.

    ``subject`` is the type and the object of an event of a type that a list can stand for, or ``""`` if the
    body does not name the object. ``as_of`` is when the service queued the event, or showed the object in a
    list, in epoch ms.
    """

    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    handler: str = ""
    ordering_key: str | None = None
    subject: str | None = None
    as_of: float | None = None


@attrs.frozen(kw_only=True)
class Entry(Delivery):
    """
    A delivery under a lease.

    ``token`` is new for every lease, so that a holder whose lease ran out can no longer change the event.
    ``attempts`` counts the leases, including this one.
    """

    id: int
    token: str
    attempts: int


@attrs.frozen(kw_only=True)
class StoredEvent:
    """
    An event as it is stored; ``received_at`` is in seconds since the epoch.

    ``state`` is ``"open"`` (it waits, or is being handled), ``"handled"`` or ``"dead"`` (it could not be
    handled, and ``reason`` says why).  ``body`` is ``None`` if only its key is remembered.  An event that
    several handlers get is stored once for each; ``handler`` is the name of this one.
    """

    id: int
    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    reason: str
    attempts: int
    received_at: float
    state: State = "dead"
    handler: str = ""


@attrs.frozen
class StateStats:
    """
    How many events are in one state, and when the oldest was received, in seconds since the epoch.

    SQLite and PostgreSQL count up to 100,000.  If there are more, ``has_more`` is true, and ``oldest`` is
    that of the 100,000 that were received or handled first.
    """

    count: int
    oldest: float | None
    has_more: bool = False


@attrs.frozen
class Backlog:
    """
    What waits in a store: ``due`` events that nobody holds, ``late`` seconds at most, and ``dead`` letters.

    ``late`` is the time since the first of them could have been handled.  At most 10,000 of each are counted.
    """

    due: int
    late: float
    dead: int


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

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        """
        Mark it as handled; ``False`` if the lease was lost.

        *body* is kept, so that the event can be handled again; without it, the stored body is deleted.
        """
        ...

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """
        End the lease, so that it is due after *delay*; ``False`` if the lease was lost.

        An entry without a body may be deleted, because its sender still has it.
        """
        ...

    async def events(
        self,
        *,
        state: State | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Sequence[StoredEvent]:
        """Return events in one state, or in any, by ascending id, from beyond the id *after*."""
        ...

    async def revive(self, event: StoredEvent) -> bool:
        """
        Make a dead letter, or a handled event whose body was kept, due again, with new attempts.

        Returns ``False`` if it is neither any longer.
        """
        ...

    async def drop(self, event: StoredEvent) -> bool:
        """
        Delete the body of an event that nobody is to handle any more; it then counts as handled.

        Returns ``False`` if it is gone, is leased, or has no body because its sender will send it again.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the number of deliveries by state, as ``stats`` does: ``open``, ``handled``, ``dead``."""
        return {state: found.count for state, found in (await self.stats()).items()}

    async def stats(self) -> Mapping[State, StateStats]:
        """Return the number and the oldest of the events in each state."""
        ...

    async def backlog(self) -> Backlog:
        """Return what waits now; quick, whatever the size of the store."""
        ...

    async def prune(
        self,
        *,
        older_than: float,
        bodies: float | None = None,
        dead: float | None = None,
    ) -> int:
        """
        Delete what was handled longer ago; return how many.  Such an event would be handled again.

        Abandoned claims without a body are deleted too.  Kept bodies of handled events are deleted with their
        event, or earlier if they are older than *bodies*; dead letters if they are older than *dead*.
        """
        ...


@runtime_checkable
class HandlerStore(Store, Protocol):
    """
    A store that knows handlers.  A receiver with several handlers of an event, or ``key=``, needs it.

    An event that several handlers get is stored once for each, under the same key, so that each copy has its
    own lease, attempts and end.  A claim is for its handler alone, unless the event is stored for no handler
    yet.

    Of all open deliveries with one ``ordering_key``, only one is due or leased, and no other is due before it
    is handled or dead.  The one with the lowest id is next.
    """

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        """
        Store a delivery to be handled; ``False`` if its key is known.

        *further* are the same event for other handlers, stored in the same transaction.
        """
        ...

    async def take(
        self,
        *,
        limit: int,
        lease: float,
        handlers: Collection[str] | None = None,
    ) -> Sequence[Entry]:
        """Lease deliveries that are due and have a body, oldest first: all, or those for *handlers*."""
        ...

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        """
        End the lease and store the event for handlers: the entry becomes the first of *deliveries*.

        All are due with no attempts, in the order of their keys; those that handlers have had are left out.
        Returns ``False`` if the lease was lost.
        """
        ...

    async def give(self, event: StoredEvent, handler: str) -> bool:
        """
        Store a copy of *event* for one more handler.

        Returns ``False`` if that handler has had it, its body is deleted, or it waits and is for no handler
        yet.
        """
        ...


@runtime_checkable
class CatchUpStore(HandlerStore, Protocol):
    """
    A store that knows the subjects of events. ``Receiver.catch_up`` needs it.

    An event that was made from a list, whose key is ``CAUGHT_UP_KEY`` and its subject, stands for each
    delivered one with that subject that was queued at or before its ``as_of``: ``put`` takes those for known.
    """

    async def put_unseen(self, events: Sequence[Sequence[Delivery]]) -> Sequence[bool]:
        """
        Store events of whose subjects none is known; return for each whether it was stored.

        Each is given as its deliveries, one for each handler. Between the look and the storing, nobody else
        stores an event. A claim whose body is not stored is not known: its sender still has the event.
        """
        ...

    async def name_subjects(self, limit: int) -> int:
        """
        Store the subjects of at most *limit* events that an earlier version stored without; return how many.

        An event whose body is deleted gets ``""``.
        """
        ...

    async def knows_from(self) -> float | None:
        """
        Return since when the store knows what it has received, in seconds since the epoch.

        Before that are events that were pruned, or whose subject is not known. ``None`` if it knows none.
        """
        ...


def made_up_key() -> str:
    """Return the key under which a store has an event without one."""
    return _MADE_UP + token_hex(16)


def shown_key(key: str) -> str | None:
    """Return the key of a stored event, or ``None`` if it was made up."""
    if key.startswith(_MADE_UP):
        return None
    return key


class PostgresSettings(TypedDict, total=False):
    """The arguments of ``PostgresStore`` after its address. Each may be left out."""

    table: str
    connections: int
    create: bool


def open_store(address: str, **settings: Unpack[PostgresSettings]) -> HandlerStore:
    """
    Return the store at an address: ``postgresql://…``, or else the path of a SQLite file.

    *settings* are for a store in PostgreSQL; one in a file does not have them.
    """
    if is_postgres(address):
        from invsvc_async.events.stores.postgres import PostgresStore

        return PostgresStore(address, **settings)
    if address in ("", ".", ":memory:"):
        raise ConfigurationError(
            f"store: {address!r} is not a file. Use postgresql://…, the path of a file, or MemoryStore()."
        )
    from invsvc_async.events.stores.sqlite import SqliteStore

    return SqliteStore(address)


def choose_store(
    dedupe: Store | str | Path | None,
    store: Store | str | Path | None,
    mode: str,
) -> Store:
    """Return the store that the arguments of ``Receiver`` mean; raises ``ConfigurationError``."""
    if dedupe is not None and store is not None:
        raise ConfigurationError("store: dedupe means the same. Pass only one of them.")
    chosen = store if store is not None else dedupe
    if isinstance(chosen, (str, os.PathLike)):
        return open_store(os.fspath(chosen))
    if chosen is not None:
        if isinstance(chosen, type) or not all(
            callable(getattr(chosen, name, None)) for name in _NEEDED
        ):
            raise ConfigurationError(
                f"store: {type(chosen).__name__} is not a Store. Pass a Store, a path, or an address as text."
            )
        return chosen
    if mode == "inbox":
        raise ConfigurationError(
            "store: the inbox needs a durable one. Pass store='events.db', for example."
        )
    from invsvc_async.events.stores.memory import MemoryStore

    return MemoryStore()
