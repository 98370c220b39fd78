"""
Receive the service's webhooks: parse, verify, de-duplicate, acknowledge; never send anything.

``read``, ``verify`` and ``parse`` are pure.  The ``Receiver`` and the stores are loaded on first use, so that
importing this package loads no web framework and no database.
"""

from __future__ import annotations

from invsvc_async.events.event import Event, InvoiceBatchCompleted, ResourceEvent, SatInvoiceSynced
from invsvc_async.events.parse import parse
from invsvc_async.events.verify import SharedHeader, read, verify

__all__ = [
    "Event",
    "InvoiceBatchCompleted",
    "ResourceEvent",
    "SatInvoiceSynced",
    "SharedHeader",
    "parse",
    "read",
    "verify",
]
