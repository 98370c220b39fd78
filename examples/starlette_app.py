"""A Starlette application: ``uvicorn --workers 4 --factory examples.starlette_app:create_app``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from examples.shop import STATUS, Shop, shown

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
        status = STATUS.get(outcome.verdict, 409)  # 202: it is not known yet
        return Response(
            shown(outcome), media_type="application/json", status_code=status
        )

    async def register(request: Request) -> Response:
        await shop.register(request.path_params["name"])
        return Response(status_code=202)

    routes = [
        Route("/invoices", invoices),
        Route("/journeys/{journey}/name", rename, methods=["PUT"]),
        Route("/customers/{name}", register, methods=["POST"]),
        Route("/events", shop.receiver.asgi_app, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
