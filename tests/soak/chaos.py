"""
Soak the client in every fault and in cancellations at once, and hold its verdicts against the service's ledger.

    python -m tests.soak.chaos [--writes 100000] [--at-once 500] [--seed 1] [--faults PLAN] [--stores PLAN]
                               [--quick] [--tls]

Must never judge by what the client saw, and never runs against anything but the service in a box.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs

from invsvc_async import (
    ApiKey,
    Client,
    Intent,
    Outcome,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.api.operations import BY_NAME
from invsvc_async.conformance.client_runs import ClientRun, send_all
from invsvc_async.conformance.reasons import Told
from invsvc_async.conformance.reports import RequestedWrite, WriteReport, sender_of
from invsvc_async.conformance.service_process import embedded
from invsvc_async.conformance.workload import Unit, WorkloadStep, made_up, plan_for
from invsvc_async.resources.by_name import called
from invsvc_async.settings import CallOptions
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.simulator.own_words import WORDS
from tests.soak.report import without_numbers
from tests.support import awkward
from tests.support.certificates import client_context, made_certificate
from tests.support.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async import Write
    from invsvc_async.conformance.judge import Judgement

FAULTS = "rate=0.25,reads=0.1,late=1.0"
OWN_WAYS = f"words={'+'.join(each.replace(' ', '-') for each in WORDS)},rate=0.15,partly=0.1,twice=0.1"
CANCELLED = 0.05  # of the writes, at a random moment
RESUMED = 0.3  # of the cancelled that may have left; the rest are settled, by this client or by another
WITHOUT_READER = 0.01  # of the writes: nothing but the answer tells
# all write to one resource, and each in doubt holds up the next for 20 s
MOST_WITHOUT = 100
UNKNOWN_ALLOWED = 0.01  # of the writes that have a reader
POLICY = ReconcilePolicy(deadline=120.0)  # the windows of the rules
QUICK = ReconcilePolicy(settle_after_error=1.5, settle_after_loss=2.5, deadline=60.0)
ATTEMPT = 5.0  # s
STORIES = 10  # of wrong verdicts, in full


@attrs.frozen(kw_only=True)
class Soaked:
    """What one soak came to; times in seconds."""

    judged: Judgement
    unknown_with_reader: int
    with_reader: int
    unknown_reasons: dict[str, dict[str, int]]  # by operation
    cancelled: int
    cancelled_in_doubt: int
    leaks: list[str]
    seconds: float
    most_unknown: float = UNKNOWN_ALLOWED  # of the writes that have a reader

    def failures(self) -> list[str]:
        """Name every reason why the soak fails."""
        judged = self.judged
        counts = {
            "duplicates": judged.duplicates,
            "wrong verdicts": len(judged.wrong),
            "effects that nobody asked for": judged.unasked,
        }
        found = [f"{count} {name}" for name, count in counts.items() if count]
        if self.unknown_with_reader > self.most_unknown * self.with_reader:
            found.append(
                f"{self.unknown_with_reader} of {self.with_reader} writes with a reader are unknown"
            )
        return found + self.leaks


@attrs.define(eq=False)
class Soak:
    """Writes through *client*; what was cancelled is taken up again, half of it by *other*."""

    client: Client
    other: Client
    home: str
    chance: random.Random
    cancelled: int = 0
    in_doubt: int = 0

    async def send(self, step: WorkloadStep) -> WriteReport:
        """Do one write, cancelled or not, to a verdict."""
        # its intent keeps them
        options = CallOptions(headers={SENDER: sender_of(step.key)})
        write: Write[Any] = called(
            self.client, step.operation, step.arguments, options=options
        )
        # the other half of the creates is known by its time alone
        if self.chance.random() < 0.5:
            write = write.tagged()
        asked = RequestedWrite.of(write.intent, home=self.home)
        cancels = self.chance.random() < CANCELLED
        began = time.monotonic()
        outcome = await (self._cancel(write) if cancels else write.outcome())
        ended = time.monotonic()
        known = {"key": step.key, "asked": asked, "began": began, "ended": ended}
        # the client does not keep it: it means that no byte was sent
        if outcome is None:
            never = Told(verdict=Verdict.NOT_APPLIED, basis="never sent", at=ended)
            return WriteReport(
                verdict=Verdict.NOT_APPLIED,
                reason="cancelled before a byte left",
                told=never,
                **known,
            )
        story = outcome.explain() if outcome.history else ""
        told = Told.of(outcome, at=ended)
        return WriteReport(
            verdict=outcome.verdict,
            reason=outcome.message,
            story=story,
            told=told,
            **known,
        )

    async def _cancel(self, write) -> Outcome | None:
        self.cancelled += 1
        task = asyncio.create_task(write.outcome())
        await asyncio.wait(
            [task],
            timeout=self.chance.expovariate(1 / self.chance.choice((0.003, 0.1, 3.0))),
        )
        if not task.cancel():
            return task.result()
        try:
            return await task  # it ended in the same moment
        except asyncio.CancelledError:
            pass
        left = [each for each in self.client.unsettled if each.key == write.intent.key]
        return await self._take_up(left[0]) if left else None

    async def _take_up(self, intent: Intent) -> Outcome:
        self.in_doubt += 1
        way = self.chance.random()
        if way < RESUMED:
            return await self.client.resume(intent).outcome()
        if way < (1 + RESUMED) / 2:
            return await self.client.settle(intent)
        return await self.other.settle(Intent.from_json(intent.to_json()))


def work_of(writes: int, seed: int, *, awkwardly: bool = False) -> list[Unit]:
    """
    Make *writes* writes, a few of which nothing can read back.

    The values of those *awkwardly* made are such that a service may store them in other words, or in part.
    """
    bare = max(1, min(int(writes * WITHOUT_READER), MOST_WITHOUT))
    units = made_up(writes - bare, seed)
    if awkwardly:
        units = [tuple(_awkward(step) for step in unit) for unit in units]
    for number in range(bare):
        step = WorkloadStep(
            key=f"mapping-{number}",
            operation="sheets.save_mapping",
            arguments={"fields": {"amount": f"column {seed}/{number}"}},
        )
        units.insert(number * (len(units) // bare), (step,))
    return units


def _awkward(step: WorkloadStep) -> WorkloadStep:
    """Return *step* with other values, and an update with a second field; equal values stay equal."""
    given = dict(step.arguments)
    for name in ("name", "description"):
        if name in given:
            given[name] = awkward.text(crc32(str(given[name]).encode()) % 1_000_000)
    if "url" in given:
        given["url"] = awkward.longer(str(given["url"]))
    if step.operation == "journeys.update":
        given["description"] = given["name"]
    elif step.operation == "webhooks.update":
        given["events"] = ["invoice.failed", "invoice.created"]
    return WorkloadStep(step.key, step.operation, given, tagged=step.tagged)


async def soak(
    *,
    writes: int,
    at_once: int,
    seed: int,
    faults: str = FAULTS,
    stores: str = "none",
    policy: ReconcilePolicy = POLICY,
    attempt: float = ATTEMPT,
    tls: bool = False,
) -> Soaked:
    """Run the soak and judge it; *attempt* is the time of one request in seconds."""
    in_own_ways = stores != "none"
    units = work_of(writes, seed, awkwardly=in_own_ways)
    plan = plan_for(units, seed=seed, faults=faults, stores=stores)
    with TemporaryDirectory(prefix="chaos-") as folder:
        if tls:
            plan = attrs.evolve(plan, certificate=str(made_certificate(Path(folder))))
        async with embedded(plan) as service:

            def client() -> Client:
                return Client(
                    service.base_url, ApiKey(service.api_key), timeout=Timeouts(attempt=attempt, connect=attempt),
                    reconcile=policy, max_concurrency=at_once, ssl=client_context() if tls else None,
                )  # fmt: skip

            with Watch() as watch:
                begun = time.monotonic()
                async with client() as ours, client() as other:
                    done = Soak(ours, other, service.team, random.Random(seed))
                    reports = await send_all(done.send, units, at_once)
                seconds = time.monotonic() - begun
                leaks = await watch.leaks()
            run = await ClientRun.judged(reports, service, seconds=seconds)
    soaked = _soaked(done, run, reports, leaks)
    return attrs.evolve(soaked, most_unknown=1.0) if in_own_ways else soaked


def _soaked(
    done: Soak, run: ClientRun, reports: Sequence[WriteReport], leaks: list[str]
) -> Soaked:
    unknown: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in reports:
        if each.verdict is Verdict.UNKNOWN:
            unknown[each.asked.operation][without_numbers(each.reason)] += 1
    readable = [
        each for each in reports if BY_NAME[each.asked.operation].reader is not None
    ]
    return Soaked(
        judged=run.judgement,
        unknown_with_reader=sum(each.verdict is Verdict.UNKNOWN for each in readable),
        with_reader=len(readable),
        unknown_reasons={
            operation: dict(reasons) for operation, reasons in unknown.items()
        },
        cancelled=done.cancelled,
        cancelled_in_doubt=done.in_doubt,
        leaks=leaks,
        seconds=run.seconds,
    )


def tell(soaked: Soaked) -> None:
    """Print what it came to, as JSON, then the stories of what went wrong."""
    judged = soaked.judged
    figures = {
        "writes": judged.asked,
        "effects": judged.effects,
        "sends": judged.sends,
        "cancelled": soaked.cancelled,
        "cancelled_in_doubt": soaked.cancelled_in_doubt,
        "duplicates": judged.duplicates,
        "wrong": len(judged.wrong),
        "false_reasons": judged.false_reasons,
        "unasked": judged.unasked,
        "verdicts": {str(verdict): count for verdict, count in judged.verdicts.items()},
        "unknown_with_reader": soaked.unknown_with_reader,
        "with_reader": soaked.with_reader,
        "unknown_reasons": soaked.unknown_reasons,
        "leaks": soaked.leaks,
        "seconds": round(soaked.seconds, 1),
    }
    lines = [json.dumps(figures, indent=1)]
    lines += [
        f"\n{each.report.key}: {each.why}\n{each.report.story}"
        for each in judged.wrong[:STORIES]
    ]
    lines += [
        f"\n{each.key}: it had several effects, and was {each.verdict} ({each.reason})\n"
        f"{each.asked}\n{each.story}"
        for each in judged.repeated[:STORIES]
    ]
    lines.append(
        "FAIL: " + "; ".join(soaked.failures()) if soaked.failures() else "PASS"
    )
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--writes", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument(
        "--stores", default="none", help=f"how the service stores, such as {OWN_WAYS}"
    )
    parser.add_argument("--quick", action="store_true", help="shorter settle windows")
    parser.add_argument("--tls", action="store_true", help="serve over TLS")
    options = vars(parser.parse_args())
    policy = QUICK if options.pop("quick") else POLICY
    soaked = asyncio.run(soak(**options, policy=policy))
    tell(soaked)
    sys.exit(bool(soaked.failures()))


if __name__ == "__main__":
    main()
