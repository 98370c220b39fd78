"""Receive events in aiohttp: ``python -m aiohttp.web -P 8000 examples.receive_aiohttp:create_app``."""

from aiohttp import web

from examples.receive import receiver


async def running(_app):
    """Keep the store open and the worker running."""
    async with receiver:
        yield


def create_app(_arguments):
    """Create the application."""
    app = web.Application()
    app.cleanup_ctx.append(running)
    app.router.add_post("/events", receiver.aiohttp_handler)
    return app
