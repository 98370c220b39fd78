"""
Measure how long a batch takes to its first new send, after a file of finished writes to which one was added.

    python -m benchmarks.bench_resume [ITEMS]     10,000,000 by default, which needs 4 GB in TMPDIR

The journal and the file are generated: the entries are inserted as the batch stores them, each applied, and
the checkpoint of the file is that of a run that read all of it.  Then ``invsvc batch`` runs in a process of
its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import msgspec

from benchmarks.service import Connection, Work
from invsvc_async.batch.entries import entries_of
from invsvc_async.batch.file_check import _Reader

MOST_SECONDS, MOST_MEMORY = 60, 150  # MB
_INSERT = (
    "INSERT INTO entries (seq, place, key, lane, digest, operation, state, verdict, outcome, done_at) "
    "VALUES (?, ?, ?, 1, ?, 'webhooks.create', 2, 'applied', ?, 1780000000000)"
)


def key(number):
    """Return the key of a write: in no order, as the digests by which a batch knows lines without a key."""
    return blake2b(number.to_bytes(8), digest_size=16).hexdigest()


def line(number):
    """Return the line of one write, as bytes."""
    arguments = {"url": f"https://me.example/{number}", "events": ["invoice.created"]}
    text = {"operation": "webhooks.create", "arguments": arguments, "key": key(number)}
    return json.dumps(text).encode() + b"\n"


def rows(items):
    """Yield the rows of finished entries."""
    for number in range(items):
        outcome = f'{{"basis":"answered","thing":"wh_{number}","took":0.02}}'
        yield number + 1, number + 1, key(number), os.urandom(16).hex(), outcome


async def make(journal, file, items):
    """Write a file of *items* + 1 writes, and the journal of a batch that has finished all but the last."""
    entries = entries_of(journal)
    await entries.open()
    await entries.aclose()
    with file.open("wb") as writing:
        for number in range(items):
            writing.write(line(number))
    with file.open("rb") as reading:
        reader = _Reader(reading, "the file", blake2b(digest_size=16), writes=items)
        while reader.readline(2**20):
            pass
    with file.open("ab") as writing:
        writing.write(line(items))
    with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("BEGIN")
        connection.executemany(_INSERT, rows(items))
        stored = msgspec.json.encode(reader.reached(None)).decode()
        connection.execute("INSERT INTO facts VALUES ('checkpoint', ?)", (stored,))
        connection.execute("COMMIT")


async def resume(journal, file):
    """Run the batch; return the seconds to its first send and to its end, and its largest memory in MB."""
    first = asyncio.get_running_loop().create_future()

    class Noting(Connection):
        def answer(self, line, body):
            if line.startswith(b"POST") and not first.done():
                first.set_result(time.perf_counter())
            super().answer(line, body)

    server = await asyncio.get_running_loop().create_server(
        lambda: Noting(Work(0.0, 0)), "127.0.0.1", 0
    )
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v2"
    command = (
        "import resource, sys; from invsvc_async.cli import main\ntry: main()\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    begun = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", command, "batch", str(file), "--journal", str(journal),
        "--json", "--no-secrets",
        env=os.environ | {"INVSVC_BASE_URL": url, "INVSVC_API_KEY": "eyJhbGciOiJIUzI1NiJ9.eyJ0IjoxfQ.x"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, err = await child.communicate()
    took = time.perf_counter() - begun
    server.close()
    if not first.done():
        raise SystemExit(err.decode())
    return first.result() - begun, took, int(err.split()[-1]) / 1024


async def main(items=10_000_000):
    """Print the times; return whether they are within the limits."""
    items = int(items)
    with tempfile.TemporaryDirectory() as folder:
        journal, file = Path(folder) / "run.db", Path(folder) / "writes.jsonl"
        await make(journal, file, items)
        sizes = f"{journal.stat().st_size / 1e6:,.0f} MB journal, {file.stat().st_size / 1e6:,.0f} MB file"
        seconds, took, memory = await resume(journal, file)
    print(
        f"{items:,} finished writes ({sizes}): first send after {seconds:.1f} s, "
        f"end after {took:.1f} s, at most {memory:.0f} MB"
    )
    return seconds <= MOST_SECONDS and memory <= MOST_MEMORY


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*sys.argv[1:])))
