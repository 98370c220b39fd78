"""
One client in a FastAPI application, which also receives the service's events.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… EVENTS_KEY=… uvicorn --factory examples.fastapi_app:create_app``
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Request, Response

from invsvc_async import Client, ServiceError, Verdict
from invsvc_async.events import Receiver, ResourceEvent, SharedHeader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def client_of(request: Request) -> Client:
    """Return the application's client, which thousands of requests can share."""
    client: Client = request.app.state.client
    return client


Service = Annotated[Client, Depends(client_of)]


async def get_journey(journey: str, client: Service, response: Response) -> dict[str, Any]:
    """Read a list; pass errors of the service on with their status."""
    try:
        found = await client.journeys.get(journey)
    except ServiceError as error:
        response.status_code = error.status
        return {"error": error.code}
    return {"id": found.id, "name": found.name, "version": found.version}


async def rename(journey: str, name: str, client: Service, response: Response) -> dict[str, Any]:
    """Write, and return the result; 202 means that it is not known yet."""
    outcome = await client.journeys.update(journey, name=name).outcome()
    response.status_code = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}.get(outcome.verdict, 409)
    return {"verdict": outcome.verdict, "message": outcome.message, "intent": outcome.intent.key}


def unsettled(client: Service) -> list[str]:
    """List the writes without a verdict, such as those of cancelled requests."""
    return [intent.key for intent in client.unsettled]


async def settle(client: Service) -> dict[str, str]:
    """Settle each of them; this only reads."""
    return {intent.key: (await client.settle(intent)).verdict for intent in client.unsettled}


def new_receiver(seen: list[str]) -> Receiver:
    """Store each event before answering, and handle it afterwards."""
    receiver = Receiver(
        secrets=[secret for secret in (os.environ.get("EVENTS_SECRET"),) if secret],
        shared_header=SharedHeader("X-Events-Key", os.environ["EVENTS_KEY"]),
        mode="inbox",
        store="events.db",
    )

    @receiver.on("invoice.created")
    async def on_invoice(event: ResourceEvent) -> None:
        seen.append(event.dedupe_key or "")

    return receiver


def create_app() -> FastAPI:
    """Create the application; client and receiver are open while it runs."""
    seen: list[str] = []
    receiver = new_receiver(seen)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with Client.from_env(journal="outbox.db") as client, receiver:
            await client.recover()  # what a killed process left in doubt
            app.state.client = client
            yield

    app = FastAPI(lifespan=lifespan)
    app.state.seen = seen
    app.get("/journeys/{journey}")(get_journey)
    app.put("/journeys/{journey}/name")(rename)
    app.get("/unsettled")(unsettled)
    app.post("/settle")(settle)
    app.add_route("/events", receiver.asgi_app, methods=["POST"])  # type: ignore[arg-type]  # an ASGI app
    return app
