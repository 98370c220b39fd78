"""
Time the work on an event store of many rows, which are made in SQL: open, count, prune and shrink.

    python -m benchmarks.bench_large_events [ROWS]

One row of 200 is old and is pruned, while 100 deliveries a second come, by the process that receives
them and then, for as many rows, by another process.  Each delivery waits for its row to be on the disk.
Periods without a prune come before, between and after; "prune adds" is the wait with it minus that of all
periods without.
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
from tests.support.children import first_lines, gone_after, started

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from invsvc_async.events import Store

_PART = 200  # of the rows are old enough for a prune
_AGE = 100_000.0  # s of the youngest row; a further one for each part
_EVERY = 0.01  # s between deliveries
_BODY = b"x" * 600
_ALONE = 10.0  # s of each period in which deliveries are timed without a prune
_PRUNES = 75.0  # s after which a prune is stopped: a slow disk is not to make the figures take an hour
_SHOWN = {"median": 0.5, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}
_INTO_SQLITE = """
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO delivery (key, type, body, state, due, received)
    SELECT printf('dlv_%012d', i * 7919 % 999999999989), 'invoice.created', NULL, 'handled',
        ?2 - (?3 - i * ?3 / ?1) * ?4, 0 FROM n
"""
_INTO_POSTGRES = """
    INSERT INTO large (key, type, state, received, due)
    SELECT 'dlv_' || lpad((i * 7919 % 999999999989)::text, 12, '0'), 'invoice.created', 'handled', 0,
        date_part('epoch', now()) - ({parts} - i * {parts} / {rows}) * {age}
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
        "ALTER TABLE large DROP CONSTRAINT large_key_handler_key",
        "DROP INDEX large_handled",
        _INTO_POSTGRES.format(parts=_PART, rows=rows, age=_AGE),
        "ALTER TABLE large ADD CONSTRAINT large_key_handler_key UNIQUE (key, handler)",
        "CREATE INDEX large_handled ON large (due) WHERE state = 'handled'",
        "VACUUM ANALYZE large",
        "CHECKPOINT",
    ):
        await connection.execute(text, timeout=None)
    await connection.close()


def store_at(address: str) -> Store:
    """Return the store that was filled."""
    return (
        PostgresStore(address, table="large")
        if "://" in address
        else open_store(address)
    )


async def deliver(
    store: Store, until: asyncio.Future[object] | asyncio.Task[object]
) -> list[float]:
    """Put deliveries until *until* is done, and return how many seconds each waited."""
    loop, took, running = (
        asyncio.get_running_loop(),
        list[float](),
        set[asyncio.Task[None]](),
    )

    async def one(number: int) -> None:
        started = loop.time()
        await store.put(
            Delivery(key=f"new_{started}_{number}", type="invoice.created", body=_BODY)
        )
        took.append(loop.time() - started)

    while not until.done():
        task = asyncio.create_task(one(len(took)))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(_EVERY)
    await asyncio.gather(*running)
    return took


def waits(took: list[float]) -> dict[str, float]:
    """Return percentiles in milliseconds."""
    took = sorted(took)
    return {
        name: took[min(int(len(took) * part), len(took) - 1)] * 1000
        for name, part in _SHOWN.items()
    }


def shown(found: dict[str, float], sign: str = "") -> str:
    """Return percentiles as text."""
    return ", ".join(f"{name} {each:{sign}.1f} ms" for name, each in found.items())


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
    before, alone, beside = _size(address), list[float](), dict[str, list[float]]()
    for who, prune in (("this process", _prune), ("another process", _prune_elsewhere)):
        alone += await deliver(store, asyncio.create_task(asyncio.sleep(_ALONE)))
        started = time.perf_counter()
        age = (_PART - (1 if prune is _prune else 2)) * _AGE
        pruning = asyncio.create_task(
            asyncio.wait_for(prune(address, store, age), _PRUNES)
        )
        beside[who] = await deliver(store, pruning)
        took = time.perf_counter() - started
        try:
            done = f"{await pruning / took:,.0f} rows a second"
        except TimeoutError:
            done = f"stopped after {took:.0f} s"
        print(f"{kind}: prune by {who}  {done}", flush=True)
    alone += await deliver(store, asyncio.create_task(asyncio.sleep(_ALONE)))
    without = waits(alone)
    print(f"{kind}: {len(alone):,} deliveries, no prune  {shown(without)}")
    for who, took_beside in beside.items():
        found = waits(took_beside)
        print(f"{kind}: {len(took_beside):,} deliveries, {who} prunes  {shown(found)}")
        added = {name: found[name] - without[name] for name in found}
        print(f"{kind}: prune by {who} adds  {shown(added, '+')}")
    await store.close()
    if before:
        print(
            f"{kind}: file of {rows:,} rows, then pruned  {before:,} MiB, {_size(address):,} MiB"
        )


async def _prune(_: str, store: Store, age: float) -> int:
    return await store.prune(older_than=age)


async def _prune_elsewhere(address: str, _: Store, age: float) -> int:
    async with gone_after(
        await started("benchmarks.bench_large_events", "prune", address, age)
    ) as child:
        [pruned] = await first_lines(child, 1)
        return int(pruned)


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
