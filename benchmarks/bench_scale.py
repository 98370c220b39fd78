"""
Measure whether costs stay the same as the load grows.  Each prints one table, and how long it took.

    python -m benchmarks.bench_scale flight [CALLS …]            calls in flight: CPU, memory (to 50,000)
    python -m benchmarks.bench_scale day [CALLS]                 24 hours in virtual time (200,000 calls)
    python -m benchmarks.bench_scale processes [WRITES]          a batch on 1, 2 and 4 processes (3,000)
    python -m benchmarks.bench_scale journal [ITEMS …]           a write after so many (to 10,000,000), SQLite
    python -m benchmarks.bench_scale journal postgres [ITEMS …]  the same in PostgreSQL

A journal in SQLite belongs to one process at a time, so ``processes`` needs PostgreSQL.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from benchmarks import bench_journal
from benchmarks.harness import resident
from benchmarks.service import service
from invsvc_async import ApiKey, Client, Timeouts
from invsvc_async.batch import Batch
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_FLIGHTS = (1_000, 10_000, 20_000, 50_000)
# a client has 28,000 ports on loopback; other calls wait for a place
_MOST_CONNECTIONS = 20_000
_OTHER_FILES = 1_000  # that a process may have open beside its connections
_PATIENCE = Timeouts(attempt=300.0, connect=300.0, call=600.0)
_DAY = 24 * 3600.0  # s
_TOGETHER = 50
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_FIRST = 200  # writes before those that are generated
_NEW = 5_000  # writes after them
_GENERATED = """
WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO entries
    (seq, place, key, lane, digest, state, operation, verdict, common, intent, outcome, claim, done_at)
SELECT n, n, lower(hex(randomblob(16))), lane, lower(hex(randomblob(16))), state, operation, verdict, common,
    intent, outcome, claim, done_at
FROM numbers, (SELECT * FROM entries WHERE state = 2 LIMIT 1)
"""
_GENERATED_IN_POSTGRES = """
INSERT INTO entries
    (seq, place, key, lane, digest, state, operation, verdict, common, intent, outcome, done_at)
SELECT n, n, 'row-' || n, 1 + n % 64, md5(n::text), state, operation, verdict, common, intent, outcome,
    done_at
FROM generate_series($1::bigint, $2::bigint) AS n, (SELECT * FROM entries WHERE state = 2 LIMIT 1) AS one
"""


# --- calls in flight


def flight(sizes: tuple[int, ...]) -> None:
    """Print the CPU and the memory of a call, for each number of calls in flight, beside raw aiohttp's."""
    heads = f"{'µs CPU a call':>16}{'raw aiohttp, µs':>18}{'KB a call':>12}{'raw aiohttp, KB':>18}"
    print(f"{'calls in flight':>16}{heads}")
    for calls in sizes:
        with service(1.0) as base:
            raw, raw_memory, _ = in_a_process("raw", base, calls)
            cpu, memory, _ = in_a_process("ours", base, calls)
        figures = (
            f"{cpu * 1e6:>16.0f}{raw * 1e6:>18.0f}{memory:>12.1f}{raw_memory:>18.1f}"
        )
        print(f"{calls:>16,}{figures}", flush=True)


def in_a_process(whose: str, base: str, calls: int) -> tuple[float, float, float]:
    """Start *calls* at once in a new process; return the CPU seconds and KB of each, and the wall seconds."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_scale",
        "wave",
        whose,
        base,
        str(calls),
    ]
    found = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    cpu, memory, wall = json.loads(found)
    return cpu, memory, wall


async def wave(whose: str, base: str, calls: int) -> tuple[float, float, float]:
    """Start *calls* at once in this process; return what they cost in raw aiohttp or in a client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # -1: no limit
    places = min(calls, _MOST_CONNECTIONS, hard - _OTHER_FILES if hard > 0 else calls)
    if whose == "raw":
        connector = aiohttp.TCPConnector(limit=places)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout()
        ) as session:
            return await _spent(lambda: _raw(session, f"{base}/webhooks/wh_1"), calls)
    async with Client(
        base, ApiKey("key"), max_concurrency=places * 9 // 8, timeout=_PATIENCE
    ) as client:
        return await _spent(lambda: client.webhooks.get("wh_1"), calls)


async def _raw(session: aiohttp.ClientSession, url: str) -> object:
    async with session.get(url, headers={"Authorization": "Bearer key"}) as answer:
        return json.loads(await answer.read())


