"""Sending through aiohttp's connections: the same bytes as with its session, and what ends a connection."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy, istr
from yarl import URL

from invsvc_async.reconcile.history import End
from invsvc_async.transport import sender_choice
from invsvc_async.transport.exchange import Exchange
from invsvc_async.transport.lean_sender import LeanSender
from invsvc_async.transport.session_sender import SessionSender
from invsvc_async.transport.transport import Transport
from tests.support.raw_server import (
    OK,
    RawServer,
    obliging,
    on_both_loops,
    request_to,
    server_tls,  # noqa: F401 - a fixture
    transport_for,
)

pytestmark = pytest.mark.every_python


@pytest.fixture(autouse=True)
def sender(monkeypatch):
    """Send through aiohttp's connections, whatever its version."""
    monkeypatch.setattr(sender_choice, "IS_ON", True)
    monkeypatch.setattr(sender_choice, "TESTED", {aiohttp.__version__})


CALLS = [
    ("GET", None, False),
    ("HEAD", None, False),
    ("OPTIONS", None, False),
    ("get", None, False),
    ("GET", b"{}", False),
    ("PUT", b'{"name":"x"}', True),
    ("POST", b"x" * 300_000, True),
    ("POST", b"", True),
    ("POST", None, True),
    ("PATCH", None, True),
    ("PUT", None, False),
    ("DELETE", None, True),
    ("DELETE", None, False),
    ("DELETE", b"{}", True),
    ("QUERY", None, False),
]
TARGETS = [
    "/v2/things/1",
    "",
    "/",
    "/v2/a%2Fb/%C3%A9?x=1%2C2&y=%20&z=+",
    "/v2/é?x=é",
    "/v2/a b",
    "/v2/x?",
    "/v2/x?a=1#part",
    "/v2/../x//y/.",
]
HEADERS = {
    "none": {},
    "the client's": CIMultiDictProxy(
        CIMultiDict(
            {
                istr("Authorization"): "Bearer t",
                "User-Agent": "invsvc",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
            }
        )
    ),
    "odd": {
        "accept": "text/csv",
        "ACCEPT": "application/json",
        "X-Größe": "é \t\N{SNOWMAN}",
        "Cookie": "a=b",
        "Connection": "close",
        "x-empty": "",
    },
}


def whole(server, method, content, target, headers, *, write):
    """Return the exchange of a request to *target* of *server*."""
    url = URL(f"{server.url.origin()}{target}", encoded=True)
    deadline = asyncio.get_running_loop().time() + 20
    return Exchange(
        method=method,
        url=url,
        headers=headers,
        content=content,
        write=write,
        deadline=deadline,
    )


async def arrived(server, sender, exchange):
    """Return what arrives at *server* when *exchange* is sent; *sender* is forced beside it."""
    async with transport_for(server) as transport:
        await transport.send(exchange)
        assert type(transport.connections._sender) is sender
    came = server.arrivals.pop()
    return came.head, came.body, exchange.end, exchange.status


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}-{call[2]}")
async def test_bytes_on_the_wire(call, headers, monkeypatch):
    """They are the same on both ways, for each method, body, path and header."""
    method, content, write = call
    async with RawServer(obliging) as server:
        for target in TARGETS:
            seen = []
            for sender in (LeanSender, SessionSender):
                tested = {aiohttp.__version__} if sender is LeanSender else set()
                monkeypatch.setattr(sender_choice, "TESTED", tested)
                exchange = whole(
                    server, method, content, target, HEADERS[headers], write=write
                )
                seen.append(await arrived(server, sender, exchange))
            assert seen[0] == seen[1]


async def test_interim_answers():
    """They are passed over, and the connection is used again."""

    async def script(peer):
        while await peer.arrival():
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", OK)

    async with RawServer(script) as server, transport_for(server) as transport:
        for method in ("GET", "PUT"):
            await transport.send(exchange := request_to(server, method))
            assert (exchange.end, exchange.status) == (End.ANSWERED, 200)
        assert server.connections == 1


# An answer, whether the connection may be used again, and how the request ends.
LAST_ANSWERS = {
    "whole": (OK, True, End.ANSWERED),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", True, End.ANSWERED),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        True,
        End.ANSWERED,
    ),
    "the service closes": (
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        False,
        End.ANSWERED,
    ),
    "of HTTP/1.0": (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), False, End.ANSWERED),
    "and another": (OK + OK, False, End.ANSWERED),
    "too long": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + b" " * 90_000,
        True,  # it was received to its end
        End.LOST,
    ),
    "too long, and not all here": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b" " * 90_000,
        False,
        End.LOST,
    ),
    "another protocol": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        False,
        End.LOST,
    ),
}


