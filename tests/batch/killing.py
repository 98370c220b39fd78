"""
Kill a batch again and again and hold its verdicts against the service's ledger.

    python -m tests.batch.killing [ITEMS [KILLS [SEED]]] [sqlite | postgres | workers]

Without a journal's name, all three in turn.  With "workers", one worker runs to the end while others join it, are stopped past their silence, woken and killed.

Must never judge by what the client saw.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async import Verdict
from invsvc_async.batch.journals.open import entries_of
from invsvc_async.simulator import Faults, Simulator

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

FAULTS = Faults(rate=0.06, reads=0.02, late_up_to=0.15, hang=0.3)


def seed(service: Simulator, items: int, file: Path) -> dict[str, tuple[str, str, str]]:
    """
    Write an input of *items* writes to *file*; gives key: (operation, id, value).

    Each third webhook is updated twice, each tenth deleted in the end; every update has a value of its own.
    """
    asked: dict[str, tuple[str, str, str]] = {}
    lines = []
    while len(lines) < items:
        hook = service.seed_webhook()
        number = len(asked)
        writes = [("webhooks.update", f"value {number}")]
        if number % 3 == 0:
            writes.append(("webhooks.update", f"value {number} again"))
        if number % 10 == 0:
            writes.append(("webhooks.delete", ""))
        for turn, (operation, value) in enumerate(writes):
            key = f"{hook.id} {turn}"
            arguments = {"webhook": hook.id} | ({"description": value} if value else {})
            asked[key] = operation, hook.id, value
            lines.append(json.dumps({"operation": operation, "arguments": arguments, "key": key}))
    file.write_text("\n".join(lines))
    return asked


@asynccontextmanager
async def running(service: Simulator, journal: Path | str, file: Path | str) -> AsyncIterator[Process]:
    """Start a process that runs the batch; whatever happens, it is gone in the end."""
    child = await begin(service, journal, file)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def begin(service: Simulator, journal: Path | str, file: Path | str, *death: str) -> Process:
    """Start a process that runs the batch."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.batch.child", service.base_url, service.api_key, str(journal), str(file), "24", *death
    )  # fmt: skip


async def kill_often(
    service: Simulator, journal: Path | str, file: Path, kills: int, chance: random.Random
) -> int:
    """Run the batch to its end, killed up to *kills* times at random moments; gives how often it was."""
    killed = 0
    while killed < kills:
        before = service.arrivals()
        child = await begin(service, journal, file)
        ending = asyncio.create_task(child.wait())
        while service.arrivals() == before and not ending.done():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)
        await asyncio.wait([ending], timeout=chance.uniform(0.0, 0.5))
        if ending.done():
            assert child.returncode == 0, "the batch failed by itself"
            break
        with suppress(ProcessLookupError):
            child.kill()
        await ending
        killed += 1
    child = await begin(service, journal, file)
    assert await child.wait() == 0, "the batch failed"
    await service.settled()
    return killed


async def kill_others(service: Simulator, journal: str, file: Path, kills: int, chance: random.Random) -> int:
    """Run the batch to its end, and beside it up to *kills* workers that are stopped, woken or killed."""
    killed = 0
    async with running(service, journal, file) as child:
        ending = asyncio.create_task(child.wait())
        while killed < kills and not ending.done():
            async with running(service, journal, "-") as other:
                await asyncio.wait([ending], timeout=chance.uniform(0.8, 2.5))
                if chance.random() < 0.5:
                    other.send_signal(signal.SIGSTOP)
                    await asyncio.wait(
                        [ending], timeout=chance.uniform(1.2, 2.2)
                    )  # it is silent for 1 s or so
                    other.send_signal(signal.SIGCONT)
                    await asyncio.wait([ending], timeout=chance.uniform(0.0, 0.5))
            killed += 1
        assert await ending == 0, "the batch failed"
    await service.settled()
    return killed


async def verdicts_of(journal: Path | str) -> dict[str, str]:
    """Read what the journal says of each key."""
    entries = entries_of(journal)
    await entries.open()
    try:
        found = await entries.done(None, 0, 1_000_000)
    finally:
        await entries.aclose()
    return {entry.key: str(entry.verdict) for entry in found}


def violations(
    service: Simulator, asked: dict[str, tuple[str, str, str]], verdicts: dict[str, str]
) -> list[str]:
    """Compare verdicts with the ledger: duplicates, lost writes, wrong verdicts, writes out of order."""
    effects: Counter[tuple[str, str | None, str]] = Counter()
    order: dict[str, list[str]] = {}
    for entry in service.ledger.effects():
        value = (entry.body or {}).get("description", "")
        effects[entry.operation, entry.path_id, value] += 1
        order.setdefault(str(entry.path_id), []).append(value)
    found = [f"{key}: no verdict" for key in asked if key not in verdicts]
    for key, write in asked.items():
        times, verdict = effects[write], verdicts.get(key)
        if times > 1:
            found.append(f"{key}: {times} effects; {_faults(service, write)}")
        if verdict == Verdict.APPLIED and times == 0:
            found.append(f"{key}: said to be applied, and is not")
        if verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) and times:
            found.append(f"{key}: said to be {verdict}, and is applied")
        if verdict == Verdict.SUPERSEDED:
            found.append(f"{key}: superseded, and nobody else was there")
    for thing, values in order.items():
        wanted = [value for _, hook, value in asked.values() if hook == thing]
        if values != [value for value in wanted if value in values]:
            found.append(f"{thing}: effects came as {values}")
    return found


def _faults(service: Simulator, write: tuple[str, str, str]) -> str:
    """Tell what the service did to each arrival of *write*, and how long after it the effect came."""
    operation, thing, value = write
    return "; ".join(
        f"{entry.fault or 'no fault'}, {(entry.applied_at or entry.received_at) - entry.received_at:.3f} s"
        for entry in service.ledger.entries
        if (entry.operation, entry.path_id, (entry.body or {}).get("description", ""))
        == (operation, thing, value)
    )


async def main(items: int = 20_000, kills: int = 100, seed_of: int = 7, where: str = "sqlite") -> bool:
    """Kill a batch of *items* writes *kills* times; print what the ledger says, and tell whether all is well."""
    chance = random.Random(seed_of)  # noqa: S311 - moments, not secrets
    with tempfile.TemporaryDirectory() as folder:
        journal, file = str(Path(folder) / "run.db"), Path(folder) / "writes.jsonl"
        if where != "sqlite":
            from tests.support.database import database

            journal = database().journal(f"kills_{where}", silence=1)
        async with Simulator(seed=seed_of, faults=FAULTS, latency=0.005) as service:
            asked = seed(service, items, file)
            kill = kill_others if where == "workers" else kill_often
            killed = await kill(service, journal, file, kills, chance)
            verdicts = await verdicts_of(journal)
            found = violations(service, asked, verdicts)
    counts = dict(Counter(verdicts.values()))
    judged = "\n".join(found) or "no duplicate, none lost, every verdict right"
    print(f"{where}: {len(asked):,} writes, {killed} kills: {counts}; {judged}", flush=True)  # noqa: T201 - a session's output
    return not found


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    places = [each for each in sys.argv[1:] if not each.isdigit()] or ["sqlite", "postgres", "workers"]
    ends = [asyncio.run(main(*numbers, where=each)) for each in places]
    sys.exit(not all(ends))
