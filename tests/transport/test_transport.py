"""What the transport refuses, in which words, and what it learns from how requests ended."""

from __future__ import annotations

import asyncio
import warnings
from math import inf

import aiohttp
import pytest
from yarl import URL

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.errors import ConfigurationError, ResponseLostError
from invsvc_async.reconcile.history import End
from invsvc_async.transport.send_gate import Gate, RefusedError
from invsvc_async.transport.session_sender import timeout_of
from invsvc_async.transport.transport import Exchange, Transport, _accept_head
from tests.support.raw_server import (
    OK,
    RawServer,
    dropping,
    obliging,
    request_to,
    silent,
    transport_for,
)
from tests.transport.test_bytes_sent import FullQueue


async def refused(transport, exchange):
    """Send *exchange*, which is refused; return the words."""
    with pytest.raises(ConfigurationError) as caught:
        await transport.send(exchange)
    return str(caught.value)


async def test_words_of_what_is_refused():
    """Each says what is wrong and what to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        login = aiohttp.ClientSession(auth=aiohttp.BasicAuth("user", "password"))
    expecting, closed = (
        aiohttp.ClientSession(headers={"Expect": "x"}),
        aiohttp.ClientSession(),
    )
    await closed.close()
    ended = Transport()
    await ended.aclose()
    async with RawServer(obliging) as server, login, expecting:
        said = [
            await refused(Transport(session=each), request_to(server))
            for each in (login, expecting, closed)
        ]
        said.append(await refused(ended, request_to(server)))
        assert server.connections == 0

    assert said == [
        "session: the aiohttp session has an `auth`, but the client sends its own credential. Remove it.",
        "session: the aiohttp session sends Expect by default, which breaks the rules of writes. Remove it from the session's headers.",
        "session: the aiohttp session is closed. Pass an open one.",
        "client: it is closed, so this was not sent. Make a new one.",
    ]


async def test_words_about_another_loop():
    """A session, and a transport, belong to the loop of their first use."""

    async def elsewhere():
        async with aiohttp.ClientSession() as session:
            return session

    session = await asyncio.to_thread(asyncio.run, elsewhere())
    async with RawServer(obliging) as server, transport_for(server) as transport:
        await transport.send(request_to(server))
        assert await asyncio.to_thread(
            asyncio.run, refused(transport, request_to(server))
        ) == (
            "client: it belongs to the event loop that used it first. Make one client for each loop."
        )
        assert await refused(Transport(session=session), request_to(server)) == (
            "session: the aiohttp session belongs to another event loop. Make it in this one."
        )


async def test_words_of_a_refusal_by_the_gate():
    """They are the gate's own, not what aiohttp makes of them."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        await transport.send(exchange := request_to(server, not_after=0.0))

        assert (exchange.end, len(server.arrivals)) == (End.NOT_SENT, 0)
        assert str(exchange.error) == "the time until which it may be sent had passed"


async def test_deadlines_one_after_another():
    """Each request ends at its own, though one alarm serves all, and one that is far away is left alone."""
    loop, complaints = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with RawServer(silent) as server, transport_for(server) as transport:
        far = asyncio.create_task(transport.send(request_to(server, within=60.0)))
        late = [request_to(server, within=within) for within in (0.15, 0.05, 0.1)]

        async def time_of_return(exchange):
            await transport.send(exchange)
            return loop.time()

        returned = await asyncio.wait_for(
            asyncio.gather(*map(time_of_return, late)), 30
        )

        assert not far.done()
        assert [each.timed_out for each in late] == [True] * 3
        assert all(
            at > each.deadline - 0.001 for at, each in zip(returned, late, strict=True)
        )
        far.cancel()
        await asyncio.gather(far, return_exceptions=True)
    assert not complaints


async def failing(peer):
    while await peer.arrival():
        await peer.send(
            b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
        )


@pytest.mark.parametrize(
    ("script", "size", "answers"),
    [(obliging, 8, 1), (dropping, 8, 0), (failing, 8, 0), (silent, 4, 0)],
)
async def test_what_adaptive_concurrency_learns_from(script, size, answers):
    """An answer tells how quick the service is, a timeout that it is too busy; dropped and failing ones nothing."""
    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency="adaptive") as transport,
    ):
        transport._adaptive_limit.size = 8
        await transport.send(
            exchange := request_to(server, within=5.0 if script is not silent else 0.1)
        )

        assert (exchange.end is End.ANSWERED) is (script in (obliging, failing))
        assert (
            transport._adaptive_limit.size,
            transport._adaptive_limit._sums.answers,
        ) == (size, answers)


async def test_adaptive_concurrency_beside_a_request_that_hangs():
    """Requests that time out halve the limit, but not so far that one that hangs stops all others."""
    hangs = asyncio.Event()

    async def script(peer):
        if not hangs.is_set():
            hangs.set()
            await silent(peer)
        await obliging(peer)

    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency="adaptive") as transport,
    ):
        for at in range(0, 60, 10):
            transport._adaptive_limit.note(at, at + 5.0, refused=True, in_flight=1)
        hanging = asyncio.create_task(transport.send(request_to(server, within=60.0)))
        await hangs.wait()
        await transport.send(exchange := request_to(server, within=5.0))
        assert exchange.end is End.ANSWERED
        hanging.cancel()


