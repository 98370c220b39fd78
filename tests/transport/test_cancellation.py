"""Cancelling and closing at every stage: prompt, honest about what may have left, and nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.errors import ConfigurationError, ResponseLostError
from invsvc_async.reconcile.history import End
from invsvc_async.transport.transport import Transport
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
from tests.transport.test_bytes_sent import FullQueue

pytestmark = pytest.mark.every_python

LONG = b"x" * 30_000_000


async def cancelled(transport, exchange, when):
    """Send *exchange*, cancel it when *when* is done, and check that it ends by that alone."""
    sending = asyncio.create_task(transport.send(exchange))
    await when
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert sending.cancelled()


async def ticks(count):
    """Run *count* iterations of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@on_both_loops
async def test_cancelled_while_waiting_for_a_place(method):
    """Not sent, and the place goes to the next that waits."""
    go_on = asyncio.Event()

    async def script(peer):
        while await peer.arrival():
            await go_on.wait()
            await peer.send(OK)

    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency=2) as transport,
    ):
        first = asyncio.create_task(transport.send(request_to(server)))
        await server.came()
        await cancelled(transport, exchange := request_to(server, method), ticks(3))
        third = asyncio.create_task(transport.send(last := request_to(server)))
        go_on.set()
        await asyncio.gather(first, third)

        assert (exchange.end, last.end, len(server.arrivals)) == (
            End.NOT_SENT,
            End.ANSWERED,
            2,
        )


@pytest.mark.parametrize("method", ["GET", "PUT"])
@on_both_loops
async def test_cancelled_while_connecting(method):
    """Not sent."""
    async with FullQueue() as server, transport_for(server) as transport:
        await cancelled(
            transport, exchange := request_to(server, method), asyncio.sleep(0.01)
        )

        assert exchange.end is End.NOT_SENT


@on_both_loops
async def test_cancelled_in_the_handshake():
    """TLS has sent bytes, but none of the request: not sent."""

    async def script(peer):
        await peer.reader.read(1)
        shaking.set()
        await peer.gone()

    shaking = asyncio.Event()
    async with RawServer(script) as server:
        server.url = server.url.with_scheme("https")
        async with transport_for(server) as transport:
            await cancelled(transport, exchange := request_to(server), shaking.wait())

    assert exchange.end is End.NOT_SENT


