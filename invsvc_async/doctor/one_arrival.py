"""
Proof on the loopback interface that a write arrives at most once, whenever its connection closes.

A server of bare sockets counts the requests and closes each connection at a chosen moment: before, within
and after the request, before, within and after its answer, with FIN and with RST, on new and reused
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.client import Client
from invsvc_async.models.common import UNSET
from invsvc_async.settings import ReconcilePolicy, Timeouts
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

__all__ = ["Closing", "Proof", "Trial", "prove"]

METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_ANSWER: Final = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"success":true}'
)
_BODY: Final = {"text": "x" * 500}
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


@attrs.frozen
class Closing:
    """When and how a connection ends: after how many bytes of the request and of the answer."""

    asked: int | None  # bytes of the request that are read; None: all
    answered: int  # bytes of the answer that are sent
    reset: bool
    warm: bool  # after a successful exchange on the same connection


@attrs.frozen
class Trial:
    """One write, and how many of its requests reached the server."""

    method: str
    closing: Closing
    arrivals: int


@attrs.frozen(kw_only=True)
class Proof:
    """All trials, with the version of aiohttp in use."""

    aiohttp: str
    trials: list[Trial]

    @property
    def holds(self) -> bool:
        """Whether no write arrived twice."""
        return all(trial.arrivals <= 1 for trial in self.trials)

    def by_method(self) -> list[tuple[str, int, int, int]]:
        """Return for each method: trials, arrivals, and the maximum of one trial."""
        rows: list[tuple[str, int, int, int]] = []
        for method in METHODS:
            seen = [trial.arrivals for trial in self.trials if trial.method == method]
            rows.append((method, len(seen), sum(seen), max(seen, default=0)))
        return rows


def closings() -> list[Closing]:
    """Return all moments at which a connection is closed."""
    moments: list[tuple[int | None, int]] = [(asked, 0) for asked in (0, 1, 40, 200, 400, 800)]
    moments += [(None, sent) for sent in (0, 1, 9, 17, len(_ANSWER) - 17, len(_ANSWER) - 8, len(_ANSWER) - 1)]
    moments.append((None, len(_ANSWER)))
    ends = itertools.product(moments, (False, True), (False, True))
    return [Closing(asked, answered, reset, warm) for (asked, answered), reset, warm in ends]


async def prove() -> Proof:
    """
    Send each write method once for each closing, with a new client, and count; takes a few seconds.

    The client's policy allows no second send, so a second arrival would come from a library underneath.
    """
    trials = [
        Trial(method, closing, await _try(method, closing))
        for method, closing in itertools.product(METHODS, closings())
    ]
    return Proof(aiohttp=version("aiohttp"), trials=trials)


async def _try(method: str, closing: Closing) -> int:
    async with _serving(closing) as server, _client(server.port) as client:
        if closing.warm:
            await client.request("GET", "/warm")
        server.armed = True
        # If nothing can be sent, that is repeated until the time is over; else a busy machine needs time.
        times = Timeouts(attempt=2, connect=2, call=0.2) if closing.asked == 0 else Timeouts()
        timed = client.with_options(timeout=times)
        await timed.write(method, "/things/1", json=UNSET if method == "DELETE" else _BODY).outcome()
        return server.arrivals


def _client(port: int) -> Client:
    policy = ReconcilePolicy(resend="never", settle_after_error=0, settle_after_loss=0, deadline=1)
    return Client(f"http://127.0.0.1:{port}/v2", ApiKey("loopback"), reconcile=policy)


@contextlib.asynccontextmanager
async def _serving(closing: Closing) -> AsyncGenerator[_Server]:
    server = _Server(closing)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await _cancel_all(server.tasks)


async def _cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@attrs.define(eq=False)
class _Server:
    """Answers normally until it is armed, then closes each connection as specified."""

    closing: Closing
    port: int = 0
    armed: bool = False
    arrivals: int = 0
    tasks: set[asyncio.Task[None]] = attrs.field(factory=set[asyncio.Task[None]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it closes."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client closed, or the trial is over
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request; return false after the connection was closed."""
        if self.closing.asked == 0 and self.armed:  # as soon as it is accepted
            self._end(writer)
            return False
        first = await reader.readexactly(1)
        if not self.armed:
            await _read_request(reader)
            writer.write(_ANSWER)
            await writer.drain()
            if self.closing.asked == 0:  # while it is idle
                self._end(writer)
            return self.closing.asked != 0
        self.arrivals += 1
        await self._answer_partly(first, reader, writer)
        self._end(writer)
        return False

    async def _answer_partly(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.closing.asked is None:
            await _read_request(reader)
            writer.write(_ANSWER[: self.closing.answered])
            await writer.drain()
        elif self.closing.asked > len(first):
            await reader.read(self.closing.asked - len(first))

    def _end(self, writer: asyncio.StreamWriter) -> None:
        if self.closing.reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        else:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))
