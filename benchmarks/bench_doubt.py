"""
Measure what a verdict costs after a lost answer: requests, and time until the verdict.

    python -m benchmarks.bench_doubt          each operation and each kind of loss, against an oracle
    python -m benchmarks.bench_doubt batch    10,000 journeys changed in a batch, without faults and with 5 %

The *oracle* knows what happened.  It reads an applied write once, because the caller wants the result, and
sends an absent one again at once.  For an absent write, one read at the end of the settle window would be 1.5
of that; the client reads more often, so that it soon sees an effect that comes late.

Times are those of a virtual clock, in which the service answers within a few ms.  They include the settle
windows of the default policy.
"""

from __future__ import annotations

import asyncio
import selectors
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks import meter
from benchmarks.harness import Ratio, Row
from invsvc_async import ApiKey, Client
from invsvc_async.batch import Batch
from invsvc_async.conformance.service_process import Embedded, Plan, embedded
from invsvc_async.simulator import Simulator
from tests.support.virtual_time import (
    Clockwork,
    LoopClock,
    VirtualTimeLoop,
    service_clock,
)

if TYPE_CHECKING:
    from invsvc_async import Outcome, Write

_WRITES = 20  # of each operation with each loss
_LOSSES = {
    "applied": "apply, then reset",
    "absent": "reset",
    "late": "late 0.5, then reset",
}
# for absent: see benchmarks/profile.md
_LIMITS = {"applied": 1.5, "absent": 5.0, "late": 1.5}
_ORACLE = 2  # requests: the write, and a read or the write again
_EVENTS = ["invoice.created"]
_AGO = 10.0  # s before the write, its thing was read: longer than reads may lag
_LAGGING = {  # an older state may look as written, so a read counts later
    "update, just read": "webhooks.update",
    "delete, just made": "webhooks.delete",
    "journey, no time": "journeys.update",
}
_BATCH = 10_000
_FIRST = 100  # writes of a batch that is not measured
_FAULTS = "rate=0.05,reads=0.05,hang=0.3"
_BATCH_LIMITS = {"requests": 1.35, "CPU": 1.5}  # see benchmarks/profile.md


@attrs.frozen
class Doubt:
    """What one write with a lost answer took: requests, its own included, and seconds until the verdict."""

    requests: int
    seconds: float


async def _write(
    client: Client, service: Simulator, operation: str, at: int
) -> Write[Any]:
    """Make write number *at*; what it changes is known, as after a get."""
    if operation == "webhooks.create":
        return client.webhooks.create(url=f"https://me.example/{at}", events=_EVENTS)
    if operation == "delete, just made":
        return client.webhooks.delete(
            await client.webhooks.create(url=f"https://me.example/{at}", events=_EVENTS)
        )
    if operation in ("journeys.update", "journey, no time"):
        undated = operation == "journey, no time"
        seeded = (
            service.seed_journey(last_updated=None)
            if undated
            else service.seed_journey()
        )
        journey = await client.journeys.get(str(seeded["id"]))
        return client.journeys.update(journey, name=f"new {at}")
    hook = await client.webhooks.get(str(service.seed_webhook()["id"]))
    if operation == "webhooks.delete":
        return client.webhooks.delete(hook)
    return client.webhooks.update(hook, description=f"new {at}")


async def _doubts(operation: str, loss: str) -> list[Doubt]:
    async with (
        Simulator(seed=7, clock=service_clock()) as service,
        Client(service.base_url, ApiKey(service.api_key), clock=LoopClock()) as client,
    ):
        await client.webhooks.create(
            url="https://me.example/first", events=_EVENTS
        )  # and opens the connection
        if operation in _LAGGING:
            return [
                await _one(
                    service,
                    operation,
                    loss,
                    await _write(client, service, operation, at),
                )
                for at in range(_WRITES)
            ]
        writes = [await _write(client, service, operation, at) for at in range(_WRITES)]
        await asyncio.sleep(_AGO)
        return [await _one(service, operation, loss, write) for write in writes]


async def _one(
    service: Simulator, operation: str, loss: str, write: Write[Any]
) -> Doubt:
    service.script(_LAGGING.get(operation, operation), _LOSSES[loss])
    before, started = service.arrivals(), asyncio.get_running_loop().time()
    outcome: Outcome[Any] = await write.outcome()
    assert outcome.applied, outcome.message
    return Doubt(
        service.arrivals() - before, asyncio.get_running_loop().time() - started
    )


def measured() -> dict[tuple[str, str], list[Doubt]]:
    """Return the doubts of each operation, and of some where reads that lag matter, and each kind of loss."""
    operations = (
        "webhooks.create",
        "webhooks.update",
        "webhooks.delete",
        "journeys.update",
        *_LAGGING,
    )
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return {
            (operation, loss): runner.run(_doubts(operation, loss))
            for operation in operations
            for loss in _LOSSES
            if (operation, loss) != ("journey, no time", "absent")  # that is UNKNOWN
        }


@attrs.frozen
class Spent:
    """
    What a batch took: seconds by the clock and of CPU, and requests.  *applied* counts its writes.

    Where instructions are counted, *cpu* is 10^9 of those.
    """

    wall: float
    cpu: float
    requests: int
    applied: int


