"""
Kill a batch again and again, amid outages, dead tokens, refusals and retries, and compare with the ledger.

    python -m tests.batch.killing [ITEMS [KILLS [SEED]]] [sqlite | postgres | workers]

Without a journal's name, all three in turn.  With "workers", one worker runs to the end while others join it, are
stopped past their silence, woken and killed.  Compared are verdicts, the order of the effects on each thing, and
the results that processes were given.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async import Verdict
from invsvc_async.simulator import Faults, Simulator
from tests.batch.killing_troubles import Troubles
from tests.batch.writing import line_of, opened
from tests.support.children import gone_after
from tests.support.door import Door

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.durable.entry import Entry
    from tests.batch.killing_troubles import Moved, Runs

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
            # Not a longer form of the first text: a service that cuts texts could have made that one of it.
            writes.append(("webhooks.update", f"again {number}"))
        if number % 10 == 0:
            writes.append(("webhooks.delete", ""))
        for turn, (operation, value) in enumerate(writes):
            key = f"{hook.id} {turn}"
            arguments = {"webhook": hook.id} | ({"description": value} if value else {})
            asked[key] = operation, hook.id, value
            lines.append(line_of(operation, key, **arguments))
    file.write_text("".join(lines))
    return asked


async def kill_often(
    service: Simulator, runs: Runs, kills: int, chance: random.Random
) -> int:
    """Run the batch to its end, killed up to *kills* times at random moments; return how often it was."""
    killed = 0
    while killed < kills:
        await runs.force()
        before = service.arrivals()
        child = await runs.begin()
        ending = asyncio.create_task(child.wait())
        while service.arrivals() == before and not ending.done():
            runs.stir()
            await asyncio.sleep(0.005)
        await asyncio.wait([ending], timeout=chance.uniform(0.0, runs.longest))
        if ending.done():
            assert child.returncode in runs.ends, "the batch failed by itself"
            if child.returncode == 0:
                break
            continue
        with suppress(ProcessLookupError):
            child.kill()
        await ending
        killed += 1
    await runs.end()
    await service.settled()
    return killed


async def kill_others(
    service: Simulator, runs: Runs, kills: int, chance: random.Random
) -> int:
    """Run the batch to its end, and beside it up to *kills* workers that are stopped, woken or killed."""
    killed = 0
    async with gone_after(await runs.begin(last=True)) as child:
        ending = asyncio.create_task(child.wait())
        while killed < kills and not ending.done():
            await runs.force()
            runs.stir()
            async with gone_after(await runs.begin(works=True)) as other:
                await asyncio.wait([ending], timeout=chance.uniform(0.8, 2.5))
                if chance.random() < 0.5 and other.returncode is None:
                    other.send_signal(signal.SIGSTOP)
                    await asyncio.wait(
                        [ending], timeout=chance.uniform(1.2, 2.2)
                    )  # it is silent for 1 s or so
                    other.send_signal(signal.SIGCONT)
                    await asyncio.wait([ending], timeout=chance.uniform(0.0, 0.5))
            killed += 1
        await runs.calm()
        assert await ending == 0, "the batch failed"
    await service.settled()
    return killed


async def verdicts_of(journal: Path | str) -> dict[str, str]:
    """Read what the journal says of each key."""
    return {entry.key: str(entry.verdict) for entry in await done_in(journal)}


async def done_in(journal: Path | str) -> list[Entry]:
    """Read what is done."""
    async with opened(journal) as entries:
        return await entries.done(None, 0, 1_000_000)


def violations(
    service: Simulator,
    asked: dict[str, tuple[str, str, str]],
    verdicts: dict[str, str],
    *,
    order: dict[str, int] | None = None,
    moved: list[Moved] = (),  # type: ignore[assignment]
    told: list[tuple[str, str, float]] | None = None,
) -> list[str]:
    """
    Compare verdicts with the ledger: duplicates, lost writes, wrong verdicts, writes out of order.

    *order* is the place of each key in the journal, if that is not the order of *asked*, and *moved* are the
    forced retries, which changed it. *told* are the results that were given, if they are to be compared too.
    """
    effects = {write: [] for write in asked.values()}
    for entry in service.ledger.effects():
        value = (entry.body or {}).get("description", "")
        effects[entry.operation, str(entry.path_id), value].append(entry.applied_at)
    found = [f"{key}: no verdict" for key in asked if key not in verdicts]
    for key, write in asked.items():
        times, verdict = len(effects[write]), verdicts.get(key)
        if times > 1:
            found.append(f"{key}: {times} effects; {_faults(service, write)}")
        if verdict == Verdict.APPLIED and times == 0:
            found.append(f"{key}: said to be applied, and is not")
        if verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) and times:
            found.append(f"{key}: said to be {verdict}, and is applied")
        if verdict == Verdict.SUPERSEDED:
            found.append(f"{key}: superseded, and nobody else was there")
    places = order or {key: place for place, key in enumerate(asked)}
    found += _out_of_order(asked, effects, places, moved)
    if told is not None:
        found += _wrongly_told(asked, effects, verdicts, told)
    return found


def _out_of_order(
    asked: dict[str, tuple[str, str, str]],
    effects: dict[tuple[str, str, str], list[float]],
    places: dict[str, int],
    moved: list[Moved],
) -> Iterator[str]:
    """Compare the order of the effects on each thing with that of the writes at that time."""
    came: dict[str, list[tuple[float, int, str]]] = {}
    for key, write in asked.items():
        for at in effects[write]:
            later = [each.before for each in moved if each.key == key and each.at > at]
            came.setdefault(write[1], []).append(
                (at, later[0] if later else places.get(key, 0), key)
            )
    for thing, each in came.items():
        ranks = [rank for _, rank, _ in sorted(each)]
        if ranks != sorted(ranks):
            yield f"{thing}: effects came as {[(key, rank) for _, rank, key in sorted(each)]}"


def _wrongly_told(
    asked: dict[str, tuple[str, str, str]],
    effects: dict[tuple[str, str, str], list[float]],
    verdicts: dict[str, str],
    told: list[tuple[str, str, float]],
) -> Iterator[str]:
    """Compare the results that were given with the ledger, and the last of each write with the journal."""
    last: dict[str, str] = {}
    for key, verdict, at in told:
        happened = any(when <= at for when in effects[asked[key]])
        if verdict == Verdict.APPLIED and not happened:
            yield f"{key}: given as applied, and was not"
        if verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) and happened:
            yield f"{key}: given as {verdict}, and was applied"
        last[key] = verdict
    for key, verdict in verdicts.items():
        if key not in last:
            yield f"{key}: its result was never given"
        elif last.get(key, verdict) != verdict:
            yield f"{key}: last given as {last[key]}, and the journal has {verdict}"


def _faults(service: Simulator, write: tuple[str, str, str]) -> str:
    """Return what the service did to each arrival of *write*, and how long afterwards its effect came."""
    operation, thing, value = write
    return "; ".join(
        f"{entry.fault or 'no fault'}, {(entry.applied_at or entry.received_at) - entry.received_at:.3f} s"
        for entry in service.ledger.entries
        if (entry.operation, entry.path_id, (entry.body or {}).get("description", ""))
        == (operation, thing, value)
    )


async def main(
    items: int = 20_000, kills: int = 100, seed_of: int = 7, where: str = "sqlite"
) -> bool:
    """Kill a batch of *items* writes *kills* times; print what the ledger says, and tell whether all is well."""
    chance = random.Random(seed_of)
    with tempfile.TemporaryDirectory() as folder:
        journal, file = str(Path(folder) / "run.db"), Path(folder) / "writes.jsonl"
        if where != "sqlite":
            from tests.support.database import database

            journal = database().journal(f"kills_{where}", silence=1)
        async with Simulator(seed=seed_of, faults=FAULTS, latency=0.005) as service:
            asked = seed(service, items, file)
            door = Door(service)
            await door.open()
            troubles = Troubles(service, door, journal, file, chance)
            if where == "workers":
                killed = await kill_others(service, troubles, kills, chance)
                await troubles.end()
                await service.settled()
            else:
                killed = await kill_often(service, troubles, kills, chance)
            await door.shut()
            verdicts, told = await verdicts_of(journal), troubles.told()
            order = {entry.key: entry.place for entry in await done_in(journal)}
            found = violations(
                service, asked, verdicts, order=order, moved=troubles.moved, told=told
            )
    counts = dict(Counter(verdicts.values()))
    judged = (
        "\n".join(found) or "no duplicate, none lost, all in order, every verdict right"
    )
    print(  # noqa: T201 - a session's output
        f"{where}: {len(asked):,} writes, {killed} kills, {dict(troubles.count)}: {counts}, "
        f"{len(told):,} results given; {judged}",
        flush=True,
    )
    return not found


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    places = [each for each in sys.argv[1:] if not each.isdigit()] or [
        "sqlite",
        "postgres",
        "workers",
    ]
    ends = [asyncio.run(main(*numbers, where=each)) for each in places]
    sys.exit(not all(ends))
