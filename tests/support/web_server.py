"""An ASGI application, served by uvicorn on the loopback."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn

from tests.support.waiting import until

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
    await until(lambda: server.started or task.done())
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # A server may end a connection after an answer, as the next request is sent on it.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=address, timeout=30, limits=limits
    ) as browser:
        yield browser
    server.should_exit = True
    await task
