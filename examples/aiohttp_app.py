"""An aiohttp application: ``python -m aiohttp.web -P 8000 examples.aiohttp_app:create_app``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from examples.shop import Shop, shown
from invsvc_async import InvsvcError
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors of the client."""
    try:
        return await handler(request)
    except InvsvcError as error:
        status, body, headers = answer_to(error)
        return web.json_response(body, status=status, headers=headers)


def create_app(_arguments: Sequence[str] = ()) -> web.Application:
    """Create the application."""
    shop = Shop()

    async def lifespan(_: web.Application) -> AsyncIterator[None]:
        async with shop.running():
            yield

    async def invoices(_: web.Request) -> web.Response:
        page = await shop.client.invoices.egress(limit=10)
        # With all digits.
        return web.Response(text=page.to_json(), content_type="application/json")

    async def rename(request: web.Request) -> web.Response:
        journey, name = request.match_info["journey"], request.query["name"]
        outcome = await shop.client.journeys.update(journey, name=name).outcome()
        return web.Response(
            body=shown(outcome),
            content_type="application/json",
            status=status_of(outcome),
        )

    async def register(request: web.Request) -> web.Response:
        await shop.register(request.match_info["name"])
        return web.Response(status=202)

    app = web.Application(middlewares=[with_errors])
    app.cleanup_ctx.append(lifespan)
    app.router.add_get("/invoices", invoices)
    app.router.add_put("/journeys/{journey}/name", rename)
    app.router.add_post("/customers/{name}", register)
    app.router.add_post("/events", shop.receiver.aiohttp_handler)
    return app
