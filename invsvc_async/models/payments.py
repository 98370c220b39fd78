"""Payment links and reminder operations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model, wire

__all__ = [
    "Automation",
    "HistoricalReferences",
    "MethodType",
    "PaymentLink",
    "ReminderOperation",
]


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class HistoricalReferences(Model):
    """
    Ids of the invoices and receipts that resulted from a link.  Each must be read separately.

    Spec: Payment link.
    """

    invoices: tuple[str, ...] = ABSENT
    receipts: tuple[str, ...] = ABSENT
    unresolved_count: int = ABSENT
    authorization: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Automation(Model):
    """What a payment through a link triggers.  Spec: Payment link."""

    type: str = ABSENT
    from_: str = ABSENT
    ref: str = ABSENT
    action: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class MethodType(Model):
    """A payment method (``card`` in the specification's example).  Spec: Payment link."""

    id: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class PaymentLink(Model):
    """
    A reusable payment link.  Saving one neither charges nor stamps.

    ``items`` are plain data, because the specification does not list their fields.

    Spec: Payment link.
    """

    id: str = ABSENT
    team_id: str = ABSENT
    livemode: bool = ABSENT
    status: str = ABSENT
    amount: Decimal = ABSENT
    total: Decimal = ABSENT
    url: str = ABSENT
    short_url: str = ABSENT
    owner: str = ABSENT
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    deleted_at: datetime | None = ABSENT
    revision: str = ABSENT
    effect_scope: str = ABSENT
    views: int = ABSENT
    historical_references: HistoricalReferences = ABSENT
    items: tuple[Mapping[str, Any], ...] = ABSENT
    currency: str = ABSENT
    exchange: Decimal = ABSENT
    description: str = ABSENT
    metadata: Mapping[str, Any] = ABSENT
    limit_days_to_pay: int = attrs.field(
        default=ABSENT, metadata=wire("limitDaysToPay")
    )
    automations: tuple[Automation, ...] = ABSENT
    custom_method_types: tuple[MethodType, ...] = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class ReminderOperation(Model):
    """
    A reminder operation as read from the service; the specification does not describe its fields.

    An accepted email is not proof of delivery.

    Spec: Payment reminder operation.
    """

    @property
    def content(self) -> Mapping[str, Any]:
        """All fields by their wire names, with exact numbers."""
        return self.extra
