"""
Measure what limits many processes on one database, and how long writes in doubt occupy their places.

    python -m benchmarks.bench_limits store [ROWS]   PostgreSQL with so many open writes (10,000,000)
    python -m benchmarks.bench_limits windows        writes whose answers are lost, in virtual time
    python -m benchmarks.bench_limits webhooks       creates in teams with many webhooks, in virtual time

Each prints one table: what was measured, and what a model gives or what follows.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg

from benchmarks.bench_large_postgres import make
from invsvc_async import ApiKey, Client
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.leases import Leases, pause_of
from invsvc_async.simulator import Simulator
from tests.support.database import database
from tests.support.virtual_time import LoopClock, VirtualTimeLoop, service_clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async import Webhook

# of the model: processes, s of silence, writes a second
PROCESSES, SILENCE, RATE = 1_000, 10.0, 50.0
YEAR = 365 * 86_400
_OPEN = """
INSERT INTO entries (seq, place, key, lane, digest, state, operation, intent)
SELECT n, n, 'row-' || n, 1 + n % 64, md5(n::text), 0, 'webhooks.update',
    '{"operation":"webhooks.update","path":{"id":"wh_1"},"body":{"description":"changed"}}'
FROM generate_series($1::bigint, $2::bigint) AS n
"""
_MEMBERS = """
INSERT INTO {s}members (name, seen, begun, silence, sends)
    SELECT 'other-' || n, {now} + 3600, 0, 10, 1 FROM generate_series(1, $1::bigint) AS n
    ON CONFLICT DO NOTHING
