"""The names of events, as a type and as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from invsvc_async import models


# Spec: Subscribable event types.
EventType: TypeAlias = Literal[
    "payment.created", "payment.updated", "payment.succeeded", "payment.canceled", "payment.deleted",
    "payment.upcoming_due_date",
    "invoice.created", "invoice.canceled", "invoice.failed", "invoice_batch.completed",
    "receipt.created", "receipt.updated", "receipt.completed", "receipt.deleted",
    "customer.created", "customer.updated", "customer.deleted",
    "service.created", "service.updated", "service.deleted", "sat.invoice.synced",
]  # fmt: skip

# what arguments accept: the enumeration, too
EventName: TypeAlias = "EventType | models.EventType"

EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
