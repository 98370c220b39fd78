"""
What the first screens of `embed.md` say of the applications, with a fault in every fourth answer.

What they say of one client is in `tests/faults/test_first_screens.py`.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter, defaultdict
from contextlib import asynccontextmanager, suppress
from importlib import import_module

import aiohttp
import asyncpg
import pytest

from examples import fastapi_app, shop
from invsvc_async import ReconcilePolicy, Verdict
from invsvc_async.events import InboxPolicy
from invsvc_async.simulator import Faults, Simulator
from tests.examples.killing import (
    OPEN,
    WATCHED,
    Load,
    is_done,
    judged,
    living_webhooks,
    run,
)
from tests.examples.serving import KEY, fresh_database
from tests.examples.test_examples_frameworks import SERVERS
from tests.support.waiting import until, until_no
from tests.support.web_server import web_server

pytestmark = [pytest.mark.untraced, pytest.mark.usefixtures("root_logger_restored")]

# What is late lands well inside the windows.
FAULTS = Faults(rate=0.25, reads=0.25, late_up_to=0.15, hang=0.3)
POLICY = ReconcilePolicy(
    settle_after_error=0.5, settle_after_loss=0.6, deadline=60.0, reads_lag=0.2
)
URL = "https://me.example/customers/"
# How many effects a write may have, by its verdict, and by the status that an application answers.
DONE = {
    Verdict.APPLIED: {1},
    Verdict.UNKNOWN: {0, 1},
    Verdict.NOT_APPLIED: {0},
    Verdict.REFUSED: {0},
}
STATUS = {
    Verdict.APPLIED: {200},
    Verdict.UNKNOWN: {202},
    Verdict.NOT_APPLIED: {503},
    Verdict.REFUSED: {404},
}
OF_STATUS = {200: {1}, 202: {0, 1}, 404: {0}, 409: {0}, 502: {0}, 503: {0}}


@pytest.fixture
async def place(monkeypatch):
    """Return the database of applications with short windows; an event that two handle at once leaves a row."""
    monkeypatch.setattr(shop, "POLICY", POLICY)
    monkeypatch.setattr(
        shop, "HANDLING", InboxPolicy(timeout=10.0, poll=0.1, initial=0.05, maximum=0.2)
    )
    async with fresh_database(f"faults{secrets.token_hex(4)}", WATCHED) as made:
        monkeypatch.setenv("DATABASE_URL", made)
        monkeypatch.setenv("EVENTS_KEY", KEY)
        yield made


@asynccontextmanager
async def faulty(monkeypatch, seed):
    """Run the service with faults, and name it in the environment."""
    async with Simulator(seed=seed, faults=FAULTS, latency=0.005) as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        yield service


def shops_of(framework, monkeypatch):
    """Return the list to which the shop of each application of *framework* is added."""
    made = []

    def make():
        made.append(shop.Shop())
        return made[-1]

    monkeypatch.setattr(import_module(f"examples.{framework}_app"), "Shop", make)
    return made


def renamed(service):
    """Count the effects on each journey."""
    return Counter(entry.target for entry in service.ledger.effects("journeys.update"))


async def rename(browser, journey):
    """Have an application rename *journey*; return the status of its answer, and the verdict in it."""
    answer = await browser.put(f"/journeys/{journey}/name?name=May")
    return answer.status_code, Verdict(answer.json()["verdict"])


@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar", "aiohttp"])
async def test_two_applications_of_each_framework(place, monkeypatch, framework):
    """
    They write at once and answer the outcome, which is what the ledger has.

    A customer and its webhook are committed together or not at all, and get the verdict and the secret. Each
    event is handled, by one application at a time. Each pool has five connections at most.
    """
    made = shops_of(framework, monkeypatch)
    async with (
        faulty(monkeypatch, 29) as service,
        SERVERS[framework]() as one,
        SERVERS[framework]() as two,
    ):
        journeys = [service.seed_journey(name="before").id for _ in range(32)]
        # refused, unless a fault leaves it in doubt
        journeys += [f"nowhere-{n}" for n in range(8)]
        async with aiohttp.ClientSession(str(one.base_url)) as browser:
            load = Load(browser, 20, 40, random.Random(29))
            renames = [
                rename(*each) for each in zip((one, two) * 20, journeys, strict=True)
            ]
            *answers, _ = await asyncio.gather(*renames, load.send())
        tables = await asyncpg.connect(place)
        await until(lambda: is_done(tables, load.acknowledged), every=0.1)
        assert [
            each.engine.pool.size() + each.engine.pool.overflow() <= 5 for each in made
        ] == [True, True]
        await service.settled()
        wrong, verdicts, committed = await judged(tables, service, load)
        await tables.close()
    assert wrong == []
    assert verdicts[Verdict.APPLIED] > committed / 2
    assert load.answers["registration 500"] > 0
    assert len(load.acknowledged) == 40
    effects = renamed(service)
    for journey, (status, verdict) in zip(journeys, answers, strict=True):
        assert status in STATUS[verdict]
        assert effects[journey] in DONE[verdict], (journey, verdict)
    statuses = Counter(status for status, _ in answers)
    assert statuses[200] > 20
    assert statuses[404] > 0


async def test_processes_that_are_killed():
    """The others do what they left: the tables and the ledger agree."""
    survived = await run(30, 100, 25, every=0.5, most=3, faults=FAULTS)

    assert survived.wrong == []
    assert survived.kills > 0
    assert survived.answers["registration 202"] > 0


async def test_secrets_that_are_lost(place, monkeypatch):
    """Each customer that is applied has the secret of its one webhook, though many answers were lost."""
    opened = shop.Shop()
    async with (
        faulty(monkeypatch, 30) as service,
        asyncpg.create_pool(place, min_size=1, max_size=5) as pool,
        opened.running(),
    ):
        for number in range(40):
            await opened.register(f"customer-{number}")
        await until_no(lambda: pool.fetch(OPEN), every=0.1)
        rows = await pool.fetch(
            "SELECT * FROM customers WHERE verdict = $1", Verdict.APPLIED
        )
        await service.settled()
        theirs = Counter(
            (entry.body["url"], service.secret_of(entry.target))
            for entry in living_webhooks(service)
        )
    assert service.ledger.effects("webhooks.delete")
    assert len(rows) > 30
    assert [
        row["name"] for row in rows if theirs[URL + row["name"], row["secret"]] != 1
    ] == []


async def test_callers_that_disconnect(place, monkeypatch):
    """Their requests go on: each write gets its verdict, which is what the ledger has, and none is in doubt."""
    chance, statuses, ends = random.Random(31), {}, Counter()
    made, arrived = shops_of("fastapi", monkeypatch), defaultdict(asyncio.Event)
    app = fastapi_app.create_app()

    async def watched(scope, receive, send):
        async def noting(message):
            if message["type"] == "http.response.start":
                statuses[scope["path"].split("/")[2]] = message["status"]
            await send(message)

        ends["begun"] += 1
        if scope["type"] == "http":
            arrived[scope["path"].split("/")[2]].set()
        try:
            await app(scope, receive, noting)
        except asyncio.CancelledError:
            ends["cancelled"] += 1
            raise
        ends["ended"] += 1

    async def leave(browser, journey):
        asked = asyncio.create_task(rename(browser, journey))
        await arrived[journey].wait()
        await asyncio.wait({asked}, timeout=chance.uniform(0.0, 0.2))
        ends["stayed"] += not asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked

    async with faulty(monkeypatch, 31) as service:
        async with web_server(watched) as browser:
            journeys = [service.seed_journey(name="before").id for _ in range(40)]
            await asyncio.gather(*(leave(browser, journey) for journey in journeys))
            await until(lambda: ends["ended"] >= ends["begun"] - 1)
            [opened] = made
            assert opened.client.unsettled == ()
        await service.settled()
    assert ends["cancelled"] == 0
    assert ends["stayed"] < len(statuses) > 10
    effects = renamed(service)
    assert {*effects} <= {*statuses}
    assert [
        each
        for each, status in statuses.items()
        if effects[each] not in OF_STATUS[status]
    ] == []
