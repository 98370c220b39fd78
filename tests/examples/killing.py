"""
Serve the FastAPI example by uvicorn with four workers, kill them under load, and judge what came of it.

    python -m tests.examples.killing [CUSTOMERS [EVENTS [SEED]]]

The judges are the ledger of the service and a trigger in the database: each customer that was committed has one
webhook, one that was rolled back has none; and each acknowledged event was handled, by one worker at a time.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp
import asyncpg
import attrs

from invsvc_async import ApiKey, Client, Outbox, Verdict
from invsvc_async.simulator import Faults, Simulator
from tests.examples.serving import EVENT, KEY, fresh_database, served

WORKERS = 4
SENDERS = 6  # of requests, and as many of deliveries
FAULTS = Faults(rate=0.06, reads=0.02, late_up_to=0.15, hang=0.3)
# An event is held while it is handled.
WATCHED = """
CREATE TABLE handled (key text);
CREATE TABLE collisions (key text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(NEW.key, 0)) THEN
        INSERT INTO collisions VALUES (NEW.key);
    END IF;
    PERFORM pg_sleep(0.02);
    INSERT INTO handled VALUES (NEW.key);
    RETURN NEW;
END $$;
CREATE TRIGGER watched BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION watch();
"""


@attrs.frozen(kw_only=True)
class Survived:
    """What came of the load."""

    committed: int
    events: int
    handlings: int
    answers: dict[str, int]
    kills: int
    seconds: float
    verdicts: dict[str, int]
    unknown: list[str]  # what was found of each write with this verdict
    wrong: list[str]


def workers_of(child):
    """Return the ids of the processes that serve."""
    found = []
    for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


class Load:
    """Requests and deliveries, and what came of them."""

    def __init__(
        self, browser, customers: int, events: int, chance: random.Random
    ) -> None:
        self._browser = browser
        self._names = iter(
            [
                f"{'undone' if chance.random() < 0.3 else 'kept'}-{n}"
                for n in range(customers)
            ]
        )
        keys = [f"whd_{n}" for n in range(events)] + [
            f"whd_{n}" for n in range(0, events, 5)
        ]
        chance.shuffle(keys)
        self._keys = iter(keys)
        self.answers: Counter[str] = Counter()
        self.acknowledged: set[str] = set()

    @property
    def succeeded(self) -> int:
        """Return how many customers and events were accepted."""
        return self.answers["registration 202"] + len(self.acknowledged)

    async def ready(self) -> None:
        """Wait until a worker answers."""
        while await self._answer("/customers/") == 0:
            pass

    async def send(self) -> None:
        """Send all: a registration once, and an event until it is acknowledged, as the service does."""
        await asyncio.gather(
            *(
                each()
                for each in (self._register, self._deliver)
                for _ in range(SENDERS)
            )
        )

    async def _register(self) -> None:
        for name in self._names:
            self.answers[
                f"registration {await self._answer(f'/customers/{name}')}"
            ] += 1

    async def _deliver(self) -> None:
        for key in self._keys:
            while (got := await self._answer("/events", {**EVENT, "id": key})) != 200:
                self.answers[f"delivery {got}"] += 1
                await asyncio.sleep(0.05)
            self.acknowledged.add(key)

    async def _answer(self, path: str, body: object = None) -> int:
        """Return the status; 0 if a worker died, or is not there yet."""
        try:
            async with self._browser.post(
                path, json=body, headers={"X-Events-Key": KEY}
            ) as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.05)
            return 0


async def run(
    customers: int,
    events: int,
    seed: int,
    *,
    every: float = 1.0,
    most: int = 10_000,
    patience: float = 300.0,
    faults: Faults = FAULTS,
) -> Survived:
    """Serve *customers* and *events*; *every* so many seconds, kill a worker, *most* of all."""
    chance, begun, reached, kills = random.Random(seed), time.monotonic(), 0, 0
    async with (
        fresh_database(f"killed{seed}", WATCHED) as place,
        Simulator(seed=seed, faults=faults, latency=0.005) as service,
        served(
            f"uvicorn --port 0 --no-access-log --workers {WORKERS} --factory tests.examples.killed_app:create_app",
            INVSVC_BASE_URL=service.base_url, INVSVC_API_KEY=service.api_key, EVENTS_KEY=KEY, DATABASE_URL=place,
        ) as (server, address),
        aiohttp.ClientSession(address) as browser,
    ):  # fmt: skip
        load = Load(browser, customers, events, chance)
        await load.ready()
        sending = asyncio.create_task(load.send())
        tables = await asyncpg.connect(place)
        while not (sending.done() and await is_done(tables, load.acknowledged)):
            assert time.monotonic() < begun + patience, (
                f"{load.answers}, {await tables.fetch(OPEN)}"
            )
            await asyncio.wait({sending}, timeout=every)
            if sending.done():
                sending.result()
                await asyncio.sleep(0.1)
            elif (
                kills < most
                and load.succeeded > reached
                and len(serving := workers_of(server)) == WORKERS
            ):
                # Something succeeded since the last kill: otherwise, workers might all be killed as they start.
                os.kill(chance.choice(serving), signal.SIGKILL)
                reached, kills = load.succeeded, kills + 1
        await service.settled()
        wrong, verdicts, committed = await judged(tables, service, load)
        unknown = await explained(tables, place, service)
        handlings = await tables.fetchval("SELECT count(*) FROM handled")
        await tables.close()
    return Survived(
        committed=committed, events=len(load.acknowledged), handlings=handlings, answers=dict(load.answers),
        kills=kills, seconds=time.monotonic() - begun, verdicts=verdicts, unknown=unknown, wrong=wrong,
    )  # fmt: skip


COUNTS = {
    Verdict.APPLIED: (1, 1),
    Verdict.UNKNOWN: (0, 1),
}  # of webhooks, by verdict; otherwise none
OPEN = "SELECT name FROM customers WHERE verdict IS NULL"


async def is_done(tables, acknowledged) -> bool:
    """Return whether each customer has a verdict, and each event was handled."""
    return not await tables.fetch(OPEN) and len(
        await tables.fetch("SELECT key FROM events")
    ) >= len(acknowledged)


async def judged(tables, service, load) -> tuple[list[str], dict[str, int], int]:
    """Compare the application's own tables with the ledger of the service."""
    customers = {
        row["name"]: row for row in await tables.fetch("SELECT * FROM customers")
    }
    arrived = {
        name_in(entry)
        for entry in service.ledger.entries
        if entry.operation == "webhooks.create"
    }
    living = living_webhooks(service)
    effects = Counter(name_in(entry) for entry in living)
    secrets = {name_in(entry): service.secret_of(str(entry.target)) for entry in living}
    wrong = [f"{name}: sent, and never committed" for name in arrived - set(customers)]
    for name, row in customers.items():
        least, most = COUNTS.get(row["verdict"], (0, 0))
        if not least <= effects[name] <= most:
            wrong.append(
                f"{name}: {effects[name]} webhooks, and the verdict {row['verdict']}"
            )
        if row["verdict"] == Verdict.APPLIED and row["secret"] != secrets.get(name):
            wrong.append(f"{name}: applied, and nobody has the secret")
    if load.answers["registration 202"] > len(customers):
        wrong.append("a registration was answered with 202, and is not there")
    handled = {row["key"] for row in await tables.fetch("SELECT key FROM events")}
    wrong += [
        f"{key}: acknowledged, and not handled" for key in load.acknowledged - handled
    ]
    wrong += [
        f"{row['key']}: two at once"
        for row in await tables.fetch("SELECT key FROM collisions")
    ]
    return (
        wrong,
        dict(Counter(row["verdict"] for row in customers.values())),
        len(customers),
    )


