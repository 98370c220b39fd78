"""
The receiver in aiohttp and ASGI.

Some requests are answered by their headers alone: another method (405), another content type (415), too many
bytes (413), nothing that can authenticate an event (401).  A body that does not arrive by the receiver's
deadline is answered 408, and one that does not fit into memory beside others 503.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.concurrency.deadline import Deadline
from invsvc_async.events.headers import ByName, Headers, by_name
from invsvc_async.events.receiving.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        MutableMapping,
    )

    from aiohttp import web

    from invsvc_async.events.receiving.receiver import Receiver

__all__ = ["AsgiApp", "BodyRoom", "NoRoomError", "answer", "answer_aiohttp", "refuse_by_head", "serving"]

_log: Final = logging.getLogger("invsvc_async.events")


async def answer_aiohttp(receiver: Receiver, request: web.Request) -> web.Response:
    """Answer one request in aiohttp."""
    from aiohttp import web

    content = request.content
    # A delivery mostly comes in one piece with its headers.  Waiting for it, with a timeout, then costs more
    # than checking its signature.
    whole = content.read_nowait() if content.is_eof() and content.exception() is None else None
    receipt = await answer(receiver, request.method, request.headers, content.iter_any(), whole)
    return web.Response(status=receipt.status, text=receipt.outcome, headers=receipt.headers or None)


@asynccontextmanager
async def serving(
    receiver: Receiver, *, host: str, port: int, tell: Callable[[web.Request, web.Response], None]
) -> AsyncGenerator[int]:
    """
    Run *receiver* at all paths of its own application, call *tell* with each answer, and return the port.

    Raises:
        OSError: The server cannot listen on the address.
    """
    from aiohttp import web

    async def respond(request: web.Request) -> web.Response:
        response = await answer_aiohttp(receiver, request)
        tell(request, response)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    async with receiver:
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


class AsgiApp:
    """
    An ASGI application for one path, to be routed to, mounted or run on its own.

    It is an object because Starlette calls a function with a ``Request``.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def __call__(
        self,
        scope: MutableMapping[str, Any],  # Any: as in ASGI
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one connection."""
        match scope["type"]:
            case "http":
                chunks = _chunks(receive)
                receipt = await answer(self._receiver, scope["method"], scope["headers"], chunks)
                await _respond(send, receipt)
            case "lifespan":
                await self._live(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _live(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        await receive()
        phase = "startup"
        try:
            async with self._receiver:
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:  # noqa: BLE001 - reported through the protocol
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class NoRoomError(Exception):
    """Other bodies take all the room; ``receipt`` is the answer, which makes the sender come back."""

    receipt: Final = Receipt(503, "unavailable", headers={"Retry-After": "5"})


class BodyRoom:
    """Room for *size* bytes of bodies from their arrival until their answers, in all threads together."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._lock = threading.Lock()

    @contextmanager
    def body(self) -> Generator[Callable[[int], None]]:
        """
        Yield a function that takes room for some bytes of one body; the block's end gives it back.

        Raises:
            NoRoomError: By the function: there is no room for them.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            with self._lock:
                if size > self._free:
                    _log.warning("A delivery was refused: others fill the %s bytes for bodies", self._size)
                    raise NoRoomError
                self._free -= size
            taken += size

        try:
            yield take
        finally:
            with self._lock:
                self._free += taken


class _GoneError(Exception):
    """The sender disconnected before its body was complete."""


async def answer(
    receiver: Receiver,
    method: str,
    headers: Headers,
    chunks: AsyncIterable[bytes],
    whole: bytes | None = None,
) -> Receipt:
    """
    Answer one request: refuse what its head rules out, then read its body, and process it.

    *whole* is the body, if it is there already.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + receiver.deadline
    found = by_name(headers)
    refusal = refuse_by_head(method, found, receiver.max_body_bytes)
    if refusal is None:
        refusal = await receiver.refusal(until, found)
    if refusal is not None:
        return refusal
    if whole is not None:
        return await receiver.receive(whole, found, until=until)
    with receiver.room.body() as take:
        try:
            with Deadline(loop, until):
                body = await _read(chunks, receiver.max_body_bytes, take)
        except TimeoutError:
            return Receipt(408, "refused")
        except NoRoomError as error:
            return receiver.counted(until, error.receipt)
        except Exception as error:  # noqa: BLE001 - each framework has its own errors for a broken body
            _log.info("A delivery was cut off: %s", type(error).__name__)
            return Receipt(400, "unreadable")
        return await receiver.receive(body, found, until=until)


async def _read(chunks: AsyncIterable[bytes], limit: int, take: Callable[[int], None]) -> bytes:
    """Return the body, or its beginning if it has more than *limit* bytes."""
    body = bytearray()
    async for chunk in chunks:
        take(len(chunk))
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def refuse_by_head(method: str, headers: ByName, limit: int) -> Receipt | None:
    """Return the answer to a request that its method, type, coding or length rules out."""
    if method != "POST":
        return Receipt(405, "refused", headers={"Allow": "POST"})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = headers.get("content-encoding")  # "" if it came twice; a server may have decoded it
    if kind != "application/json" or (coding is not None and coding.lower() != "identity"):
        return Receipt(415, "refused", headers={"Accept": "application/json"})
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > limit):
        return Receipt(413, "refused")
    return None


async def _chunks(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _respond(send: Callable[[MutableMapping[str, Any]], Awaitable[None]], receipt: Receipt) -> None:
    body = receipt.outcome.encode()
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        **receipt.headers,
    }
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    try:
        await send({"type": "http.response.start", "status": receipt.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})
    except Exception as error:  # noqa: BLE001 - each server has its own errors for a sender that is gone
        _log.info("An answer could not be sent: %s", type(error).__name__)
