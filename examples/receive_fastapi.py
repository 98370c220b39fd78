"""Receive events in FastAPI: ``uvicorn examples.receive_fastapi:app``."""

from contextlib import asynccontextmanager

from fastapi import FastAPI

from examples.receive import receiver


@asynccontextmanager
async def lifespan(_app):
    """Keep the store open and the worker running."""
    async with receiver:
        yield


app = FastAPI(lifespan=lifespan)
app.add_route("/events", receiver.asgi_app, methods=["POST"])
