"""
A page that shows live each request, with its fault and effect, and the deliveries sent.

The page only reads; scripts and fault plans go through the admin API, if that is enabled, as do tests in
another process.  Only this machine may use them, and pages of other sites may not.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import asdict, fields
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING

from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.json_records import Json, json_text, read_json
from invsvc_async.simulator.loopback_page import answering, local, mount_page
from invsvc_async.simulator.operations import BY_OPERATION, UNKNOWN
from invsvc_async.simulator.plan_checks import digits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from invsvc_async.simulator.deliveries import EventDelivery
    from invsvc_async.simulator.ledger import Entry, Ledger
    from invsvc_async.simulator.service import Simulator

PATH = "/_inspect/"
SHOWN = 1000  # most recent arrivals that one answer has
DELIVERIES = 100  # most recent deliveries that one answer has
BODY = 2000  # characters of a request's body
SHOWN_OF_ENTRY = (
    "number",
    "operation",
    "team",
    "late",
    "fault",
    "answered",
    "refused",
    "by",
)


def mount(
    app: web.Application,
    service: Simulator,
    *,
    is_open: Callable[[], bool],
) -> None:
    """Add the page and its data below `PATH`; both are a 404 until *is_open* returns true."""
    start = service.ledger.steady()

    async def data(query: Mapping[str, str]) -> Json:
        first = query.get("from", "1")
        if not first.isdecimal():
            raise ValueError("from: must be the number of an arrival")
        return {
            "arrivals": _arrivals(service.ledger, int(first), start),
            **_summary(service, start),
        }

    mount_page(
        app, PATH, ("invsvc_async.simulator", "inspector.html"), data, is_open=is_open
    )


def mount_admin(app: web.Application, service: Simulator) -> None:
    """
    Add ``/_simulator/ledger``, ``/arrivals``, ``/settled`` (GET), ``/script`` and ``/faults`` (POST).

    They have no authentication, and answer only this machine.
    """

    async def ledger(_: web.Request) -> Json:
        return [asdict(entry) for entry in service.ledger.entries]

    async def arrivals(request: web.Request) -> Json:
        return {"arrivals": service.arrivals(request.query.get("operation"))}

    async def settled(_: web.Request) -> Json:
        await service.settled()
        return {"settled": True}

    async def script(request: web.Request) -> Json:
        asked = read_json(await request.read())
        service.script(asked["operation"], *asked["steps"])
        return {"scripted": len(asked["steps"])}

    async def faults(request: web.Request) -> Json:
        service.faults = Faults.parse((await request.read()).decode())
        return asdict(service.faults)

    for method, acts in (
        ("GET", (ledger, arrivals, settled)),
        ("POST", (script, faults)),
    ):
        for act in acts:
            app.router.add_route(
                method, f"/_simulator/{act.__name__}", local(answering(act))
            )


def plan_text(plan: Faults) -> str:
    """Return *plan* in the words of `Faults.parse`."""
    rates = (
        plan.rate,
        plan.reads,
        plan.duplicate_deliveries,
        plan.reorder_deliveries,
    )
    if not any(rates):
        return "none"
    parts: list[str] = []
    for field in fields(plan):
        value = getattr(plan, field.name)
        if value != field.default:
            text = "+".join(value) if isinstance(value, tuple) else digits(value)
            parts.append(f"{field.name}={text}")
    return ",".join(parts)


def _summary(service: Simulator, start: float) -> dict[str, Json]:
    """Return the last deliveries, the totals and the settings, as JSON."""
    ledger = service.ledger
    sent = len(service.deliveries)
    last = service.deliveries[-DELIVERIES:]
    first = max(sent - DELIVERIES, 0) + 1
    return {
        "admin": "admin_url" in service.pages,
        "base_url": service.base_url,
        "now": _since(start, ledger.steady()),
        "faults": plan_text(service.faults),
        "scripts": {
            name: [step.words for step in steps]
            for name, steps in service.scripts.items()
            if steps
        },
        "operations": [
            {"name": each.operation, "write": each.write}
            for each in BY_OPERATION.values()
        ],
        "newest": ledger.newest,
        "totals": {
            "writes": len(ledger.entries),
            "reads": len(ledger.reads),
            "effects": len(ledger.effects()),
            "deliveries": sent,
        },
        "deliveries": [
            _delivery(number, each, start) for number, each in enumerate(last, first)
        ],
    }


def _delivery(
    number: int,
    delivery: EventDelivery,
    start: float,
) -> dict[str, Json]:
    """Return a delivery as JSON."""
    return {
        "number": number,
        "event": delivery.event,
        "url": delivery.url,
        "delivered": delivery.delivered,
        "attempts": [
            {**asdict(one), "at": _since(start, one.at)} for one in delivery.attempts
        ],
    }


def _since(start: float, at: float | None) -> float | None:
    if at is None:
        return None
    return round(at - start, 4)


def _arrivals(
    ledger: Ledger,
    first: int,
    start: float,
) -> list[Json]:
    """
    Return the arrivals from number *first* on, as JSON.

    The attempts of one write share a name in ``write``: that of their sender, or one of their content.
    """
    by_number = attrgetter("number")
    first = max(first, ledger.newest - SHOWN + 1)
    parts = [
        each[bisect_left(each, first, key=by_number) :]
        for each in (ledger.entries, ledger.reads)
    ]
    return [_arrival(entry, start) for entry in merge(*parts, key=by_number)]


def _arrival(entry: Entry, start: float) -> dict[str, Json]:
    """Return an arrival as JSON."""
    body = ""
    if entry.body is not None:
        body = json_text(entry.body)
    write = None
    if BY_OPERATION.get(entry.operation, UNKNOWN).write:
        write = _name_of(entry, body)
    if len(body) > BODY:
        body = f"{body[:BODY]}…"
    query = entry.query or {}
    shown = {name: getattr(entry, name) for name in SHOWN_OF_ENTRY}
    about = {
        "write": write,
        "thing": entry.target or entry.path_id,
        "query": "&".join(f"{name}={value}" for name, value in query.items()),
        "body": body,
    }
    times = {
        "at": _since(start, entry.received_at),
        "ended": _since(start, entry.ended_at),
        "applied": _since(start, entry.applied_at),
    }
    return shown | about | times


def _name_of(entry: Entry, body: str) -> str:
    """Return a name for the write: that of its sender, or a digest of the request."""
    if entry.sender:
        return entry.sender
    content = "\n".join((entry.operation, entry.team or "", entry.path_id or "", body))
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:8]
