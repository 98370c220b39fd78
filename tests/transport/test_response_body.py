"""The body of an answer: what is unfolded, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
import tracemalloc
import zlib
from types import SimpleNamespace

import aiohttp
import pytest

from invsvc_async.errors import ResponseLostError
from invsvc_async.reconcile.history import End
from invsvc_async.transport.response_body import CutError, inflate, plain_error
from tests.support.raw_server import RawServer, request_to, transport_for

CAP = 1000
NOT_MARKED = (
    "only the end of the connection marks the end of the answer, so it may be truncated"
)
IN_PARTS = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
HALF = b"x" * (CAP // 2)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP "])
def test_inflate_up_to_the_cap(coding):
    """Exactly the cap is within, one byte more is not."""
    body = gzip.compress(b"x" * CAP)
    assert inflate(body, coding, cap=CAP) == b"x" * CAP
    with pytest.raises(CutError, match="longer than 999 bytes"):
        inflate(body, coding, cap=CAP - 1)


def test_inflate_of_a_bomb_in_memory():
    """It takes no more memory than the cap allows."""
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CutError):
            inflate(bomb, "gzip", cap=CAP)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 5_000, 100_000])
def test_inflate_of_many_members(size):
    """The members of a gzip body are joined, whatever their length."""
    members = [bytes([number]) + os.urandom(size) for number in range(5)]
    body = b"".join(map(gzip.compress, members))

    assert inflate(body, "gzip", cap=10**6) == b"".join(members)
    with pytest.raises(CutError, match="longer than"):
        inflate(body, "gzip", cap=5 * size + 4)


@pytest.mark.parametrize(
    ("coding", "member"),
    [("gzip", gzip.compress(b"", mtime=0)), ("deflate", b"\x03\x00")],
)
def test_inflate_of_members_without_end(coding, member):
    """Members that hold nothing are refused before they take the time of others."""
    began = time.thread_time()
    with pytest.raises(CutError, match="coding is broken"):
        inflate(member * (2**22 // len(member)), coding, cap=2**26)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("body", "coding", "words"),
    [
        (
            gzip.compress(b"hello", mtime=0)[:-4],
            "gzip",
            "the answer's gzip coding is truncated",
        ),
        (b"not gzip", "gzip", "the answer's gzip coding is broken: Error -3"),
        (
            zlib.compress(b"hello"),
            "gzip",
            "the answer's gzip coding is broken: Error -3",
        ),
        (b"\xff", "deflate", "the answer's deflate coding is broken: Error -3"),
        (
            zlib.compress(b"a") + b"more",
            "deflate",
            "the answer's deflate coding is broken: there is data after",
        ),
        (
            gzip.compress(b"a", mtime=0) + b"more",
            "gzip",
            "the answer's gzip coding is broken: Error -3",
        ),
        (
            gzip.compress(b"", mtime=0) * 10_001,
            "gzip",
            "the answer's gzip coding is broken: more than 10000 members",
        ),
        (
            gzip.compress(b"a", mtime=0) + gzip.compress(b"b" * 90, mtime=0)[:-1],
            "gzip",
            "the answer's gzip coding is truncated",
        ),
    ],
)
def test_inflate_of_what_is_damaged(body, coding, words):
    """The words name the coding and what is wrong with it."""
    with pytest.raises(CutError) as caught:
        inflate(body, coding, cap=CAP)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (TimeoutError(), TimeoutError, "no answer within the time given"),
        (TimeoutError("too slow"), TimeoutError, "too slow"),
        (CutError("cut"), ConnectionError, "cut"),
        (ValueError("bad"), ConnectionError, "ValueError: bad"),
        (
            aiohttp.ServerDisconnectedError(
                SimpleNamespace(headers={"X-Secret": "token"})
            ),
            ConnectionError,
            "ServerDisconnectedError: the connection ended within the head of the answer",
        ),
    ],
)
def test_error_in_words(error, kind, words):
    """A timeout stays one; all else is a failed connection, named by its class unless the words are ours."""
    said = plain_error(error)
    assert (type(said), str(said)) == (kind, words)


async def in_parts(peer):
    """Answer with the cap's length, in two parts."""
    while await peer.arrival():
        await peer.send(IN_PARTS % CAP, HALF)
        await asyncio.sleep(0.01)
        await peer.send(HALF)


