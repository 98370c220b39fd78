"""
Compare durable acknowledgements of deliveries with an aiohttp handler that does nothing.

    python -m benchmarks.bench_receive [ROUNDS]

One server has the empty handler and an inbox on each store.  A second process sends to them in turn, over 64
connections, so that all ways meet the same load of the machine.  An answer is sent once its row is durable.
Connections are made before a block begins.  What the second process itself spends shows that it is not what
limits the server.  The last columns are what an ordinary client sees, aiohttp's, which spends more on each
delivery than the empty handler: the time in which both together get one done.

The least that anybody must do, written by hand, shows what is possible: read the body, compare its HMAC,
decode its id, and insert it together with all deliveries that wait, in a thread.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from aiohttp import web

from benchmarks.harness import ratio_of
from invsvc_async import events
from tests.events.bodies import SECRET, encoded, headers_of, signed_body
from tests.support.children import first_lines, gone_after, started

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

_CONNECTIONS = 64
_CALLS = 1500
_BASE = "handler that does nothing"
_LEAST = "least, by hand, on SQLite"
_SQLITE = "inbox on SQLite"
_WAYS = {
    _BASE: "/raw",
    _LEAST: "/least",
    "inbox in memory": "/memory",
    _SQLITE: "/sqlite",
}
_POSTGRES = {"inbox on PostgreSQL": "/postgres"}


async def serve(folder: str, dsn: str) -> None:
    """Serve all ways, and print the port."""
    stores: dict[str, events.Store | str] = {
        "/memory": events.MemoryStore(capacity=1_000_000),
        "/sqlite": str(Path(folder) / "events.db"),
    }
    if dsn:
        stores["/postgres"] = dsn

    async def nothing(_: web.Request) -> web.Response:
        return web.Response()

    async def handle(_: events.Event) -> None:
        raise NotImplementedError

    async def spent(_: web.Request) -> web.Response:
        return web.Response(text=str(time.process_time_ns()))

    app = web.Application()
    app.router.add_post("/raw", nothing)
    app.router.add_post("/least", Least(str(Path(folder) / "least.db")).answer)
    app.router.add_post("/spent", spent)
    for path, store in stores.items():
        receiver = events.Receiver(secrets=SECRET, mode="inbox", store=store)
        receiver.on("sat.invoice.synced")(handle)
        # without a worker: what is measured is the acknowledgement
        await receiver.store.open()
        app.router.add_post(path, receiver.aiohttp_handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


class Least:
    """An inbox without its rules: no leases, no answers to errors, no limits, no headers of another case."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: list[tuple[tuple[str, bytes], asyncio.Future[None]]] = []
        self._groups: SimpleQueue[
            list[tuple[tuple[str, bytes], asyncio.Future[None]]]
        ] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._is_busy = False
        threading.Thread(target=self._write, daemon=True).start()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one delivery once it is on the disk."""
        body = await request.read()
        wanted = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
        if not hmac.compare_digest(wanted, request.headers["X-Service-Signature"]):
            return web.Response(status=401)
        done = self._loop.create_future()
        self._waiting.append(((msgspec.json.decode(body)["id"], body), done))
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._next)
        await done
        return web.Response(text="stored")

    def _next(self) -> None:
        self._is_busy = bool(self._waiting)
        if self._waiting:
            self._groups.put(self._waiting)
            self._waiting = []

    def _stored(
        self, group: list[tuple[tuple[str, bytes], asyncio.Future[None]]]
    ) -> None:
        self._next()
        for _, done in group:
            done.set_result(None)

    def _write(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(
            "CREATE TABLE delivery (id INTEGER PRIMARY KEY, key TEXT UNIQUE, body BLOB)"
        )
        while True:
            group = self._groups.get()
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO delivery (key, body) VALUES (?, ?)",
                [row for row, _ in group],
            )
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._stored, group)


class Sender(asyncio.Protocol):
    """One connection, which sends a request whenever the last one is answered."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._received = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Check the answer, and send the next request."""
        self._received += data
        head, gap, body = bytes(self._received).partition(b"\r\n\r\n")
        length = (
            int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if gap
            else 0
        )
        if not gap or len(body) < length:
            return
        self._received.clear()
        self.body = body
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(head.decode()))
            return
        self.next()

    def connection_lost(self, _: Exception | None) -> None:
        """Fail if an answer is missing."""
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed the connection"))

    def next(self) -> None:
        """Send the next request."""
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
        else:
            self._transport.write(request)  # type: ignore[attr-defined]


