"""Whether bytes have left is told by evidence: NOT_SENT only where the server can have seen nothing."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time

import pytest
from yarl import URL

from invsvc_async.reconcile.history import End
from tests.support.raw_server import (
    OK,
    RawServer,
    obliging,
    on_both_loops,
    request_to,
    server_tls,  # noqa: F401 - a fixture
    silent,
    transport_for,
)
from tests.support.virtual_time import HandClock

pytestmark = pytest.mark.every_python


class FullQueue:
    """A listener whose queue is full: a connection to it is never made, nor refused."""

    async def __aenter__(self):
        self._sock = socket.socket()
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen(0)
        self.url = URL(f"http://127.0.0.1:{self._sock.getsockname()[1]}/v2/things/1")
        self._waiting = [socket.socket() for _ in range(2)]
        for each in self._waiting:
            each.setblocking(False)
            each.connect_ex(self._sock.getsockname())
        return self

    async def __aexit__(self, *_):
        for each in (*self._waiting, self._sock):
            each.close()


class ThreadedPeer:
    """
    A server in a thread of its own, which answers once, then does *after* while the client's loop stands still.

    So what it does is in the kernel, and unseen by the loop, when the next request is about to leave.
    """

    def __init__(self, after, *, context=None):
        self._after = after
        self._context = context
        self._act = threading.Event()
        self._done = threading.Event()
        self._stop = threading.Event()
        self.heard = b""

    async def __aenter__(self):
        self._sock = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if self._context else "http"
        self.url = URL(
            f"{scheme}://127.0.0.1:{self._sock.getsockname()[1]}/v2/things/1"
        )
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    async def __aexit__(self, *_):
        self._act.set()
        self._stop.set()
        self._sock.close()
        await asyncio.to_thread(self._thread.join)

    def stand_still(self):
        """Block the loop until the server has acted."""
        self._act.set()
        assert self._done.wait(30)

    def _serve(self):
        accepted, _ = self._sock.accept()
        link = (
            self._context.wrap_socket(accepted, server_side=True)
            if self._context
            else accepted
        )
        link.recv(65536)
        link.sendall(OK)
        self._act.wait(30)
        self._after(link)
        self._done.set()
        self._stop.wait(30)
        try:
            link.settimeout(0)
            self.heard = link.recv(65536)
        except OSError:
            pass
        link.close()


def end_by_fin(link):
    """Close the sending side."""
    link.shutdown(socket.SHUT_WR)


def end_by_rst(link):
    """Reset."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    link.close()


def speak_unasked(link):
    """Send an answer to nothing."""
    link.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("after", [end_by_fin, end_by_rst, speak_unasked])
@pytest.mark.parametrize(
    ("method", "lane"), [("PUT", "call"), ("DELETE", "call"), ("GET", "settle")]
)
@on_both_loops
async def test_request_when_the_kernel_knows_better(method, lane, after):
    """A connection on which the peer acted unseen is not used: nothing is sent, and nothing taken as the answer."""
    async with ThreadedPeer(after) as server, transport_for(server) as transport:
        await transport.send(request_to(server, "GET"))
        server.stand_still()
        exchange = request_to(server, method, content=b"", lane=lane)

        await transport.send(exchange)

        assert exchange.end is End.NOT_SENT
        assert exchange.status is None
    assert server.heard == b""