@on_both_loops
async def test_cancelled_while_sending():
    """Lost, and the connection is dropped at once: the rest of the body does not trickle out."""
    got = 0

    async def script(peer):
        nonlocal got
        await peer.arrival(upto="head")
        begun.set()
        await resume.wait()
        try:
            while part := await peer.reader.read(1_000_000):
                got += len(part)
        finally:
            ended.set()

    begun, resume, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with RawServer(script) as server, transport_for(server) as transport:
        await cancelled(
            transport, exchange := request_to(server, content=LONG), begun.wait()
        )
        resume.set()
        await asyncio.wait_for(ended.wait(), 30)

        assert (exchange.end, len(server.arrivals)) == (End.LOST, 1)
        assert got < len(LONG)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", OK[:-4]],
    ids=["nothing", "head", "body"],
)
@on_both_loops
async def test_cancelled_while_reading(said, method):
    """Lost, and the connection is closed."""

    async def script(peer):
        await peer.arrival()
        await peer.send(said)
        spoken.set()
        await peer.gone()
        left.set()

    spoken, left = asyncio.Event(), asyncio.Event()
    async with RawServer(script) as server, transport_for(server) as transport:
        await cancelled(
            transport, exchange := request_to(server, method), spoken.wait()
        )

        await asyncio.wait_for(left.wait(), 30)
        assert (exchange.end, exchange.answer) == (End.LOST, b"")


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_cancelled_as_tls_loses_its_connection(method, server_tls):  # noqa: F811 - the fixture
    """It ends as cancelled and lost, although asyncio's transport is closed a second time."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK[:-4])
        spoken.set()
        await peer.gone()

    async def lost():
        await spoken.wait()
        await ticks(3)
        [gate] = transport._in_flight
        gate._tls._transport.abort()  # as a reset; TLS learns of it just before the task runs

    spoken = asyncio.Event()
    async with (
        RawServer(script, context=server_tls) as server,
        transport_for(server) as transport,
    ):
        await cancelled(transport, exchange := request_to(server, method), lost())

        assert exchange.end is End.LOST


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@on_both_loops
async def test_cancelled_at_any_moment(method, warm):
    """Whatever turn of the loop it falls on: what is called not sent never arrives, what is answered did, once."""
    ends = set()
    for turns in range(16):
        async with RawServer(obliging) as server, transport_for(server) as transport:
            if warm:
                await transport.send(request_to(server, "GET"))
            sending = asyncio.create_task(
                transport.send(exchange := request_to(server, method, content=b""))
            )
            await ticks(turns)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await asyncio.sleep(0.002)  # for what is on its way

            came = len(server.arrivals) - warm
            ends.add(exchange.end)
            assert (
                came
                in {
                    End.NOT_SENT: (0,),
                    End.LOST: (0, 1),
                    End.ANSWERED: (1,),
                    None: (0,),
                }[exchange.end]
            )
            assert (exchange.end is None) == (turns == 0)  # the task had not begun
    # how many turns the rest takes is the loop's affair
    assert warm or End.NOT_SENT in ends


@on_both_loops
async def test_deadline_in_the_middle():
    """It is lost and timed out; nothing of it stays in the pool."""
    async with RawServer(silent) as server, transport_for(server) as transport:
        await transport.send(exchange := request_to(server, within=0.3))

        assert (exchange.end, exchange.timed_out, len(server.arrivals)) == (
            End.LOST,
            True,
            1,
        )


@on_both_loops
async def test_close_during_traffic():
    """Every request in flight ends at once: lost where it had left, not sent where not; later ones are refused."""
    async with RawServer(silent) as server:
        transport = Transport(max_concurrency=5)
        exchanges = [
            request_to(server, method, content=LONG if method == "POST" else b"")
            for method in METHODS
        ]
        sending = [asyncio.create_task(transport.send(each)) for each in exchanges]
        await server.came(4)

        await asyncio.wait_for(transport.aclose(), 30)

        await asyncio.gather(*sending)
        assert [each.end for each in exchanges] == [End.LOST] * 4 + [End.NOT_SENT] * 2
        assert {str(each.error) for each in exchanges} == {"the client was closed"}
        assert not any(each.timed_out for each in exchanges)
        assert len(server.arrivals) == 4
        with pytest.raises(ConfigurationError, match="closed"):
            await transport.send(request_to(server))


METHODS = ("GET", "PUT", "POST", "DELETE", "GET", "PUT")


async def test_close_twice_and_unused():
    """Closing again, or what was never used, does nothing."""
    transport = Transport()
    await transport.aclose()
    await transport.aclose()


@on_both_loops
async def test_close_while_a_stream_is_open():
    """Closing does not wait for the stream's reader, who is told when it reads on."""

    async def script(peer):
        await peer.arrival()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
        await peer.gone()

    async with RawServer(script) as server:
        transport = Transport()
        async with transport.stream(request_to(server, "GET")) as download:
            await asyncio.wait_for(transport.aclose(), 30)
            with pytest.raises(ResponseLostError):
                async for _ in download:
                    pass


async def test_close_from_another_loop():
    """Refused in words while the loop of its use is open; done where that loop is gone."""
    async with RawServer(obliging) as server:
        transport = Transport()
        await transport.send(request_to(server))

        with pytest.raises(ConfigurationError, match="event loop"):
            await asyncio.to_thread(asyncio.run, transport.aclose())

        await transport.aclose()


def test_close_after_the_loop_of_its_use():
    """A client that outlived its loop can be closed from the next."""
    transport = Transport()

    async def use():
        async with RawServer(obliging) as server:
            await transport.send(request_to(server))
            await transport.connections._session.close()

    asyncio.run(use())
    asyncio.run(transport.aclose())


async def test_use_from_another_loop():
    """Refused at once and in words; nothing is sent."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        await transport.send(request_to(server))

        async def use():
            await transport.send(request_to(server))

        with pytest.raises(ConfigurationError, match="one client for each loop"):
            await asyncio.to_thread(asyncio.run, use())

        assert len(server.arrivals) == 1