"""
_LISTENERS = 40
_NOTICES = 2_000
_LATENCY = 0.2  # s of an answer
_WARM, _SECONDS = 30.0, 100.0  # of virtual time: until the rate is steady, and measured
_HOOKS = (50, 99, 150, 1_000)
_CREATES = 10  # of each kind of loss


def row(*cells: str) -> None:
    """Print a row of the table."""
    print("  ".join(cells), flush=True)


async def timed(act: Callable[[], Awaitable[object]], times: int = 20) -> float:
    """Return the median of the seconds that *act* takes."""
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await act()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[times // 2]


async def store(rows: int) -> None:
    """Print the steps of a process on a store with *rows* open writes, and what its company costs."""
    from invsvc_async.batch.entries import entries_of

    row("what", "measured", "what follows")
    address = database().journal("limits")
    await make(address, rows, _OPEN)
    journal: Any = entries_of(address)  # Any: the store of a batch in PostgreSQL
    await journal.open()
    shared = journal.store
    [(size,)] = await shared.rows("SELECT pg_total_relation_size('{s}entries')")
    many = f"{rows:,} open"
    row(
        f"{many}: size of a write",
        f"{size / rows:,.0f} bytes",
        f"{size / 1e9:.1f} GB; a year at 50 a second: {YEAR * RATE * size / rows / 1e12:.2f} TB",
    )
    row(f"{many}: sent at 50 a second", "the model", f"{rows / RATE / 3600:,.1f} h")
    leases = Leases(shared, SystemClock(), gives=True)
    begun = time.perf_counter()
    await leases.beat()
    await leases.take(journal.lanes)
    row(
        f"{many}: take all {journal.lanes} lanes",
        f"{(time.perf_counter() - begun) * 1e3:,.1f} ms",
        "once, at the start",
    )
    places = dict.fromkeys(leases.lanes, 0)
    spent = await timed(lambda: shared.open_in(places, (), 200))
    row(
        f"{many}: read the next 200 of each of {journal.lanes} lanes",
        f"{spent * 1e3:,.1f} ms",
        f"{200 * journal.lanes / RATE:,.0f} s of sending",
    )
    keys = cycle([f"row-{n}" for n in range(1, rows, max(rows // 5_000, 1))])
    spent = await timed(
        lambda: journal.input_notes.known([next(keys) for _ in range(200)])
    )
    row(
        f"{many}: look up 200 keys",
        f"{spent * 1e3:,.1f} ms",
        "of an input that is run again",
    )
    for others in (0, 100, PROCESSES):
        await shared.rows(_MEMBERS, others)
        spent = await timed(leases.beat, 50)
        row(
            f"a sign of life beside {others:,} processes",
            f"{spent * 1e3:,.2f} ms",
            f"every {pause_of(SILENCE):g} s",
        )
    beats = PROCESSES / pause_of(SILENCE)
    rate = await _beats(shared)
    row(
        f"signs of life beside {PROCESSES:,} processes",
        f"{rate:,.0f} a second",
        f"{PROCESSES:,} processes need {beats:,.0f}: {beats / rate:.0%} of this server",
    )
    await leases.leave()
    await journal.aclose()
    await _company()


async def _beats(shared: Any) -> float:  # Any: as above
    """Return how many signs of life a second the database takes from five connections."""
    members = [Leases(shared, SystemClock()) for _ in range(5)]
    begun, each = time.perf_counter(), 100

    async def live(member: Leases) -> None:
        for _ in range(each):
            await member.beat()

    await asyncio.gather(*map(live, members))
    return each * len(members) / (time.perf_counter() - begun)


async def _company() -> None:
    """Print the connections of a client with a journal, and what a notification costs for each listener."""
    admin = await asyncpg.connect(database().address)
    async with Simulator() as service:
        address = database().at(journal="limits")
        async with Client(
            service.base_url, ApiKey(service.api_key), journal=address
        ) as client:
            hooks = [
                await client.webhooks.get(str(service.seed_webhook()["id"]))
                for _ in range(200)
            ]
            writes = [
                client.webhooks.update(hook, status="inactive").keyed(hook.id)
                for hook in hooks
            ]
            await asyncio.gather(*(write.outcome() for write in writes))
            counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'invsvc journal %'"
            held, most = (
                await admin.fetchval(counted),
                await admin.fetchval("SHOW max_connections"),
            )
    row("connections of a client after 200 keyed writes at once", f"{held}",
        f"{PROCESSES:,} processes: {held * PROCESSES:,}; PostgreSQL's default is {most}")  # fmt: skip
    alone, heard = await _notified(admin, 0), await _notified(admin, _LISTENERS)
    each = max(heard - alone, 0.0) / _NOTICES / _LISTENERS
    row(f"a notification, for each of {_LISTENERS} listeners", f"{each * 1e6:,.0f} µs",
        f"50 a second to {PROCESSES:,}: {each * RATE * PROCESSES:.2f} s of work each second")  # fmt: skip
    await admin.close()


async def _notified(admin: Any, listeners: int) -> float:  # Any: asyncpg's connection
    """Return the seconds until so many listeners have had all notifications."""
    left, done = listeners * _NOTICES, asyncio.Event()

    def told(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    connections = [await asyncpg.connect(database().address) for _ in range(listeners)]
    for each in connections:
        await each.add_listener("limits", told)
    begun = time.perf_counter()
    for number in range(_NOTICES):
        await admin.execute("SELECT pg_notify('limits', $1)", str(number))
    if listeners:
        await done.wait()
    taken = time.perf_counter() - begun
    for each in connections:
        await each.close()
    return taken


async def windows() -> None:
    """Print the rate of writes of which a part never arrives, beside the model, for some numbers at once."""
    row("at once, lost", "applied a second", "model", "requests a write")
    for at_once in (10, 50):
        for lost in (0.0, 0.01, 0.05, 0.2):
            rate, requests, window = await _rate(at_once, lost)
            model = at_once / (_LATENCY + lost * window)
            row(
                f"{at_once}, {lost:.0%}",
                f"{rate:,.1f}",
                f"{model:,.1f}",
                f"{requests:.2f}",
            )


async def _rate(at_once: int, lost: float) -> tuple[float, float, float]:
    """Return writes applied a second, requests for each, and by how many seconds a lost one takes longer."""
    random, loop, verdicts = Random(7), asyncio.get_running_loop(), Counter[str]()
    extra: list[float] = []
    async with (
        Simulator(seed=7, clock=service_clock(), latency=_LATENCY) as service,
        Client(service.base_url, ApiKey(service.api_key), clock=LoopClock()) as client,
    ):
        hooks = [
            await client.webhooks.get(str(service.seed_webhook()["id"]))
            for _ in range(at_once)
        ]
        await asyncio.sleep(10.0)  # longer than reads may lag
        begun, before = loop.time() + _WARM, 0

        async def writes(hook: Webhook) -> None:
            number = 0
            while (started := loop.time()) < begun + _SECONDS:
                number += 1
                if random.random() < lost:
                    # the next one, whosever it is
                    service.script("webhooks.update", "reset")
                outcome = await client.webhooks.update(
                    hook, description=f"new {number}"
                ).outcome()
                if begun <= loop.time() < begun + _SECONDS:
                    verdicts[str(outcome.verdict)] += 1
                    extra.extend(
                        [loop.time() - started - _LATENCY] * bool(outcome.resends)
                    )

        async def count() -> int:
            nonlocal before
            await asyncio.sleep(begun - loop.time())
            before = service.arrivals()
            await asyncio.sleep(_SECONDS)
            return service.arrivals() - before

        requests, *_ = await asyncio.gather(count(), *map(writes, hooks))
    rate = verdicts["applied"] / _SECONDS
    return rate, requests / verdicts.total(), sum(extra) / len(extra) if extra else 0.0


async def webhooks() -> None:
    """Print the verdicts of creates whose answers are lost, in teams that have many webhooks."""
    row("webhooks of the team", "created, answer lost", "never arrived")
    for many in _HOOKS:
        async with (
            Simulator(seed=7, clock=service_clock()) as service,
            Client(
                service.base_url, ApiKey(service.api_key), clock=LoopClock()
            ) as client,
        ):
            for number in range(many):
                service.seed_webhook(url=f"https://other.example/{number}")
            found = {
                loss: await _created(service, client, loss)
                for loss in ("apply, then reset", "reset")
            }
        row(
            f"{many:,}",
            *(
                ", ".join(f"{n} {verdict}" for verdict, n in each.items())
                for each in found.values()
            ),
        )


async def _created(service: Simulator, client: Client, loss: str) -> Counter[str]:
    verdicts: Counter[str] = Counter()
    for number in range(_CREATES):
        service.script("webhooks.create", loss)
        url = f"https://me.example/{loss.replace(' ', '')}/{number}"
        outcome = await client.webhooks.create(
            url=url, events=["invoice.created"]
        ).outcome()
        verdicts[str(outcome.verdict)] += 1
        for hook in [
            each
            for each in service.book().webhooks.items.values()
            if each["url"] == url
        ]:
            service.remove_webhook(hook["id"])
    return verdicts


def main(arguments: list[str]) -> None:
    """Run what *arguments* name."""
    match arguments:
        case ["store", *number]:
            asyncio.run(store(*map(int, number or ["10000000"])))
        case ["windows" | "webhooks" as name]:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run({"windows": windows, "webhooks": webhooks}[name]())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