@on_both_loops
async def test_write_when_the_kernel_knows_better_inside_tls(server_tls):  # noqa: F811 - the fixture
    """The end of a TLS connection is seen as well."""

    def end(link):
        socket.socket(fileno=link.detach()).close()

    async with (
        ThreadedPeer(end, context=server_tls) as server,
        transport_for(server) as transport,
    ):
        await transport.send(request_to(server, "GET"))
        server.stand_still()
        exchange = request_to(server)

        await transport.send(exchange)

        assert exchange.end is End.NOT_SENT


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@on_both_loops
async def test_request_when_a_stale_answer_was_read(method):
    """An answer that came to nothing on an idle connection is not taken for the next request's."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK)
        await spoken.wait()
        await peer.send(OK.replace(b"true}", b"oops}"))
        said.set()
        await peer.gone()

    spoken, said = asyncio.Event(), asyncio.Event()
    async with RawServer(script) as server, transport_for(server) as transport:
        await transport.send(request_to(server, "GET"))
        spoken.set()
        await said.wait()
        await asyncio.sleep(0.01)  # the loop reads it
        exchange = request_to(server, method)

        await transport.send(exchange)

        assert exchange.end is End.NOT_SENT
        assert exchange.answer == b""
        assert "stale" in str(exchange.error)
        assert len(server.arrivals) == 1


@pytest.mark.parametrize("method", ["GET", "PUT"])
@on_both_loops
async def test_request_that_nobody_listens_to(method):
    """A refused connection is not sent, and not timed out."""
    async with RawServer(obliging) as server:
        pass
    async with transport_for(server) as transport:
        exchange = request_to(server, method)

        await transport.send(exchange)

        assert (exchange.end, exchange.timed_out) == (End.NOT_SENT, False)
        assert "connect" in str(exchange.error).lower()


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("GET", "url", URL("ftp://127.0.0.1/x")),
        ("PUT", "url", URL("ftp://127.0.0.1/x")),
        ("PUT", "headers", {"Authorization": "secret-token\r\nX-More: y"}),
    ],
)
async def test_request_that_cannot_be_written(method, name, value):
    """What is not HTTP, or has a header with a line break, is not sent, and the error does not hold the token."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        exchange = request_to(server, method)
        setattr(exchange, name, value)

        await transport.send(exchange)

        assert (exchange.end, server.arrivals) == (End.NOT_SENT, [])
        assert "secret-token" not in repr(exchange.error)


@on_both_loops
async def test_write_to_a_certificate_nobody_vouches_for(server_tls):  # noqa: F811 - the fixture
    """TLS is verified by default, and a handshake that fails is not sent."""
    async with (
        RawServer(obliging, context=server_tls) as server,
        transport_for(server, ssl=True) as transport,
    ):
        exchange = request_to(server)

        await transport.send(exchange)

        assert exchange.end is End.NOT_SENT
        assert "certificate" in str(exchange.error).lower()
        assert server.arrivals == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_request_that_cannot_connect(method):
    """The time to connect bounds the connection; running out of it is not sent and timed out."""
    async with FullQueue() as server, transport_for(server) as transport:
        exchange = request_to(server, method, connect_timeout=0.05)

        await transport.send(exchange)

        assert (exchange.end, exchange.timed_out) == (End.NOT_SENT, True)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@on_both_loops
