"""
Load one client against the service in a box: a thousand calls in flight, an outage, and services that queue.

    python -m tests.soak.load [calls | outage | adaptive | batches] … [--quick]

Must never share a process with the service.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
import tracemalloc
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from benchmarks.harness import resident
from benchmarks.service import service
from invsvc_async import ApiKey, Client, InvsvcError, Timeouts
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from tests.support.served import served
from tests.support.waiting import until_no

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from invsvc_async.models import Webhook
    from invsvc_async.writes.write import Write

    Kind = Callable[[int, int | None], AbstractAsyncContextManager["Work"]]

IN_FLIGHT = 1000
MOST_SENDS = 1.2  # times the calls made in an outage
RECOVERED = 0.9  # of the throughput before it
WITHIN = 2.0  # s after it
LOOK = 4.0  # s, over which throughput is measured from then on
PLACES = (5, 20, 80)  # of the services that queue
WORK = 0.05  # s that such a service works on a request
NEAR = 0.25  # of its places, that the mean in flight may be away
FIXED = (1.0, 1.25, 1.5)  # times the places: the settings that it is compared with
OF_BEST = 0.9  # of the best fixed setting's throughput
PATIENT = Timeouts(attempt=60.0, connect=60.0, call=120.0)


@attrs.frozen
class Call:
    """One call: when it ended and how long it took, in seconds; whether it failed."""

    ended: float
    seconds: float
    failed: bool


async def keep_going(
    call: Callable[[], Awaitable[object]], *, at_once: int, until: Callable[[int], bool]
) -> list[Call]:
    """Make calls, *at_once* at a time, until *until* (of the number begun) holds."""
    calls: list[Call] = []
    begun = 0

    async def work() -> None:
        nonlocal begun
        while not until(begun):
            begun += 1
            started, failed = time.monotonic(), False
            try:
                await call()
            except InvsvcError:
                failed = True
            now = time.monotonic()
            calls.append(Call(now, now - started, failed))

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return calls


# --- many calls at once


async def many_calls(*, quick: bool) -> list[str]:
    """Make 50,000 calls at 1,000 in flight: none fails; tell p50, p99 and memory for each in flight."""
    number = 5_000 if quick else 50_000
    async with (
        served() as own,
        Client(
            own.base_url,
            ApiKey(own.api_key),
            timeout=PATIENT,
            max_concurrency=2 * IN_FLIGHT,
        ) as client,
    ):
        await client.webhooks.list()
        gc.collect()
        before = resident()
        began = time.monotonic()
        calls = await keep_going(
            lambda: client.users.get("usr_1"),
            at_once=IN_FLIGHT,
            until=lambda begun: begun >= number,
        )
        seconds, grown = time.monotonic() - began, resident() - before
        traced = await _traced(client)
    spans = sorted(each.seconds for each in calls)
    failed = sum(each.failed for each in calls)
    p50, p99 = statistics.median(spans), spans[int(len(spans) * 0.99)]
    _say(
        f"{len(calls):,} calls at {IN_FLIGHT:,} in flight: {failed} failed, {len(calls) / seconds:,.0f}/s, "
        f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, p99/p50 {p99 / p50:.2f}, "
        f"{grown / IN_FLIGHT / 1024:.1f} KiB resident and {traced / 1024:.1f} KiB of objects for each in flight"
    )
    return [f"{failed} calls failed"] if failed else []


async def _traced(client: Client) -> float:
    """Measure the bytes of Python objects that each call in flight holds at most."""
    tracemalloc.start()
    try:
        await keep_going(
            lambda: client.users.get("usr_1"),
            at_once=IN_FLIGHT,
            until=lambda n: n >= IN_FLIGHT,
        )
        return tracemalloc.get_traced_memory()[1] / IN_FLIGHT
    finally:
        tracemalloc.stop()


# --- an outage


async def outage(*, quick: bool) -> list[str]:
    """Answer every read 503 for 10 s in the middle: sends stay near the calls, and throughput comes back."""
    before, down = (3.0, 3.0) if quick else (10.0, 10.0)
    ended, sends = asyncio.Event(), list[float]()
    async with (
        served() as own,
        Client(
            own.base_url,
            ApiKey(own.api_key),
            timeout=PATIENT,
            max_concurrency=2 * IN_FLIGHT,
            on_attempt=lambda _: sends.append(time.monotonic()),
        ) as client,
    ):
        running = asyncio.create_task(
            keep_going(
                lambda: client.users.get("usr_1"),
                at_once=IN_FLIGHT,
                until=lambda _: ended.is_set(),
            )
        )
        await asyncio.sleep(before)
        failing = time.monotonic()
        await own.ask("faults", "rate=0,reads=1,kinds=503")
        began = time.monotonic()
        await asyncio.sleep(down)
        over = time.monotonic()
        await own.ask("faults", "none")
        mended = time.monotonic()
        await asyncio.sleep(WITHIN + LOOK)
        ended.set()
        calls = await running
        arrived = await own.arrivals()
    made = sum(began <= each.ended < over for each in calls)
    sent = sum(began <= each < over for each in sends)
    usual = _rate(calls, failing - before + 1, failing)
    back = _rate(calls, mended + WITHIN, mended + WITHIN + LOOK)
    _say(
        f"outage of {over - began:.1f} s among {len(calls):,} calls at {IN_FLIGHT:,} in flight: {made:,} calls "
        f"and {sent:,} requests ended in it ({sent / made:.3f} for each; at most {MOST_SENDS}; {arrived:,} "
        f"requests arrived in all, {len(sends):,} were sent); {usual:,.0f}/s before and {back:,.0f}/s from "
        f"{WITHIN:g} to {WITHIN + LOOK:g} s after it ({back / usual:.0%}; at least {RECOVERED:.0%})"
    )
    found = []
    if arrived != len(sends):
        found.append(f"{arrived} requests arrived and {len(sends)} were told of")
    if sent > MOST_SENDS * made:
        found.append(f"{sent} sends for {made} calls in the outage")
    if back < RECOVERED * usual:
        found.append(f"throughput came back to {back / usual:.0%}")
    return found


def _rate(calls: Sequence[Call], since: float, until: float) -> float:
    return sum(since <= each.ended < until and not each.failed for each in calls) / (
        until - since
    )


# --- services that queue


@attrs.define
class Work:
    """Calls upon one service that go on while ``go`` is set, until it is set and ``is_over``."""

    client: Client
    go: asyncio.Event = attrs.field(factory=asyncio.Event)
    is_over: bool = False
    ended: int = 0

    async def stretch(self, seconds: float, *, lead: float) -> tuple[float, float]:
        """Run them for *lead* and then *seconds*; return the mean in flight and the rate in the latter."""
        limiter, seen = options_of(self.client).core.transport._limiter, []
        self.go.set()
        await asyncio.sleep(lead)
        begun, ended = time.monotonic(), self.ended
        while time.monotonic() < begun + seconds:
            seen.append(limiter.calls)
            await asyncio.sleep(0.02)
        rate = (self.ended - ended) / (time.monotonic() - begun)
        self.go.clear()
        await until_no(lambda: limiter.calls)
        return statistics.mean(seen), rate


@asynccontextmanager
async def queueing(
    places: int, at_once: int | Literal["adaptive"]
) -> AsyncIterator[Client]:
    """Run a service that works on *places* requests at a time, and a client of it."""
    key = ApiKey("eyJhbGciOiJIUzI1NiJ9.eyJ0IjoxfQ.x")
    with service(WORK, places=places) as url:
        async with Client(url, key, timeout=PATIENT, max_concurrency=at_once) as client:
            yield client


@asynccontextmanager
async def reads(places: int, fixed: int | None) -> AsyncIterator[Work]:
    """Read from a service of *places*, *fixed* at a time or as many as the client finds."""
    at_once: int | Literal["adaptive"] = (
        "adaptive" if fixed is None else fixed + max(1, fixed // 9)
    )
    async with queueing(places, at_once) as client:
        work = Work(client)

        async def read() -> None:
            while await work.go.wait() and not work.is_over:
                await client.users.get("usr_1")
                work.ended += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(4 * places):
                group.create_task(read())
            yield work
            work.is_over = True
            work.go.set()


@asynccontextmanager
async def writes(places: int, fixed: int | None) -> AsyncIterator[Work]:
    """Write by a batch to a service of *places*, *fixed* at a time at most or as many as the batch finds."""
    with tempfile.TemporaryDirectory() as folder:
        async with queueing(places, IN_FLIGHT) as client:
            work, most = Work(client), fixed or 4 * places

            async def source() -> AsyncIterator[Write[Webhook]]:
                for number in count():
                    await work.go.wait()
                    if work.is_over:
                        return
                    yield client.webhooks.create(
                        url=f"https://me.example/{number}", events=["invoice.created"]
                    )

            async def write() -> None:
                async for result in batch.run(source()):
                    assert result.applied
                    work.ended += 1

            async with (
                Batch.open(
                    Path(folder) / "load.db",
                    client,
                    concurrency=most,
                    on_secret=_forget,
                ) as batch,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(write())
                yield work
                work.is_over = True
                work.go.set()


def _forget(key: str, hook: Webhook) -> None:
    """Keep no secret."""


async def adaptive(*, quick: bool) -> list[str]:
    """Find how much a service takes at once: near its places, and near the best fixed setting's throughput."""
    return [
        failure
        for places in PLACES
        for failure in await _compare("client", reads, places, quick=quick)
    ]


