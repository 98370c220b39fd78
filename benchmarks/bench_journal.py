"""
Measure what durability costs: items a second with and without a journal.

Rates are of the last four fifths of a run: a batch begins with few at once, and finds out how many it can.
With a journal and without, the process collects garbage as seldom as the command line has it.

    python -m benchmarks.bench_journal ratio      200 at once against a 20 ms service, interleaved, on SQLite
    python -m benchmarks.bench_journal postgres   the same with a journal in PostgreSQL, one worker
    python -m benchmarks.bench_journal cpu COMMIT CPU time of a write, of the worker and of the server,
    against the package of COMMIT, in a file and in PostgreSQL (on Linux)
    python -m benchmarks.bench_journal workers    two workers against one, where the service (10 at once, 50
    ms) is the limit
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.against import first_on_path, package_of
from benchmarks.harness import Row, ratio_of
from benchmarks.runs import ROOT, compile_package
from benchmarks.service import service
from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from invsvc_async.concurrency.event_loop import GARBAGE
from tests.support.children import first_lines, gone_after, started

_WORKER = "benchmarks.bench_journal", "worker"


def client_for(url, at_once):
    return Client(
        url,
        ApiKey("eyJhbGciOiJIUzI1NiJ9.eyJ0IjoxfQ.x"),
        max_concurrency=at_once * 5 // 4,
    )


def writes(client, n, *, tag=False):
    for i in range(n):
        yield client.webhooks.create(
            url=f"https://me.example/{i}", events=["invoice.created"], tag=tag
        )


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
        async with Batch.open(
            path, client, concurrency=at_once, on_secret=lambda _key, _hook: None
        ) as batch:
            async for result in batch.run(writes(client, n)):
                rate.count(result.applied)
            return rate.end()


async def rates(n, rounds, journal=None):
    """Measure both by turns against a service of 20 ms; *journal* gives the address of each round's."""
    gc.set_threshold(*GARBAGE)
    found = {"plain": [], "journaled": []}
    with tempfile.TemporaryDirectory() as folder, service(0.02) as url:
        for number in range(rounds):
            place = journal(number) if journal else Path(folder) / f"{number}.db"
            found["plain"].append(await plain(url, n, 200))
            found["journaled"].append(await journaled(url, n, 200, place))
    return found


def ratio(n=10_000, rounds=5, journal=None):
    """Print the rates, and the median of journaled / plain."""
    found = asyncio.run(rates(n, rounds, journal))
    for a, b in zip(found["plain"], found["journaled"], strict=True):
        print(f"plain {a:,.0f}/s, journaled {b:,.0f}/s: {b / a:.2f}")
    print(f"median ratio {ratio_of(found, 'journaled', 'plain').median:.2f}")


def postgres(n=10_000, rounds=5):
    """Print the ratio with a journal in PostgreSQL."""
    from tests.support.database import database

    ratio(n, rounds, lambda number: database().journal(f"bench{number}"))


async def workers(n=3000):
    """Print how much faster two and four processes are than one, each with 10 writes at once of 50 ms."""
    found = []
    async for many, rate in rates_of_processes("workers", n, delay=0.05):
        found.append(rate)
        print(f"{many} at work: {rate:.0f}/s", flush=True)
    two, four = (rate / found[0] for rate in found[1:])
    print(f"two workers are {two:.2f} times as fast as one, four {four:.2f} times")


async def rates_of_processes(name, n, *, delay):
    """Yield the rates of a batch on 1, 2 and 4 processes, each with 10 writes at once of *delay* seconds."""
    from tests.support.database import database

    with service(delay) as url:
        for many in (1, 2, 4):
            address = database().journal(f"{name}{many}")
            async with AsyncExitStack() as stack:
                children = [
                    await stack.enter_async_context(
                        gone_after(await started(*_WORKER, url, address, share))
                    )
                    for share in (n, *[0] * (many - 1))
                ]
                [line] = await first_lines(children[0], 1)
            yield many, float(line)


