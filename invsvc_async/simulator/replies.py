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
import sys
from typing import TYPE_CHECKING

from aiohttp import web

from invsvc_async.simulator.json_records import Json, json_text

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter


JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CUT_BODY = b'{"success":true,"data":{"id":"'
GARBAGE = b"\x00\xff\xfe{]\x9c not json"
LOOK_EVERY = 0.1  # seconds
# close() then sends RST instead of FIN
LINGER_ZERO = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


def answer(
    status: int,
    body: Json | bytes,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """Make a complete answer: JSON, or the bytes of a download."""
    if isinstance(body, bytes):
        return web.Response(
            status=status,
            body=body,
            headers=headers or {"Content-Type": "application/zip"},
        )
    return web.Response(
        status=status,
        body=json_text(body).encode(),
        headers={**JSON, **(headers or {})},
    )


def gateway_page(status: int) -> web.Response:
    """Make the HTML page of a gateway."""
    page = f"<html><head><title>{status}</title></head><body><h1>{status} Gateway</h1></body></html>"
    return web.Response(
        status=status,
        text=page,
        content_type="text/html",
    )


class Broken(web.StreamResponse):
    """
    The end of an exchange without a complete answer.

    aiohttp takes the `ConnectionError` for a client that has left, and closes the connection silently.
    """

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Close the connection."""
        raise ConnectionAbortedError


def cut_off(request: web.BaseRequest, end: str) -> Broken:
    """Send what comes before the *end*: RST, a part of an answer, or nothing; closing then sends FIN."""
    transport = request.transport
    if transport is not None and end == "reset":
        connection = transport.get_extra_info("socket")
        if connection is not None:  # TLS has none once the client has left
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        transport.abort()
    elif transport is not None:
        transport.write(CUT_OFF[end])
    return Broken()


async def hang(
    request: web.BaseRequest,
    released: asyncio.Event,
    seconds: float | None,
) -> Broken:
    """Send nothing until the client disconnects, *seconds* have passed, or the service stops."""
    loop = asyncio.get_running_loop()
    until = math.inf if seconds is None else loop.time() + seconds
    # aiohttp.web does not report that a client has disconnected, but its transport is gone.
    while (
        request.transport is not None and loop.time() < until and not released.is_set()
    ):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                released.wait(), min(LOOK_EVERY, until - loop.time())
            )
    return Broken()


async def drip(
    request: web.Request,
    whole: web.Response,
    *,
    pieces: int = 16,
    pause: float = 0.02,
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


CUT_OFF = {
    "reset": b"",
    "close": b"",
    "half-head": JSON_HEAD + b"Content-Le",  # it ends within a header's name
    "truncate": JSON_HEAD
    + b"Content-Length: %d\r\n\r\n" % (len(CUT_BODY) + 200)
    + CUT_BODY,
}
UNREADABLE: dict[str, tuple[bytes, dict[str, str]]] = {
    "garbage": (GARBAGE, JSON),
    "html": (b"<html><body>Welcome</body></html>", HTML),
    "empty": (b"", JSON),
}
