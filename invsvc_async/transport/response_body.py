"""
Reading an answer's body, all at once or as it arrives, up to a size limit.

A truncated body is an error. Errors keep only a message, because aiohttp's exceptions refer to the request's
headers.
"""

from __future__ import annotations

import re
import zlib
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
from aiohttp import hdrs
from aiohttp.http_exceptions import HttpProcessingError, TransferEncodingError

from invsvc_async.errors import NotSentError, ResponseLostError, TransportError
from invsvc_async.reconcile.enums import End
from invsvc_async.transport.send_gate import Gate, OwnError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from multidict import CIMultiDictProxy

    from invsvc_async.transport.lean_sender import LeanResponse


# of a gzip body: 64 MiB in blocks of bgzip, the smallest in use, are 1,000
_MOST_MEMBERS = 10_000
# What aiohttp's errors quote of an answer that is no HTTP, such as the end of a body with a webhook's secret:
# from the first quotation mark on, with or without a b before it. Compiled at first use, as is the next one.
_QUOTED = r"""(?s)(?<!\s)\s*(\bb)?['"].*"""
# The same in errors that also quote what may stay, as in "Connect call failed ('127.0.0.1', 80)". So only a
# quotation mark with a b before counts, as of bytes; a backslash is between in an error that quotes another.
_QUOTED_BYTES = r"""(?s)(?<!\s)\s*\bb\\*['"].*"""
_STEP = 2**14  # bytes of a further member at once


# the head of an answer, and the stream of its body
ReadableResponse: TypeAlias = "aiohttp.ClientResponse | LeanResponse"


class CutError(OwnError):
    """The body of this answer is not complete."""


