"""
Load one client against the service in a box: a thousand calls in flight, an outage, and services that queue.

    python -m tests.hardening.load [calls | outage | adaptive | batches] … [--quick]

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
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from invsvc_async import ApiKey, Client, InvsvcError, Timeouts
from invsvc_async.batch import Batch
from tests.hardening.leaks import resident
from tests.hardening.served import served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from invsvc_async.models import Webhook
    from invsvc_async.writes import Write
    from tests.hardening.served import Served

    Run = Callable[[int, int | None, float, float], Awaitable[tuple[float, float]]]

IN_FLIGHT = 1000
MOST_SENDS = 1.2  # times the calls made in an outage
RECOVERED = 0.9  # of the throughput before it
WITHIN = 2.0  # s after it
LOOK = 3.0  # s, over which the usual throughput is measured
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
        served() as service,
        Client(
            service.base_url, ApiKey(service.api_key), timeout=PATIENT, max_concurrency=2 * IN_FLIGHT
        ) as client,
    ):
        await client.webhooks.list()
        gc.collect()
        before = resident()
        began = time.monotonic()
        calls = await keep_going(
            lambda: client.users.get("usr_1"), at_once=IN_FLIGHT, until=lambda begun: begun >= number
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
        await keep_going(lambda: client.users.get("usr_1"), at_once=IN_FLIGHT, until=lambda n: n >= IN_FLIGHT)
        return tracemalloc.get_traced_memory()[1] / IN_FLIGHT
    finally:
        tracemalloc.stop()


# --- an outage


async def outage(*, quick: bool) -> list[str]:
    """Answer every read 503 for 10 s in the middle: sends stay near the calls, and throughput comes back."""
    before, down = (3.0, 3.0) if quick else (10.0, 10.0)
    ended = asyncio.Event()
    async with (
        served() as service,
        Client(
            service.base_url, ApiKey(service.api_key), timeout=PATIENT, max_concurrency=IN_FLIGHT
        ) as client,
    ):
        running = asyncio.create_task(
            keep_going(lambda: client.users.get("usr_1"), at_once=IN_FLIGHT, until=lambda _: ended.is_set())
        )
        await asyncio.sleep(before)
        await service.ask("faults", "rate=0,reads=1,kinds=503")
        began, arrived = time.monotonic(), await service.arrivals()
        await asyncio.sleep(down)
        sent = await service.arrivals() - arrived
        await service.ask("faults", "none")
        over = time.monotonic()
        await asyncio.sleep(WITHIN + 1.5)
        ended.set()
        calls = await running
    made = sum(began <= each.ended < over for each in calls)
    usual = _rate(calls, began - min(LOOK, before / 2), began)
    back = max(_rate(calls, over + step * WITHIN / 8, over + step * WITHIN / 8 + 1) for step in range(9))
    _say(
        f"outage of {over - began:.1f} s: {made:,} calls ended in it and {sent:,} requests arrived "
        f"({sent / made:.3f} for each; at most {MOST_SENDS}); throughput {usual:,.0f}/s before and {back:,.0f}/s "
        f"in the best second that began within {WITHIN:g} s of its end ({back / usual:.0%}; at least {RECOVERED:.0%})"
    )
    found = []
    if sent > MOST_SENDS * made:
        found.append(f"{sent} sends for {made} calls in the outage")
    if back < RECOVERED * usual:
        found.append(f"throughput came back to {back / usual:.0%}")
    return found


def _rate(calls: Sequence[Call], since: float, until: float) -> float:
    return sum(since <= each.ended < until and not each.failed for each in calls) / (until - since)


# --- services that queue


async def adaptive(*, quick: bool) -> list[str]:
    """Find how much a service takes at once: near its places, and near the best fixed setting's throughput."""
    return await _compare("client", _client_rate, quick=quick)


async def batches(*, quick: bool) -> list[str]:
    """Find the same in a batch, whose writes are journaled; its fixed settings are the most it is allowed."""
    return await _compare("batch", _batch_rate, quick=quick)


