"""What sending through aiohttp's connections relies on, but aiohttp does not document."""

from __future__ import annotations

import asyncio
import inspect

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDictProxy
from yarl import URL

from invsvc_async.transport.lean_sender import Destination
from tests.support.raw_server import OK, RawServer

pytestmark = pytest.mark.every_python

ORIGINS = [
    "http://127.0.0.1:8000/v2/x?y=z",
    "https://service.example/v2",
    "http://[::1]:9/",
    "https://münchen.example:443/",
]


@pytest.fixture(autouse=True)
def sender():
    """Run these once: they send by themselves."""


@pytest.mark.parametrize("text", ORIGINS)
async def test_key_of_a_connection(text):
    """It is that of a request by the session, so both use the same connections; it is computed once."""
    loop = asyncio.get_running_loop()
    usual = aiohttp.ClientRequest("PUT", URL(text), loop=loop)
    own = Destination(URL(text), loop)
    assert own.connection_key == usual.connection_key
    assert own.connection_key is own.connection_key
    assert (own.ssl, own.is_ssl(), own.proxy) == (usual.ssl, usual.is_ssl(), None)
    assert (own.url.raw_host, own.port) == (usual.url.raw_host, usual.port)
    assert own.authority == usual.headers["Host"]


def test_arguments_of_a_connector():
    """It takes what is sent, the traces and the timeouts, and nothing more that it would need."""
    taken = inspect.signature(aiohttp.BaseConnector.connect).parameters
    assert list(taken) == ["self", "req", "traces", "timeout"]


async def test_limits_of_an_answer_head():
    """Those that the parser has by itself are those of a session."""
    taken = inspect.signature(ResponseHandler.set_response_params).parameters
    assert {"skip_payload", "read_until_eof", "auto_decompress", "read_bufsize"} <= set(
        taken
    )
    async with aiohttp.ClientSession() as session:
        for name in ("max_line_size", "max_field_size", "max_headers"):
            if name in taken:
                assert taken[name].default == getattr(session, f"_{name}")
    assert (taken["timer"].default, taken["read_timeout"].default) == (None, None)


async def test_head_that_the_protocol_reads():
    """It has a code and headers; beside it is the stream of the body, which knows its end."""

    async def script(peer):
        await peer.arrival()
        await peer.send(OK[:-16])
        await peer.arrival(upto="byte")
        await peer.send(OK[-16:])

    loop = asyncio.get_running_loop()
    async with RawServer(script) as server, aiohttp.TCPConnector() as connector:
        destination = Destination(server.url, loop)
        connection = await connector.connect(destination, [], aiohttp.ClientTimeout())
        protocol = connection.protocol
        protocol.set_response_params(
            skip_payload=False,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=2**16,
        )
        assert not protocol.should_close
        protocol.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        head, content = await protocol.read()
        assert head.code == 200
        assert type(head.headers) is CIMultiDictProxy
        assert (content.is_eof(), content.exception()) == (False, None)
        assert protocol.should_close  # until the body is there
        protocol.transport.write(b"x")
        assert await content.readany() == OK[-16:]
        assert content.is_eof()
        assert not protocol.should_close
        connection.release()
        again = await connector.connect(destination, [], aiohttp.ClientTimeout())
        assert again.protocol is protocol
        again.close()
        assert protocol.transport is None