async def _spent(
    call: Callable[[], Awaitable[object]], calls: int
) -> tuple[float, float, float]:
    await call()
    before, cpu, began = resident() // 1024, time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(calls):
            group.create_task(_ended(call()))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - began
    return (
        cpu / calls,
        (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / calls,
        wall,
    )


async def _ended(call: Awaitable[object]) -> None:
    await call


# --- a long life


class _JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time can be advanced, so that its timers expire as if it had waited."""

    ahead = 0.0  # s

    def time(self) -> float:
        return super().time() + self.ahead


async def day(loop: _JumpingLoop, calls: int) -> None:
    """Make *calls*, half of them writes, spread over 24 hours; print the memory after each tenth."""
    print(f"{'hours':>6}{'calls':>16}{'MB':>12}{'µs CPU a call':>17}", flush=True)
    rounds = calls // _TOGETHER
    with service() as base:
        async with Client(base, ApiKey("key"), clock=LoopClock()) as client:
            hooks = [
                await client.webhooks.get(f"wh_{at}") for at in range(_TOGETHER // 2)
            ]
            cpu = time.process_time()
            for done in range(1, rounds + 1):
                reads = [client.webhooks.get("wh_1") for _ in hooks]
                writes = [
                    client.webhooks.update(hook, description="changed")
                    for hook in hooks
                ]
                await asyncio.gather(*reads, *writes)
                loop.ahead += _DAY / rounds
                if done % max(rounds // 10, 1) == 0:
                    gc.collect()
                    spent, cpu = time.process_time() - cpu, time.process_time()
                    each = spent / max(rounds // 10, 1) / _TOGETHER * 1e6
                    hours, megabytes = 24 * done / rounds, resident() / 2**20
                    print(
                        f"{hours:>6.1f}{done * _TOGETHER:>16,}{megabytes:>12.1f}{each:>17.0f}",
                        flush=True,
                    )


# --- processes


async def processes(writes: int) -> None:
    """Print the rate of a batch on 1, 2 and 4 processes, each with at most 10 requests of 20 ms in flight."""
    print(f"{'processes':>9}{'writes a second':>18}", flush=True)
    async for many, rate in bench_journal.rates_of_processes(
        "scale", writes, delay=0.02
    ):
        print(f"{many:>9}{rate:>18,.0f}", flush=True)


# --- journals of any length


async def journal(sizes: tuple[int, ...]) -> None:
    """Print what a write costs in a batch whose journal, in SQLite, has so many finished ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"

        async def generate(size: int) -> None:
            _generate(path, size)

        await _after(path, sizes, generate)


async def journal_in_postgres(sizes: tuple[int, ...]) -> None:
    """Print the same for a journal in PostgreSQL.  The CPU time is without the server's."""
    import asyncpg

    from tests.support.database import database

    address = database().journal("grown")

    async def generate(size: int) -> None:
        connection = await asyncpg.connect(address.partition("batch=")[0].rstrip("?&"))
        await connection.execute("SET search_path TO invoicing_batch_grown")
        last = await connection.fetchval("SELECT max(seq) FROM entries")
        if last < size:
            await connection.execute(
                _GENERATED_IN_POSTGRES, last + 1, size, timeout=None
            )
            await connection.execute(
                "SELECT setval('entries_seq_seq', (SELECT max(seq) FROM entries))"
            )
            await connection.execute("ANALYZE entries")
        await connection.close()

    await _after(address, sizes, generate)


async def _after(
    place: Path | str, sizes: tuple[int, ...], grow: Callable[[int], Awaitable[None]]
) -> None:
    print(
        f"{'finished before':>16}{'open, s':>10}{'µs CPU a write':>16}{'writes a second':>18}{'MB':>8}"
    )
    with service() as url:
        await _written(url, place, "first", _FIRST)
        for size in sizes:
            await grow(size)
            gc.collect()
            started = time.perf_counter()
            opened, spent = await _written(url, place, f"after-{size}", _NEW)
            rate = _NEW / (time.perf_counter() - started - opened)
            figures = f"{opened:>10.3f}{spent / _NEW * 1e6:>16.0f}{rate:>18,.0f}{resident() / 2**20:>8.0f}"
            print(f"{size:>16,}{figures}", flush=True)


def _generate(path: Path, size: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        last = connection.execute("SELECT max(seq) FROM entries").fetchone()[0]
        if last < size:
            connection.execute(_GENERATED, (last + 1, size))


async def _written(
    url: str, place: Path | str, name: str, number: int
) -> tuple[float, float]:
    """Run *number* new writes; return the seconds until the batch was open, and the run's CPU seconds."""
    started = time.perf_counter()
    async with (
        bench_journal.client_for(url, 200) as client,
        Batch.open(
            place, client, concurrency=200, on_secret=lambda _key, _hook: None
        ) as batch,
    ):
        opened, cpu, applied = time.perf_counter() - started, time.process_time(), 0
        make = client.webhooks.create
        writes = (
            make(
                url=f"https://me.example/{name}/{at}", events=["invoice.created"]
            ).keyed(f"{name} {at}")
            for at in range(number)
        )
        async for result in batch.run(writes):
            applied += bool(result.applied)
        assert applied == number, applied
        return opened, time.process_time() - cpu


def main(arguments: list[str]) -> None:
    """Run what *arguments* name."""
    started = time.monotonic()
    _run(arguments)
    if arguments[:1] != ["wave"]:
        print(f"took {time.monotonic() - started:,.0f} s")


def _run(arguments: list[str]) -> None:
    match arguments:
        case ["flight", *numbers]:
            flight(tuple(map(int, numbers)) or _FLIGHTS)
        case ["wave", whose, base, calls]:
            print(json.dumps(asyncio.run(wave(whose, base, int(calls)))))
        case ["day", *number]:
            with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
                loop = runner.get_loop()
                assert isinstance(loop, _JumpingLoop)
                runner.run(day(loop, *map(int, number or ["200000"])))
        case ["processes", *number]:
            asyncio.run(processes(*map(int, number or ["3000"])))
        case ["journal", "postgres", *numbers]:
            asyncio.run(journal_in_postgres(tuple(map(int, numbers)) or _SIZES))
        case ["journal", *numbers]:
            asyncio.run(journal(tuple(map(int, numbers)) or _SIZES))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
