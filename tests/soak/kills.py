"""
Kill processes in the middle of their journals and stores, again and again, and hold them against the ledger.

    python -m tests.soak.kills [KILLS_OF_JOURNALS [KILLS_OF_BATCHES [KILLS_OF_STORES]]]

The judge is the ledger of the service: a verdict is true if the effects are as it says, for the reason that it
gives, and each write that arrived has a verdict, which an ``await`` of some process returned.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL

import attrs

from invsvc_async import Verdict
from invsvc_async.simulator import Faults, Simulator
from tests.batch.killing import kill_often, seed, verdicts_of, violations
from tests.batch.killing_troubles import Runs
from tests.soak import receivers
from tests.soak.journal_child import POLICY
from tests.soak.reasons import Things, told_in
from tests.support.children import gone_after, started
from tests.support.waiting import until

FAULTS = Faults(rate=0.06, reads=0.02, late_up_to=0.2, hang=0.3)
WINDOW = POLICY.settle_after_error
EACH = 400  # writes that one process begins at most
BATCHED = 20_000  # writes of the batch
DELIVERED = 1_500  # deliveries between two kills, about


@attrs.frozen(kw_only=True)
class Survived:
    """What came of one journal after its kills."""

    kills: int
    writes: int  # that arrived; of a store, events
    verdicts: dict[str, int]
    wrong: list[str]
    saved: int = 0  # verdicts that nobody heard but from a journal, which had kept them for the next process


async def journals(kills: int, folder: Path, *, seed_of: int = 7) -> Survived:
    """Kill a client with a journal *kills* times; the last process takes up what is left, and ends by itself."""
    chance = random.Random(seed_of)
    told, journal = folder / "told.jsonl", folder / "journal.db"
    async with Simulator(seed=seed_of, faults=FAULTS, latency=0.005) as service:
        for number in range((kills + 1) * EACH):
            service.seed_webhook(id=f"wh_{number}")
        child = (
            "tests.soak.journal_child",
            service.base_url,
            service.api_key,
            journal,
            told,
        )
        for turn in range(kills):
            before = service.arrivals()
            async with gone_after(await started(*child, turn * EACH, EACH)) as victim:
                await until(partial(_has_asked_or_ended, service, before, victim))
                await asyncio.sleep(chance.uniform(0.0, 0.5))
        assert await (await started(*child, kills * EACH, 10)).wait() == 0, (
            "the last process failed"
        )
        await service.settled()
        return _judged(service, told, kills)


def _has_asked_or_ended(
    service: Simulator, before: int, child: asyncio.subprocess.Process
) -> bool:
    return service.arrivals() > before or child.returncode is not None


def _judged(service: Simulator, told: Path, kills: int) -> Survived:
    verdicts: defaultdict[str, list[str]] = defaultdict(list)
    saved, wrong = 0, list[str]()
    # One write to each thing: none is overtaken, and what is unknown was not changed by another.
    things = Things(
        service.ledger.entries,
        lambda entry: str(entry.body["description"]),
        window=WINDOW,
    )
    for line in told.read_text().splitlines():
        with suppress(ValueError):  # the last one of a killed process may be cut
            key, plain, how = json.loads(line)
            saved += how == "kept" and key not in verdicts
            reason = told_in(plain)
            verdicts[key].append(str(reason.verdict))
            if (why := things.contradiction(key, None, reason)) is not None:
                wrong.append(f"{key}: {why}")
    sent, effects, fates = (
        Counter[str](),
        Counter[str](),
        defaultdict[str, list[str]](list),
    )
    for entry in service.ledger.entries:
        fates[entry.body["description"]].append(entry.fault or "none")
        sent[entry.body["description"]] += 1
        effects[entry.body["description"]] += entry.applied
    wrong += [
        f"{key}: {times} effects; what its sends met: {', '.join(fates[key])}"
        for key, times in effects.items()
        if times > 1
    ]
    wrong += [
        f"{key}: arrived, and nothing was ever said of it"
        for key in sent
        if key not in verdicts
    ]
    wrong += [
        f"{key}: said to be {verdict}, with {effects[key]} effects"
        for key, said in verdicts.items()
        for verdict in said
        if effects[key] != {Verdict.APPLIED: 1, Verdict.NOT_APPLIED: 0, Verdict.REFUSED: 0}.get(
            Verdict(verdict), effects[key]
        ) or verdict == Verdict.SUPERSEDED
    ]  # fmt: skip
    last = Counter(said[-1] for said in verdicts.values())
    return Survived(
        kills=kills,
        writes=len({*sent, *verdicts}),
        verdicts=dict(last),
        wrong=wrong,
        saved=saved,
    )


async def batches(
    kills: int, folder: Path, *, seed_of: int = 7, items: int = BATCHED
) -> Survived:
    """Kill a batch *kills* times on its way through its input."""
    journal, file = folder / "run.db", folder / "writes.jsonl"
    async with Simulator(seed=seed_of, faults=FAULTS, latency=0.005) as service:
        asked = seed(service, items, file)
        done = await kill_often(
            service, Runs(service, journal, file), kills, random.Random(seed_of)
        )
        verdicts = await verdicts_of(journal)
        wrong = violations(service, asked, verdicts)
    return Survived(
        kills=done,
        writes=len(asked),
        verdicts=dict(Counter(verdicts.values())),
        wrong=wrong,
    )


async def stores(kills: int, folder: Path, *, seed_of: int = 7) -> Survived:
    """Kill a receiver *kills* times under deliveries: each event that it has acknowledged is handled."""
    found = await receivers.soak(
        str(folder / "events.db"), folder, deliveries=kills * DELIVERED, processes=1, seed=seed_of, ends=kills,
        how=(SIGKILL,),
    )  # fmt: skip
    wrong = [
        f"{found[name]} {name}" for name in ("lost", "forged", "at once") if found[name]
    ]
    again, felt = found["handled again"], found["killed"]
    if again > felt * receivers.AT_ONCE:
        wrong.append(
            f"{again} were handled again: more than were in hand at {felt} kills"
        )
    verdicts = {"handled": found["handlings"] - again, "again": again}
    return Survived(kills=felt, writes=found["events"], verdicts=verdicts, wrong=wrong)


async def main(
    of_journals: int = 100, of_batches: int = 110, of_stores: int = 100
) -> None:
    failed = False
    for kind, kills in (
        (journals, of_journals),
        (batches, of_batches),
        (stores, of_stores),
    ):
        with tempfile.TemporaryDirectory() as folder:
            survived = await kind(kills, Path(folder))
        saved = (
            f"; {survived.saved} verdicts heard from the next process"
            if kind is journals
            else ""
        )
        sys.stdout.write(
            f"{kind.__name__}: {survived.kills} kills, {survived.writes:,} {'events' if kind is stores else 'writes'}, {survived.verdicts}{saved}; "
            f"{len(survived.wrong)} wrong\n"
            + "".join(f"  {each}\n" for each in survived.wrong[:20])
        )
        failed |= bool(survived.wrong) or survived.kills < kills
    sys.exit(failed)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
