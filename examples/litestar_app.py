"""A Litestar application: ``uvicorn --workers 4 --factory examples.litestar_app:create_app``."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, asgi, get, post, put

from examples.shop import Shop, shown
from invsvc_async import InvsvcError, enc_hook
from invsvc_async.models.portable import Portable
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def create_app() -> Litestar:
    """Create the application, which encodes all classes of this package."""
    shop = Shop()

    @asynccontextmanager
    async def lifespan(_: Litestar) -> "AsyncGenerator[None]":
        async with shop.running():
            yield

    @get("/invoices")
    async def invoices() -> Any:
        return await shop.client.invoices.egress(limit=10)

    @put("/journeys/{journey:str}/name")
    async def rename(request: Request[Any, Any, Any]) -> Response[Any]:
        journey, name = request.path_params["journey"], request.query_params["name"]
        outcome = await shop.client.journeys.update(journey, name=name).outcome()
        return Response(
            shown(outcome),
            media_type="application/json",
            status_code=status_of(outcome),
        )

    @post("/customers/{name:str}", status_code=202)
    async def register(request: Request[Any, Any, Any]) -> None:
        await shop.register(request.path_params["name"])

    def failed(_: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        status, body, headers = answer_to(error)
        return Response(body, status_code=status, headers=headers)

    events = asgi("/events", is_mount=True, copy_scope=True)(shop.receiver.asgi_app)
    return Litestar(
        [invoices, rename, register, events],
        lifespan=[lifespan],
        type_encoders={Portable: enc_hook},
        exception_handlers={InvsvcError: failed},
    )
