"""
Make deliveries as the specification describes them, by hand and not by the package, so that both can disagree.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.events import Delivery, SharedHeader

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from invsvc_async.events import SqliteStore
    from invsvc_async.events.receiving.body_room import BodyRoom

T = TypeVar("T")

SECRET = "whsec_of_the_test"
SHARED = ("X-Shared", "agreed-in-the-dashboard")
HEADER = SharedHeader(*SHARED)

RESOURCE_TYPES = (
    "payment.created", "payment.updated", "payment.succeeded", "payment.canceled", "payment.deleted",
    "payment.upcoming_due_date", "invoice.created", "invoice.canceled", "invoice.failed", "receipt.created",
    "receipt.updated", "receipt.completed", "receipt.deleted", "customer.created", "customer.updated",
    "customer.deleted", "service.created", "service.updated", "service.deleted",
)  # fmt: skip
MADE_AT = 4_000_000_000  # in 2096: a receiver refuses old signed events
SIGNED_TYPES = ("sat.invoice.synced", "invoice_batch.completed")

SAT_DATA = {
    "uuid": "6F9619FF-8B86-4011-B42D-00CF4FC964FF",
    "direction": "received",
    "resource_status": "ready",
    "issuer": {"rfc": "AAA010101AAA", "name": "Emisora SA de CV"},
    "receiver": {"rfc": "BBB010101BBB", "name": "Receptora SA de CV"},
    "total": 11600.57,
    "currency": "MXN",
    "issue_date": "2026-05-01T12:33:12",
    "invoice_type": "I",
    "status": "vigente",
    "team": "team_1",
    "credit_charged": True,
}
BATCH_DATA = {
    "id": "batch_1",
    "livemode": True,
    "total": 5,
    "accepted": 4,
    "rejected": 1,
    "counts": {
        "queued": 0,
        "stamped": 2,
        "failed": 1,
        "duplicate": 1,
        "needs_review": 0,
    },
    "result": "partially_completed",
}


def v1(name: str, **more: Any) -> dict[str, Any]:
    """Return a v1 body; an argument of ``...`` leaves that field out."""
    body = {
        "event": name,
        "team": "team_1",
        "webhook": "wh_1",
        "livemode": False,
        "data": {"id": "x_1", "totalAmount": 1.5},
    }
    return _without(body | more)


def v11(name: str, **more: Any) -> dict[str, Any]:
    """Return a v1.1 body: v1 in a wrapper."""
    return {"payload": v1(name, **more)}


def v2(name: str, *, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a v2 body."""
    resource = (
        {"uuid": f"U-{number}", "total": 10.5}
        if name.startswith("invoice.")
        else {"id": f"x_{number}"}
    )
    body = {
        "id": f"dlv_{number}",
        "type": name,
        "created": 1_780_000_000_123,
        "livemode": False,
        "data": {"object": resource},
    }
    return _without(body | more)


VERSIONS = {"v1": v1, "v1.1": v11, "v2": v2}


def signed_body(name: str, *, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a body of one of the signed families."""
    details = SAT_DATA if name == "sat.invoice.synced" else BATCH_DATA
    body = {
        "id": f"evt_{number:016x}",
        "event": name,
        "created_at": MADE_AT,
        "data": details,
    }
    return _without(body | more)


def delivery(
    key: str | None = "d_1", *, body: bytes | None = b"{}", handler: str = ""
) -> Delivery:
    """Return what a receiver stores of an event."""
    return Delivery(key=key, type="invoice.created", body=body, handler=handler)


def encoded(body: Any) -> bytes:
    """Encode as JSON."""
    return json.dumps(body).encode()


def signature(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """Sign as the service does."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Service-Signature": f"sha256={digest}"}


def headers_of(
    body: bytes, *, signed: bool = False, shared: bool = False, test: bool = False
) -> dict[str, str]:
    """Return the headers of a delivery."""
    headers = {
        "Host": "me.example",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    if signed:
        headers |= signature(body)
    if shared:
        headers |= dict([SHARED])
    if test:
        headers["X-Service-Test"] = "true"
    return headers


def _without(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not ...}


async def on_thread(store: SqliteStore, act: Callable[[sqlite3.Connection], T]) -> T:
    """Run *act* on the thread that writes to the file of *store*."""
    return await (await store._database.opened()).writer.act(act)


@contextmanager
def filled(room: BodyRoom, *, but_for: int = 0) -> Iterator[None]:
    """Fill *room* with whole bodies, but for so many bytes of the large ones, until the block ends."""
    largest = room.size // 64
    with ExitStack() as held:
        of_small, of_large = room.size // 4, room.size - room.size // 4 - but_for
        for size, part in ((largest // 16, of_small), (largest, of_large)):
            for start in range(0, part, size):
                body = held.enter_context(room.body(size))
                assert body.add(b"x" * min(size, part - start))
                assert body.whole() is not None
        yield