class Download:
    """
    An answer whose body is read while it arrives. Iterate over it once, with ``async for``.

    ``status`` and ``headers`` are known from the start.
    """

    def __init__(
        self,
        response: ReadableResponse,
        gate: Gate,
        *,
        longest_wait: float,
        cap: int,
    ) -> None:
        self.status: int = response.status
        self.headers: CIMultiDictProxy[str] = response.headers
        self._response = response
        self._gate = gate
        self._longest_wait = longest_wait  # s, for more bytes
        self._cap = cap

    async def read(self) -> bytes:
        """
        Return the whole body, of at most the transport's ``max_response_bytes``.

        Raises:
            ResponseLostError: It did not arrive completely, or is longer.
        """
        parts: list[bytes] = []
        left = self._cap
        async for part in self:
            left -= len(part)
            if left < 0:
                raise self._lost(_too_long(self._cap))
            parts.append(part)
        return b"".join(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._response.content
        while not content.at_eof():
            try:
                # noted in the gate, so that the close of the client can end it
                with self._gate.within(self._longest_wait) as self._gate.wait_limit:
                    part = await content.readany()
            except Exception as error:  # noqa: BLE001 - after any error, the rest is lost
                raise self._lost(error) from None
            finally:
                self._gate.wait_limit = None
            if part:
                yield part
        if not _is_framed(self._response):
            raise self._lost(_unmarked())
        # Left as LOST by a reader that stops earlier: the answer has not been read.
        self._gate.exchange.end = End.ANSWERED

    def _lost(self, error: Exception) -> TransportError:
        """Record the *error* after which the rest of the body is lost, and return the exception to raise."""
        self._gate.exchange.error = plain_error(error)
        self._gate.exchange.timed_out = isinstance(error, TimeoutError)
        return failure(self._gate)


async def whole_body(response: ReadableResponse, *, cap: int) -> bytes:
    """
    Return the body of *response*, decompressed.

    Raises:
        CutError: It has more than *cap* bytes (received or decompressed), its end is not marked, or its
            coding is truncated.
        Exception: Any exception of aiohttp, if the body is truncated or stalls.
    """
    if not _is_framed(response):
        raise _unmarked()
    content = response.content
    body = await content.readany()
    if not content.at_eof() and len(body) <= cap:
        parts = [body]
        left = cap - len(body)
        while left >= 0 and not content.at_eof():
            parts.append(await content.readany())
            left -= len(parts[-1])
        body = b"".join(parts)
    return _decompressed(response, body, cap)


def body_at_hand(response: ReadableResponse, *, cap: int) -> bytes | None:
    """
    Return the body, decompressed, if all of it arrived with the head; otherwise ``None``.

    Raises:
        CutError: As :func:`whole_body`.
    """
    content = response.content
    if not (content.is_eof() and _is_framed(response)):
        return None
    body = content.read_nowait()
    if len(body) > cap or hdrs.CONTENT_ENCODING in response.headers:
        return _decompressed(response, body, cap)
    return body


def _decompressed(
    response: ReadableResponse,
    body: bytes,
    cap: int,
) -> bytes:
    """Return the *body* of *response* without its coding; raise ``CutError`` over *cap* bytes."""
    if len(body) > cap:
        raise _too_long(cap)
    coding = response.headers.get(hdrs.CONTENT_ENCODING)
    if coding:
        return inflate(body, coding, cap=cap)
    return body


def _is_framed(response: ReadableResponse) -> bool:
    """Return whether the end of the body is marked, so that a truncated body is noticed."""
    headers = response.headers
    if hdrs.TRANSFER_ENCODING in headers:
        coding = headers.getall(hdrs.TRANSFER_ENCODING)[-1]
        is_marked = coding.rpartition(",")[2].strip().lower() == "chunked"
    else:
        is_marked = hdrs.CONTENT_LENGTH in headers
    if is_marked:
        return True
    return response.status in {204, 304} or response.method == hdrs.METH_HEAD


def inflate(body: bytes, coding: str, *, cap: int) -> bytes:
    """
    Return *body* decompressed, or as received if *coding* is not one that was requested.

    Raises:
        CutError: It is truncated, broken, or more than *cap* bytes long. No more than that is decompressed.
    """
    name = coding.strip().lower()
    if not body or name not in {"gzip", "x-gzip", "deflate"}:
        return body
    data = memoryview(body)
    parts: list[bytes] = []
    left = cap  # bytes that may still come out
    at = 0  # in the body: what is before it is decompressed
    step = len(body)  # the usual body is one member, decompressed in one step
    for member in count(1):  # a gzip body may be several, one after the other
        reader = zlib.decompressobj(_window(name, data[at:]))
        while not reader.eof:
            # One byte more than may come: so zlib never keeps input back without that being noticed here.
            part = _next_part(reader, name, data[at : at + step], left + 1)
            at = min(at + step, len(body))
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise _too_long(cap)
        # Back to the end of the member, where the next one begins.
        at -= len(reader.unused_data)
        if at == len(body):
            break
        step = _STEP  # zlib copies its input beyond the end of the member, so give it little at a time
        if name == "deflate":
            raise _broken(name, "there is data after its end")
        if member == _MOST_MEMBERS:
            raise _broken(name, f"more than {_MOST_MEMBERS} members")
    return b"".join(parts)


def _next_part(
    reader: zlib._Decompress,
    name: str,
    data: memoryview,
    most: int,
) -> bytes:
    """Return the next part of a member, at most *most* bytes, from *data*."""
    if not data:
        raise CutError(f"the answer's {name} coding is truncated")
    try:
        return reader.decompress(data, most)
    except zlib.error as error:
        raise _broken(name, error) from None


def _window(name: str, body: memoryview) -> int:
    """Return what tells zlib which wrapper is around the *body* of the coding *name*."""
    if name != "deflate":
        return 16 + zlib.MAX_WBITS
    # Some servers omit the zlib wrapper that "deflate" requires.
    if body[0] & 0x0F == zlib.DEFLATED:
        return zlib.MAX_WBITS
    return -zlib.MAX_WBITS


def _broken(name: str, why: object) -> CutError:
    return CutError(f"the answer's {name} coding is broken: {why}")


def _too_long(cap: int) -> CutError:
    return CutError(f"the answer is longer than {cap} bytes (max_response_bytes)")


def _unmarked() -> CutError:
    return CutError(
        "only the end of the connection marks the end of the answer, so it may be truncated"
    )


def plain_error(error: Exception) -> Exception:
    """Return an exception with the message of *error*, but nothing that it quotes of the answer."""
    if isinstance(error, TimeoutError):
        return TimeoutError(str(error) or "no answer within the time given")
    if isinstance(error, OwnError):
        return ConnectionError(str(error))
    text = _without_quotes(error)
    return ConnectionError(
        f"{type(error).__name__}: {' '.join(text.split())}".rstrip(": ")
    )


def _without_quotes(error: Exception) -> str:
    """Return the message of *error*, without what it quotes of the answer."""
    if isinstance(error, TransferEncodingError):
        return ""  # its message may be a part of the body, and nothing else
    # The parser's errors have a status and a URL, as if the service had answered.
    if isinstance(error, (aiohttp.ClientResponseError, HttpProcessingError)):
        return re.sub(_QUOTED, "", error.message)
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(
        error.message, str
    ):
        return "the connection ended within the head of the answer"  # which the message would quote
    return re.sub(_QUOTED_BYTES, "", str(error))


def failure(gate: Gate) -> TransportError:
    """Make the exception of a stream, from the record of its exchange."""
    exchange = gate.exchange
    kind = ResponseLostError if gate.opened else NotSentError
    raised = kind(
        f"{exchange.method} {exchange.url.path}: {exchange.error}",
        status=exchange.status,
    )
    raised.__cause__ = exchange.error
    return raised
