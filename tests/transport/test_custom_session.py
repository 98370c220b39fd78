"""
An application's own session is used, not closed, and keeps every promise. One that cannot is refused in
words.
"""

from __future__ import annotations

import asyncio
import re
import warnings

import aiohttp
import pytest

from invsvc_async.errors import ConfigurationError
from invsvc_async.reconcile.history import End
from invsvc_async.transport.transport import Transport
from tests.support.raw_server import (
    OK,
    RawServer,
    dropping,
    obliging,
    on_both_loops,
    request_to,
    silent,
    transport_for,
)

pytestmark = pytest.mark.every_python


async def twice(request, send):
    """Send again whatever fails, as an application's retry middleware does."""
    try:
        return await send(request)
    except aiohttp.ClientError:
        return await send(request)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@on_both_loops
async def test_borrowed_session_that_retries(method):
    """Its retries send nothing twice, and it stays open."""
    async with aiohttp.ClientSession(middlewares=(twice,)) as session:
        async with (
            RawServer(dropping) as server,
            transport_for(server, session=session) as transport,
        ):
            await transport.send(exchange := request_to(server, method))

            assert (exchange.end, len(server.arrivals)) == (End.LOST, 1)
        assert not session.closed


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_borrowed_session_whose_middleware_changes_requests(method):
    """It does not run: the body that arrives is ours."""
    ran = []

    async def meddle(request, send):
        ran.append(request)
        return await send(request)

    async with (
        aiohttp.ClientSession(middlewares=(meddle,)) as session,
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        await transport.send(exchange := request_to(server, method))

    assert (exchange.end, ran) == (End.ANSWERED, [])


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_borrowed_session_that_raises_for_status(method):
    """An error status is an answer like any other."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK.replace(b"200 OK", b"404 No"))

    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        RawServer(script) as server,
        transport_for(server, session=session) as transport,
    ):
        await transport.send(exchange := request_to(server, method))

    assert (exchange.end, exchange.status, exchange.error) == (End.ANSWERED, 404, None)


async def test_borrowed_session_whose_stream_is_closed():
    """Closing drops the stream's connection at once, and leaves the session open."""

    async def script(peer):
        await peer.arrival()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with aiohttp.ClientSession() as session, RawServer(script) as server:
        transport = Transport(session=session)
        async with transport.stream(request_to(server, "GET")):
            await transport.aclose()
            await asyncio.wait_for(left.wait(), 30)
        assert not session.closed


@pytest.mark.real_time
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_borrowed_session_of_one_connection(method):
    """Waiting for a place in its pool is not connecting, and is not sent when the deadline comes."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
        RawServer(silent) as server,
        transport_for(server, session=session) as transport,
    ):
        first = asyncio.create_task(transport.send(busy := request_to(server, "GET")))
        await server.came()
        await transport.send(
            exchange := request_to(server, method, within=0.05, connect_timeout=0.01)
        )
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

        assert (exchange.end, exchange.timed_out) == (End.NOT_SENT, True)
        assert (busy.end, len(server.arrivals)) == (End.LOST, 1)
        assert exchange.ended - exchange.started >= 0.04


async def test_borrowed_session_that_decompresses_and_traces():
    """What it sets by default for itself changes nothing here."""
    seen = []

    async def note(*_):
        seen.append(1)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_chunk_sent.append(note)
    async with (
        aiohttp.ClientSession(
            trace_configs=[tracing], headers={"X-App": "ours"}
        ) as session,
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        await transport.send(exchange := request_to(server))

        assert (exchange.end, server.arrivals[0].header("X-App"), bool(seen)) == (
            End.ANSWERED,
            "ours",
            True,
        )


REFUSED = [
    "Expect",
    "content-length",
    "Transfer-Encoding",
    "Content-Encoding",
    "authorization",
]


@pytest.mark.parametrize("name", REFUSED)
async def test_borrowed_session_with_a_header_of_its_own(name):
    """Refused, naming the header: it breaks writes, or is a token that webhooks.health would send elsewhere."""
    async with (
        aiohttp.ClientSession(headers={name: "Bearer other"}) as session,
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        with pytest.raises(ConfigurationError, match=f"(?i){name}") as caught:
            await transport.send(request_to(server))
        assert server.connections == 0
        assert "other" not in str(caught.value)


async def test_borrowed_session_with_a_login_of_its_own():
    """Refused: aiohttp would refuse to combine it with our credential at each request."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        session = aiohttp.ClientSession(auth=aiohttp.BasicAuth("user", "password"))
    async with (
        session,
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        with pytest.raises(ConfigurationError, match="auth") as caught:
            await transport.send(request_to(server))
        assert "password" not in str(caught.value)


async def test_borrowed_session_that_is_closed():
    """Refused in words."""
    session = aiohttp.ClientSession()
    await session.close()
    async with (
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        with pytest.raises(ConfigurationError, match="closed"):
            await transport.send(request_to(server))


async def test_borrowed_session_of_another_loop():
    """Refused in words."""

    async def make():
        return aiohttp.ClientSession()

    session = await asyncio.to_thread(asyncio.run, make())
    async with RawServer(obliging) as server:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await Transport(session=session).send(request_to(server))
    await session.close()


@pytest.mark.parametrize("settings", [{"ssl": False}, {"trust_env": True}])
async def test_settings_that_belong_to_the_borrowed_session(settings):
    """Refused when the transport is made."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="session"):
            Transport(session=session, **settings)


@pytest.mark.parametrize(("without", "through"), [("example.org", 1), ("127.0.0.1", 0)])
async def test_proxy_of_the_environment(monkeypatch, without, through):
    """It is asked only where that was said, and for a host that the environment does not except."""
    async with RawServer(obliging) as server, RawServer(obliging) as proxy:
        monkeypatch.setenv("http_proxy", str(proxy.url.origin()))
        monkeypatch.setenv("no_proxy", without)
        for trust_env in (False, True):
            async with transport_for(server, trust_env=trust_env) as transport:
                await transport.send(request_to(server))

        assert (len(server.arrivals), len(proxy.arrivals)) == (2 - through, through)


async def test_login_of_the_environment(monkeypatch, tmp_path):
    """A login that a .netrc file has for the service's host stays there: the token is what is sent."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with (
        RawServer(obliging) as server,
        transport_for(server, trust_env=True) as transport,
    ):
        exchange = request_to(server)
        exchange.headers = {**exchange.headers, "Authorization": "Bearer token"}
        await transport.send(exchange)

        assert (exchange.end, exchange.error) == (End.ANSWERED, None)
        assert [each.header("Authorization") for each in server.arrivals] == [
            "Bearer token"
        ]


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_cookies_of_the_service(method):
    """They are not kept: a client's requests depend on nothing but their arguments."""

    async def script(peer):
        while await peer.arrival():
            await peer.send(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n"))

    async with RawServer(script) as server, transport_for(server) as transport:
        # aiohttp keeps no cookies of bare addresses
        server.url = server.url.with_host("localhost")
        for _ in range(2):
            await transport.send(request_to(server, method))

        assert [each.header("Cookie") for each in server.arrivals] == [None, None]


@on_both_loops
async def test_many_requests_at_once():
    """No more than the limit's share are in flight, all are answered, and every place comes back."""
    most = running = 0

    async def script(peer):
        nonlocal most, running
        while await peer.arrival():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            await peer.send(OK)

    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency=10) as transport,
    ):
        exchanges = [
            request_to(server, method)
            for method in ("GET", "PUT", "POST", "DELETE") * 50
        ]
        await asyncio.gather(*map(transport.send, exchanges))

        assert {each.end for each in exchanges} == {End.ANSWERED}
        assert most <= 9  # one place is kept for reads that settle
        assert server.connections <= 10


async def test_adaptive_concurrency():
    """It begins with four at a time, grows while the service keeps up, and halves on a 429."""
    most = running = 0
    limited = False
    allowed = []
    four = asyncio.Event()

    async def script(peer):
        nonlocal most, running
        while await peer.arrival():
            running += 1
            most = max(most, running)
            if running == 4 and not four.is_set():
                allowed.append(transport._limiter._for_calls)
                four.set()
            await four.wait()
            await asyncio.sleep(0.001)
            running -= 1
            await peer.send(OK.replace(b"200 OK", b"429 No") if limited else OK)

    async with (
        RawServer(script) as server,
        transport_for(server, max_concurrency="adaptive") as transport,
    ):
        await asyncio.gather(
            *(transport.send(request_to(server, "GET")) for _ in range(20))
        )
        assert allowed == [4]
        async with asyncio.timeout(300):
            # on a busy machine answers come late, as from a queue, and it grows later
            while most <= 4:
                await asyncio.gather(
                    *(transport.send(request_to(server, "GET")) for _ in range(200))
                )
        size = transport._adaptive_limit.size
        limited = True
        # past the time in which answers still tell about the size before
        await asyncio.sleep(0.05)
        await transport.send(request_to(server, "GET"))
        assert transport._adaptive_limit.size == max(4, size // 2)
        assert (
            transport._limiter._for_calls == transport._adaptive_limit.size
        )  # the reserve of settling reads is beside them


def caching():
    """Make a session that answers from a cache, as packages for that do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)

        class Caching(aiohttp.ClientSession):
            async def _request(self, _method, _url, **_options):
                async with (
                    RawServer(obliging) as server,
                    aiohttp.ClientSession() as real,
                ):
                    return await real.get(server.url)

    return Caching()


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_borrowed_session_that_answers_from_a_cache(method):
    """Nothing was sent, and the error says that the session answered, which is not to be one that caches."""
    async with (
        caching() as session,
        RawServer(obliging) as server,
        transport_for(server, session=session) as transport,
    ):
        await transport.send(exchange := request_to(server, method))

        assert (exchange.end, server.arrivals) == (End.NOT_SENT, [])
        assert re.search(
            r"the session .* answered without a request.* cache", str(exchange.error)
        )