@pytest.mark.parametrize("last", LAST_ANSWERS)
async def test_connection_after_an_answer(last):
    """It is used again only if all of the answer, and nothing else, came over it."""
    answer, is_reused, end = LAST_ANSWERS[last]

    async def script(peer):
        await peer.arrival()
        peer.writer.write(answer)
        while await peer.arrival():
            await peer.send(OK)

    async with (
        RawServer(script) as server,
        transport_for(server, max_response_bytes=50_000) as transport,
    ):
        await transport.send(exchange := request_to(server))
        assert exchange.end is end
        server._script = obliging
        await transport.send(exchange := request_to(server))
        assert (exchange.end, exchange.status) == (End.ANSWERED, 200)
        assert server.connections == (1 if is_reused else 2)


async def early_answers(context):
    """Answer a long request that has not arrived, then another one, which must use another connection."""

    async def script(peer):
        await peer.arrival(upto="head")
        await peer.send(OK)
        await peer.gone()

    async def later(peer):
        peer.server._script = obliging
        await script(peer)

    async with (
        RawServer(later, context=context) as server,
        transport_for(server) as transport,
    ):
        large = request_to(server, content=b"x" * 30_000_000)
        await transport.send(large)
        assert (large.end, large.status) == (End.ANSWERED, 200)
        await transport.send(exchange := request_to(server))
        assert exchange.end is End.ANSWERED
        assert server.connections == 2


@on_both_loops
async def test_answer_before_the_request_has_left():
    """Its connection is not used again: the rest of the request would be in the way of the next one."""
    await early_answers(None)


async def test_answer_before_the_request_has_left_over_tls(server_tls):  # noqa: F811 - the fixture
    """The same below TLS, where asyncio has a buffer of its own."""
    await early_answers(server_tls)


async def test_request_that_is_too_late():
    """It is refused by the gate, before a byte of it is written."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        exchange = request_to(server, not_after=0.0)
        await transport.send(exchange)
        assert exchange.end is End.NOT_SENT
        await transport.send(last := request_to(server, "GET"))
        assert last.end is End.ANSWERED
        assert [each.method for each in server.arrivals] == ["GET"]


async def test_cancelled_wait_for_an_answer():
    """The next request gets its own answer, not that of the one that was cancelled."""
    other = OK.replace(b"200 OK", b"201 Created")

    async def script(peer):
        while came := await peer.arrival():
            if came.body == b"first":
                await peer.arrival(upto="byte")
                await peer.send(other)
            await peer.send(OK)

    async with RawServer(script) as server, transport_for(server) as transport:
        first = request_to(server, content=b"first")
        sending = asyncio.create_task(transport.send(first))
        await server.came()
        sending.cancel()
        await asyncio.wait([sending])
        assert first.end is End.LOST
        await transport.send(exchange := request_to(server))
        assert (exchange.end, exchange.status) == (End.ANSWERED, 200)


NEVER_SENT = {
    "a control character in the path": {"target": "/v2/x\x0bHost"},
    "a line break in a value": {"headers": {"X-More": "a\r\nHost: other"}},
    "a line break in a name": {"headers": {"X\r\nHost": "other"}},
    "half a character": {"headers": {"X-More": "\ud83d"}},
    "another host": {"headers": {"host": "other"}},
    "a length": {"headers": {"content-length": "1"}},
    "a wait before the body": {"headers": {"Expect": "100-continue"}},
    "chunks": {"headers": {"Transfer-Encoding": "chunked"}},
    "a coding": {"headers": {"Content-Encoding": "gzip"}},
    "a space in the method": {"method": "GET /x"},
}


@pytest.mark.parametrize("wrong", NEVER_SENT)
async def test_request_that_could_be_taken_for_another(wrong):
    """It is not sent, and no connection is made."""
    given = {"method": "PUT", "target": "/v2/x", "headers": {}} | NEVER_SENT[wrong]
    async with RawServer(obliging) as server, transport_for(server) as transport:
        exchange = whole(
            server,
            given["method"],
            b"{}",
            given["target"],
            given["headers"],
            write=True,
        )
        await transport.send(exchange)

        assert exchange.end is End.NOT_SENT
        assert "secret" not in str(exchange.error)
        assert server.connections == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1/v2/x", "ftp"),
        ("http://user:secret@127.0.0.1:1/v2/x", "contains credentials"),
        ("/v2/x", ""),
    ],
)
async def test_address_that_is_none_of_a_service(url, words):
    """It is not sent to, and a credential in it is not in the error."""
    exchange = Exchange(
        method="GET",
        url=URL(url),
        headers={},
        deadline=asyncio.get_running_loop().time() + 20,
    )
    transport = Transport()
    await transport.send(exchange)
    await transport.aclose()

    assert exchange.end is End.NOT_SENT
    assert words in str(exchange.error)
    assert "secret" not in str(exchange.error)


async def test_many_tokens_and_destinations():
    """What is kept of them is bounded."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        for number in range(200):
            url = server.url.with_host(f"127.0.0.{1 + number % 2}")
            headers = {"Authorization": f"Bearer {number}"}
            exchange = whole(server, "PUT", b"{}", url.path, headers, write=True)
            await transport.send(exchange)
            assert exchange.end is End.ANSWERED
            assert server.arrivals[-1].header("Authorization") == f"Bearer {number}"
        assert len(transport.connections._sender._heads) <= 64