async def test_request_whose_deadline_has_passed(method):
    """Even on a warm connection nothing leaves after the deadline."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        await transport.send(request_to(server, "GET"))
        exchange = request_to(server, method, within=0.0)

        await transport.send(exchange)

        assert (exchange.end, exchange.timed_out, len(server.arrivals)) == (
            End.NOT_SENT,
            True,
            1,
        )


@pytest.mark.real_time
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_request_whose_deadline_passes_while_the_loop_stands_still(method):
    """A deadline that nobody has noticed yet keeps the request in all the same."""

    class Stalled(HandClock):
        looks = 0

        def now(self):
            self.looks += 1
            if self.looks == 2:  # the moment before it leaves
                time.sleep(0.02)  # sleeps: the loop stands still
            return super().now()

    async with (
        RawServer(obliging) as server,
        transport_for(server, clock=Stalled(100.0)) as transport,
    ):
        await transport.send(exchange := request_to(server, method, within=0.015))

        assert (exchange.end, server.arrivals) == (End.NOT_SENT, [])


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_request_whose_turn_does_not_come(method):
    """Waiting for a place counts against the deadline, and is not sent."""
    async with (
        RawServer(silent) as server,
        transport_for(server, max_concurrency=2) as transport,
    ):
        first = asyncio.create_task(transport.send(request_to(server, "GET")))
        await server.came()
        exchange = request_to(server, method, within=0.02)

        await transport.send(exchange)

        assert (exchange.end, exchange.timed_out, len(server.arrivals)) == (
            End.NOT_SENT,
            True,
            1,
        )
        first.cancel()


@pytest.mark.parametrize(("late", "end"), [(0.0, End.ANSWERED), (0.001, End.NOT_SENT)])
async def test_write_at_the_end_of_its_proof(late, end):
    """A proof holds up to its last moment; one instant later nothing leaves."""
    clock = HandClock(100.0)
    async with (
        RawServer(obliging) as server,
        transport_for(server, clock=clock) as transport,
    ):
        exchange = request_to(server, not_after=105.0)
        clock.time = 105.0 + late

        await transport.send(exchange)

        assert exchange.end is end
        assert len(server.arrivals) == (end is End.ANSWERED)


@pytest.mark.parametrize("proof", [None, 105.0])
async def test_write_that_waits_for_its_place(proof):
    """Its proof is looked at, and ``started`` is, when its first byte could leave; ``ended`` follows it."""
    clock, go_on = HandClock(100.0), asyncio.Event()

    async def script(peer):
        while await peer.arrival():
            await go_on.wait()
            await peer.send(OK)

    async with (
        RawServer(script) as server,
        transport_for(server, clock=clock, max_concurrency=2) as transport,
    ):
        first = asyncio.create_task(transport.send(request_to(server, "GET")))
        await server.came()
        second = asyncio.create_task(
            transport.send(exchange := request_to(server, not_after=proof))
        )
        await asyncio.sleep(0)
        assert exchange.started == 100.0
        clock.time = 107.0
        go_on.set()

        await asyncio.gather(first, second)

        if proof is None:
            assert (exchange.started, exchange.ended) == (107.0, 107.0)
        else:
            assert (exchange.end, len(server.arrivals)) == (End.NOT_SENT, 1)


class Stalled:
    """A server that takes a connection and the first bytes, and reads no more until it is asked to."""

    def __init__(self, context=None):
        self._context = context

    async def __aenter__(self):
        self._sock = socket.socket()
        # the least that the system allows
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen(1)
        scheme = "https" if self._context else "http"
        self.url = URL(
            f"{scheme}://127.0.0.1:{self._sock.getsockname()[1]}/v2/things/1"
        )
        return self

    async def __aexit__(self, *_):
        self._link.close()
        self._sock.close()

    def take(self):
        """Wait until the request has begun to arrive."""
        accepted, _ = self._sock.accept()
        accepted.settimeout(30)
        self._link = (
            self._context.wrap_socket(accepted, server_side=True)
            if self._context
            else accepted
        )
        self.heard = self._link.recv(1)

    def answer(self):
        """Say what is no HTTP."""
        self._link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    def read_on(self):
        """Read until the end of the connection."""
        try:
            while part := self._link.recv(65536):
                self.heard += part
        except OSError:
            pass


@pytest.mark.parametrize(
    ("manner", "tls"),
    [
        *itertools.product(["cancelled", "client closed"], [False, True]),
        ("answered with no HTTP", True),
    ],
)
@on_both_loops
async def test_lost_write_that_is_partly_in_the_system(manner, tls, request):
    """Once an attempt is lost, nothing more of it leaves: a server that reads on gets only a part."""
    async with (
        Stalled(request.getfixturevalue("server_tls") if tls else None) as server,
        transport_for(server) as transport,
    ):
        exchange = request_to(server, content=b"x" * 30_000 + b"END", within=60.0)
        sending = asyncio.create_task(transport.send(exchange))
        await asyncio.to_thread(server.take)

        if manner == "cancelled":
            sending.cancel()
        elif manner == "client closed":
            await transport.aclose()
        else:
            await asyncio.to_thread(server.answer)
        await asyncio.wait([sending])
        await asyncio.sleep(0)  # asyncio closes the socket in its next round
        await asyncio.to_thread(server.read_on)

        assert exchange.end is End.LOST
        assert not server.heard.endswith(b"END")
