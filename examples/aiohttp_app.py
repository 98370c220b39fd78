"""
Use one client in an aiohttp application: it is made and closed by a cleanup context.

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
    """Hold the client for as long as the application runs; a web caller does not wait 90 s for a verdict."""
    async with Client.from_env(reconcile=ReconcilePolicy(deadline=25.0)) as client:
        app[CLIENT] = client
        yield
        for intent in client.unsettled:  # hand them to whoever settles them: they hold no secret
            logging.getLogger(__name__).warning("open: %s", intent.to_json())


async def events(app: web.Application) -> AsyncIterator[None]:
    """Run the receiver's worker beside the application."""
    async with app[RECEIVER]:
        yield


async def subscribe(request: web.Request) -> web.Response:
    """Create a webhook: await gives the webhook, or raises what became of the write."""
    url = (await request.json())["url"]
    try:
        hook = await request.app[CLIENT].webhooks.create(url=url, events=["invoice.created"], tag=True)
    except WriteError as error:
        return web.json_response({"verdict": error.outcome.verdict, "why": str(error)}, status=502)
    return web.json_response({"id": hook.id}, status=201)  # keep hook.secret: it is shown this once


async def on_invoice(event: ResourceEvent) -> None:
    """Handle an event; the service may send it again, so do it in a way that can be repeated."""
    logging.getLogger(__name__).info("%s %s", event.type, event.dedupe_key)


def create_app() -> web.Application:
    """Make the application."""
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