async def test_stream_read_whole_at_the_cap():
    """``read`` joins the parts, up to the cap."""
    async with (
        RawServer(in_parts) as server,
        transport_for(server, max_response_bytes=CAP) as transport,
        transport.stream(request_to(server, "GET")) as download,
    ):
        assert await download.read() == b"x" * CAP


async def unmarked(peer):
    """Answer without a mark of the end."""
    await peer.arrival()
    await peer.send(b"HTTP/1.1 200 OK\r\n\r\nx")


async def test_stream_whose_end_is_not_marked():
    """The error says so, with the status, and its cause is what is noted on the exchange."""
    async with (
        RawServer(unmarked) as server,
        transport_for(server) as transport,
        transport.stream(exchange := request_to(server, "GET")) as download,
    ):
        with pytest.raises(
            ResponseLostError, match=r"^GET /v2/things/1: only"
        ) as caught:
            await download.read()

    assert str(exchange.error) == NOT_MARKED
    assert caught.value.status == 200
    assert caught.value.__cause__ is exchange.error


async def test_stream_between_two_parts_whose_transport_is_closed():
    """Its connection is dropped at once."""

    async def script(peer):
        await peer.arrival()
        await peer.send(IN_PARTS % CAP, HALF)
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with (
        RawServer(script) as server,
        transport_for(server) as transport,
        transport.stream(request_to(server, "GET")) as download,
    ):
        parts = aiter(download)
        assert await anext(parts)
        await transport.aclose()
        await asyncio.wait_for(left.wait(), 30)
        await parts.aclose()


async def heard(*parts):
    """Send one request; return its exchange, of which the answer came in *parts*, and the connection stays."""

    async def script(peer):
        await peer.arrival()
        for part in parts:
            await peer.send(part)
            await asyncio.sleep(0.01)
        await peer.gone()

    async with (
        RawServer(script) as server,
        transport_for(server, max_response_bytes=CAP) as transport,
    ):
        await transport.send(exchange := request_to(server, within=1.0))
        return exchange


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(size):
    """Make a chunk of *size* bytes."""
    return b"%x\r\n%s\r\n" % (size, b"x" * size)


@pytest.mark.parametrize("sizes", [(CAP,), (CAP // 2, CAP // 2), (1, CAP - 2, 1)])
async def test_body_of_the_caps_length_in_parts(sizes):
    """It is whole when its end has come, and not before: one byte more and it is lost."""
    chunks = [chunk(size) for size in sizes]

    whole = await heard(CHUNKED, *chunks, chunk(0))
    assert (whole.end, whole.answer) == (End.ANSWERED, b"x" * CAP)

    longer = await heard(CHUNKED, *chunks, chunk(1), chunk(0))
    assert (longer.end, longer.answer, longer.timed_out) == (End.LOST, b"", False)
    assert (
        str(longer.error)
        == f"the answer is longer than {CAP} bytes (max_response_bytes)"
    )


async def test_body_over_the_cap_that_stalls():
    """It is given up as soon as it is too long."""
    exchange = await heard(IN_PARTS % (3 * CAP), b"x" * 501, b"x" * 501)

    assert (exchange.end, exchange.timed_out) == (End.LOST, False)


@pytest.mark.parametrize("status", [204, 304])
async def test_answer_without_a_body(status):
    """Its status says that it ends with its head."""
    exchange = await heard(b"HTTP/1.1 %d Nothing\r\n\r\n" % status)

    assert (exchange.end, exchange.status, exchange.answer) == (
        End.ANSWERED,
        status,
        b"",
    )
