"""Webhooks and the answers about them.  A webhook's repr does not contain its secret."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import attrs

from invsvc_async.models.common import ABSENT, Meta, Model
from invsvc_async.models.page import Items, Page

# EventType is left out: at the top of the package, the name is that of the Literal.
__all__ = ["Deleted", "Health", "Webhook", "WebhookList", "WebhookStatus"]


class WebhookStatus(StrEnum):
    """Whether events are delivered to a webhook."""

    ACTIVE = "active"
    INACTIVE = "inactive"


class EventType(StrEnum):
    """The events that a webhook can subscribe to.  Spec: Subscribable event types."""

    PAYMENT_CREATED = "payment.created"
    PAYMENT_UPDATED = "payment.updated"
    PAYMENT_SUCCEEDED = "payment.succeeded"
    PAYMENT_CANCELED = "payment.canceled"
    PAYMENT_DELETED = "payment.deleted"
    PAYMENT_UPCOMING_DUE_DATE = "payment.upcoming_due_date"
    INVOICE_CREATED = "invoice.created"
    INVOICE_CANCELED = "invoice.canceled"
    INVOICE_FAILED = "invoice.failed"
    INVOICE_BATCH_COMPLETED = "invoice_batch.completed"
    RECEIPT_CREATED = "receipt.created"
    RECEIPT_UPDATED = "receipt.updated"
    RECEIPT_COMPLETED = "receipt.completed"
    RECEIPT_DELETED = "receipt.deleted"
    CUSTOMER_CREATED = "customer.created"
    CUSTOMER_UPDATED = "customer.updated"
    CUSTOMER_DELETED = "customer.deleted"
    SERVICE_CREATED = "service.created"
    SERVICE_UPDATED = "service.updated"
    SERVICE_DELETED = "service.deleted"
    SAT_INVOICE_SYNCED = "sat.invoice.synced"


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Webhook(Model):
    """
    A URL to which events are delivered.  Only the answer to the create has ``secret``; later it is ``None``.

    Spec: Webhook.
    """

    id: str = ABSENT
    url: str = ABSENT
    events: tuple[EventType | str, ...] = ABSENT
    status: WebhookStatus | str = ABSENT
    description: str | None = ABSENT
    owner: str = ABSENT
    created_at: datetime = ABSENT
    secret: str | None = attrs.field(default=ABSENT, repr=False)


@attrs.frozen(kw_only=True)
class WebhookList(Items[Webhook]):
    """
    The webhooks of a team, as listed in one answer.  Its wire form has ``data`` and ``is_full``.

    ``is_full``: there are as many as requested, or the answer says that there are more.  The list has no
    cursor, so more may be missing.

    Spec: Endpoints, Webhooks.
    """

    items: tuple[Webhook, ...] = ()
    is_full: bool = False
    meta: Meta | None = attrs.field(
        default=None,
        eq=False,
        repr=False,
    )

    def _to_plain(self, convert: Callable[[object], Any]) -> dict[str, Any]:
        return {"data": [convert(hook) for hook in self.items], "is_full": self.is_full}

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], _arguments: tuple[Any, ...], /) -> Self:
        page = Page[Webhook].from_dict(plain)
        return cls(items=page.items, is_full=plain.get("is_full") is True)

    @classmethod
    def _wire_types(cls, _arguments: tuple[Any, ...], /) -> dict[str, tuple[Any, bool]]:
        return {"data": (tuple[Webhook, ...], True), "is_full": (bool, False)}


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Deleted(Model):
    """The result of a delete: the deleted ``id`` and the service's message.  Spec: Endpoints, Webhooks."""

    id: str = ABSENT
    message: str | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Health(Model):
    """The answer of the health probe: ``status`` "ok", ``module`` "webhooks".  Spec: Endpoints, Webhooks."""

    status: str = ABSENT
    module: str = ABSENT
