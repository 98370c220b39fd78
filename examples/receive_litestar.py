"""Receive events in Litestar: ``uvicorn examples.receive_litestar:app``."""

from contextlib import asynccontextmanager

from litestar import Litestar, asgi

from examples.receive import receiver


@asynccontextmanager
async def lifespan(_app):
    """Keep the store open and the worker running."""
    async with receiver:
        yield


events = asgi("/events", is_mount=True, copy_scope=True)(receiver.asgi_app)
app = Litestar([events], lifespan=[lifespan])
