"""
The gate of a request: guards the moment its first byte leaves.

It opens at most once, and records whether it did, because an exception's class proves nothing.

aiohttp buffers the head of a write until its body is written. A body that checks before it writes therefore
decides about both, and aiohttp does not send a consumed body again. A read has no body: a middleware checks
just before its head is sent, which costs less.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

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


# in the message of the error
TOO_LATE = "the time until which it may be sent had passed"
Protocol: TypeAlias = Any  # a ResponseHandler, which aiohttp types as its base class
_PEER_IS_GONE = getattr(select, "POLLRDHUP", 0)
# SO_LINGER: close with RST
_DISCARD = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class OwnError(Exception):
    """An error whose message needs no class name. It does not leave the transport."""


class RefusedError(OwnError):
    """The gate stays closed: no byte was sent."""


class Gate(aiohttp.Payload):
    """
    The gate of *exchange*, and the body that aiohttp's session writes for it.

    - ``opened``: bytes may have been sent.
    - ``sealed``: the gate does not open any more, because it was open already, or the request was given up.
      On Python 3.11, aiohttp's task that writes the body may still run then, and is refused.
    - ``refusal``: why the gate did not open when it was to.
    - ``wait_limit``: limits the wait for the answer; set by the transport, or by the reader of a download.
      ``None``: no task waits.
    - ``transport``: the connection that the request was written to.
    """

    # What aiohttp asks of a body beside its bytes. It demands that a body has headers, and copies them into
    # the request, except those that the request has already; Host is one of these.
    _headers = CIMultiDict({hdrs.HOST: ""})
    _consumed = True  # so aiohttp does not write it again
    _autoclose = True  # there is nothing to close

    # At first. As attributes of the class, because a gate is made for every request, and setting takes time.
    opened: bool = False
    sealed: bool = False
    refusal: str | None = None
    wait_limit: Deadline | None = None
    transport: asyncio.Transport | None = None
    # Any: asyncio's own protocol of TLS, which has the transport below it
    _tls: Any = None

    def __init__(
        self,
        exchange: Exchange,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        # Without super().__init__, which builds headers for each request.
        self._value = exchange.content or b""
        self._size = len(self._value)
        self._clock = clock
        self._loop = loop
        self.exchange = exchange

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text, as the base class requires."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send head and body, as :meth:`write_with_length`."""
        await self.write_with_length(writer, None)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """
        Send head and body, unless something prevents it at this moment.

        Raises:
            RefusedError: Something does.
        """
        self.open(cast("aiohttp.http.StreamWriter", writer).protocol)
        await writer.write(self._value)

    def send_read(
        self, request: aiohttp.ClientRequest, send: ClientHandlerType
    ) -> Awaitable[aiohttp.ClientResponse]:
        """
        Send a request without a body on the same conditions. This is a middleware, and must be the only one.

        A middleware is called before there is a connection, but the gate must open on the connection, right
        before the head is written. Once aiohttp has a connection, it calls ``request.send(connection)``. So
        that method is hidden, for one call, by an attribute of the request that opens the gate first.

        Raises:
            RefusedError: Something prevents it, or aiohttp tries to repeat the request.
        """
        if self.sealed:
            raise RefusedError("the connection dropped before an answer began")

        def through_gate(connection: Connection) -> Awaitable[aiohttp.ClientResponse]:
            """Send as aiohttp does, right after the gate has opened."""
            # aiohttp's own method is in sight again. This also ends a cycle of references.
            del request.send
            self.open(connection.protocol)
            return request.send(connection)

        request.send = through_gate  # type: ignore[method-assign,assignment]
        return send(request)

    def open(self, protocol: Protocol) -> None:
        """
        Open the gate for a request on the connection of *protocol*. The caller writes it without awaiting.

        Raises:
            RefusedError: Something prevents it at this moment.
        """
        transport = protocol.transport
        now = self._clock.now()
        refusal = self._why_not_open(protocol, now)
        if refusal is not None:
            self.refusal = refusal
            raise RefusedError(refusal)
        self.opened = self.sealed = True
        self.transport = transport
        # Noted while it is there: a transport of TLS forgets its protocol once it was closed twice.
        self._tls = getattr(transport, "_ssl_protocol", None)
        self.exchange.started = now
        self.exchange.may_have_left = True

    def _why_not_open(self, protocol: Protocol, now: float) -> str | None:
        """Return why the request must not be sent on the connection of *protocol*; ``None``: it may."""
        exchange = self.exchange
        transport = protocol.transport
        if self.sealed:
            return "it was already sent, or given up"
        if exchange.not_after is not None and now > exchange.not_after:
            return TOO_LATE
        if self._loop.time() >= exchange.deadline:
            return "its deadline had passed"
        if protocol.should_close:
            # among other reasons: an answer is there before the request
            return "the connection held a stale answer, or was to be closed"
        if transport is None or transport.is_closing():
            return "the connection was closed"
        # A plain read on a closed connection is simply retried, so it needs no system call.
        needs_look = exchange.write or exchange.lane == "settle"
        if needs_look and _peer_was_first(transport):
            return "the server had closed the connection, or spoken first"
        return None

    def is_all_sent(self) -> bool:
        """Return whether no byte of the request waits in this process (uvloop hides those below TLS)."""
        writer = self._socket_writer()
        if self.transport is None or writer is None:
            return False
        waiting = self.transport.get_write_buffer_size()
        if writer is not self.transport:
            waiting += writer.get_write_buffer_size()
        return waiting == 0

    def within(self, seconds: float) -> Deadline:
        """Limit a wait to so many *seconds*. :meth:`interrupt` ends it earlier."""
        return Deadline(self._loop, self._loop.time() + seconds)

    def interrupt(self) -> None:
        """
        Seal the gate, and end the current wait, whose task then closes the connection.

        Without a current wait no task would do so, and the connection is dropped here.
        """
        self.sealed = True
        if self.wait_limit is None:
            self.drop(force=True)
        else:
            self.wait_limit.expire()

    def drop(self, *, force: bool = False) -> None:
        """
        Abort a connection that aiohttp is closing, so that no buffered bytes of the request are sent later.

        The system's own buffer is discarded as well. Otherwise it would be sent up to minutes later, when a
        lost network is back, although a read may have proved meanwhile that nothing arrived.

        Without *force*, an open connection is left alone, because another request may use it already.
        """
        if self.transport is None:  # nothing was written
            return
        if not force and not self.transport.is_closing():
            return
        writer = self._socket_writer()
        if writer is None:  # the connection is lost already
            return
        sock = writer.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError, ValueError):  # the socket is closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        writer.abort()

    def _socket_writer(self) -> asyncio.Transport | None:
        """
        Return the asyncio transport that writes to the socket.

        Under TLS that is an inner one, and ``None`` once the connection is lost. The outer one must not be
        asked in its place then, because that would raise.
        """
        if self._tls is None:
            return self.transport
        found: asyncio.Transport | None = getattr(self._tls, "_transport", None)
        return found


def _peer_was_first(transport: asyncio.Transport) -> bool:
    """
    Return whether the peer has sent FIN, RST or data that the loop has not seen yet.

    With TLS, data may be a session ticket, so only the end of the connection counts. Windows has no poll: a
    request may go into a closed connection there, and counts as lost.
    """
    sock = transport.get_extra_info("socket")
    if sys.platform == "win32" or sock is None:
        return False
    else:  # noqa: RET505 - type checkers skip this branch on Windows
        watch = select.poll()
        signs = _PEER_IS_GONE
        if transport.get_extra_info("sslcontext") is None:
            signs |= select.POLLIN
        watch.register(sock.fileno(), signs)
        return bool(watch.poll(0))
