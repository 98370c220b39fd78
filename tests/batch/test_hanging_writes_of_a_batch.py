"""A batch whose requests hang after their effect: it neither waits for their timeout, nor pauses for them."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from itertools import cycle

import pytest

from invsvc_async import ReconcilePolicy, Timeouts, Verdict
from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from invsvc_async.writes.hanging import LEAST
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates, made_once
from tests.support.virtual_time import LoopClock, service_clock

pytestmark = [pytest.mark.steady_time, pytest.mark.slow]

MANY = 60
AT_ONCE = 20
LARGE = 3_000
LARGE_HUNG = LARGE * 3 // 100
OF_A_TEAM = 50  # its list is whole
ATTEMPT = 12.0
WINDOW = 5.0
HUNG = AT_ONCE  # the first ones, so that no answer comes between them: more than pause a batch


@pytest.fixture
async def service():
    async with Simulator(clock=service_clock()) as running:
        yield running


async def test_batch_without_a_pause(service, path):
    """All are applied, once each, in a few seconds instead of the timeout of an attempt."""
    pauses = []
    service.script("webhooks.create", *["apply, then hang"] * HUNG)
    settings = {
        "clock": LoopClock(),
        "reconcile": ReconcilePolicy(),
        "timeout": Timeouts(attempt=25.0),
    }
    loop = asyncio.get_running_loop()
    async with client_of(service, **settings) as client:
        begun = loop.time()
        async with Batch.open(path, client, concurrency=AT_ONCE, **SECRETS) as batch:
            watching = asyncio.create_task(_watched(batch, pauses))
            results = await all_of(batch, creates(client, MANY))
            watching.cancel()

    assert [result.verdict for result in results] == [Verdict.APPLIED] * MANY
    assert made_once(service) == MANY
    assert sum(result.basis == "tag" for result in results) == HUNG
    assert loop.time() - begun < 15.0
    assert pauses == []


@pytest.mark.untraced
@pytest.mark.parametrize("fault", ["apply, then hang", "hang"])
async def test_creates_of_many_teams(service, path, fault):
    """Those that hang after their effect end 3 s after the others; before it, after timeout, window and re-send."""
    service.script("webhooks.create", *_in_some_places(fault))
    teams = cycle([service.seed_team().id for _ in range(LARGE // OF_A_TEAM)])

    async with _large_batch(service, path) as (client, run):
        views = map(client.for_team, teams)
        took, results = await run(
            next(views)
            .webhooks.create(
                url=f"https://me.example/{number}", events=["invoice.created"]
            )
            .keyed(f"row-{number}")
            for number in range(LARGE)
        )

    assert [result.verdict for result in results] == [Verdict.APPLIED] * LARGE
    assert made_once(service) == LARGE
    assert sum(result.basis == "tag" for result in results) == LARGE_HUNG
    if fault == "hang":
        assert ATTEMPT + WINDOW <= took < ATTEMPT + WINDOW + 4.0
    else:
        assert took < 3 * LEAST + 4.0


@pytest.mark.untraced
async def test_creates_of_one_team(service, path):
    """The list shows the newest 100, so no read shows most of those that hang: they are UNKNOWN, and say why."""
    service.script("webhooks.create", *_in_some_places("apply, then hang"))

    async with _large_batch(service, path) as (client, run):
        _, results = await run(creates(client, LARGE))

    unknown = [result for result in results if result.verdict is Verdict.UNKNOWN]
    assert len(unknown) > LARGE_HUNG // 2
    assert {result.cause for result in unknown} == {"list full"}
    assert made_once(service) == LARGE
    assert {r.verdict for r in results} == {Verdict.APPLIED, Verdict.UNKNOWN}


@pytest.mark.untraced
@pytest.mark.parametrize("was_read", [True, False])
async def test_updates_of_journeys(service, path, was_read):
    """A journey that was read before shows the update at once; of another one, the window is waited for."""
    service.script("journeys.update", *_in_some_places("apply, then hang"))
    ids = [service.seed_journey().id for _ in range(LARGE)]

    async with _large_batch(service, path) as (client, run):
        if was_read:
            await asyncio.gather(*map(client.journeys.get, ids))
        took, results = await run(
            client.journeys.update(each, name="new") for each in ids
        )

    assert [result.verdict for result in results] == [Verdict.APPLIED] * LARGE
    assert sum(result.basis == "equal" for result in results) == LARGE_HUNG
    assert len(service.ledger.effects("journeys.update")) == LARGE
    if was_read:
        assert took < LEAST + 4.0
    else:
        assert WINDOW <= took < 3 * LEAST + WINDOW + 4.0


def _in_some_places(fault):
    """Return the script of a large batch, in which some requests have the *fault*."""
    places = {*random.Random(3).sample(range(LARGE), LARGE_HUNG)}
    return [fault if place in places else "pass" for place in range(LARGE)]


@asynccontextmanager
async def _large_batch(service, path):
    """Open a batch, and yield its client and what runs writes: it returns the seconds that took, and the results."""
    settings = {
        "clock": LoopClock(),
        "reconcile": ReconcilePolicy(settle_after_loss=WINDOW),
        "timeout": Timeouts(attempt=ATTEMPT),
        "max_concurrency": 250,
    }
    loop = asyncio.get_running_loop()
    async with (
        client_of(service, **settings) as client,
        Batch.open(path, client, concurrency=200, **SECRETS) as batch,
    ):

        async def run(writes):
            begun = loop.time()
            results = await all_of(batch, writes)
            return loop.time() - begun, results

        yield client, run


async def _watched(batch, pauses):
    """Keep why *batch* is paused, whenever it is."""
    while True:
        progress = batch.progress
        if progress is not None and progress.paused:
            pauses.append(progress.paused)
        await asyncio.sleep(0.01)
