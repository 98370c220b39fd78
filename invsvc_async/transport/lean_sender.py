"""
Sending a request through aiohttp's connections, without its session: less than half of the work.

aiohttp's connector finds or makes the connection, and its parser reads the answer. Between them, this module
writes a request in one piece, right after the gate has opened. Nothing here sends anything again. aiohttp
does not document all that is used of it: ``sender_choice`` lists the versions that have it, as tests showed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiohttp
from aiohttp import hdrs
from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict

from invsvc_async.transport.session_sender import timeout_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from aiohttp.connector import Connection
    from multidict import CIMultiDictProxy
    from yarl import URL

    from invsvc_async.transport.exchange import Exchange
    from invsvc_async.transport.send_gate import Gate


_DEFAULTS: Final = {
    **aiohttp.ClientRequest.DEFAULT_HEADERS,
    hdrs.USER_AGENT: SERVER_SOFTWARE,
}
# They would change where the request goes, or how long it is.
_NEVER_GIVEN: Final = (
    hdrs.HOST,
    hdrs.EXPECT,
    hdrs.CONTENT_LENGTH,
    hdrs.TRANSFER_ENCODING,
    hdrs.CONTENT_ENCODING,
)
_METHOD = r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MOST_KEPT = 64  # destinations, and headers: both hardly ever change
_SWITCHING = 101  # the only 1xx after which no other head follows


class LeanResponse:
    """The head of an answer, and the stream of its body. :meth:`close` ends the use of its connection."""

    __slots__ = (
        "_connection",
        "_gate",
        "closed",
        "content",
        "headers",
        "method",
        "status",
    )

    def __init__(
        self,
        gate: Gate,
        connection: Connection,
        head: _Head,
        content: Any,
    ) -> None:
        self.method: str = gate.exchange.method
        self.status: int = head.code
        self.headers: CIMultiDictProxy[str] = head.headers
        self.content: aiohttp.StreamReader = content
        self.closed: bool = False
        self._gate = gate
        self._connection = connection

    def close(self) -> None:
        """Keep the connection for other requests if request and answer went over it whole; else close it."""
        self.closed = True
        if self.content.is_eof() and self._gate.is_all_sent():
            self._connection.release()  # which closes it if the service said so, or sent more
            return
        self._connection.close()
        if self.content.exception() is None:  # nothing more will arrive
            self.content.set_exception(
                aiohttp.ClientConnectionError("Connection closed")
            )


class LeanSender:
    """Sends requests through the connections of *connector*."""

    def __init__(
        self,
        connector: aiohttp.BaseConnector,
        loop: asyncio.AbstractEventLoop,
        *,
        read_bufsize: int,
    ) -> None:
        self._connector = connector
        self._loop = loop
        self._read_bufsize = read_bufsize
        self._destinations: dict[tuple[str, str], Destination] = {}
        self._heads: dict[tuple[object, ...], _HeadLines] = {}

    async def request(self, gate: Gate) -> LeanResponse:
        """
        Send the request of *gate*, and return the head of its answer.

        Raises:
            TimeoutError: Its deadline has passed, or there was no connection in time.
            Exception: Any exception of aiohttp. The gate shows whether a byte can have been sent.
        """
        exchange = gate.exchange
        # An open connection would send the request at once.
        if self._loop.time() >= exchange.deadline:
            raise TimeoutError
        destination = self._destination(exchange.url)
        message = self._message(exchange, destination)
        timeout = timeout_of(exchange.connect_timeout, own_pool=True)
        try:
            # no traces: a session that has some is never sent through this
            connection = await self._connector.connect(destination, [], timeout)
        except TimeoutError as error:
            words = f"Connection timeout to host {exchange.url}"
            raise aiohttp.ConnectionTimeoutError(words) from error
        try:
            protocol: Any = connection.protocol
            protocol.set_response_params(
                skip_payload=exchange.method == hdrs.METH_HEAD,
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=self._read_bufsize,
            )
            gate.open(protocol)
            protocol.transport.write(message)
            head, content = await protocol.read()
            while head.code < 200 and head.code != _SWITCHING:
                head, content = await protocol.read()
        except BaseException:
            connection.close()
            raise
        return LeanResponse(gate, connection, head, content)

    def _destination(self, url: URL) -> Destination:
        """Return the destination of *url*; one is kept for all requests that go there."""
        key = url.scheme, url.raw_authority
        found = self._destinations.get(key)
        if found is not None:
            return found
        made = Destination(url, self._loop)
        if len(self._destinations) >= _MOST_KEPT:
            self._destinations.clear()
        self._destinations[key] = made
        return made

    def _message(self, exchange: Exchange, destination: Destination) -> bytes:
        """Return the whole request, byte for byte as aiohttp's session would send it."""
        target = exchange.url.raw_path_qs
        if _CONTROL.search(target) is not None:
            raise ValueError("the path of the URL contains a control character")
        lines = self._lines(exchange, destination.authority)
        content = exchange.content
        has_body = content is not None or exchange.write
        if has_body or not lines.may_be_without_length:
            content = content or b""
            fields = f"{lines.before}Content-Length: {len(content)}\r\n{lines.after}"
        else:
            content = b""
            fields = f"{lines.before}{lines.after}"
        head = f"{lines.method} {target} HTTP/1.1\r\n{fields}\r\n"
        return head.encode() + content

    def _lines(self, exchange: Exchange, authority: str) -> _HeadLines:
        """Return the lines of the head; they are kept for all requests with equal headers."""
        given = tuple(exchange.headers.items())
        key = exchange.method, authority, given
        found = self._heads.get(key)
        if found is not None:
            return found
        made = _HeadLines(exchange.method, authority, given)
        if len(self._heads) >= _MOST_KEPT:
            self._heads.clear()
        self._heads[key] = made
        return made


