"""
A server of bare sockets that counts what arrives and answers by the test's own code, for tests of the transport.

It knows as little of HTTP as counting needs, so it cannot share a mistake with aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import shutil
import socket
import struct
from contextlib import asynccontextmanager

import attrs
import pytest
from yarl import URL

from invsvc_async.transport.client_core import CODINGS
from invsvc_async.transport.transport import Exchange, Transport
from tests.support.certificates import (
    client_context as CLIENT_TLS,  # noqa: N812 - stands for a constant
    made_certificate,
    server_context,
)

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"success":true}'


@attrs.define(eq=False)
class Arrival:
    """A request of which at least one byte has come."""

    connection: int
    head: bytes = b""
    body: bytes = b""

    @property
    def method(self):
        return self.head.split(b" ", 1)[0].decode()

    def header(self, name):
        """Return the value of a header, or None."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b": ")
            if key.decode().lower() == name.lower():
                return value.decode()
        return None


@attrs.define(eq=False)
class Peer:
    """One accepted connection, as the script sees it."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: RawServer

    async def arrival(self, *, upto="body"):
        """Wait for the next request: its first ``"byte"``, its ``"head"``, or its whole ``"body"``; None at the end."""
        first = await self.reader.read(1)
        if not first:
            return None
        self.server.arrivals.append(came := Arrival(self.number, head=first))
        self.server.news.set()
        if upto == "byte":
            return came
        came.head += await self.reader.readuntil(b"\r\n\r\n")
        if upto == "head":
            return came
        came.body = await self.reader.readexactly(
            int(came.header("Content-Length") or 0)
        )
        return came

    async def send(self, *parts):
        """Write *parts*, each in a packet of its own as far as can be."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def end(self, manner):
        """End the connection: ``"fin"`` or ``"rst"``."""
        sock = self.writer.get_extra_info("socket")
        if manner == "rst":
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self.writer.transport.abort()
        else:
            self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def gone(self):
        """Wait until the client ends the connection."""
        with contextlib.suppress(OSError):
            while await self.reader.read(65536):
                pass


class RawServer:
    """Runs *script* (an async callable of a :class:`Peer`) for each connection; ``arrivals`` is what came."""

    def __init__(self, script, *, context=None):
        self.arrivals = []
        self.connections = 0
        self.news = asyncio.Event()
        self.failures = []
        self._script = script
        self._context = context
        self._open = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._context
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = URL(
            f"{'https' if self._context else 'http'}://127.0.0.1:{port}/v2/things/1"
        )
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        assert not self.failures, self.failures

    async def _serve(self, reader, writer):
        self._open.add(task := asyncio.current_task())
        peer = Peer(self.connections, reader, writer, self)
        self.connections += 1
        try:
            await self._script(peer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        except Exception as error:  # noqa: BLE001 - reported by the test that owns the script
            self.failures.append(error)
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def came(self, count=1):
        """Wait until *count* requests have begun to arrive."""
        while len(self.arrivals) < count:
            self.news.clear()
            await self.news.wait()


async def silent(peer):
    """Read one request and never answer."""
    await peer.arrival()
    await peer.gone()


async def dropping(peer):
    """Read one request, then reset."""
    await peer.arrival()
    await peer.end("rst")


async def obliging(peer):
    """Answer every request with 200."""
    while await peer.arrival():
        await peer.send(OK)


def request_to(server, method="PUT", *, content=b"{}", within=5.0, **more):
    """Return the exchange of a request to *server*; a write unless it is a GET; *within* seconds."""
    headers = {
        "Authorization": "Bearer secret-token",
        "Accept-Encoding": CODINGS[method != "GET"],
        **({"Content-Type": "application/json"} if content else {}),
    }
    if method == "GET":
        content = None
    deadline = asyncio.get_running_loop().time() + within
    return Exchange(
        method=method,
        url=server.url,
        headers=headers,
        content=content,
        **{"write": method != "GET", "deadline": deadline, **more},
    )


@asynccontextmanager
async def transport_for(server, **settings):
    """Open a transport that trusts *server*; afterwards nothing of it may be left."""
    if server.url.scheme == "https" and "session" not in settings:
        settings.setdefault("ssl", CLIENT_TLS())
    made = Transport(**settings)
    try:
        yield made
    finally:
        await made.aclose()
    assert not made._in_flight
    assert made._limiter.in_use == 0


@pytest.fixture(scope="session")
def server_tls(tmp_path_factory):
    """Make a server's TLS context, with a certificate for this run alone."""
    if not shutil.which("openssl"):
        pytest.skip(
            "no `openssl` program here to make a throwaway certificate with: TLS is not tested"
        )
    return server_context(made_certificate(tmp_path_factory.mktemp("tls")))


def on_both_loops(test):
    """Run an async test on asyncio's loop and on uvloop's: they differ in what has left when a write returns."""
    signature = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def run(*, loop, **arguments):
        factory = (
            pytest.importorskip("uvloop").new_event_loop
            if loop == "uvloop"
            else asyncio.new_event_loop
        )
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test(**arguments))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = signature.replace(
        parameters=[*signature.parameters.values(), loop]
    )
    run.pytestmark = [*run.pytestmark, *getattr(test, "pytestmark", ())]
    return run
