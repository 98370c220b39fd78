"""
Time the work on an event store of many rows, which are made in SQL: open, count, prune and shrink.

    python -m benchmarks.bench_large_events [ROWS]

One row of 200 is old and is pruned, while 100 deliveries a second come, by the process that receives
them and then, for as many rows, by another process.  Each delivery waits for its row to be on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from invsvc_async.events import Delivery, PostgresStore, SqliteStore
from invsvc_async.events.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from invsvc_async.events import Store

_PART = 200  # of the rows are old enough for a prune
_AGE = 100_000.0  # s of the youngest row; a further one for each part
_EVERY = 0.01  # s between deliveries
_BODY = b"x" * 600
_ALONE = 5.0  # s for which deliveries are timed without a prune
_INTO_SQLITE = """
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO delivery (key, type, body, state, due, since, reason, received)
    SELECT printf('dlv_%012d', i * 7919 % 999999999989), 'invoice.created', NULL, 'handled',
        ?2 - (?3 - i * ?3 / ?1) * ?4, 0, '', 0 FROM n
"""
_INTO_POSTGRES = """
    INSERT INTO large (key, type, state, due)
    SELECT 'dlv_' || lpad((i * 7919 % 999999999989)::text, 12, '0'), 'invoice.created', 'handled',
        now() - ({parts} - i * {parts} / {rows}) * {age} * interval '1 second'
    FROM generate_series(0::bigint, {rows} - 1) AS i
"""


async def fill_sqlite(path: str, rows: int) -> None:
    """Make the file."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -2000000"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute(_INTO_SQLITE, (rows, time.time(), _PART, _AGE))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.close()


async def fill_postgres(dsn: str, rows: int) -> None:
    """Make the table."""
    store = PostgresStore(dsn, table="large")
    await store.open()
    await store.close()
    connection = await asyncpg.connect(dsn)
    for text in (
        "SET maintenance_work_mem = '512MB'",
        "ALTER TABLE large DROP CONSTRAINT large_key_key",
        "DROP INDEX large_handled",
        _INTO_POSTGRES.format(parts=_PART, rows=rows, age=_AGE),
        "ALTER TABLE large ADD CONSTRAINT large_key_key UNIQUE (key)",
        "CREATE INDEX large_handled ON large (due) WHERE state = 'handled'",
        "VACUUM ANALYZE large",
        "CHECKPOINT",
    ):
        await connection.execute(text, timeout=None)
    await connection.close()


def store_at(address: str) -> Store:
    """Return the store that was filled."""
    return PostgresStore(address, table="large") if "://" in address else open_store(address)


async def deliver(store: Store, until: asyncio.Future[object] | asyncio.Task[object]) -> str:
    """Put deliveries until *until* is done, and return how long they took."""
    loop, took, running = asyncio.get_running_loop(), [0.0], set[asyncio.Task[None]]()

    async def one(number: int) -> None:
        started = loop.time()
        await store.put(Delivery(key=f"new_{started}_{number}", type="invoice.created", body=_BODY))
        took.append(loop.time() - started)

    while not until.done():
        task = asyncio.create_task(one(len(took)))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(_EVERY)
    await asyncio.gather(*running)
    took.sort()
    shown = {"median": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "most": took[-1]}
    return ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in shown.items())


async def timed(name: str, act: Awaitable[object]) -> None:
    """Print how long *act* takes."""
    started = time.perf_counter()
    await act
    print(f"{name}  {(time.perf_counter() - started) * 1000:,.1f} ms", flush=True)


async def measure(kind: str, address: str, rows: int) -> None:
    """Print the figures of one store."""
    store = store_at(address)
    await timed(f"{kind}: open", store.open())
    await timed(f"{kind}: backlog", store.backlog())
    await timed(f"{kind}: count all", store.stats())
    alone = await deliver(store, asyncio.create_task(asyncio.sleep(_ALONE)))
    print(f"{kind}: deliveries alone  {alone}", flush=True)
    before = _size(address)
    for who, prune in (("this process", _prune), ("another process", _prune_elsewhere)):
        started = time.perf_counter()
        age = (_PART - (1 if prune is _prune else 2)) * _AGE
        pruning = asyncio.create_task(prune(address, store, age))
        waited = await deliver(store, pruning)
        each = await pruning / (time.perf_counter() - started)
        print(f"{kind}: deliveries while {who} prunes  {waited}; {each:,.0f} rows a second", flush=True)
    await store.close()
    if before:
        print(f"{kind}: file of {rows:,} rows, then pruned  {before:,} MiB, {_size(address):,} MiB")


async def _prune(_: str, store: Store, age: float) -> int:
    return await store.prune(older_than=age)


async def _prune_elsewhere(address: str, _: Store, age: float) -> int:
    command = [sys.executable, "-m", "benchmarks.bench_large_events", "prune", address, str(age)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await child.communicate()
    return int(printed)


async def _prune_here(address: str, age: float) -> None:
    store = store_at(address)
    print(await store.prune(older_than=age))
    await store.close()


def _size(address: str) -> int:
    return 0 if "://" in address else Path(address).stat().st_size >> 20


def main(rows: int) -> None:
    """Make both stores, and measure them."""
    from tests.support.database import database

    print("work  time")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = os.fspath(Path(folder) / "events.db")
        asyncio.run(fill_sqlite(path, rows))
        asyncio.run(measure("SQLite", path, rows))
    dsn = database().address
    asyncio.run(fill_postgres(dsn, rows))
    asyncio.run(measure("PostgreSQL", dsn, rows))
    print(f"{rows:,} rows in each store")


if __name__ == "__main__":
    if sys.argv[1:2] == ["prune"]:
        asyncio.run(_prune_here(sys.argv[2], float(sys.argv[3])))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
