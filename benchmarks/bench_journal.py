"""
Measure what durability costs: items a second with and without a journal, and a million writes in one run.

Rates are of the last four fifths of a run: a batch begins with few at once, and finds out how many it can.
With a journal and without, the process collects garbage as seldom as the command line has it.

    python -m benchmarks.bench_journal ratio      200 at once against a 20 ms service, interleaved, on SQLite
    python -m benchmarks.bench_journal million    1,000,000 writes to a service that answers at once
    python -m benchmarks.bench_journal postgres   the same ratio with a journal in PostgreSQL, one worker
    python -m benchmarks.bench_journal workers    two workers against one, where the service (10 at once, 50
    ms) is the limit
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.harness import Row, ratio_of
from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from invsvc_async.concurrency.event_loop import GARBAGE

HOOK = (
    b'{"success":true,"data":{"id":"wh_%d","url":"%b","events":["invoice.created"],'
    b'"status":"active","owner":"usr_1","created_at":1780000000000,"secret":"whsec_x"},"message":"stored",'
    b'"timestamp":%d}'
)
LISTING = b'{"success":true,"data":[],"timestamp":%d}'


class Service(asyncio.Protocol):
    """A service that does next to nothing: it answers a create *latency* seconds after it arrived whole."""

    latency = 0.0
    made = 0

    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            mark = head.find(b"content-length:")
            length = int(head[mark + 15 :].split(b"\r\n", 1)[0]) if mark >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
            self.answer(head.startswith(b"post"), body)

    def answer(self, create, body):
        Service.made += 1
        now = time.time_ns() // 1_000_000
        if create:
            url = body[body.index(b'"url":"') + 7 :]
            body = HOOK % (Service.made, url[: url.index(b'"')], now)
        else:
            body = LISTING % now
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        whole = head % (b"201 Created" if create else b"200 OK", len(body)) + body
        if self.latency:
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, whole)
        else:
            self.transport.write(whole)


async def serve(latency):
    Service.latency = latency
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@asynccontextmanager
async def service(latency):
    """Run the service in a process of its own; gives its base URL."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.bench_journal",
        "serve",
        str(latency),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        port = int(await child.stdout.readline())
        yield f"http://127.0.0.1:{port}/v2"
    finally:
        child.kill()
        await child.wait()