async def work(url, address, n):
    """Hand *n* writes out and work on them, 10 at once, or (none) only work."""
    async with (
        client_for(url, 40) as client,
        Batch.open(
            address, client, concurrency=10, on_secret=lambda _key, _hook: None
        ) as batch,
    ):
        started = time.perf_counter()
        async for _ in batch.run(writes(client, n)) if n else batch.work():
            pass
        print(n / (time.perf_counter() - started), flush=True)


def cpu(commit, n=5_000, rounds=9):
    """Print what a write costs, in a file and in PostgreSQL, in this tree and in that of *commit*."""
    with (
        package_of(commit) as before,
        service() as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        paths = {"before": [before, ROOT], "now": [ROOT]}
        for place in (before, ROOT):
            compile_package(place)
        for name, journal, server in (
            ("a file", lambda run: Path(folder) / f"{run}.db", None),
            ("PostgreSQL", _in_database, _postmaster),
        ):
            costs = {side: [] for side in paths}
            for number in range(rounds):
                for side in random.sample(list(paths), 2):
                    place = journal(f"{side}{number}")
                    cost = _cost_of_run(
                        [*_WORKER, "cpu", url, place, n],
                        paths[side],
                        server and server(),
                    )
                    costs[side].append(cost / n)
            ratio = ratio_of(costs, "now", "before")
            print(
                f"{name}: {min(costs['before']) * 1e6:,.0f} us before,"
                f" {min(costs['now']) * 1e6:,.0f} us now (the least of {rounds}):"
                f" {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
                flush=True,
            )


def _in_database(name):
    from tests.support.database import database

    return database().journal(name)


def _postmaster():
    """Return the number of the process that the server of PostgreSQL began with."""
    from tests.support.database import database

    return database().process


def _cost_of_run(arguments, path, server):
    """Return the CPU time in seconds of a run, in its process and in that of the *server* of its database."""
    before = _spent_by_server(server)
    command = [sys.executable, "-m", *map(str, arguments)]
    printed = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=path[0],
        env=first_on_path(path),
    ).stdout
    return float(printed) + _spent_by_server(server) - before


def _spent_by_server(server):
    """Return the CPU time of all processes of the server so far, also of those that have ended."""
    if server is None:
        return 0.0
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    ticks = sum(_ticks(server)) + sum(sum(_ticks(child)[:2]) for child in children)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(process):
    """Return the ticks of a process: its own in user and system mode, and those of its ended children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


async def work_alone(url, address, n):
    """Print the CPU time of a batch of *n* writes."""
    gc.set_threshold(*GARBAGE)
    async with client_for(url, 200) as client:
        started = time.process_time()
        async with Batch.open(
            address, client, concurrency=200, on_secret=lambda _key, _hook: None
        ) as batch:
            async for _ in batch.run(writes(client, n)):
                pass
        print(time.process_time() - started, flush=True)


def rows(*, rounds=2, n=10_000):
    """Measure the row of the table: the rate with a journal against that without."""
    ratio = ratio_of(asyncio.run(rates(n, rounds)), "journaled", "plain")
    what = "writes with a journal, rate"  # in a process that is there for a batch
    return [
        Row(
            what=what,
            against="the same without",
            limit=0.75,
            reach=0.85,
            sense="least",
            ratio=ratio,
        )
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ratio", *number]:
            ratio(*map(int, number))
        case ["postgres", *number]:
            postgres(*map(int, number))
        case ["workers", *number]:
            asyncio.run(workers(*map(int, number)))
        case ["cpu", commit, *number]:
            cpu(commit, *map(int, number))
        case ["worker", "cpu", url, address, number]:
            asyncio.run(work_alone(url, address, int(number)))
        case ["worker", url, address, number]:
            asyncio.run(work(url, address, int(number)))
        case _:
            sys.exit(__doc__)
