"""
Receive the service's webhooks: parse, verify, de-duplicate, acknowledge; never send anything.

``read``, ``verify`` and ``parse`` are pure.  The ``Receiver`` and the stores are loaded on first use, so that
importing this package loads no web framework and no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from invsvc_async.events.event import Event, InvoiceBatchCompleted, ResourceEvent, SatInvoiceSynced
from invsvc_async.events.parse import parse
from invsvc_async.events.verify import SharedHeader, read, verify

if TYPE_CHECKING:
    from invsvc_async.events.payloads import BatchCounts, BatchResult, InvoiceBatch, Party, SyncedInvoice
    from invsvc_async.events.receiving.receipt import Receipt
    from invsvc_async.events.receiving.receiver import Receiver
    from invsvc_async.events.receiving.worker import InboxPolicy
    from invsvc_async.events.stores import DeadLetter, Delivery, Entry, Standing, Store
    from invsvc_async.events.stores.memory import MemoryStore
    from invsvc_async.events.stores.postgres import PostgresStore
    from invsvc_async.events.stores.sqlite import SqliteStore

__all__ = [
    "BatchCounts", "BatchResult", "DeadLetter", "Delivery", "Entry", "Event", "InboxPolicy", "InvoiceBatch",
    "InvoiceBatchCompleted", "MemoryStore", "Party", "PostgresStore", "Receipt", "Receiver", "ResourceEvent",
    "SatInvoiceSynced", "SharedHeader", "SqliteStore", "Standing", "Store", "SyncedInvoice", "parse", "read",
    "verify",
]  # fmt: skip

_ROOMS: Final = {
    "receiving.receipt": ("Receipt",),
    "receiving.receiver": ("Receiver",),
    "payloads": ("BatchCounts", "BatchResult", "InvoiceBatch", "Party", "SyncedInvoice"),
    "stores": ("DeadLetter", "Delivery", "Entry", "Standing", "Store"),
    "stores.memory": ("MemoryStore",),
    "stores.postgres": ("PostgresStore",),
    "stores.sqlite": ("SqliteStore",),
    "receiving.worker": ("InboxPolicy",),
}
_ROOM_OF: Final = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value
