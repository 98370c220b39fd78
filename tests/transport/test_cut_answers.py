"""An answer that is cut after any of its bytes: the request arrives once, and only a whole answer is one."""

from __future__ import annotations

import gzip

import pytest

from invsvc_async.reconcile.history import End
from tests.support.raw_server import (
    OK,
    RawServer,
    request_to,
    server_tls,  # noqa: F401 - a fixture
    transport_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.every_python]

FOLDED = gzip.compress(b'{"success":true}', mtime=0)
ANSWERS = {
    "a length": OK,
    "chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'9\r\n{"success\r\n7\r\n":true}\r\n0\r\n\r\n'
    ),
    "gzip": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(FOLDED), FOLDED)
    ),
    "no body": b"HTTP/1.1 204 No Content\r\nDate: Sat, 28 Nov 2026 00:00:00 GMT\r\n\r\n",
    "an interim answer before it": b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
    "an error": (
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n"
        b'{"success":false,"error":{"code":"internal_error","message":""}}'
    ),
}
METHODS = ("GET", "PUT", "POST", "DELETE")
MANNERS = ("fin", "rst")
CUT_POINTS = sum(map(len, ANSWERS.values())) * len(MANNERS)


def test_number_of_cut_points():
    """There are enough for each method, with each way to send, with TLS and without."""
    assert CUT_POINTS >= 1_168


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_answer_that_is_cut(answer, method, manner, tls, request):
    """After each of its bytes the answer is lost; the request has arrived once."""
    context = request.getfixturevalue("server_tls") if tls else None
    said = ANSWERS[answer]
    sent = 0

    async def script(peer):
        if await peer.arrival():
            await peer.send(said[:sent])
            await peer.end(manner)

    async with (
        RawServer(script, context=context) as server,
        transport_for(server) as transport,
    ):
        for sent in range(len(said)):
            exchange = request_to(server, method)

            await transport.send(exchange)

            assert (exchange.end, len(server.arrivals)) == (End.LOST, sent + 1)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_answer_that_ends_after_its_last_byte(answer, method, tls, request):
    """It is whole, also if the connection ends with it."""
    context = request.getfixturevalue("server_tls") if tls else None

    async def script(peer):
        if await peer.arrival():
            await peer.send(ANSWERS[answer])
            await peer.end("fin")

    async with (
        RawServer(script, context=context) as server,
        transport_for(server) as transport,
    ):
        exchange = request_to(server, method)

        await transport.send(exchange)

        assert (exchange.end, len(server.arrivals)) == (End.ANSWERED, 1)
