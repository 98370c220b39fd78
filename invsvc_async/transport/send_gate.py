"""
Be the one way out of a request, and the one witness of whether it was taken; never open twice.

aiohttp buffers a write's head until its body is written, so a body that looks before it lets anything pass
decides over both; one that says it is consumed is never sent again by aiohttp.  A read has no body: a
middleware does the same just before its head leaves, and costs less.
"""

from __future__ import annotations

import select
from math import inf
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict

from invsvc_async.concurrency.deadline import Deadline

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.connector import Connection

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.transport.exchange import Exchange

__all__ = ["Gate", "OwnError", "RefusedError"]

_PEER_IS_GONE = getattr(select, "POLLRDHUP", 0)


class OwnError(Exception):
    """Something that went wrong, in words that need no class beside them.  Never leaves the transport."""


class RefusedError(OwnError):
    """The gate stays shut: not one byte has left."""


class Gate(aiohttp.Payload):
    """The way out of *exchange*.  ``opened``: bytes may have left; ``refusal``: why none could."""

    # aiohttp copies a payload's headers into the request, save those that are there; Host always is.
    _headers = CIMultiDict({hdrs.HOST: ""})
    _consumed = True
    _autoclose = True

    def __init__(self, exchange: Exchange, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        # Not the base class's, which builds headers for each request.
        self._value = exchange.content or b""
        self._size = len(self._value)
        self._clock = clock
        self._loop = loop
        self._sealed = False
        self.exchange = exchange
        self.opened: bool = False
        self.refusal: str | None = None
        self.transport: asyncio.Transport | None = None  # what it let the request out to
        self.until = inf  # when the transport's alarm ends the wait
        self.scope: Deadline | None = None  # what bounds the wait at this moment

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give the body as text: aiohttp's base class asks for it."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Let head and body out, as :meth:`write_with_length`."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002
        """
        Let head and body out, if nothing speaks against it at this very moment.

        Raises:
            RefusedError: Something does.

        """
        self._open(cast("aiohttp.http.StreamWriter", writer).protocol)
        await writer.write(self._value)

    def let_read(
        self, request: aiohttp.ClientRequest, send: ClientHandlerType
    ) -> Awaitable[aiohttp.ClientResponse]:
        """
        Let a request without a body out on the same terms: a middleware, to be the only one.

        Raises:
            RefusedError: Something speaks against it, or aiohttp has come to repeat it.

        """
        if self._sealed:
            raise RefusedError("the connection dropped before an answer began")

        def through_gate(connection: Connection) -> Awaitable[aiohttp.ClientResponse]:
            del request.send  # it closed a cycle
            self._open(connection.protocol)
            return request.send(connection)

        request.send = through_gate  # type: ignore[method-assign,assignment]
        return send(request)

    def _open(self, protocol: Any) -> None:  # Any: a ResponseHandler, which aiohttp types as its base class
        now = self._clock.now()
        self.refusal = self._objection(protocol, now)
        if self.refusal:
            raise RefusedError(self.refusal)
        self.opened = self._sealed = True
        self.transport = protocol.transport
        self.exchange.started = now

    def _objection(self, protocol: Any, now: float) -> str | None:  # Any: as in _open
        exchange = self.exchange
        if self._sealed:
            return "it had been sent, or given up"
        if exchange.not_after is not None and now > exchange.not_after:
            return "the proof that allowed it had expired"
        if self._loop.time() >= exchange.deadline:
            return "its deadline had passed"
        return self._objection_to(protocol)

    def _objection_to(self, protocol: Any) -> str | None:  # Any: as in _open
        if protocol.should_close:  # among others: an answer is there already, to nothing that was asked
            return "the connection held a stale answer, or was to be closed"
        exchange, transport = self.exchange, protocol.transport
        if transport is None or transport.is_closing():
            return "the connection was closed"
        # A plain read that meets a closed connection is simply repeated: spare it the system call.
        if (exchange.write or exchange.lane == "settle") and _peer_was_first(transport):
            return "the server had closed the connection, or spoken first"
        return None

    def now(self) -> float:
        """Tell the time of the loop, of which deadlines are."""
        return self._loop.time()

    def bounded(self, deadline: float) -> Deadline:
        """Bound a wait by *deadline*: :meth:`interrupt` ends it before."""
        return Deadline(self._loop, deadline)

    def refuse_late(self) -> None:
        """
        Stop before a connection is taken: on a warm one an expired timeout would still let the request out.

        Raises:
            TimeoutError: The deadline has passed.

        """
        if self._loop.time() >= self.exchange.deadline:
            raise TimeoutError

    def seal(self) -> None:
        """Let nothing out from now on: on Python 3.11 the body's writer may not have run yet."""
        self._sealed = True

    def expire(self) -> None:
        """End the wait of this moment, if there is one, as a timeout does."""
        if self.scope is not None:
            self.scope.expire()

    def interrupt(self) -> None:
        """Seal, and end the wait of this moment as a timeout would; without one, drop the connection."""
        self.seal()
        if self.scope is None:
            self.drop(force=True)
        else:
            self.expire()

    def drop(self, *, force: bool = False) -> None:
        """
        Drop at once a connection that aiohttp closes: no buffered rest of the request may trickle out later.

        Without *force*, one that is not closing is left alone: another request may have it by now.
        """
        if self.transport is not None and (force or self.transport.is_closing()):
            self.transport.abort()


def _peer_was_first(transport: asyncio.Transport) -> bool:
    """
    Ask the kernel for what the loop has not seen yet: the peer's FIN or RST, or an answer to nothing.

    Inside TLS, bytes may be a session ticket: only the end of the connection counts there.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(select, "poll"):  # pragma: no cover - Windows has no poll
        return False
    watch = select.poll()
    in_tls = transport.get_extra_info("sslcontext") is not None
    watch.register(sock.fileno(), _PEER_IS_GONE if in_tls else _PEER_IS_GONE | select.POLLIN)
    return bool(watch.poll(0))
