"""
Run an application with an outbox in several processes, kill and stop them, and compare its tables with the ledger.

    python -m tests.soak.outboxes [ORDERS [PROCESSES [SEED]]]

The judge is the ledger of the service: each committed order has one effect and the verdict APPLIED (or UNKNOWN, and then
at most one effect); those that were rolled back have none; the effects on one thing come in the order of the commits; no
request comes before the time of its order; and each verdict was given, for a reason that the ledger bears out.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs

from invsvc_async import Verdict
from invsvc_async.simulator import Faults, Simulator
from tests.outbox.child import POLICY, TABLES
from tests.outbox.conftest import outbox_at
from tests.soak.reasons import Things, told_in
from tests.support.children import Crew
from tests.support.database import database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from invsvc_async.conformance.reasons import Told

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
    orders: int,
    processes: int,
    seed: int,
    *,
    every: float = 1.0,
    patience: float = 120.0,
) -> Survived:
    """Run the application until each committed order has a verdict; *every* so many seconds, hit a process."""
    chance, name, begun = random.Random(seed), f"soak{seed}", time.monotonic()
    async with (
        database().fresh(name) as place,
        Simulator(seed=seed, faults=FAULTS, latency=0.005) as service,
        asyncpg.create_pool(place, min_size=1, max_size=1) as tables,
    ):
        await tables.execute(TABLES)
        things = [service.seed_webhook().id for _ in range(THINGS)]
        await tables.executemany(
            "INSERT INTO things VALUES ($1)", [(thing,) for thing in things]
        )
        address = outbox_at("soak", silence=1).replace("/postgres?", f"/{name}?")
        child = (
            "tests.outbox.child",
            service.base_url,
            service.api_key,
            address,
            place,
            ",".join(things),
            orders,
        )
        crew = Crew(processes, chance, lambda _number, _turn: child)

        async def is_done() -> bool:
            return (
                await _all_given(tables, orders) or time.monotonic() > begun + patience
            )

        # again: a process may commit an order at last, after it was stopped
        while not await is_done():
            async with crew:
                while not await is_done():
                    await asyncio.sleep(every)
                    # Once nothing new is made, most of the time what is left may end.
                    if await _tried(tables) <= orders or chance.random() >= 0.7:
                        await crew.hit()
        await service.settled()
        wrong, verdicts, committed = await _judged(tables, service)
    return Survived(
        tried=orders, committed=committed, kills=crew.kills, stops=crew.stops, seconds=time.monotonic() - begun,
        verdicts=verdicts, wrong=wrong,
    )  # fmt: skip


async def _tried(tables: asyncpg.Pool) -> int:
    return int(await tables.fetchval("SELECT last_value FROM tries"))


async def _all_given(tables: asyncpg.Pool, orders: int) -> bool:
    if await _tried(tables) <= orders:
        return False
    open_ones = (
        "SELECT count(*) FROM orders WHERE key NOT IN (SELECT key FROM verdicts)"
    )
    return not await tables.fetchval(open_ones)


async def _judged(
    tables: asyncpg.Pool, service: Simulator
) -> tuple[list[str], dict[str, int], int]:
    """Compare the application's own tables with the ledger."""
    orders = {row["key"]: row for row in await tables.fetch("SELECT * FROM orders")}
    said: dict[str, dict[str, str]] = {}
    reasons: list[tuple[str, Told]] = []
    for row in await tables.fetch("SELECT * FROM verdicts"):
        said.setdefault(row["key"], {})[row["verdict"]] = row["why"]
        reasons.append((row["key"], told_in(json.loads(row["reason"]))))
    effects: Counter[str] = Counter()
    came: dict[str, list[str]] = {}
    arrived = {
        entry.body["description"] for entry in service.ledger.find("webhooks.update")
    }
    for entry in sorted(
        service.ledger.effects("webhooks.update"),
        key=lambda entry: entry.applied_at or 0.0,
    ):
        effects[entry.body["description"]] += 1
        came.setdefault(entry.path_id, []).append(entry.body["description"])
    wrong = [f"{key}: sent, and never committed" for key in arrived - set(orders)]
    wrong += _too_early(service, orders)
    wrong += _misled(service, orders, reasons)
    for key in orders:
        wrong += [
            f"{key}: {each}" for each in _against(said.get(key, {}), effects[key])
        ]
    for thing, keys in came.items():
        numbers = [orders[key]["number"] for key in keys if key in orders]
        if numbers != sorted(numbers):
            wrong.append(f"{thing}: effects came as {numbers}")
    counts = Counter(verdict for verdicts in said.values() for verdict in verdicts)
    return wrong, dict(counts), len(orders)


def _too_early(
    service: Simulator, orders: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:  # Any: columns
    """Yield the requests that came before the times of their orders."""
    began = time.time() - service.ledger.steady()
    for entry in service.ledger.find("webhooks.update"):
        due = orders.get(entry.body["description"], {}).get("due")
        # by two clocks of one machine, of which one may be slewed meanwhile
        if due is not None and began + entry.received_at < due.timestamp() - 0.01:
            yield f"{entry.body['description']}: sent before {due}"


def _misled(
    service: Simulator,
    orders: Mapping[str, Mapping[str, Any]],
    reasons: Iterable[tuple[str, Told]],
) -> Iterator[str]:  # Any: columns
    """Yield the reasons that the ledger contradicts."""
    things = Things(
        service.ledger.entries,
        lambda entry: str(entry.body["description"]),
        window=POLICY.settle_after_error,
    )
    for key, told in reasons:
        thing = orders[key]["thing"] if key in orders else None
        if (why := things.contradiction(key, thing, told)) is not None:
            yield f"{key}: {why}"


def _against(said: dict[str, str], effects: int) -> list[str]:
    """Return what speaks against the verdicts of one order, each *said* with its message."""
    found = [
        (len(said) != 1, f"its verdicts are {sorted(said)}"),
        (effects > 1, f"{effects} effects"),
        (Verdict.APPLIED in said and not effects, "said to be applied, and is not"),
        (
            bool(said.keys() - {Verdict.APPLIED, Verdict.UNKNOWN}),
            f"{effects} effects, and said to be {said}",
        ),
    ]
    return [why for is_so, why in found if is_so]


async def main(orders: int = 10_000, processes: int = 4, seed: int = 7) -> bool:
    """Run it, print what came of it, and return whether all is well."""
    survived = await run(orders, processes, seed, patience=3600.0)
    judged = (
        "\n".join(survived.wrong)
        or "each committed write once, no other, in order, none before its time, every verdict given"
    )
    print(  # noqa: T201 - a session's output
        f"{survived.tried:,} tried, {survived.committed:,} committed, {processes} processes, {survived.kills} kills, "
        f"{survived.stops} stops, {survived.seconds:.0f} s: {survived.verdicts}; {judged}"
    )
    return not survived.wrong


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*map(int, sys.argv[1:]))))