def living_webhooks(service):
    """Return the entries of the webhooks that were created and not deleted."""
    gone = {entry.target for entry in service.ledger.effects("webhooks.delete")}
    made = service.ledger.effects("webhooks.create")
    return [entry for entry in made if entry.target not in gone]


async def explained(tables, place, service) -> list[str]:
    """Return what is known of each UNKNOWN write, and how often the ledger has it."""
    effects = Counter(
        name_in(entry) for entry in service.ledger.effects("webhooks.create")
    )
    names = await tables.fetch(
        "SELECT name FROM customers WHERE verdict = $1 ORDER BY name", Verdict.UNKNOWN
    )
    async with (
        Client(service.base_url, ApiKey(service.api_key)) as client,
        Outbox.open(place, client) as outbox,
    ):
        found = [(row["name"], await outbox.get(row["name"])) for row in names]
    return [
        f"{name}: {effects[name]} webhooks; {outcome.explain()}"
        for name, outcome in found
    ]


def name_in(entry) -> str:
    return str(entry.body["url"].rpartition("/")[2])


async def main(customers: int = 1_000, events: int = 10_000, seed: int = 7) -> bool:
    """Run it, print what came of it, and return whether all is well."""
    survived = await run(customers, events, seed, patience=3600.0)
    judged = (
        "\n".join(survived.wrong)
        or "each committed customer has one webhook, each event was handled"
    )
    print(*survived.unknown, sep="\n")  # noqa: T201 - a session's output
    print(f"{attrs.evolve(survived, wrong=[], unknown=[])}; {judged}")  # noqa: T201 - as above
    return not survived.wrong


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*map(int, sys.argv[1:]))))
