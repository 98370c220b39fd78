"""
The simulator's ledger, arrivals, scripts and fault plan over HTTP, for tests in another process.

It has no authentication, so it is off by default.  It refuses what a web page in a browser of this machine
could send: requests from another site, and those to a host name that another site could point here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from invsvc_async.simulator import replies
from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.json_records import read_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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

    app.router.add_get("/_simulator/ledger", guarded(ledger))
    app.router.add_get("/_simulator/arrivals", guarded(arrivals))
    app.router.add_get("/_simulator/settled", guarded(settled))
    app.router.add_post("/_simulator/script", guarded(script))
    app.router.add_post("/_simulator/faults", guarded(faults))


def guarded(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return *handler* behind a check that refuses, with a 403, what a page of another site could send."""

    @wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        problem = _refusal(request.host, request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site"))
        return await handler(request) if problem is None else replies.answer(403, {"problem": problem})

    return checked


def _refusal(host: str, origin: str | None, site: str | None) -> str | None:
    """Return why a request may come from another site's page, or None."""
    if not _is_local(host):
        return (
            f"Host: {host!r} may be another site's name. Use localhost, an IP address or a name without dots."
        )
    # A browser always sends Origin with a POST from a page; "null" is that of a page without a site.
    if (origin is not None and origin != f"http://{host}") or site in {"cross-site", "same-site"}:
        return "Origin: the request comes from a web page of another site. Send it from a program."
    return None


def _is_local(host: str) -> bool:
    """Return whether no other site can make the name in a Host header its own."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name != "" and "." not in name
    return True
