"""
The ends of an exchange on the wire: complete answers, broken ones, and none.

At this point the operation has run or will not; nothing here changes the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from typing import TYPE_CHECKING

from aiohttp import web

from invsvc_async.simulator.json_records import json_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.abc import AbstractStreamWriter

    from invsvc_async.simulator.json_records import Json

JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CUT_BODY = b'{"success":true,"data":{"id":"'
GARBAGE = b"\x00\xff\xfe{]\x9c not json"
LOOK_EVERY = 0.1  # seconds
LINGER_ZERO = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN


def answer(status: int, body: Json | bytes, headers: dict[str, str] | None = None) -> web.Response:
    """Make a complete answer: JSON, or the bytes of a download."""
    if isinstance(body, bytes):
        return web.Response(status=status, body=body, headers=headers or {"Content-Type": "application/zip"})
    return web.Response(status=status, body=json_text(body).encode(), headers={**JSON, **(headers or {})})


def gateway_page(status: int) -> web.Response:
    """Make the HTML page of a gateway."""
    page = f"<html><head><title>{status}</title></head><body><h1>{status} Gateway</h1></body></html>"
    return web.Response(status=status, text=page, content_type="text/html")


class Broken(web.StreamResponse):
    """
    An exchange that ends without a complete answer.

    aiohttp takes the `ConnectionError` for a client that has left, and closes the connection silently.
    """

    def __init__(self, act: Callable[[web.BaseRequest], Awaitable[None]]) -> None:
        super().__init__()
        self._act = act
        self.on_end: Callable[[], None] | None = None  # called when the connection is about to close

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Run the act, then close the connection."""
        try:
            await self._act(request)
        finally:
            if self.on_end is not None:
                self.on_end()
        raise ConnectionAbortedError


async def reset(request: web.BaseRequest) -> None:
    """Send RST."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        transport.abort()


async def close(_request: web.BaseRequest) -> None:
    """Send nothing.  Closing the connection sends FIN."""


def _sending(text: bytes) -> Callable[[web.BaseRequest], Awaitable[None]]:
    async def act(request: web.BaseRequest) -> None:
        if request.transport is not None:
            request.transport.write(text)

    return act


def hang(released: asyncio.Event, seconds: float | None) -> Callable[[web.BaseRequest], Awaitable[None]]:
    """Send nothing until the client disconnects, *seconds* have passed, or the service stops."""

    async def act(request: web.BaseRequest) -> None:
        loop = asyncio.get_running_loop()
        until = math.inf if seconds is None else loop.time() + seconds
        # aiohttp.web does not report that a client has disconnected, but its transport is gone.
        while request.transport is not None and loop.time() < until and not released.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(released.wait(), min(LOOK_EVERY, until - loop.time()))

    return act


async def drip(
    request: web.Request, whole: web.Response, *, pieces: int = 16, pause: float = 0.02
) -> web.StreamResponse:
    """Send a true answer in small pieces, *pause* seconds apart."""
    body = whole.body if isinstance(whole.body, bytes) else b""
    slow = web.StreamResponse(status=whole.status, headers=whole.headers)
    slow.content_length = len(body)
    await slow.prepare(request)
    step = max(1, -(-len(body) // pieces))
    with contextlib.suppress(ConnectionError):  # the client has left
        for start in range(0, len(body), step):
            await slow.write(body[start : start + step])
            await asyncio.sleep(pause)
        await slow.write_eof()
    return slow


BROKEN: dict[str, Callable[[web.BaseRequest], Awaitable[None]]] = {
    "reset": reset,
    "close": close,
    "half-head": _sending(JSON_HEAD + b"Content-Le"),  # it ends within a header's name
    "truncate": _sending(JSON_HEAD + b"Content-Length: %d\r\n\r\n" % (len(CUT_BODY) + 200) + CUT_BODY),
}
UNREADABLE: dict[str, tuple[bytes, dict[str, str]]] = {
    "garbage": (GARBAGE, JSON),
    "html": (b"<html><body>Welcome</body></html>", HTML),
    "empty": (b"", JSON),
}
