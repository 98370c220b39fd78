"""Make the bodies that are measured: a webhook, and pages of invoices of 78 leaves each."""

# ruff: noqa: E501 - wire forms read best on one line
from __future__ import annotations

import json
from functools import cache
from typing import Any

__all__ = ["all_bad", "invoice", "one_bad", "page", "webhook"]

_WEBHOOK = (
    b'{"success":true,"data":{"id":"%b","url":"https://receiver.example/in","events":["invoice.created",'
    b'"invoice.canceled","payment.created"],"status":"active","description":"changed","owner":"usr_1",'
    b'"created_at":1795160000000},"message":"ok","timestamp":%013d}'
)


def webhook(now: int, webhook_id: bytes = b"wh_1") -> bytes:
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
        "owner": "usr_1", "team": "team_1", "from": "api", "status": "valid", "payments": [], "invoices": [],
        "items": items, "metadata": {"order": f"{at}", "channel": "web", "route": "norte", "seller": "v-17", "batch": "2026-05"},
        "emails": [f"pagos{at}@customer.example", "archivo@customer.example"], "cancellation": None,
        "stamp": {"sello": "Q2VydGlmaWNhZG8" * 40, "stamp_at": 1_780_000_050_000 + at},
        "verification_url": f"https://verificacion.example/default.aspx?id=6F9619FF-{at:012X}&re=XAXX010101000",
        "related_documents": [{"relationship": "01", "documents": [f"7F9619FF-8B86-4011-B42D-{at:012X}"]}],
    }  # fmt: skip


def _listed(items: list[dict[str, Any]], following: str | None) -> bytes:
    envelope = {
        "success": True, "message": "ok", "data": items, "next": following, "has_more": following is not None,
        "total_results": 10_000, "timestamp": 1_795_160_000_000,
    }  # fmt: skip
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def page(*, following: str | None) -> bytes:
    """Return a page of 100 invoices with the cursor *following*."""
    return _listed([invoice(at) for at in range(100)], following)


def one_bad() -> bytes:
    """Return the page with one amount that is not a number."""
    items = [invoice(at) for at in range(100)]
    items[50]["total"] = "n/a"
    return _listed(items, None)


def all_bad() -> bytes:
    """Return the page with such an amount in each invoice."""
    return _listed([{**invoice(at), "total": "n/a"} for at in range(100)], None)
