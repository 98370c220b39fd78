"""
One client in an aiohttp application, created and closed by a cleanup context.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… EVENTS_KEY=… python examples/aiohttp_app.py``
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from aiohttp import web

from invsvc_async import Client, ReconcilePolicy, WriteError
from invsvc_async.events import Receiver, ResourceEvent, SharedHeader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLIENT = web.AppKey("client", Client)
RECEIVER = web.AppKey("receiver", Receiver)


async def service(app: web.Application) -> AsyncIterator[None]:
    """Open the client while the application runs; web callers should not wait 90 s for a verdict."""
    async with Client.from_env(reconcile=ReconcilePolicy(deadline=25.0)) as client:
        app[CLIENT] = client
        yield
        for intent in client.unsettled:  # store them for a later settle: they contain no secrets
            logging.getLogger(__name__).warning("open: %s", intent.to_json())


async def events(app: web.Application) -> AsyncIterator[None]:
    """Run the receiver's worker beside the application."""
    async with app[RECEIVER]:
        yield


async def subscribe(request: web.Request) -> web.Response:
    """Create a webhook: `await` returns it, or raises an error with the verdict."""
    url = (await request.json())["url"]
    try:
        hook = await request.app[CLIENT].webhooks.create(url=url, events=["invoice.created"], tag=True)
    except WriteError as error:
        return web.json_response({"verdict": error.outcome.verdict, "why": str(error)}, status=502)
    return web.json_response({"id": hook.id}, status=201)  # store hook.secret: it is returned only once


async def on_invoice(event: ResourceEvent) -> None:
    """Handle an event; the service may send it twice, so this must be idempotent."""
    logging.getLogger(__name__).info("%s %s", event.type, event.dedupe_key)


def create_app() -> web.Application:
    """Create the application."""
    receiver = Receiver(secrets=(), shared_header=SharedHeader("X-Events-Key", os.environ["EVENTS_KEY"]))
    receiver.on("invoice.created", "invoice.canceled")(on_invoice)
    app = web.Application()
    app[RECEIVER] = receiver
    app.cleanup_ctx.extend([service, events])
    app.router.add_post("/webhooks", subscribe)
    app.router.add_post("/events", receiver.aiohttp_handler)
    return app


if __name__ == "__main__":
    web.run_app(create_app())
