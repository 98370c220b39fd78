"""
Run an application with an outbox in several processes, kill and stop them, and compare its tables with the ledger.

    python -m tests.soak.outboxes [ORDERS [PROCESSES [SEED]]]

The judge is the ledger of the service: each committed order has one effect and the verdict APPLIED (or UNKNOWN, and then
at most one effect); those that were rolled back have none; the effects on one thing come in the order of the commits; and
each verdict was given.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress

import asyncpg
import attrs

from invsvc_async import Verdict
from invsvc_async.simulator import Faults, Simulator
from tests.outbox.child import TABLES
from tests.outbox.conftest import outbox_at
from tests.support.database import database

FAULTS = Faults(rate=0.06, reads=0.02, late_up_to=0.15, hang=0.3)
THINGS = 60


@attrs.frozen(kw_only=True)
class Survived:
    """What came of the orders."""

    tried: int
    committed: int
    kills: int
    stops: int
    seconds: float
    verdicts: dict[str, int]
    wrong: list[str]


async def run(
    orders: int, processes: int, seed: int, *, every: float = 1.0, patience: float = 120.0
) -> Survived:
    """Run the application until each committed order has a verdict; *every* so many seconds, hit a process."""
    chance, name = random.Random(seed), f"soak{seed}"
    folder = await asyncpg.connect(database().address)
    await folder.execute(f"DROP DATABASE IF EXISTS {name}")
    await folder.execute(f"CREATE DATABASE {name}")
    await folder.close()
    place = database().address.replace("/postgres?", f"/{name}?")
    connection = await asyncpg.connect(place)
    await connection.execute(TABLES)
    begun, kills, stops = time.monotonic(), 0, 0
    async with Simulator(seed=seed, faults=FAULTS, latency=0.005) as service:
        things = [service.seed_webhook().id for _ in range(THINGS)]
        await connection.executemany("INSERT INTO things VALUES ($1)", [(thing,) for thing in things])
        address = outbox_at("soak", silence=1).replace("/postgres?", f"/{name}?")
        arguments = service.base_url, service.api_key, address, place, ",".join(things), str(orders)

        async def begin() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.outbox.child", *arguments
            )

        until = time.monotonic() + patience
        is_done = False
        while not is_done:
            children = [await begin() for _ in range(processes)]
            try:
                while not await _all_given(connection, orders) and time.monotonic() < until:
                    await asyncio.sleep(every)
                    if await _tried(connection) > orders and chance.random() < 0.7:
                        continue  # nothing new is made: let what is left end
                    number = chance.randrange(processes)
                    if chance.random() < 0.5:
                        children[number].kill()
                        await children[number].wait()
                        children[number], kills = await begin(), kills + 1
                    else:
                        children[number].send_signal(signal.SIGSTOP)
                        await asyncio.sleep(chance.uniform(0.2, 2.5))  # it counts as dead after 1 s
                        children[number].send_signal(signal.SIGCONT)
                        stops += 1
            finally:
                for child in children:
                    with suppress(ProcessLookupError):
                        child.kill()
                    await child.wait()
            # A process may have committed an order at last, after it was stopped in its transaction.
            is_done = await _all_given(connection, orders) or time.monotonic() >= until
        await service.settled()
        wrong, verdicts, committed = await _judged(connection, service)
    await connection.close()
    return Survived(
        tried=orders, committed=committed, kills=kills, stops=stops, seconds=time.monotonic() - begun,
        verdicts=verdicts, wrong=wrong,
    )  # fmt: skip


async def _tried(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("SELECT last_value FROM tries"))


async def _all_given(connection: asyncpg.Connection, orders: int) -> bool:
    if await _tried(connection) <= orders:
        return False
    open_ones = "SELECT count(*) FROM orders WHERE key NOT IN (SELECT key FROM verdicts)"
    return not await connection.fetchval(open_ones)


async def _judged(
    connection: asyncpg.Connection, service: Simulator
) -> tuple[list[str], dict[str, int], int]:
    """Compare the application's own tables with the ledger."""
    orders = {row["key"]: row for row in await connection.fetch("SELECT * FROM orders")}
    said: dict[str, dict[str, str]] = {}
    for row in await connection.fetch("SELECT * FROM verdicts"):
        said.setdefault(row["key"], {})[row["verdict"]] = row["why"]
    effects: Counter[str] = Counter()
    came: dict[str, list[str]] = {}
    arrived = set()
    for entry in service.ledger.entries:
        if entry.operation == "webhooks.update":
            arrived.add(entry.body["description"])
    for entry in sorted(service.ledger.effects("webhooks.update"), key=lambda entry: entry.applied_at or 0.0):
        effects[entry.body["description"]] += 1
        came.setdefault(entry.path_id, []).append(entry.body["description"])
    wrong = [f"{key}: sent, and never committed" for key in arrived - set(orders)]
    for key in orders:
        wrong += [f"{key}: {each}" for each in _against(said.get(key, {}), effects[key])]
    for thing, keys in came.items():
        numbers = [orders[key]["number"] for key in keys if key in orders]
        if numbers != sorted(numbers):
            wrong.append(f"{thing}: effects came as {numbers}")
    counts = Counter(verdict for verdicts in said.values() for verdict in verdicts)
    return wrong, dict(counts), len(orders)


def _against(said: dict[str, str], effects: int) -> list[str]:
    """Return what speaks against the verdicts of one order, each *said* with its message."""
    found = [
        (len(said) != 1, f"its verdicts are {sorted(said)}"),
        (effects > 1, f"{effects} effects"),
        (Verdict.APPLIED in said and not effects, "said to be applied, and is not"),
        (bool(said.keys() - {Verdict.APPLIED, Verdict.UNKNOWN}), f"{effects} effects, and said to be {said}"),
    ]
    return [why for is_so, why in found if is_so]


async def main(orders: int = 10_000, processes: int = 4, seed: int = 7) -> bool:
    """Run it, print what came of it, and return whether all is well."""
    survived = await run(orders, processes, seed, patience=3600.0)
    judged = "\n".join(survived.wrong) or "each committed write once, no other, in order, every verdict given"
    print(  # noqa: T201 - a session's output
        f"{survived.tried:,} tried, {survived.committed:,} committed, {processes} processes, {survived.kills} kills, "
        f"{survived.stops} stops, {survived.seconds:.0f} s: {survived.verdicts}; {judged}"
    )
    return not survived.wrong


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*map(int, sys.argv[1:]))))