async def test_adaptive_concurrency_beside_more_that_hang_than_it_allows():
    """Those stop counting after a while, so that others are answered long before they time out."""
    hanging = []

    async def script(peer):
        if len(hanging) < 20:
            hanging.append(peer)
            await silent(peer)
        await obliging(peer)

    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency="adaptive") as transport,
    ):
        requests = [request_to(server, within=300.0) for _ in range(30)]
        tasks = [asyncio.create_task(transport.send(each)) for each in requests]
        async with asyncio.timeout(100):
            while sum(task.done() for task in tasks) < 10:
                await asyncio.wait(
                    [task for task in tasks if not task.done()],
                    return_when="FIRST_COMPLETED",
                )
        assert len(hanging) == 20
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize(("most", "connections"), [(7, 7), ("adaptive", 2000)])
async def test_connections_of_its_own_session(most, connections):
    """There are as many as requests may be in flight; adaptive, twice as many as it will ever allow."""
    async with (
        RawServer(obliging) as server,
        transport_for(server, max_concurrency=most) as transport,
    ):
        await transport.send(request_to(server))
        connector = transport.connections._session.connector
        assert (connector.limit, connector._keepalive_timeout) == (connections, 10.0)


class Stale:
    """What aiohttp has of an answer that was there before anything was asked."""

    closed = False

    def close(self):
        self.closed = True


async def test_answer_to_nothing_that_was_asked():
    """It is dropped with its connection, and the request is sealed: it never left."""
    stale = Stale()
    exchange = Exchange(
        method="PUT", url=URL("http://127.0.0.1/"), headers={}, write=True
    )
    gate = Gate(exchange, SystemClock(), asyncio.get_running_loop())
    with pytest.raises(RefusedError, match=r"^the connection held a stale answer$"):
        _accept_head(gate, stale, is_of_user=False)
    assert stale.closed
    assert gate.sealed


@pytest.mark.real_time
async def test_clock_of_the_system():
    """It sleeps as long as it is told, by its own time."""
    clock = SystemClock()
    begun = clock.now()
    await clock.sleep(0.02)
    assert clock.now() - begun >= 0.019


@pytest.mark.parametrize("borrowed", [False, True])
def test_timeouts_that_aiohttp_is_given(borrowed):
    """Only connecting is bounded, exactly; in a borrowed pool, waiting for a place does not count as connecting."""
    given = timeout_of(1.5, own_pool=not borrowed)
    assert (given.total, given.ceil_threshold) == (None, inf)
    assert (given.connect, given.sock_connect) == (
        (None, 1.5) if borrowed else (1.5, None)
    )


async def test_connecting_that_takes_too_long():
    """It ends by its own bound, long before the deadline, and nothing has left."""
    async with FullQueue() as server, transport_for(server) as transport:
        await transport.send(
            exchange := request_to(server, within=30.0, connect_timeout=0.05)
        )

        assert (exchange.end, exchange.timed_out) == (End.NOT_SENT, True)
        assert exchange.ended - exchange.started < 10


async def test_closing_waits_for_what_is_in_flight():
    """When it returns, every request has its end, also where an earlier one had come to its own."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK)
        await silent(peer)

    # Closing a session of its own would give the others time to end: a borrowed one stays open.
    async with (
        RawServer(script) as server,
        aiohttp.ClientSession() as session,
        transport_for(server, session=session) as transport,
    ):
        await transport.send(request_to(server))
        sending = asyncio.create_task(transport.send(exchange := request_to(server)))
        await server.came(2)
        await transport.aclose()

        assert exchange.end is End.LOST
        await sending


async def test_streams_take_turns():
    """One counts as a call while it is open, and the next begins when it is over."""

    async def read():
        async with transport.stream(request_to(server, "GET")) as download:
            return await download.read()

    async with (
        RawServer(obliging) as server,
        transport_for(server, max_concurrency=1) as transport,
    ):
        async with transport.stream(request_to(server, "GET")):
            next_one = asyncio.create_task(read())
            await asyncio.sleep(0)
            assert (transport._limiter.calls, len(server.arrivals)) == (1, 1)
        assert await asyncio.wait_for(next_one, 30)
        assert (transport._limiter.calls, len(server.arrivals)) == (0, 2)


async def test_stream_whose_answer_never_begins():
    """It is lost by the deadline, which is noted."""
    async with RawServer(silent) as server, transport_for(server) as transport:
        with pytest.raises(ResponseLostError):
            async with transport.stream(
                exchange := request_to(server, "GET", within=0.1)
            ):
                pytest.fail("there is no answer")

        assert exchange.timed_out


async def test_transport_of_no_settings():
    """A hundred requests at once, and certificates are verified; only a setting changes that."""
    assert (Transport()._limiter.total, Transport().connections._tls) == (100, True)
    assert Transport(ssl=False).connections._tls is False


async def test_words_about_settings_beside_a_session():
    """They say where such settings belong."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError) as caught:
            Transport(session=session, trust_env=True)
    assert (
        str(caught.value)
        == "ssl, trust_env and proxy: cannot be combined with session. Configure the session instead."
    )