@asynccontextmanager
async def connected(
    port: int, requests: list[bytes], connections: int
) -> AsyncGenerator[list[Sender]]:
    """Open the connections that share *requests*, none of which is sent yet."""
    loop, left = asyncio.get_running_loop(), iter(requests)
    made = [
        await loop.create_connection(lambda: Sender(left), "127.0.0.1", port)
        for _ in range(connections)
    ]
    yield [sender for _, sender in made]
    for transport, _ in made:
        transport.close()


async def send(senders: list[Sender]) -> None:
    """Send all requests, and wait for their answers."""
    for sender in senders:
        sender.next()
    await asyncio.gather(*(sender.done for sender in senders))


async def send_with_aiohttp(url: str, deliveries: Iterator[bytes]) -> None:
    """Send all deliveries as an ordinary program would, over as many connections."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS)
    ) as session:

        async def send_next() -> None:
            for body in deliveries:
                async with session.post(
                    url, data=body, headers=headers_with(body)
                ) as response:
                    await response.read()
                    response.raise_for_status()

        await asyncio.gather(*(send_next() for _ in range(_CONNECTIONS)))


def delivery(number: int) -> bytes:
    """Return the body of one delivery; each number is another event."""
    return encoded(signed_body("sat.invoice.synced", number=number))


def headers_with(body: bytes) -> dict[str, str]:
    """Return the headers of a signed delivery."""
    return {**headers_of(body, signed=True), "X-Service-Event": "sat.invoice.synced"}


def request_to(path: str, number: int) -> bytes:
    """Return a whole request."""
    body = delivery(number)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers_with(body).items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def measure(
    port: int, ways: dict[str, str], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return the CPU seconds of the server, and the wall times, of a delivery in each round."""
    numbers = itertools.count()
    kinds = ("CPU", "wall", "client", "with aiohttp")
    found: dict[str, dict[str, list[float]]] = {
        kind: {way: [] for way in ways} for kind in kinds
    }
    chance = random.Random(rounds)

    async def spent() -> int:
        request = b"POST /spent HTTP/1.1\r\nHost: me\r\nContent-Length: 0\r\n\r\n"
        async with connected(port, [request], 1) as senders:
            await send(senders)
            return int(senders[0].body)

    for turn in range(rounds + 1):
        for way in chance.sample(list(ways), len(ways)):
            requests = [request_to(ways[way], next(numbers)) for _ in range(_CALLS)]
            async with connected(port, requests, _CONNECTIONS) as senders:
                before, started, own = (
                    await spent(),
                    time.perf_counter(),
                    time.process_time(),
                )
                await send(senders)
                took, own = time.perf_counter() - started, time.process_time() - own
                after = await spent()
            bodies = [delivery(next(numbers)) for _ in range(_CALLS)]
            started = time.perf_counter()
            await send_with_aiohttp(f"http://127.0.0.1:{port}{ways[way]}", iter(bodies))
            seen = time.perf_counter() - started
            if turn:  # the first round warms up
                found["with aiohttp"][way].append(seen / _CALLS)
                found["CPU"][way].append((after - before) / _CALLS / 1e9)
                found["wall"][way].append(took / _CALLS)
                found["client"][way].append(own / _CALLS)
    return found


async def main(rounds: int) -> None:
    """Start the server, measure, and print throughput relative to the empty handler."""
    dsn = _dsn()
    ways = _WAYS | (_POSTGRES if dsn else {})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with gone_after(
            await started("benchmarks.bench_receive", "serve", folder, dsn)
        ) as child:
            [port] = await first_lines(child, 1)
            found = await measure(int(port), ways, rounds)
    kinds = ("CPU", "wall", "with aiohttp")
    print(
        "  ".join(
            [f"{'way':<28}", *(f"{kind}, µs  ratio  95 % of ratios" for kind in kinds)]
        )
    )
    for way in ways:
        cells = [f"{way:<28}"]
        for kind in kinds:
            ratio = ratio_of(found[kind], _BASE, way)
            cells.append(f"{statistics.median(found[kind][way]) * 1e6:.0f}")
            cells += [f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}"]
        print("  ".join(cells))
    print(f"{rounds} rounds of {_CALLS} deliveries each, {_CONNECTIONS} connections")
    least = ratio_of(found["CPU"], _LEAST, _SQLITE)
    print(
        f"{_SQLITE}, of the least by hand, by CPU: {least.median:.2f} ({least.low:.2f} to {least.high:.2f})"
    )
    print(f"the sender's CPU: {statistics.median(found['client'][_BASE]) * 1e6:.0f} µs")


def _dsn() -> str:
    try:
        from tests.support.database import database

        return database().address
    except ImportError:
        return ""


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        logging.disable()  # that no worker runs is intended
        asyncio.run(serve(*sys.argv[2:4]))
    else:
        asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 20))
