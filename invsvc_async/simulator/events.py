"""
The bodies of event deliveries: three families, 21 types, three payload versions.

`deliveries` sends them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from invsvc_async.simulator import samples
from invsvc_async.simulator.json_records import Json, Record, is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.simulator.state import Book, State, Version

SIGNED = frozenset({"sat.invoice.synced", "invoice_batch.completed"})
SIX_HOURS = 6 * 3_600_000  # ms; v1.1 shifts an invoice's date back by six hours


def body_of(
    state: State, event: str, book: Book, *, version: Version, webhook: str,
    resource: Mapping[str, Json] | None = None, test: bool = False, connected_team: str | None = None,
) -> dict[str, Json]:  # fmt: skip
    """Make the body of one delivery about *resource*.  For a signed event, that is fields of ``data``."""
    if event in SIGNED:
        body = _signed(state, event, book, resource or {})
    else:
        shown = resource or made_up(state, event, book)
        if version == "v2":
            body = {
                "id": state.new_id("del_"),
                "type": event,
                "created": state.clock.now_ms(),
                "livemode": book.livemode,
                "data": {"object": shown},
            }
        else:
            body = _v1(state, event, book, shown, webhook, connected_team, version=version, test=test)
    return {**body, "test": True} if test else body


def changed(body: Mapping[str, Json], path: str, value: Json) -> dict[str, Json]:
    """
    Return *body* with another value at *path*, such as ``data.object.total``; objects on the way are added.

    Raises:
        ValueError: The path leads through something other than an object.
    """
    name, dot, rest = path.partition(".")
    if not dot:
        return {**body, name: value}
    inner = body.get(name, {})
    if not name or not is_object(inner):
        raise ValueError(f"{path!r}: there is no object at {name!r}")
    return {**body, name: changed(inner, rest, value)}


def made_up(state: State, event: str, book: Book) -> Record:
    """Make a resource of the event's kind, in the form in which the API returns it."""
    kind = event.partition(".")[0]
    if kind == "invoice":
        status = "canceled" if event == "invoice.canceled" else "valid"
        return samples.new_invoice(state, book, {"status": status, "metadata": {"order_id": 17}})
    if kind == "customer":
        return samples.new_client(state, book)
    return Record({
        "id": state.new_id(f"{kind}_"), "status": event.rpartition(".")[2],
        "currency": "MXN", "total": Decimal("1160.00"), "created_at": state.clock.now_ms(),
        "metadata": {"order_id": 17}, "livemode": book.livemode, "team": book.team,
    })  # fmt: skip


def _v1(
    state: State,
    event: str,
    book: Book,
    resource: Mapping[str, Json],
    webhook: str,
    connected_team: str | None,
    *,
    version: Version,
    test: bool,
) -> dict[str, Json]:
    internal = in_camel_case(resource)
    body: dict[str, Json] = {"event": event}
    if not test:
        body |= {"team": book.team, "webhook": webhook, "livemode": book.livemode}
    if connected_team is not None:
        body["connectedTeam"] = connected_team
        metadata = state.teams.items[connected_team]["metadata"]
        if metadata:
            body["connectedTeamMetadata"] = _as_texts(metadata)
    if version == "v1.1":
        if event == "invoice.created":
            internal |= {"customer": internal.get("client"), "date": internal["date"] - SIX_HOURS}
        return {"payload": {**body, "data": internal}}
    return {**body, "data": internal}


def in_camel_case(resource: Mapping[str, Json]) -> dict[str, Json]:
    """Turn a resource into the internal form of v1: camelCase names, metadata values as strings."""
    return {
        re.sub(r"_([a-z])", lambda found: found[1].upper(), name): _as_texts(value)
        if name == "metadata"
        else _inner(value)
        for name, value in resource.items()
    }


def _inner(value: Json) -> Json:
    if is_object(value):
        return in_camel_case(value)
    return [_inner(item) for item in value] if is_array(value) else value


def _as_texts(metadata: Mapping[str, Json]) -> dict[str, str]:
    return {name: str(value) for name, value in metadata.items()}


def _signed(state: State, event: str, book: Book, fields: Mapping[str, Json]) -> dict[str, Json]:
    inner = _synced(state, book) if event == "sat.invoice.synced" else _batch(state, book)
    return {
        "id": f"evt_{state.random.getrandbits(64):016x}",
        "event": event,
        "created_at": state.clock.now_ms() // 1000,
        "data": inner | dict(fields),
    }


def _synced(state: State, book: Book) -> dict[str, Json]:
    return {
        "uuid": state.new_folio(),
        "direction": "received",
        "resource_status": "ready",
        "issuer": {"rfc": samples.new_tax_id(state), "name": "ACEROS DEL NORTE"},
        "receiver": {"rfc": samples.new_tax_id(state), "name": "EMPRESA DE EJEMPLO"},
        "total": Decimal("1234567890.123456789"),
        "currency": "MXN",
        "issue_date": "2026-05-04T10:20:30",
        "invoice_type": "I",
        "status": "Vigente",
        "team": book.team,
        "credit_charged": True,
    }


def _batch(state: State, book: Book) -> dict[str, Json]:
    return {
        "id": state.new_id("batch_"),
        "livemode": book.livemode,
        "total": 3,
        "accepted": 2,
        "rejected": 1,
        "counts": {"queued": 0, "stamped": 2, "failed": 0, "duplicate": 0, "needs_review": 0},
        "result": "partially_completed",
    }
