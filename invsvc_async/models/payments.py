"""Hold payment links and reminder operations; never say that money moved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model, wire

__all__ = ["Automation", "HistoricalReferences", "MethodType", "PaymentLink", "ReminderOperation"]


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class HistoricalReferences(Model):
    """
    Ids of invoices and receipts that a link led to; each must be asked for on its own.

    Spec: Payment link.
    """

    invoices: tuple[str, ...] = ABSENT
    receipts: tuple[str, ...] = ABSENT
    unresolved_count: int = ABSENT
    authorization: str = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Automation(Model):
    """
    What a payment through a link sets off.

    Spec: Payment link.
    """

    type: str = ABSENT
    from_: str = ABSENT
    ref: str = ABSENT
    action: str = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class MethodType(Model):
    """
    A way to pay (observed: ``card``).

    Spec: Payment link.
    """

    id: str = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class PaymentLink(Model):
    """
    A reusable link; saving one neither charges nor stamps.  ``items`` are plain, their fields not specified.

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
    limit_days_to_pay: int = attrs.field(default=ABSENT, metadata=wire("limitDaysToPay"))
    automations: tuple[Automation, ...] = ABSENT
    custom_method_types: tuple[MethodType, ...] = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class ReminderOperation(Model):
    """
    The answer to a reading of a reminder operation; its shape is not specified.

    Email that was accepted is no proof of delivery.

    Spec: Payment reminder operation.
    """

    @property
    def content(self) -> Mapping[str, Any]:
        """All that came, by its wire names, with exact numbers."""
        return self.extra
