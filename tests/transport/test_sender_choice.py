"""Which way requests are sent: aiohttp's connections, unless something needs its session."""

from __future__ import annotations

import functools
import logging
from contextlib import contextmanager

import aiohttp
import pytest

from invsvc_async.reconcile.history import End
from invsvc_async.transport import sender_choice
from invsvc_async.transport.lean_sender import LeanSender
from invsvc_async.transport.session_sender import SessionSender
from invsvc_async.transport.transport import Transport
from tests.support.raw_server import RawServer, obliging, request_to, transport_for

pytestmark = pytest.mark.every_python


@pytest.fixture(autouse=True)
def sender(monkeypatch):
    """Count this version of aiohttp as tested, in a process where nothing has replaced a part of it."""
    monkeypatch.setattr(sender_choice, "IS_ON", True)
    monkeypatch.setattr(sender_choice, "TESTED", {aiohttp.__version__})


async def sent(server, transport):
    """Send a request, which must be answered, and return how it went."""
    await transport.send(exchange := request_to(server))
    assert exchange.end is End.ANSWERED
    return transport.connections._sender


async def test_usual_client(caplog):
    """It sends through aiohttp's connections, and says so in the log, once."""
    caplog.set_level(logging.DEBUG, "invsvc_async.transport")
    async with RawServer(obliging) as server, transport_for(server) as transport:
        assert transport.connections.sent_by is None
        assert type(await sent(server, transport)) is LeanSender
        assert type(await sent(server, transport)) is LeanSender
        assert transport.connections.sent_by == sender_choice.LEAN
        assert caplog.messages == [f"client sends requests {sender_choice.LEAN}"]


async def test_version_without_a_test(monkeypatch, caplog):
    """The session is used, and the log says why."""
    monkeypatch.setattr(sender_choice, "TESTED", frozenset())
    caplog.set_level(logging.DEBUG, "invsvc_async.transport")
    async with RawServer(obliging) as server, transport_for(server) as transport:
        assert type(await sent(server, transport)) is SessionSender
        assert (
            f"aiohttp {aiohttp.__version__} is not among"
            in transport.connections.sent_by
        )
        assert transport.connections.sent_by in caplog.messages[0]


async def test_session_of_the_user():
    """It sends by itself, because it may be made in any way."""
    async with (
        RawServer(obliging) as server,
        aiohttp.ClientSession() as session,
        transport_for(server, session=session) as transport,
    ):
        assert type(await sent(server, transport)) is SessionSender


@pytest.mark.parametrize(
    "settings", [{"trust_env": True}, {"proxy": "http://127.0.0.1:1"}]
)
async def test_proxies(settings):
    """They are aiohttp's session's."""
    transport = Transport(**settings)
    _, sender = transport._bind()
    assert type(sender) is SessionSender
    await transport.aclose()


async def test_instrumented_sessions(monkeypatch):
    """What adds trace configs to every session, such as OpenTelemetry's instrumentation, sees the requests."""
    seen = []
    made = aiohttp.ClientSession.__init__

    async def on_start(_session, _context, parameters):
        seen.append(parameters.method)

    def instrumented(self, *args, **settings):
        config = aiohttp.TraceConfig()
        config.on_request_start.append(on_start)
        made(self, *args, **settings, trace_configs=[config])

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", instrumented)
    async with RawServer(obliging) as server, transport_for(server) as transport:
        assert type(await sent(server, transport)) is SessionSender
        assert seen == ["PUT"]


class Wrapper:
    """Counts the requests, and passes for the function that it wraps, as what wrapt makes does."""

    def __init__(self, wrapped, count):
        self._wrapped = wrapped
        self._count = count

    def __getattr__(self, name):
        return getattr(self._wrapped, name)

    def __get__(self, session, _kind):
        return self if session is None else functools.partial(self, session)

    def __call__(self, *args, **options):
        self._count.append(args)
        return self._wrapped(*args, **options)


@contextmanager
def replaced(how):
    """Replace what aiohttp's sessions send with, and count the requests that go by it."""
    own, count = aiohttp.ClientSession._request, []

    @functools.wraps(own)
    async def counted(self, *args, **options):
        count.append(args)
        return await own(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        stand_in = Wrapper(own, count) if how == "an object" else counted
        patch.setattr(aiohttp.ClientSession, "_request", stand_in)
        yield count


@pytest.mark.parametrize("how", ["a function", "an object"])
async def test_requests_that_another_library_takes_over(how):
    """It gets each request while it is there, also where the client had sent others before; then none."""
    async with RawServer(obliging) as server, transport_for(server) as transport:
        with replaced(how) as count:
            assert type(await sent(server, transport)) is SessionSender
        assert type(await sent(server, transport)) is LeanSender
        assert len(count) == 1
        with replaced(how) as count:
            await sent(server, transport)
            await sent(server, transport)
        assert type(await sent(server, transport)) is LeanSender
        assert (len(count), len(server.arrivals)) == (2, 5)
        assert server.connections == 1  # both ways share them
