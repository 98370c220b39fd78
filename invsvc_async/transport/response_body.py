"""
Read an answer's body, whole or as it arrives, under a cap; never take a cut one for whole.

A failure is told in words: aiohttp's exceptions hold the request's headers, and their frames hold more.
"""

from __future__ import annotations

import zlib
from itertools import count
from typing import TYPE_CHECKING

from aiohttp import hdrs

from invsvc_async._errors import NotSentError, ResponseLostError
from invsvc_async.reconcile.enums import End
from invsvc_async.transport.send_gate import OwnError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from multidict import CIMultiDictProxy

    from invsvc_async._errors import TransportError
    from invsvc_async.transport.send_gate import Gate

__all__ = ["CutError", "Download", "body_at_hand", "failure", "in_words", "inflate", "whole_body"]

_MOST_MEMBERS = 10_000  # of a gzip body: 64 MiB in the blocks of bgzip, the smallest in use, have a tenth
_STEP = 2**14  # bytes of a further member at once


class CutError(OwnError):
    """No whole body can be had of this answer."""


class Download:
    """
    An answer whose body is read while it arrives: ``async for part in download``, once.

    ``status`` and ``headers`` are here from the start.
    """

    def __init__(self, response: aiohttp.ClientResponse, gate: Gate, *, pause: float, cap: int) -> None:
        self.status: int = response.status
        self.headers: CIMultiDictProxy[str] = response.headers
        self._response = response
        self._gate = gate
        self._pause = pause
        self._cap = cap

    async def read(self) -> bytes:
        """
        Return the whole body, of at most the transport's ``max_response_bytes``.

        Raises:
            ResponseLostError: It did not arrive whole, or is longer.

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
            if part := await self._next_part():
                yield part
        if not _is_framed(self._response):
            raise self._lost(_unmarked())
        self._gate.exchange.end = End.ANSWERED

    async def _next_part(self) -> bytes:
        try:
            with self._gate.bounded(self._gate.now() + self._pause) as self._gate.scope:
                return await self._response.content.readany()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest is lost
            raise self._lost(error) from None
        finally:
            self._gate.scope = None

    def _lost(self, error: Exception) -> TransportError:
        self._gate.exchange.error = in_words(error)
        self._gate.exchange.timed_out = isinstance(error, TimeoutError)
        return failure(self._gate)


async def whole_body(response: aiohttp.ClientResponse, *, cap: int) -> bytes:
    """
    Return the body of *response*, unfolded.

    Raises:
        CutError: It is over *cap* bytes (received or unfolded), its end is not marked, or its coding is cut.
        Exception: Anything of aiohttp's, where it is cut or stalls.

    """
    if not _is_framed(response):
        raise _unmarked()
    content = response.content
    body = await content.readany()
    if not content.at_eof() and len(body) <= cap:
        parts, left = [body], cap - len(body)
        while left >= 0 and not content.at_eof():
            parts.append(await content.readany())
            left -= len(parts[-1])
        body = b"".join(parts)
    return _unfolded(response, body, cap)


def body_at_hand(response: aiohttp.ClientResponse, *, cap: int) -> bytes | None:
    """
    Return the body, unfolded, if it all came with the head, as short ones do; else ``None``.

    Raises:
        CutError: As :func:`whole_body`.

    """
    content = response.content
    return (
        _unfolded(response, content.read_nowait(), cap) if content.is_eof() and _is_framed(response) else None
    )


def _unfolded(response: aiohttp.ClientResponse, body: bytes, cap: int) -> bytes:
    if len(body) > cap:
        raise _too_long(cap)
    coding = response.headers.get(hdrs.CONTENT_ENCODING)
    return inflate(body, coding, cap=cap) if coding else body


def _is_framed(response: aiohttp.ClientResponse) -> bool:
    if response.status in {204, 304} or response.method == hdrs.METH_HEAD:
        return True
    headers = response.headers
    if coding := headers.getall(hdrs.TRANSFER_ENCODING, None):
        return coding[-1].rpartition(",")[2].strip().lower() == "chunked"
    return hdrs.CONTENT_LENGTH in headers


def inflate(body: bytes, coding: str, *, cap: int) -> bytes:
    """
    Return the bytes that *body* stands for; as received where *coding* is none that was asked for.

    Raises:
        CutError: It is cut or broken, or more than *cap* bytes long; no more than that is ever unfolded.

    """
    name = coding.strip().lower()
    if not body or name not in {"gzip", "x-gzip", "deflate"}:
        return body
    parts: list[bytes] = []
    left = cap
    rest, step = memoryview(body), len(body)  # the usual body is one member, taken in one step
    for member in count(1):
        reader = zlib.decompressobj(_window(name, rest))
        while not reader.eof:
            if not rest:
                raise CutError(f"the answer's {name} coding is cut short")
            taken, rest = rest[:step], rest[step:]
            try:
                parts.append(reader.decompress(taken, left + 1))
            except zlib.error as error:
                raise _broken(name, error) from None
            left -= len(parts[-1])
            if left < 0:
                raise _too_long(cap)
        if not (rest or reader.unused_data):
            break
        rest = memoryview(body)[len(body) - len(rest) - len(reader.unused_data) :]
        step = _STEP  # zlib copies what it was given beyond the member's end: no more than this, each time
        _check_another(name, member)
    return b"".join(parts)


def _check_another(name: str, members: int) -> None:
    """Refuse a second stream of deflate, which is one; and more members of gzip than any honest body has."""
    if name == "deflate":
        raise _broken(name, "it goes on behind its end")
    if members == _MOST_MEMBERS:
        raise _broken(name, f"more than {_MOST_MEMBERS} members")


def _window(name: str, body: memoryview) -> int:
    if name != "deflate":
        return 16 + zlib.MAX_WBITS
    # Some servers leave out the zlib wrapper that "deflate" stands for.
    return zlib.MAX_WBITS if body[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS


def _broken(name: str, why: object) -> CutError:
    return CutError(f"the answer's {name} coding is broken: {why}")


def _too_long(cap: int) -> CutError:
    return CutError(f"the answer is longer than {cap} bytes (max_response_bytes)")


def _unmarked() -> CutError:
    return CutError("only the connection's end marks the answer's: it cannot be told from a cut one")


def in_words(error: Exception) -> Exception:
    """Say what *error* says in an exception that holds nothing but the words."""
    if isinstance(error, TimeoutError):
        return TimeoutError(str(error) or "no answer within the time given")
    return ConnectionError(str(error) if isinstance(error, OwnError) else f"{type(error).__name__}: {error}")


def failure(gate: Gate) -> TransportError:
    """Make the exception that a stream raises for what is noted on its exchange."""
    exchange = gate.exchange
    kind = ResponseLostError if gate.opened else NotSentError
    raised = kind(f"{exchange.method} {exchange.url.path}: {exchange.error}", status=exchange.status)
    raised.__cause__ = exchange.error
    return raised
