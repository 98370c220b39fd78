"""A FastAPI application: ``uvicorn --workers 4 --factory examples.fastapi_app:create_app``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from examples.shop import Shop
from invsvc_async import Invoice, InvsvcError, Journey, Outcome, Page
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def create_app(shop: Shop | None = None) -> FastAPI:
    """Create the application; its tests pass a shop."""
    shop = shop or Shop()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with shop.running():
            yield

    app = FastAPI(lifespan=lifespan)
    app.add_route("/events", shop.receiver.asgi_app, methods=["POST"])  # type: ignore[arg-type]

    @app.get("/invoices")
    async def invoices() -> Page[Invoice]:
        return await shop.client.invoices.egress(limit=10)

    @app.put("/journeys/{journey}/name")
    async def rename(journey: str, name: str, response: Response) -> Outcome[Journey]:
        outcome = await shop.client.journeys.update(journey, name=name).outcome()
        response.status_code = status_of(outcome)
        return outcome

    @app.post("/customers/{name}", status_code=202)
    async def register(name: str) -> None:
        await shop.register(name)

    @app.exception_handler(InvsvcError)
    async def failed(_: Request, error: InvsvcError) -> JSONResponse:
        status, body, headers = answer_to(error)
        return JSONResponse(body, status, headers)

    return app
