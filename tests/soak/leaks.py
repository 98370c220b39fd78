"""
Make calls that fail in every way, time out and are cancelled, and show that nothing of them is left.

    python -m tests.soak.leaks [CALLS]

Must never count what the service keeps: it runs in another process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
import tracemalloc
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import attrs

from benchmarks.harness import resident
from invsvc_async import (
    ApiKey,
    Client,
    InvsvcError,
    ReadRetries,
    ReconcilePolicy,
    Timeouts,
)
from invsvc_async.client import options_of
from tests.support.served import Served, served
from tests.support.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTS = "rate=0.05,reads=0.05,late=0.05,hang=0.3"
POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=5.0)
TIMES = Timeouts(attempt=2.0, connect=2.0, call=5.0)
READS = ReadRetries(attempts=3, initial=0.01, maximum=0.05)
AT_ONCE = 200
SHOWN = 8
SETTLED = 0.2  # of the writes whose fate was open
# bytes that Python objects may grow by, from the second third to the end
TRACED = 512 * 1024
# bytes that the process may grow by, likewise: allocators keep some
RESIDENT = 16 * 2**20


@attrs.frozen(kw_only=True)
class Left:
    """What is left after the calls; memory in bytes, as growth over the last two thirds."""

    calls: int
    failed: int
    cancelled: int
    timed_out: int
    traced: int
    resident: int
    seconds: float
    leaks: list[str]
    grown: list[str]  # where most of the growth was allocated

    def failures(self) -> list[str]:
        """Name every bound that was broken."""
        found = list(self.leaks)
        if self.traced > TRACED:
            found.append(
                f"Python objects grew by {self.traced} bytes: more than {TRACED}"
            )
        if self.resident > RESIDENT:
            found.append(
                f"the process grew by {self.resident} bytes: more than {RESIDENT}"
            )
        return found


@attrs.define(eq=False)
class Traffic:
    """Calls of all kinds through one client."""

    client: Client
    chance: random.Random
    numbers: Iterator[int] = attrs.field(factory=count)
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0

    async def run(self, calls: int) -> None:
        """Make *calls* calls, AT_ONCE at the same time."""
        left = iter(range(calls))

        async def work() -> None:
            for _ in left:
                await self.one()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())

    async def one(self) -> None:
        """Make one call, which may fail, time out or be cancelled."""
        kinds = (
            self._read,
            self._walk,
            self._refused,
            self._in_time,
            self._dropped,
            self._written,
        )
        kind = self.chance.choices(kinds, weights=(50, 5, 5, 15, 15, 10))[0]
        try:
            await kind()
        except InvsvcError:
            self.failed += 1
        writes = options_of(self.client).core.writes
        # kept by design, which would look like a leak here
        if writes.open_writes.unsettled:
            key, left = next(reversed(writes.open_writes.unsettled.items()))
            writes.forget(key)
            if self.chance.random() < SETTLED:
                await self.client.settle(left.intent, same_mode=True)

    async def _read(self) -> None:
        await self.client.webhooks.list()

    async def _walk(self) -> None:
        async for _ in self.client.invoices.egress(limit=5, prefetch=True):
            if self.chance.random() < 0.1:
                break

    async def _refused(self) -> None:
        await self.client.webhooks.get("wh_none")

    async def _in_time(self) -> None:
        try:
            async with asyncio.timeout(self.chance.expovariate(100)):
                await self.client.users.get("usr_1")
        except TimeoutError as error:
            if isinstance(error, InvsvcError):
                raise
            self.timed_out += 1

    async def _dropped(self) -> None:
        whole = self.chance.random() < 0.7
        call = self.client.users.get("usr_1") if whole else self._update().outcome()
        task = asyncio.create_task(call)
        await asyncio.sleep(self.chance.expovariate(100))
        self.cancelled += task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _written(self) -> None:
        await self._update().outcome()

    def _update(self):
        return self.client.journeys.update("jrn_1", name=f"name {next(self.numbers)}")


async def left_after(calls: int, service: Served, seed: int = 1) -> Left:
    """Make the calls and look at what they leave."""
    tracemalloc.start()
    began = time.monotonic()
    with Watch() as watch:
        client = Client(
            service.base_url,
            ApiKey(service.api_key),
            timeout=TIMES,
            reads=READS,
            reconcile=POLICY,
        )
        async with client:
            traffic = Traffic(client, random.Random(seed))
            await traffic.run(calls // 3)
            before, shot = await _memory(), tracemalloc.take_snapshot()
            await traffic.run(calls - calls // 3)
            after = await _memory()
            grown = [
                str(each)
                for each in tracemalloc.take_snapshot().compare_to(shot, "lineno")[
                    :SHOWN
                ]
            ]
        leaks = await watch.leaks()
    tracemalloc.stop()
    return Left(
        calls=calls,
        failed=traffic.failed,
        cancelled=traffic.cancelled,
        timed_out=traffic.timed_out,
        traced=after[0] - before[0],
        resident=after[1] - before[1],
        seconds=time.monotonic() - began,
        leaks=leaks,
        grown=grown,
    )


async def _memory() -> tuple[int, int]:
    await asyncio.sleep(0.2)  # transports that are closing go
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident()


async def main(calls: int = 100_000) -> None:
    async with served("--faults", FAULTS) as service:
        left = await left_after(calls, service)
    sys.stdout.write(json.dumps(attrs.asdict(left), indent=1) + "\n")
    sys.stdout.write(
        "FAIL: " + "; ".join(left.failures()) + "\n" if left.failures() else "PASS\n"
    )
    sys.exit(bool(left.failures()))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