async def _compare(name: str, run: Run, *, quick: bool) -> list[str]:
    settle, stretch = (8.0, 4.0) if quick else (20.0, 10.0)
    found = []
    for places in PLACES:
        in_flight, rate = await run(places, None, settle, stretch)
        fixed = {
            round(part * places): (await run(places, round(part * places), 2.0, stretch))[1] for part in FIXED
        }
        best = max(fixed.values())
        _say(
            f"{name}, {places} places of {WORK * 1000:.0f} ms: {in_flight:.1f} in flight after {settle:g} s "
            f"({in_flight / places:.0%}), {rate:.0f}/s, "
            f"{rate / best:.0%} of the best of " + ", ".join(f"{fixed[n]:.0f}/s with {n}" for n in fixed)
        )
        if abs(in_flight - places) > NEAR * places:
            found.append(f"{name}: {in_flight:.1f} in flight where there are {places} places")
        if rate < OF_BEST * best:
            found.append(f"{name}: {rate / best:.0%} of the best throughput at {places} places")
    return found


async def _client_rate(places: int, fixed: int | None, settle: float, stretch: float) -> tuple[float, float]:
    """Read from a service; give the mean in flight and the rate, both over *stretch* seconds after *settle*."""
    async with (
        _queueing(places) as service,
        Client(
            service.base_url,
            ApiKey(service.api_key),
            timeout=PATIENT,
            max_concurrency="adaptive" if fixed is None else 2 * fixed,
        ) as client,
    ):
        begin = time.monotonic() + settle
        running = asyncio.create_task(
            keep_going(
                lambda: client.users.get("usr_1"),
                at_once=fixed or 4 * places,
                until=lambda _: time.monotonic() > begin + stretch,
            )
        )
        in_flight = await _mean_in_flight(client, begin, begin + stretch)
        return in_flight, _rate(await running, begin, begin + stretch)


async def _batch_rate(places: int, fixed: int | None, settle: float, stretch: float) -> tuple[float, float]:
    """Write to a service by a batch; give the same as :func:`_client_rate`."""
    begin = time.monotonic() + settle
    ended: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            _queueing(places) as service,
            Client(
                service.base_url, ApiKey(service.api_key), timeout=PATIENT, max_concurrency=IN_FLIGHT
            ) as client,
            Batch.open(
                Path(folder) / "load.db", client, concurrency=fixed or 4 * places, on_secret=_forget
            ) as batch,
        ):
            begin = time.monotonic() + settle
            look = asyncio.create_task(_mean_in_flight(client, begin, begin + stretch))
            async for result in batch.run(_writes(client, until=begin + stretch)):
                assert result.applied
                ended.append(time.monotonic())
            in_flight = await look
    return in_flight, sum(begin <= each < begin + stretch for each in ended) / stretch


def _writes(client: Client, *, until: float) -> Iterator[Write[Webhook]]:
    number = 0
    while time.monotonic() < until:
        number += 1
        yield client.webhooks.create(url=f"https://me.example/{number}", events=["invoice.created"])


def _forget(key: str, hook: Webhook) -> None:
    """Keep no secret."""


def _queueing(places: int) -> AbstractAsyncContextManager[Served]:
    return served("--latency", str(WORK), "--at-once", str(places))


async def _mean_in_flight(client: Client, begin: float, end: float) -> float:
    limiter, seen = client._view.session.transport._limiter, []
    await asyncio.sleep(begin - time.monotonic())
    while time.monotonic() < end:
        seen.append(limiter.calls)
        await asyncio.sleep(0.02)
    return statistics.mean(seen)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


PARTS = {"calls": many_calls, "outage": outage, "adaptive": adaptive, "batches": batches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--quick", action="store_true", help="a tenth of it, for a look")
    asked = parser.parse_args()
    failures = [
        failure for name in asked.parts or PARTS for failure in asyncio.run(PARTS[name](quick=asked.quick))
    ]
    _say("FAIL: " + "; ".join(failures) if failures else "PASS")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