class _Head(Protocol):
    """The head of an answer, as aiohttp's parser returns it."""

    code: int
    headers: CIMultiDictProxy[str]


class Destination(aiohttp.ClientRequest):
    """
    Where requests go, in the form that a connector takes: a request, which itself is never sent.

    One object serves all requests to the same place. ``authority`` is the value of the header ``Host``.
    """

    # A property in the base class, computed at each use. Replaced by an attribute that is computed once.
    connection_key: Any = None

    def __init__(self, url: URL, loop: asyncio.AbstractEventLoop) -> None:
        if url.raw_user is not None or url.raw_password is not None:
            raise ValueError("the URL contains credentials")
        if url.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(url)
        super().__init__(hdrs.METH_GET, url, loop=loop)
        self.connection_key = super().connection_key
        self.authority: str = self.headers[hdrs.HOST]


class _HeadLines:
    """
    The lines of a request's head that depend on its method and headers alone.

    ``before`` and ``after`` are those before and after the length, if there is one.

    Raises:
        ValueError: One of them could be taken for something else.
    """

    __slots__ = ("after", "before", "may_be_without_length", "method")

    def __init__(
        self,
        method: str,
        authority: str,
        given: Iterable[tuple[str, str]],
    ) -> None:
        if re.fullmatch(_METHOD, method) is None:
            raise ValueError("the method contains a character that it may not")
        self.method = method.upper()
        self.may_be_without_length = self.method in aiohttp.ClientRequest.GET_METHODS
        headers: CIMultiDict[str] = CIMultiDict()
        # Of two names that differ in case, the last one counts.
        for name, value in given:
            headers[name] = value
        taken = [name for name in _NEVER_GIVEN if name in headers]
        if taken:
            raise ValueError(f"the header {taken[0]} is set by the transport")
        fields = [(hdrs.HOST, authority), *headers.items()]
        fields += [pair for pair in _DEFAULTS.items() if pair[0] not in headers]
        # As aiohttp does, by the method alone, even if this request has no body.
        names_content_type = self.method in aiohttp.ClientRequest.POST_METHODS
        self.before = "".join(_line(*pair) for pair in fields)
        self.after = ""
        if names_content_type and hdrs.CONTENT_TYPE not in headers:
            self.after = _line(hdrs.CONTENT_TYPE, "application/octet-stream")

    def __repr__(self) -> str:
        return f"<head of {self.method}>"  # without the credential


def _line(name: str, value: str) -> str:
    """Return the line of a header; raise ``ValueError`` if a reader could take it for more than one."""
    if _CONTROL.search(name) is not None or _CONTROL.search(value) is not None:
        raise ValueError(f"the header {name!a} contains a control character")
    return f"{name}: {value}\r\n"
