"""
Receiving the service's webhooks: verify, parse, de-duplicate, acknowledge.

``read``, ``verify`` and ``parse`` are pure functions.  The ``Receiver`` and the stores are imported on first
use, so that importing this package imports no web framework and no database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from invsvc_async.events.event import (
    CustomerEvent,
    Event,
    InvoiceBatchCompleted,
    InvoiceEvent,
    OtherEvent,
    ResourceEvent,
    SatInvoiceSynced,
    parse,
)
from invsvc_async.events.verify import Secret, SharedHeader, read, verify

if TYPE_CHECKING:
    from invsvc_async.events.payloads import (
        BatchCounts,
        BatchResult,
        InvoiceBatch,
        Party,
        SyncedInvoice,
    )
    from invsvc_async.events.receiving.admission import Receipt
    from invsvc_async.events.receiving.catching_up import CatchUpSummary
    from invsvc_async.events.receiving.current import Gone
    from invsvc_async.events.receiving.handlers import Handling, InboxPolicy
    from invsvc_async.events.receiving.receiver import Receiver
    from invsvc_async.events.receiving.stats import (
        CredentialStats,
        Health,
        ReceiverStats,
    )
    from invsvc_async.events.receiving.web import SyncReceiver
    from invsvc_async.events.stores import (
        Backlog,
        CatchUpStore,
        Delivery,
        Entry,
        HandlerStore,
        Standing,
        StateStats,
        Store,
        StoredEvent,
    )
    from invsvc_async.events.stores.memory import MemoryStore
    from invsvc_async.events.stores.postgres import PostgresStore
    from invsvc_async.events.stores.sqlite import SqliteStore

__all__ = [
    "Backlog",
    "BatchCounts",
    "BatchResult",
    "CatchUpStore",
    "CatchUpSummary",
    "CredentialStats",
    "CustomerEvent",
]
__all__ += [
    "Delivery",
    "Entry",
    "Event",
    "Gone",
    "HandlerStore",
    "Handling",
    "Health",
    "InboxPolicy",
    "InvoiceBatch",
    "InvoiceBatchCompleted",
    "InvoiceEvent",
]
__all__ += [
    "MemoryStore",
    "OtherEvent",
    "Party",
    "PostgresStore",
    "Receipt",
    "Receiver",
    "ReceiverStats",
    "ResourceEvent",
]
__all__ += [
    "SatInvoiceSynced",
    "Secret",
    "SharedHeader",
    "SqliteStore",
    "Standing",
    "StateStats",
    "Store",
]
__all__ += ["StoredEvent", "SyncReceiver", "SyncedInvoice", "parse", "read", "verify"]

_MODULES: Final = {
    "payloads": "BatchCounts BatchResult InvoiceBatch Party SyncedInvoice",
    "receiving.admission": "Receipt",
    "receiving.catching_up": "CatchUpSummary",
    "receiving.current": "Gone",
    "receiving.handlers": "Handling InboxPolicy",
    "receiving.receiver": "Receiver",
    "receiving.stats": "CredentialStats Health ReceiverStats",
    "receiving.web": "SyncReceiver",
    "stores": "Backlog CatchUpStore Delivery Entry HandlerStore Standing StateStats Store StoredEvent",
    "stores.memory": "MemoryStore",
    "stores.postgres": "PostgresStore",
    "stores.sqlite": "SqliteStore",
}
_MODULE_OF: Final = {
    name: module for module, names in _MODULES.items() for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
