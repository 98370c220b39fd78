"""A Starlette application: ``uvicorn --workers 4 --factory examples.starlette_app:create_app``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.shop import Shop, shown
from invsvc_async import InvsvcError
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request


def create_app() -> Starlette:
    """Create the application."""
    shop = Shop()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with shop.running():
            yield

    async def invoices(_: Request) -> Response:
        page = await shop.client.invoices.egress(limit=10)
        # With all digits.
        return Response(page.to_json(), media_type="application/json")

    async def rename(request: Request) -> Response:
        journey, name = request.path_params["journey"], request.query_params["name"]
        outcome = await shop.client.journeys.update(journey, name=name).outcome()
        return Response(
            shown(outcome), status_of(outcome), media_type="application/json"
        )

    async def register(request: Request) -> Response:
        await shop.register(request.path_params["name"])
        return Response(status_code=202)

    async def failed(_: Request, error: Exception) -> Response:
        status, body, headers = answer_to(error)
        return JSONResponse(body, status, headers)

    routes = [
        Route("/invoices", invoices),
        Route("/journeys/{journey}/name", rename, methods=["PUT"]),
        Route("/customers/{name}", register, methods=["POST"]),
        Route("/events", shop.receiver.asgi_app, methods=["POST"]),
    ]
    return Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={InvsvcError: failed}
    )