class _Waiting(Clockwork):
    """Selector whose time is that for which the process has waited."""

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the sockets that are ready, at the latest after *timeout* seconds."""
        begun = time.monotonic()
        ready = selectors.DefaultSelector.select(self, timeout)
        self.now += time.monotonic() - begun
        return ready


class _WaitingLoop(VirtualTimeLoop):
    """Loop for a process that valgrind makes slow: else none of its requests would be in time."""

    kind = _Waiting


def rows(*, rounds: int = 1) -> list[Row]:  # noqa: ARG001 - counts do not vary
    """Measure this file's rows."""
    found = {
        (write, loss): each
        for (write, loss), each in measured().items()
        if write not in _LAGGING
    }
    reads = [
        each.requests - 1
        for (_, loss), doubts in found.items()
        if loss == "applied"
        for each in doubts
    ]
    return [
        _counted(
            "reads after a lost answer, applied",
            "one read",
            1.0,
            statistics.median(reads),
        ),
        *(
            _counted(
                f"requests of a write in doubt, {loss}",
                "an oracle",
                limit,
                _against_oracle(found, loss),
            )
            for loss, limit in _LIMITS.items()
        ),
        *batch_rows(),
    ]


def batch_rows(writes: int = _BATCH) -> list[Row]:
    """
    Compare a batch with faults with the same without, in requests and in the CPU time of the client.

    By the clock, the settle windows of its last writes dominate; ``bench_doubt batch`` prints those times.
    """
    loop = _WaitingLoop if meter.IS_COUNTED else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_batch(_FIRST, _FAULTS))  # loads what batches and faults need
        clean, faulty = [runner.run(_batch(writes, faults)) for faults in ("", _FAULTS)]
    assert clean.applied == writes, clean
    ratios = {
        "requests": faulty.requests / clean.requests,
        "CPU": faulty.cpu / clean.cpu,
    }
    what, against = f"a batch of {writes:,} writes, 5 % faults", "the same without"
    return [
        _counted(f"{what}, {name}", against, _BATCH_LIMITS[name], its)
        for name, its in ratios.items()
    ]


def _against_oracle(found: dict[tuple[str, str], list[Doubt]], loss: str) -> float:
    every = [
        each.requests
        for (_, its), doubts in found.items()
        if its == loss
        for each in doubts
    ]
    return statistics.fmean(every) / _ORACLE


def _counted(what: str, against: str, limit: float, ratio: float) -> Row:
    return Row(
        what=what, against=against, limit=limit, ratio=Ratio(ratio, ratio, ratio)
    )


def main() -> None:
    """Print each operation and each kind of loss."""
    started = time.monotonic()
    heads = (
        ("requests, median", 18),
        ("p99", 6),
        ("of the oracle", 16),
        ("s, median", 12),
        ("p99", 9),
    )
    print(
        f"{'write':<20}{'loss':<9}"
        + "".join(f"{head:>{width}}" for head, width in heads)
    )
    for (operation, loss), doubts in measured().items():
        requests, seconds = (
            [each.requests for each in doubts],
            [each.seconds for each in doubts],
        )
        against = statistics.fmean(requests) / _ORACLE
        print(
            f"{operation:<20}{loss:<9}{statistics.median(requests):>18.0f}{_p99(requests):>6.0f}{against:>16.2f}"
            f"{statistics.median(seconds):>12.3f}{_p99(seconds):>9.3f}"
        )
    print(f"took {time.monotonic() - started:,.0f} s")


def _p99(values: list[Any]) -> float:
    return float(sorted(values)[-max(1, len(values) // 100)])


async def batch(writes: int = _BATCH) -> None:
    """Print the wall time, CPU time and requests of a batch without faults and with them."""
    clean, faulty = [await _batch(writes, faults) for faults in ("", _FAULTS)]
    print(
        f"{'faults':<32}{'wall, s':>9}{'CPU, s':>9}{'requests a write':>19}{'applied':>10}"
    )
    for faults, its in (("none", clean), (_FAULTS, faulty)):
        print(
            f"{faults:<32}{its.wall:>9.1f}{its.cpu:>9.1f}{its.requests / writes:>19.3f}{its.applied:>10,}"
        )
    wall, cpu, requests = (
        faulty.wall / clean.wall,
        faulty.cpu / clean.cpu,
        faulty.requests / clean.requests,
    )
    print(f"{'with, of without':<32}{wall:>9.2f}{cpu:>9.2f}{requests:>19.2f}")
    print(f"{writes:,} journeys changed, 200 at once")


async def _batch(writes: int, faults: str) -> Spent:
    ids = [f"jrn_{at}" for at in range(writes)]
    plan = Plan(
        seed=7,
        faults=faults or "rate=0",
        journeys=tuple((each, "team_1") for each in ids),
    )
    async with embedded(plan) as service:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            meter.restart()
            applied = await _changed(service, ids, Path(folder) / "run.db")
            cpu = meter.spent() / 1e9
            wall = time.perf_counter() - started
        record = await service.tell()
    return Spent(wall, cpu, record.reads + len(record.ledger), applied)


async def _changed(service: Embedded, ids: list[str], journal: Path) -> int:
    clock = LoopClock() if meter.IS_COUNTED else None
    async with (
        Client(
            service.base_url,
            ApiKey(service.api_key),
            max_concurrency=250,
            clock=clock,
        ) as client,
        Batch.open(journal, client, concurrency=200) as run,
    ):
        writes = (client.journeys.update(each, name="new") for each in ids)
        return sum([bool(result.applied) async for result in run.run(writes)])


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["batch", *number]:
            asyncio.run(batch(*map(int, number)))
        case _:
            sys.exit(__doc__)
