"""One call is one request on the wire, whenever and however the connection ends."""

from __future__ import annotations

import itertools
import re

import aiohttp
import pytest

from invsvc_async.reconcile.history import End
from invsvc_async.transport.send_gate import Gate
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

# Before 3.14.4, aiohttp connects anew for a PUT or DELETE that was lost; the gate lets nothing out there.
CONNECTS_ANEW = tuple(map(int, re.findall(r"\d+", aiohttp.__version__)[:3])) < (
    3,
    14,
    4,
)
HALF_HEAD = b"HTTP/1.1 200 OK\r\nContent-Le"
CALLS = {
    "GET": ("GET", b""),
    "PUT": ("PUT", b'{"name":"x"}'),
    "DELETE": ("DELETE", b""),
    "POST": ("POST", b'{"name":"x"}'),
    "POST without a body": ("POST", b""),
    "PATCH": ("PATCH", b'{"name":"x"}'),
}
# When the server ends the connection: how much of the request it reads, what it says first.
TIMINGS = {
    "at the first byte": ("byte", ()),
    "after the head": ("head", ()),
    "after the whole": ("body", ()),
    "after one byte of the answer": ("body", (b"H",)),
    "in the middle of the answer's head": ("body", (HALF_HEAD,)),
    "after the answer's head": ("body", (OK[:-16],)),
    "in the middle of the answer's body": ("body", (OK[:-16], OK[-16:-3])),
    "with half an answer after one byte": ("byte", (HALF_HEAD,)),
}


def ending(upto, say, manner, *, warm):
    """Make a script that ends the connection of its last request in *manner*; *warm*: not its first."""

    async def script(peer):
        if warm:
            await peer.arrival()
            await peer.send(OK)
        if await peer.arrival(upto=upto):
            await peer.send(*say)
            await peer.end(manner)

    return script


@pytest.mark.parametrize("manner", ["fin", "rst"])
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("call", CALLS)
@on_both_loops
async def test_request_whose_connection_ends(call, timing, manner):
    """On a fresh connection and on a reused one, it arrives once and ends as lost."""
    method, content = CALLS[call]
    upto, say = TIMINGS[timing]
    for warm in (False, True):
        async with (
            RawServer(ending(upto, say, manner, warm=warm)) as server,
            transport_for(server) as transport,
        ):
            if warm:
                await transport.send(first := request_to(server, "GET"))
                assert first.end is End.ANSWERED
            exchange = request_to(server, method, content=content)

            await transport.send(exchange)

            assert exchange.end is End.LOST
            assert exchange.error is not None
            assert len(server.arrivals) == 1 + warm
            assert server.connections <= 1 + CONNECTS_ANEW


@pytest.mark.slow
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("call", ["GET", "PUT", "DELETE"])
@on_both_loops
async def test_request_whose_tls_connection_ends(call, timing, server_tls):  # noqa: F811 - the fixture
    """Inside TLS, too, it arrives once and ends as lost."""
    method, content = CALLS[call]
    upto, say = TIMINGS[timing]
    for warm, manner in itertools.product((False, True), ("fin", "rst")):
        script = ending(upto, say, manner, warm=warm)
        async with (
            RawServer(script, context=server_tls) as server,
            transport_for(server) as transport,
        ):
            if warm:
                await transport.send(request_to(server, "GET"))
            exchange = request_to(server, method, content=content)

            await transport.send(exchange)

            assert exchange.end is End.LOST
            assert len(server.arrivals) == 1 + warm


@pytest.mark.parametrize("call", CALLS)
@on_both_loops
async def test_request_whose_connection_ends_before_it(call):
    """A connection that ends when it is accepted takes no request twice; none that was read is called not sent."""
    method, content = CALLS[call]

    async def script(peer):
        await peer.end("rst")

    async with RawServer(script) as server, transport_for(server) as transport:
        exchange = request_to(server, method, content=content)

        await transport.send(exchange)

        assert exchange.end in {End.LOST, End.NOT_SENT}
        assert server.connections == 1
        assert server.arrivals == []


@pytest.mark.parametrize("call", CALLS)
@on_both_loops
async def test_request_that_is_answered(call):
    """What goes out is what plain aiohttp would send, credential, body and length included, on one connection."""
    method, content = CALLS[call]
    async with RawServer(obliging) as server, transport_for(server) as transport:
        for _ in range(2):
            exchange = request_to(server, method, content=content)

            await transport.send(exchange)

            assert (exchange.end, exchange.status, exchange.answer) == (
                End.ANSWERED,
                200,
                b'{"success":true}',
            )
            assert exchange.answer_headers["Content-Type"] == "application/json"
            assert exchange.started <= exchange.ended
    assert server.connections == 1
    for came in server.arrivals:
        assert came.method == method
        assert came.body == content
        assert came.header("Authorization") == "Bearer secret-token"
        assert came.header("Content-Length") == (
            None if method == "GET" else str(len(content))
        )
        assert came.header("Transfer-Encoding") is None
    assert len(server.arrivals) == 2


@pytest.mark.parametrize("call", CALLS)
async def test_request_beside_plain_aiohttp(call):
    """Method, line and headers are those that aiohttp would send by itself."""
    method, content = CALLS[call]
    async with (
        RawServer(obliging) as server,
        transport_for(server) as transport,
        aiohttp.ClientSession() as plain,
    ):
        exchange = request_to(server, method, content=content)
        await transport.send(exchange)
        coding = {"Accept-Encoding": "gzip, deflate" if method == "GET" else "identity"}
        async with plain.request(
            method,
            server.url,
            data=content or None,
            headers={**exchange.headers, **coding},
        ):
            pass

    ours, theirs = (
        sorted(each.head.lower().split(b"\r\n")) for each in server.arrivals
    )
    assert ours == theirs


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_write_that_aiohttp_would_repeat(method, monkeypatch):
    """The gate opens once even where aiohttp takes its body for one that can be sent again."""
    # reaches: aiohttp then takes its body for one that it may send again
    monkeypatch.setattr(Gate, "_consumed", False)
    script = ending("head", (), "rst", warm=False)
    async with RawServer(script) as server, transport_for(server) as transport:
        await transport.send(exchange := request_to(server, method))

        assert (exchange.end, len(server.arrivals)) == (End.LOST, 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@on_both_loops
async def test_request_that_is_redirected(method, status):
    """A redirect is an answer: nothing follows it, so no credential does."""

    async def script(peer):
        while await peer.arrival():
            await peer.send(
                b"HTTP/1.1 %d Moved\r\nLocation: http://127.0.0.1:9/stolen\r\nContent-Length: 0\r\n\r\n"
                % status
            )

    async with RawServer(script) as server, transport_for(server) as transport:
        exchange = request_to(server, method)

        await transport.send(exchange)

        assert (exchange.end, exchange.status, len(server.arrivals)) == (
            End.ANSWERED,
            status,
            1,
        )