async def batches(*, quick: bool) -> list[str]:
    """Find the same in a batch, whose writes are journaled; its fixed settings are the most it is allowed."""
    return [
        failure
        for places in PLACES
        for failure in await _compare("batch", writes, places, quick=quick)
    ]


async def _compare(name: str, kind: Kind, places: int, *, quick: bool) -> list[str]:
    """
    Wait until the adaptive one has settled; then measure it and the fixed ones by turns, on one machine.
    """
    settle, turns = (8.0, 2) if quick else (20.0, 5)
    async with AsyncExitStack() as stack:
        settings = [None, *(round(part * places) for part in FIXED)]
        works = {
            each: await stack.enter_async_context(kind(places, each))
            for each in settings
        }
        await works[None].stretch(settle, lead=0.0)
        seen: dict[int | None, list[tuple[float, float]]] = {
            each: [] for each in settings
        }
        for _ in range(turns):
            for each in settings:
                seen[each].append(await works[each].stretch(2.0, lead=0.5))
    in_flight = statistics.mean(mean for mean, _ in seen[None])
    rates = {each: statistics.mean(rate for _, rate in seen[each]) for each in settings}
    share = rates[None] / max(rates[each] for each in settings[1:])
    _say(
        f"{name}, {places} places of {WORK * 1000:.0f} ms: {in_flight:.1f} in flight after {settle:g} s "
        f"({in_flight / places:.0%}), {rates[None]:.0f}/s, {share:.0%} of the best of "
        + ", ".join(f"{rates[each]:.0f}/s with {each}" for each in settings[1:])
    )
    found = []
    if abs(in_flight - places) > NEAR * places:
        found.append(
            f"{name}: {in_flight:.1f} in flight where there are {places} places"
        )
    if share < OF_BEST:
        found.append(f"{name}: {share:.0%} of the best throughput at {places} places")
    return found


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


PARTS = {
    "calls": many_calls,
    "outage": outage,
    "adaptive": adaptive,
    "batches": batches,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of it, for a look"
    )
    asked = parser.parse_args()
    failures = [
        failure
        for name in asked.parts or PARTS
        for failure in asyncio.run(PARTS[name](quick=asked.quick))
    ]
    _say("FAIL: " + "; ".join(failures) if failures else "PASS")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
