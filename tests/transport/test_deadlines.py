"""One alarm watches the deadlines of all calls: each ends at its own, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async.reconcile.history import End
from tests.support.raw_server import (
    OK,
    RawServer,
    on_both_loops,
    request_to,
    silent,
    transport_for,
)

pytestmark = pytest.mark.every_python

LATE = 0.2  # s that ending a call may take, besides the time for which the machine let this process wait


async def measure_waits(waits, pause=0.02):
    """Append to *waits* by how much each pause was longer than it should be."""
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        try:
            await asyncio.sleep(pause)
        finally:
            waits.append(max(0.0, loop.time() - begun - pause))


@on_both_loops
async def test_deadlines_of_many_calls():
    """Each call ends at its own deadline, in whatever order they began."""

    async def ended(within):
        begun = loop.time()
        await transport.send(exchange := request_to(server, "GET", within=within))
        assert exchange.timed_out
        # a busy machine may not connect by then
        assert exchange.end in (End.LOST, End.NOT_SENT)
        return loop.time() - begun - within

    loop = asyncio.get_running_loop()
    measuring = asyncio.create_task(measure_waits(waits := []))
    async with RawServer(silent) as server, transport_for(server) as transport:
        late = await asyncio.gather(
            *(ended(within) for within in (0.9, 0.3, 0.301, 0.302, 0.6, 0.3))
        )
    measuring.cancel()
    await asyncio.wait([measuring])

    # loops count in ms
    assert all(-0.001 < each < LATE + sum(waits) for each in late), (late, waits)


@on_both_loops
async def test_call_after_the_alarm_had_nothing_to_watch():
    """The alarm is set again for a call that begins after it rang for nobody."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK)
        await silent(peer)

    async with RawServer(script) as server, transport_for(server) as transport:
        await transport.send(first := request_to(server, "GET", within=0.1))
        await asyncio.sleep(0.15)
        async with asyncio.timeout(300):
            await transport.send(second := request_to(server, "GET", within=0.1))

    assert (first.end, second.end, second.timed_out) == (End.ANSWERED, End.LOST, True)


@on_both_loops
async def test_stream_past_the_deadline_of_its_head():
    """A stream that still flows is not ended when the deadline of its head, and then that of a call, has come."""

    async def script(peer):
        arrival = await peer.arrival()
        if b"/stream" not in arrival.head:
            await silent(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            await peer.send(b"x")
            await asyncio.sleep(0.25)

    async with RawServer(script) as server, transport_for(server) as transport:
        # also the longest pause between two parts
        head = request_to(server, "GET", within=1.5)
        head.url = head.url.with_path("/stream")
        async with transport.stream(head) as download:
            call = asyncio.create_task(
                transport.send(request_to(server, "GET", within=1.75))
            )
            assert await download.read() == b"xxxxxxxx"
            await call

    assert head.end is End.ANSWERED
