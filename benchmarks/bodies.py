"""
Make the bodies that are measured: a webhook, and pages of invoices of 78 leaves each.

A *grown* page has fields that no model knows, as services add them over the years.
"""

# ruff: noqa: E501 - wire forms read best on one line
from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "NONE",
    "USER",
    "all_bad",
    "created",
    "invoice",
    "one_bad",
    "page",
    "webhook",
]

_WEBHOOK = (
    b'{"success":true,"data":{"id":"%b","url":"https://receiver.example/in","events":["invoice.created",'
    b'"invoice.canceled","payment.created"],"status":"active","description":"changed","owner":"usr_1",'
    b'"created_at":1795160000000},"message":"ok","timestamp":%013d}'
)

_CREATED = (
    b'{"success":true,"data":{"id":"wh_%d","url":"%b","events":["invoice.created"],"status":"active",'
    b'"owner":"usr_1","created_at":1780000000000,"secret":"whsec_x"},"message":"stored","timestamp":%d}'
)
USER = b'{"success":true,"data":{"id":"usr_1","email":"ana@me.example"},"message":"found","timestamp":%d}'
NONE = b'{"success":true,"data":[],"timestamp":%d}'


def created(now: int, number: int, url: bytes) -> bytes:
    """Return the answer to the creation of the webhook *number* at *now*, ms since the epoch."""
    return _CREATED % (number, url, now)


def webhook(now: int, webhook_id: bytes) -> bytes:
    """Return a webhook's answer at *now*, ms since the epoch."""
    return _WEBHOOK % (webhook_id, now)


def invoice(at: int) -> dict[str, Any]:
    """Return invoice number *at* in wire form; its amounts do not all have a float."""
    address = {
        "street": "Avenida de los Insurgentes Sur", "exterior": str(100 + at), "neighborhood": "Del Valle",
        "city": "Ciudad de México", "state": "CDMX", "zip": "03100", "country": "MEX",
    }  # fmt: skip
    customer = {
        "id": f"cli_{at:08}", "name": f"Comercializadora {at}", "legal_name": f"COMERCIALIZADORA {at} SA DE CV",
        "email": f"pagos{at}@customer.example", "bcc": ["archivo@customer.example"], "phone": "+525555555555",
        "tax_id": "XAXX010101000", "tax_system": "601", "use": "G03", "address": address, "is_valid": True,
        "efos": {"is_valid": True}, "metadata": {"erp": f"A-{at}", "region": "centro"}, "livemode": True,
        "from": "api", "owner": "usr_1", "team": "team_1", "created_at": 1_780_000_000_000 + at,
    }  # fmt: skip
    items = [
        {
            "id": f"itm_{at}_{line}", "description": f"Servicio de consultoría, partida {line} del contrato {at}",
            "quantity": 2, "unit_price": 1234.567891 + line, "product_key": "80101500", "unit_key": "E48",
        }
        for line in range(3)
    ]  # fmt: skip
    return {
        "uuid": f"6F9619FF-8B86-4011-B42D-{at:012X}", "idempotency_key": f"order-{at}", "client": customer,
        "created_at": 1_780_000_100_000 + at, "date": 1_780_000_000_000 + at, "currency": "MXN",
        "exchange_rate": 1, "total": 8592.591234 + at, "subtotal": 7407.41 + at, "discount": 0,
        "taxes": 1185.185678, "withholding_taxes": 0, "series": "A", "folio_number": at,
        "invoice_type": "E", "use": "G03", "payment_form": "03", "payment_method": "PUE", "livemode": True,
        "owner": "usr_1", "team": "team_1", "from": "api", "status": ("in_review" if at % 10 == 1 else "valid"), "payments": [], "invoices": [],
        "items": items, "metadata": {"order": f"{at}", "channel": "web", "route": "norte", "seller": "v-17", "batch": "2026-05"},
        "emails": [f"pagos{at}@customer.example", "archivo@customer.example"],
        "cancellation": {"status": "pending"} if at % 10 == 0 else None,
        "stamp": {"sello": "Q2VydGlmaWNhZG8" * 40, "stamp_at": 1_780_000_050_000 + at},
        "verification_url": f"https://verificacion.example/default.aspx?id=6F9619FF-{at:012X}&re=XAXX010101000",
        "related_documents": [{"relationship": "01", "documents": [f"7F9619FF-8B86-4011-B42D-{at:012X}"]}],
    }  # fmt: skip


# Unknown fields, each with the field that it follows.  A text between # becomes a number with these digits.
_UNKNOWN: Sequence[tuple[str, str, Any]] = (
    (
        "currency",
        "provider",
        {"name": "pac-1", "attempt": 2, "reference": "#900719925474099312#"},
    ),
    ("uuid", "cfdi_version", "4.0"),
    ("series", "reported_total", "#12345678.9012345678#"),
    ("items", "sequence_number", "#123456789012345678#"),
    ("related_documents", "cost_center", "Dirección de ventas, zona norte"),
)


def _grown(plain: dict[str, Any], at: int, unknown: int) -> dict[str, Any]:
    """Add *unknown* unknown fields to invoice number *at*; a single one is of each of three kinds in turn."""
    chosen = _UNKNOWN[at % 3 : at % 3 + 1] if unknown == 1 else _UNKNOWN[:unknown]
    after = {known: {name: value} for known, name, value in chosen}
    found: dict[str, Any] = {}
    for name, value in plain.items():
        found |= {name: value, **after.get(name, {})}
    return found


def _listed(items: list[dict[str, Any]], following: str | None) -> bytes:
    envelope = {
        "success": True, "message": "ok", "data": items, "next": following, "has_more": following is not None,
        "total_results": 10_000, "timestamp": 1_795_160_000_000,
    }  # fmt: skip
    text = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return re.sub('"#([0-9.]+)#"', r"\1", text).encode()


@cache
def page(*, following: str | None, unknown: int = 0) -> bytes:
    """Return a page of 100 invoices with the cursor *following*, each with *unknown* unknown fields (0 to 5)."""
    return _listed([_grown(invoice(at), at, unknown) for at in range(100)], following)


def one_bad() -> bytes:
    """Return the page with one amount that is not a number."""
    items = [invoice(at) for at in range(100)]
    items[50]["total"] = "n/a"
    return _listed(items, None)


def all_bad() -> bytes:
    """Return the page with such an amount in each invoice."""
    return _listed([{**invoice(at), "total": "n/a"} for at in range(100)], None)
