"""
A page that shows live what arrives, which fault met it, what it did, and which deliveries went out.

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

from invsvc_async.simulator.faults import KINDS, Faults, digits
from invsvc_async.simulator.json_records import json_text, read_json
from invsvc_async.simulator.loopback_page import answering, local, mount_page
from invsvc_async.simulator.operations import BY_OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from invsvc_async.simulator.deliveries import Delivery
    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.ledger import Entry
    from invsvc_async.simulator.service import Simulator

PATH = "/_inspect/"
SHOWN = 1000  # most recent arrivals that one answer has
DELIVERIES = 100  # most recent deliveries that one answer has
BODY = 2000  # characters of a request's body


def mount(app: web.Application, service: Simulator, *, is_open: Callable[[], bool]) -> None:
    """Add the page and its data below `PATH`; both are a 404 until *is_open* returns true."""
    start = service.ledger.steady()

    async def data(query: Mapping[str, str]) -> Json:
        first = query.get("from", "1")
        if not first.isdecimal():
            raise ValueError("from: must be the number of an arrival")
        return _data(service, int(first), start)

    mount_page(app, PATH, ("invsvc_async.simulator", "inspector.html"), data, is_open=is_open)


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

    for method, acts in (("GET", (ledger, arrivals, settled)), ("POST", (script, faults))):
        for act in acts:
            app.router.add_route(method, f"/_simulator/{act.__name__}", local(answering(act)))


def plan_text(plan: Faults) -> str:
    """Return *plan* in the words of `Faults.parse`."""
    if not (plan.rate or plan.reads or plan.duplicate_deliveries or plan.reorder_deliveries):
        return "none"
    parts: list[str] = []
    for field in fields(plan):
        value = getattr(plan, field.name)
        if value != field.default:
            text = "+".join(value) if isinstance(value, tuple) else digits(value)
            parts.append(f"{field.name}={text}")
    return ",".join(parts)


def _data(service: Simulator, first: int, start: float) -> dict[str, Json]:
    """Return the arrivals from number *first* on, the last deliveries and the settings, as JSON."""
    ledger = service.ledger
    newest = max((each[-1].number for each in (ledger.entries, ledger.reads) if each), default=0)
    first = max(first, newest - SHOWN + 1)
    writes, reads = (
        each[bisect_left(each, first, key=attrgetter("number")) :] for each in (ledger.entries, ledger.reads)
    )
    written = {id(entry) for entry in writes}
    found = merge(writes, reads, key=attrgetter("number"))
    return {
        "admin": "admin_url" in service.pages,
        "base_url": service.base_url,
        "now": _since(start, ledger.steady()),
        "faults": plan_text(service.faults),
        "kinds": list(KINDS),
        "scripts": {name: [step.words for step in steps] for name, steps in service.scripts.items() if steps},
        "operations": [{"name": each.operation, "write": each.write} for each in BY_OPERATION.values()],
        "newest": newest,
        "totals": {
            "writes": len(ledger.entries),
            "reads": len(ledger.reads),
            "effects": sum(entry.applied_at is not None for entry in ledger.entries),
            "deliveries": len(service.deliveries),
        },
        "arrivals": [_arrival(entry, start, write=id(entry) in written) for entry in found],
        "deliveries": [
            _delivery(number, each, start)
            for number, each in enumerate(service.deliveries, 1)
            if number > len(service.deliveries) - DELIVERIES
        ],
    }


def _since(start: float, at: float | None) -> float | None:
    return None if at is None else round(at - start, 4)


def _arrival(entry: Entry, start: float, *, write: bool) -> dict[str, Json]:
    body = json_text(entry.body) if entry.body is not None else ""
    return {
        "number": entry.number,
        "operation": entry.operation,
        "write": _write_of(entry, body) if write else None,
        "thing": entry.target or entry.path_id,
        "team": entry.team,
        "query": "&".join(f"{name}={value}" for name, value in (entry.query or {}).items()),
        "body": body[:BODY] + "…" * (len(body) > BODY),
        "at": _since(start, entry.received_at), "ended": _since(start, entry.ended_at),
        "applied": _since(start, entry.applied_at),
        "late": entry.late, "fault": entry.fault,
        "answered": entry.answered, "refused": entry.refused, "by": entry.by,
    }  # fmt: skip


def _write_of(entry: Entry, body: str) -> str:
    """Return a name that the attempts of one write share: that of its sender, or one of its content."""
    if entry.sender is not None:
        return entry.sender
    content = "\n".join((entry.operation, entry.team or "", entry.path_id or "", body))
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:8]


def _delivery(number: int, delivery: Delivery, start: float) -> dict[str, Json]:
    return {
        "number": number,
        "event": delivery.event,
        "url": delivery.url,
        "copies": delivery.copies,
        "delivered": delivery.delivered,
        "attempts": [
            {"at": _since(start, each.at), "status": each.status, "error": each.error}
            for each in delivery.attempts
        ],
    }
