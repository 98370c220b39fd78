"""Invoices, their customers, and downloads from the tax authority."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model
from invsvc_async.models.teams import Address

__all__ = [
    "Customer",
    "DownloadPackage",
    "DownloadRequest",
    "Efos",
    "Invoice",
    "InvoiceItem",
    "InvoiceStamp",
]
__all__ += ["InvoiceStatus", "RelatedDocuments"]


class InvoiceStatus(StrEnum):
    """The states of an invoice.  ``cancelled`` is an alias that only the filter accepts."""

    VALID = "valid"
    CANCELED = "canceled"


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Efos(Model):
    """
    The check against the tax authority's list of issuers of simulated operations.

    ``is_valid`` is true if the customer is not on it.

    Spec: Client.
    """

    is_valid: bool = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Customer(Model):
    """The recipient of an invoice: the *Client* resource of the specification.  Spec: Client."""

    id: str = ABSENT
    name: str = ABSENT
    legal_name: str = ABSENT
    email: str = ABSENT
    bcc: tuple[str, ...] = ABSENT
    phone: str = ABSENT
    tax_id: str = ABSENT
    tax_system: str = ABSENT
    use: str = ABSENT
    address: Address = ABSENT
    is_valid: bool = ABSENT
    efos: Efos = ABSENT
    metadata: Mapping[str, Any] = ABSENT
    livemode: bool = ABSENT
    from_: str = ABSENT
    owner: str = ABSENT
    team: str = ABSENT
    created_at: datetime = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class InvoiceItem(Model):
    """One line of an invoice; ``unit_price`` is in the invoice's currency.  Spec: Invoice."""

    id: str = ABSENT
    description: str = ABSENT
    quantity: Decimal = ABSENT
    unit_price: Decimal = ABSENT
    product_key: str = ABSENT
    unit_key: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class InvoiceStamp(Model):
    """The fiscal stamp of an invoice: its seal and its time.  Spec: Invoice."""

    sello: str = ABSENT
    stamp_at: datetime = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class RelatedDocuments(Model):
    """
    The fiscal folios (``documents``) to which an invoice has a ``relationship`` (a code).

    Spec: Invoice.
    """

    relationship: str = ABSENT
    documents: tuple[str, ...] = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Invoice(Model):
    """
    A fiscal invoice; ``uuid`` is its folio, amounts are exact and in ``currency``.

    A payment complement (``invoice_type`` "P") has zero totals.  The specification does not describe
    ``payments``, ``invoices`` and ``cancellation``, so they are plain data.

    Spec: Invoice.
    """

    uuid: str = ABSENT
    idempotency_key: str | None = ABSENT
    client: Customer = ABSENT
    created_at: datetime = ABSENT
    date: datetime = ABSENT
    currency: str = ABSENT
    exchange_rate: Decimal = ABSENT
    total: Decimal = ABSENT
    subtotal: Decimal = ABSENT
    discount: Decimal = ABSENT
    taxes: Decimal = ABSENT
    withholding_taxes: Decimal = ABSENT
    series: str = ABSENT
    folio_number: int = ABSENT
    invoice_type: str = ABSENT
    use: str = ABSENT
    payment_form: str | None = ABSENT
    payment_method: str | None = ABSENT
    livemode: bool = ABSENT
    owner: str = ABSENT
    team: str = ABSENT
    from_: str = ABSENT
    status: InvoiceStatus | str = ABSENT
    payments: tuple[Any, ...] = ABSENT
    invoices: tuple[Any, ...] = ABSENT
    items: tuple[InvoiceItem, ...] = ABSENT
    metadata: Mapping[str, Any] = ABSENT
    emails: tuple[str, ...] = ABSENT
    cancellation: Mapping[str, Any] | None = ABSENT
    stamp: InvoiceStamp = ABSENT
    verification_url: str = ABSENT
    related_documents: tuple[RelatedDocuments, ...] = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class DownloadPackage(Model):
    """
    A package of downloaded invoices.  ``client.download`` streams it by its id.

    Spec: Tax-authority download request status.
    """

    id: str = ABSENT
    index: int = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class DownloadRequest(Model):
    """
    The progress of a download from the tax authority.

    Once ``status`` is "completed", ``packages`` can be downloaded.

    Spec: Tax-authority download request status.
    """

    id: str = ABSENT
    request_id: str = ABSENT
    status: str = ABSENT
    status_code: str = ABSENT
    invoice_count: int = ABSENT
    invoices_saved: int = ABSENT
    invoices: tuple[Any, ...] = ABSENT
    packages: tuple[DownloadPackage, ...] = ABSENT
    message: str | None = ABSENT
