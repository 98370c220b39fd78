"""
Measure what is to become cheaper still, beside what it is to be.

    python -m benchmarks.bench_aims [RUNS [WRITES [COUNTS]]]

Ratios are of CPU time, the median of RUNS processes or, of keys, pages and batches, of one; and of
instructions, where valgrind is installed, unless COUNTS is 0.  A batch has WRITES writes, and less where
instructions are counted.  How soon a batch ends is virtual time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import attrs

from benchmarks import meter
from benchmarks.bench_doubt import batch_rows
from benchmarks.bench_key import journals, ratio_of_creates
from benchmarks.harness import Ratio, Row, at_once, ratio_of
from benchmarks.runs import combined, counted_once, measured_once
from benchmarks.service import service
from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from tests.support.virtual_time import LoopClock, SteadyLoop, service_clock

if TYPE_CHECKING:
    from collections.abc import Iterable

_AIMS = {  # by file, what its rows measure
    "call": {"small GET": 0.75, "small PUT": 0.85},
    "import": {"import of client and key": 1.08},
    "events": {"verify and parse an event": 1.3},
}
_KEYED = 1.15
_PAGE = 0.88
_FAULTY = 1.4
_HUNG = 3.0  # s
_TEAMS = 60  # whose webhooks all fit into a list
_ONE_IN = 33  # writes, that hangs
_COUNTED = 1_000  # writes of a batch whose instructions are counted


def main(runs: int = 3, writes: int = 3_000, counts: int = 1) -> None:
    """Print the table."""
    print("What", "against", "CPU time", "instructions", "aim", sep="  ")
    is_counted = counts > 0 and meter.can_count()
    for file, aims in _AIMS.items():
        timed = combined(row for _ in range(runs) for row in measured_once(file))
        counted = counted_once(file) if is_counted else []
        _tell(_with_aims(timed, aims), counted)
    timed = rows(rounds=10 * runs, writes=writes)
    _tell(timed, counted_once("aims") if is_counted else [])
    clean, hung = [_ended(writes, fault) for fault in ("pass", "apply, then hang")]
    what = f"a batch of {writes:,} creates, 3 % hung after their effect"
    later = f"+{hung - clean:.1f} s"
    print(what, "the same without", later, "-", f"+{_HUNG:g} s", sep="  ")


def rows(*, rounds: int, writes: int = _COUNTED) -> list[Row]:
    """Measure this file's rows."""
    found = [
        Row(
            what="a page of 100 invoices with unknown fields, and its request",
            against="raw aiohttp + json.loads",
            limit=_PAGE,
            ratio=asyncio.run(_page(rounds)),
        )
    ]
    with journals("aims") as addresses:
        found += [
            Row(
                what=f"a keyed write, {place}",
                against="one without a key",
                limit=_KEYED,
                ratio=asyncio.run(ratio_of_creates(address, rounds)),
            )
            for place, address in addresses.items()
        ]
    what = "a batch of writes, 5 % faults"
    return [*found, attrs.evolve(batch_rows(writes)[-1], what=what, limit=_FAULTY)]


def _with_aims(rows: Iterable[Row], aims: dict[str, float]) -> list[Row]:
    """Return the first row of each thing that has an aim, with that as its limit."""
    left = dict(aims)
    return [
        attrs.evolve(row, limit=left.pop(row.what)) for row in rows if row.what in left
    ]


def _tell(timed: Iterable[Row], counted: Iterable[Row]) -> None:
    """Print *timed* rows, each with the ratio of the *counted* row of its name."""
    by_name = {(row.what, row.against): row for row in counted}
    for row in timed:
        same = by_name.get((row.what, row.against), row)
        counts = _shown(None if same is row else same.ratio)
        cells = row.what, row.against, _shown(row.ratio), counts, f"{row.limit:g}"
        print(*cells, sep="  ", flush=True)


def _shown(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}"


async def _page(rounds: int) -> Ratio:
    """Return what a page costs with its request, 10 at once."""
    headers = {"Authorization": "Bearer key"}
    with service() as base:
        async with (
            Client(base, ApiKey("key")) as client,
            aiohttp.ClientSession(headers=headers) as raw,
        ):

            async def plain() -> None:
                async with raw.get(f"{base}/invoices/egress?limit=100") as response:
                    json.loads(await response.read())

            async def page() -> None:
                await client.invoices.egress(limit=100)

            ways = {"plain": plain, "page": page}
            found = await at_once(ways, rounds=rounds, calls=20, together=10)
    return ratio_of(found, "page", "plain")


def _ended(writes: int, fault: str) -> float:
    """Return after how many seconds a batch of creates ends, of which some have the *fault*."""
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(_until_end(writes, fault))


async def _until_end(writes: int, fault: str) -> float:
    loop = asyncio.get_running_loop()
    places = {*random.Random(3).sample(range(writes), writes // _ONE_IN)}
    async with Simulator(clock=service_clock()) as running:
        script = [fault if place in places else "pass" for place in range(writes)]
        running.script("webhooks.create", *script)
        teams = [running.seed_team().id for _ in range(_TEAMS)]
        key = ApiKey(running.api_key)
        with tempfile.TemporaryDirectory() as folder:
            async with (
                Client(
                    running.base_url, key, clock=LoopClock(), max_concurrency=250
                ) as client,
                Batch.open(
                    Path(folder) / "run.db",
                    client,
                    concurrency=200,
                    on_secret=lambda _key, _hook: None,
                ) as run,
            ):
                views = [client.for_team(team) for team in teams]
                begun = loop.time()
                results = run.run(
                    views[number % _TEAMS]
                    .webhooks.create(
                        url=f"https://me.example/{number}", events=["invoice.created"]
                    )
                    .keyed(f"row-{number}")
                    for number in range(writes)
                )
                applied = sum([bool(result.applied) async for result in results])
                assert applied == writes
                return loop.time() - begun


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