def client_for(url, at_once):
    return Client(url, ApiKey("eyJhbGciOiJIUzI1NiJ9.eyJ0IjoxfQ.x"), max_concurrency=at_once * 5 // 4)


def writes(client, n, *, tag=False):
    for i in range(n):
        yield client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"], tag=tag)


class Rate:
    """Items a second, of those that end after the first fifth of *n*."""

    def __init__(self, n):
        self.n, self.done, self.began = n, 0, 0.0

    def count(self, applied):
        self.done += applied
        if self.done == self.n // 5:
            self.began = time.perf_counter()

    def end(self):
        assert self.done == self.n
        return (self.n - self.n // 5) / (time.perf_counter() - self.began)


async def plain(url, n, at_once):
    """Write without a journal: *at_once* tasks that take from one input."""
    async with client_for(url, at_once) as client:
        source, rate = writes(client, n, tag=True), Rate(n)

        async def work():
            for write in source:
                rate.count((await write.outcome()).applied)

        await asyncio.gather(*(work() for _ in range(at_once)))
        return rate.end()


async def journaled(url, n, at_once, path):
    """Write the same through a batch."""
    async with client_for(url, at_once) as client:
        rate = Rate(n)
        async with Batch.open(path, client, concurrency=at_once, on_secret=lambda _key, _hook: None) as batch:
            async for result in batch.run(writes(client, n)):
                rate.count(result.applied)
            return rate.end()


async def ratio(n=10_000, rounds=5, at_once=200, latency=0.02, journal=None):
    """Print the median of journaled / plain, interleaved; *journal* gives the address of each round's."""
    gc.set_threshold(*GARBAGE)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        async with service(latency) as url:
            for number in range(rounds):
                a = await plain(url, n, at_once)
                b = await journaled(
                    url, n, at_once, journal(number) if journal else Path(folder) / f"{number}.db"
                )
                ratios.append(b / a)
                print(f"plain {a:,.0f}/s, journaled {b:,.0f}/s: {b / a:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")
    return statistics.median(ratios)


async def million(n=1_000_000, at_once=200):
    """Write *n* through one batch; print memory and bytes an item."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        async with service(0.0) as url, client_for(url, at_once) as client:
            started, done = time.perf_counter(), 0
            async with Batch.open(
                path, client, concurrency=at_once, on_secret=lambda _key, _hook: None
            ) as batch:
                async for result in batch.run(writes(client, n)):
                    done += result.applied
                    if done % (n // 10) == 0:
                        print(f"{done:>9,} done, {memory():.0f} MB now", flush=True)
            took = time.perf_counter() - started
        size = path.stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{n:,} in {took:.0f} s ({n / took:.0f}/s), peak {peak:.0f} MB, {size / n:.0f} bytes an item")
        return peak, size / n


async def postgres(n=10_000, rounds=5):
    """Print the ratio with a journal in PostgreSQL."""
    from tests.support.database import database

    return await ratio(n, rounds, journal=lambda number: database().journal(f"bench{number}"))


async def workers(n=3000):
    """Print how much faster two and four processes are than one, each with 10 writes at once of 50 ms."""
    from tests.support.database import database

    rates = []
    async with service(0.05) as url:
        for many in (1, 2, 4):
            address = database().journal(f"workers{many}")
            children = [
                await worker(url, address, n if first else 0) for first in (True, *(False,) * (many - 1))
            ]
            rates.append(float((await children[0].stdout.readline()).split()[0]))
            for child in children:
                if child.returncode is None:
                    child.kill()
                await child.wait()
            print(f"{many} at work: {rates[-1]:.0f}/s", flush=True)
    two, four = (rate / rates[0] for rate in rates[1:])
    print(f"two workers are {two:.2f} times as fast as one, four {four:.2f} times")
    return two


async def worker(url, address, n):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.bench_journal", "worker", url, address, str(n),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def work(url, address, n):
    """Hand *n* writes out and work on them, 10 at once, or (none) only work."""
    async with (
        client_for(url, 40) as client,
        Batch.open(address, client, concurrency=10, on_secret=lambda _key, _hook: None) as batch,
    ):
        started = time.perf_counter()
        async for _ in batch.run(writes(client, n)) if n else batch.work():
            pass
        print(n / (time.perf_counter() - started), flush=True)


def rows(*, rounds=2, n=10_000):
    """Measure the row of the table: the rate with a journal against that without."""
    rates = asyncio.run(_rates(rounds, n))
    ratio = ratio_of(rates, "journaled", "plain")
    what = "writes with a journal, rate"  # in a process that is there for a batch
    return [Row(what=what, against="the same without", limit=0.75, reach=0.85, sense="least", ratio=ratio)]


async def _rates(rounds, n, at_once=200):
    gc.set_threshold(*GARBAGE)
    rates = {"plain": [], "journaled": []}
    with tempfile.TemporaryDirectory() as folder:
        async with service(0.02) as url:
            for number in range(rounds):
                rates["plain"].append(await plain(url, n, at_once))
                rates["journaled"].append(await journaled(url, n, at_once, Path(folder) / f"{number}.db"))
    return rates


def memory():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", latency]:
            asyncio.run(serve(float(latency)))
        case ["ratio", *number]:
            asyncio.run(ratio(*map(int, number)))
        case ["postgres", *number]:
            asyncio.run(postgres(*map(int, number)))
        case ["workers", *number]:
            asyncio.run(workers(*map(int, number)))
        case ["worker", url, address, number]:
            asyncio.run(work(url, address, int(number)))
        case ["million", *number]:
            asyncio.run(million(*map(int, number)))
        case _:
            sys.exit(__doc__)
