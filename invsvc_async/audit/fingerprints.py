"""
What is compared of an invoice: digests of a fixed size, and a few facts that are shown.

Two invoices are alike if they have the same client, currency, total and items, whatever the order and the ids
of the items.  Payment complements have zero totals, so their payments must be equal, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from invsvc_async.codec import envelope
from invsvc_async.codec.exact_json import EPOCH
from invsvc_async.errors import FieldError, InvalidRequestError
from invsvc_async.models import InvoiceStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire, WireObject
    from invsvc_async.models import Invoice, InvoiceItem
    from invsvc_async.models.common import Model

_DIGEST: Final = 16  # bytes
_LONGEST: Final = 200  # characters of a text that is shown
_MS: Final = timedelta(milliseconds=1)
_OF_ITEM: Final = ("description", "quantity", "unit_price", "product_key", "unit_key")
_SHOWN: Final = (
    "uuid",
    "created_at",
    "status",
    "series",
    "folio_number",
    "total",
    "currency",
    "idempotency_key",
)
_OF_PAYMENT: Final = ("payments", "invoices")  # fields of payment complements
_UNREADABLE: Final = (FieldError, InvalidRequestError)


class Fingerprint(NamedTuple):
    """
    What is stored of an invoice.

    ``uuid`` is empty if it cannot be read, and ``created`` is in ms. ``key``, ``content`` and ``related`` are
    digests of its idempotency key, of what makes it like another one, and of the documents that it relates
    to; ``None`` if there is none, or it cannot be read.
    """

    uuid: str
    created: int | None
    in_effect: bool
    key: bytes | None
    content: bytes | None
    related: bytes | None
    facts: bytes


def fingerprint_of(invoice: Invoice, *, has_payments: bool) -> tuple[Fingerprint, bool]:
    """
    Return what is stored of *invoice*, and whether all that is compared could be read.

    *has_payments* is whether it is of a list of payment complements.
    """
    unreadable: list[str] = []

    def read(name: str, make: Callable[[], Any]) -> Any:  # Any: what *make* returns
        try:
            return make()
        except _UNREADABLE:
            unreadable.append(name)
            return None

    uuid = read("uuid", lambda: invoice.uuid)
    if not uuid:
        unreadable.append("uuid")
    created = read("created_at", lambda: (invoice.created_at - EPOCH) // _MS)
    key = read("idempotency_key", lambda: _digest(invoice.idempotency_key or None))
    content = read("content", lambda: _content_of(invoice, has_payments=has_payments))
    related = read("related", lambda: _related_of(invoice))
    found = Fingerprint(
        uuid=(uuid or "").upper(),  # the form in the specification
        created=created,
        in_effect=_optional(invoice, "status") != InvoiceStatus.CANCELED,
        key=key,
        content=None if created is None else content,
        related=related,
        facts=envelope.dumps(_facts_of(invoice)),
    )
    return found, not unreadable


def _content_of(invoice: Invoice, *, has_payments: bool) -> bytes | None:
    """Return the digest of what two invoices that are alike have in common."""
    items = sorted(envelope.dumps(_item(each)) for each in invoice.items)
    parts: list[Wire] = [
        invoice.client.id,
        _strict(invoice, "currency"),
        _plain(invoice.total),
        [each.decode() for each in items],
    ]
    if has_payments:
        parts += [_plain(_strict(invoice, name)) for name in _OF_PAYMENT]
    return _digest(parts)


def _item(item: InvoiceItem) -> Wire:
    return [_plain(_strict(item, name)) for name in _OF_ITEM]


def _related_of(invoice: Invoice) -> bytes | None:
    relations = _strict(invoice, "related_documents") or ()
    if not relations:
        return None
    return _digest(
        [
            [_strict(each, "relationship"), _plain(_strict(each, "documents"))]
            for each in relations
        ]
    )


def _strict(item: Model, name: str) -> Any:  # Any: a field's value
    """
    Return a field, ``None`` if it is absent.

    Raises:
        FieldError: Its value does not fit its type.
    """
    try:
        return getattr(item, name)
    except FieldError as error:
        if error.why == "absent":
            return None
        raise


def _optional(item: Model, name: str) -> Any:  # Any: a field's value
    """Return a field, ``None`` if it is absent or does not fit."""
    try:
        return getattr(item, name)
    except FieldError:
        return None


def _plain(value: Wire) -> Wire:
    """Return *value* in a form that is the same for equal values: numbers by value, members in order."""
    if isinstance(value, Mapping):
        return [[name, _plain(value[name])] for name in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return _number(Decimal(value))
    return value


def _number(number: Decimal) -> list[int]:
    """Return the sign, the exponent and the digits of *number* without zeros at the end."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    if not kept:
        return [0]
    return [sign, int(exponent) + len(text) - len(kept), *map(int, kept)]


def _digest(value: Wire) -> bytes | None:
    """Return the digest of *value*; ``None`` if there is none."""
    if value is None:
        return None
    return blake2b(envelope.dumps(value), digest_size=_DIGEST).digest()


def _facts_of(invoice: Invoice) -> WireObject:
    """Return the fields that are shown, in the service's own form."""
    facts: WireObject = {}
    for name in _SHOWN:
        value = _optional(invoice, name)
        if value is not None:
            facts[name] = _shown(value)
    client = _optional(invoice, "client")
    known_as = None if client is None else _optional(client, "id")
    if known_as is None:
        return facts
    return facts | {"client": _shown(known_as)}


def _shown(value: Any) -> Wire:  # Any: a field's value
    if isinstance(value, str):
        return str(value)[:_LONGEST]
    if isinstance(value, (int, Decimal)):
        return value
    return (value - EPOCH) // _MS
