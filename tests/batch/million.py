"""
Write very much in one run, against a service that answers at once, and tell what it takes to keep.

    python -m tests.batch.million [ITEMS]

Fails where the process took more than 150 MB, or the journal more than 500 bytes an item beside the bodies.
Must never judge by a part of a run: a leak shows in the end.
"""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.bench_journal import client_for, writes
from benchmarks.harness import resident
from benchmarks.service import service
from invsvc_async import Verdict
from invsvc_async.batch import Batch

MOST_MEMORY = 150  # MB
MOST_BYTES = 500  # an item, in the journal, beside its body
AT_ONCE = 200


async def write(path: Path, url: str, items: int) -> list[float]:
    """Write *items* through one batch; gives the memory in use at each tenth, MB."""
    used, done = [], 0
    async with (
        client_for(url, AT_ONCE) as client,
        Batch.open(
            path, client, concurrency=AT_ONCE, on_secret=lambda _key, _hook: None
        ) as batch,
    ):
        async for _ in batch.run(writes(client, items)):
            done += 1
            if done % max(items // 10, 1) == 0:
                used.append(resident() / 2**20)
                print(f"{done:>9,} done, {used[-1]:.0f} MB", flush=True)  # noqa: T201 - a session's output
        summary = await batch.summary()
    assert summary.verdicts == {Verdict.APPLIED: items}, summary
    return used


def bytes_beside_bodies(path: Path, items: int) -> float:
    """Return the bytes of the journal for each item, without the bodies that it still stores."""
    with closing(sqlite3.connect(path)) as connection:
        text = "SELECT coalesce(sum(length(json_extract(intent, '$.body'))), 0) FROM entries"
        bodies = connection.execute(text).fetchone()[0]
    return (path.stat().st_size - bodies) / items


async def main(items: int = 1_000_000) -> bool:
    """Print what *items* writes take; tell whether that is within the bounds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        started = time.perf_counter()
        with service() as url:
            used = await write(path, url, items)
        took = time.perf_counter() - started
        size = bytes_beside_bodies(path, items)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(  # noqa: T201 - a session's output
        f"{items:,} writes in {took:.0f} s, {items / took:,.0f} a second: memory {used[0]:.0f} MB after a tenth, "
        f"{used[-1]:.0f} MB in the end, at most {peak:.0f} MB; {size:.0f} bytes an item beside the bodies"
    )
    return peak <= MOST_MEMORY and size <= MOST_BYTES


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*map(int, sys.argv[1:]))))
