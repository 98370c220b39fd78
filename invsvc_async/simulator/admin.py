"""
The simulator's ledger, arrivals, scripts and fault plan over HTTP, for tests in another process.

It has no authentication, so it is off by default.  It answers only this machine, and refuses what a web page
in a browser there could send: requests from another site, and those to a name that another site could point
here.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from invsvc_async.simulator import replies
from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.json_records import read_json
from invsvc_async.simulator.loopback_page import local

if TYPE_CHECKING:
    from aiohttp import web

    from invsvc_async.simulator.service import Simulator


def mount(app: web.Application, service: Simulator) -> None:
    """Add ``/_simulator/ledger``, ``/arrivals``, ``/settled`` (GET), ``/script`` and ``/faults`` (POST)."""

    async def ledger(_request: web.Request) -> web.Response:
        return replies.answer(200, [asdict(entry) for entry in service.ledger.entries])

    async def arrivals(request: web.Request) -> web.Response:
        return replies.answer(200, {"arrivals": service.arrivals(request.query.get("operation"))})

    async def settled(_request: web.Request) -> web.Response:
        await service.settled()
        return replies.answer(200, {"settled": True})

    async def script(request: web.Request) -> web.Response:
        try:
            asked = read_json(await request.read())
            service.script(asked["operation"], *asked["steps"])
        except (ValueError, TypeError, KeyError) as error:
            return replies.answer(400, {"problem": str(error)})
        return replies.answer(200, {"scripted": len(asked["steps"])})

    async def faults(request: web.Request) -> web.Response:
        try:
            service.faults = Faults.parse((await request.read()).decode())
        except ValueError as error:
            return replies.answer(400, {"problem": str(error)})
        return replies.answer(200, asdict(service.faults))

    app.router.add_get("/_simulator/ledger", local(ledger))
    app.router.add_get("/_simulator/arrivals", local(arrivals))
    app.router.add_get("/_simulator/settled", local(settled))
    app.router.add_post("/_simulator/script", local(script))
    app.router.add_post("/_simulator/faults", local(faults))
