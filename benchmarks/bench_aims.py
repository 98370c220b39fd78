"""
Measure what is to become cheaper still, beside what it is to be.

    python -m benchmarks.bench_aims [RUNS [WRITES]]

Ratios are of CPU time, the median of RUNS processes or, of keys, pages and batches, of one.  How soon a batch
of WRITES ends is virtual time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

import aiohttp

from benchmarks.bench_doubt import batch_rows
from benchmarks.bench_key import journals, ratio_of_creates
from benchmarks.harness import at_once, ratio_of
from benchmarks.runs import combined, measured_once
from benchmarks.service import service
from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from tests.support.virtual_time import LoopClock, SteadyLoop, service_clock

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


def main(runs: int = 3, writes: int = 3_000) -> None:
    """Print the table."""
    print("What", "against", "today", "aim", sep="  ")
    for file, aims in _AIMS.items():
        rows = combined(row for _ in range(runs) for row in measured_once(file))
        for row in rows:
            if row.what in aims and row.ratio is not None:
                _tell(row.what, row.against, row.ratio.median, aims.pop(row.what))
    _tell(
        "a page of 100 invoices with unknown fields, and its request",
        "raw aiohttp + json.loads",
        asyncio.run(_page(10 * runs)),
        _PAGE,
    )
    with journals("aims") as addresses:
        for place, address in addresses.items():
            ratio = asyncio.run(ratio_of_creates(address, 10 * runs))
            _tell(f"a keyed write, {place}", "one without a key", ratio, _KEYED)
    faulty = batch_rows(writes)[-1]
    assert faulty.ratio is not None
    _tell(faulty.what, faulty.against, faulty.ratio.median, _FAULTY)
    clean, hung = [_ended(writes, fault) for fault in ("pass", "apply, then hang")]
    what = f"a batch of {writes:,} creates, 3 % hung after their effect"
    print(what, "the same without", f"+{hung - clean:.1f} s", f"+{_HUNG:g} s", sep="  ")


def _tell(what: str, against: str, ratio: float, aim: float) -> None:
    print(what, against, f"{ratio:.2f}", f"{aim:g}", sep="  ", flush=True)


async def _page(rounds: int) -> float:
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
    return ratio_of(found, "page", "plain").median


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
