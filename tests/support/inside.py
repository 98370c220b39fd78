"""
What tests of stores need of a client or an outbox, and users do not: the journal and the store beneath.

The one place that names these attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.outbox import Outbox

if TYPE_CHECKING:
    from invsvc_async import Client
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.outbox.entries import OutboxEntries

__all__ = ["journal_of", "outbox_entries", "store_beneath"]


def journal_of(client: Client) -> ClientJournal:
    """Return the journal of *client*."""
    journal: Any = options_of(client).core.writes.journal
    assert isinstance(journal, ClientJournal)
    return journal


def outbox_entries(outbox: Outbox) -> OutboxEntries:
    """Return what *outbox* reads and changes its entries with."""
    return outbox._store  # reaches: here for all tests


def store_beneath(owner: Client | ClientJournal | Outbox) -> Store:
    """Return the store of writes beneath *owner*."""
    match owner:
        case Outbox():
            return outbox_entries(owner).store
        case ClientJournal():
            return owner._store  # reaches: here for all tests
        case _:
            return store_beneath(journal_of(owner))
