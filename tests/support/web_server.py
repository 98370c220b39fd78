"""An ASGI application, served by uvicorn on the loopback."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def web_server(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve *app* with its lifespan, and yield a browser of it."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="on", ws="none")
    )
    task = asyncio.create_task(server.serve(sockets=[listening]))
    async with asyncio.timeout(300):
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # A server may end a connection after an answer, as the next request is sent on it.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=address, timeout=30, limits=limits
    ) as browser:
        yield browser
    server.should_exit = True
    await task
