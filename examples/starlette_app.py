"""
One client in a Starlette application, which answers with the digits of the wire.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… EVENTS_KEY=… uvicorn --factory examples.starlette_app:create_app``
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from invsvc_async import Client, ReconcilePolicy, Verdict
from invsvc_async.events import Receiver, ResourceEvent, SharedHeader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

STATUS = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}


async def invoices(request: Request) -> Response:
    """Read one page, and pass it on as it is on the wire."""
    client: Client = request.app.state.client
    page = await client.invoices.egress(limit=10)
    return Response(page.to_json(), media_type="application/json")


async def rename(request: Request) -> Response:
    """Write, and answer the outcome; 202 means that it is not known yet."""
    client: Client = request.app.state.client
    name = (await request.json())["name"]
    outcome = await client.journeys.update(request.path_params["journey"], name=name).outcome()
    status = STATUS.get(outcome.verdict, 409)
    return Response(outcome.to_json(), media_type="application/json", status_code=status)


def create_app() -> Starlette:
    """Create the application; client and receiver are open while it runs."""
    receiver = Receiver(secrets=(), shared_header=SharedHeader("X-Events-Key", os.environ["EVENTS_KEY"]))
    seen: list[str] = []

    @receiver.on("invoice.created")
    async def on_invoice(event: ResourceEvent) -> None:
        seen.append(event.dedupe_key or "")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with Client.from_env(reconcile=ReconcilePolicy(deadline=25.0)) as client, receiver:
            app.state.client, app.state.seen = client, seen
            yield

    routes = [
        Route("/invoices", invoices),
        Route("/journeys/{journey}", rename, methods=["PUT"]),
        Route("/events", receiver.asgi_app, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
