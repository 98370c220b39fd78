"""Writes that hang: a read beside them shows the effect long before their time is over, and nothing else changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context

import pytest
import yarl

from invsvc_async import ReconcilePolicy, Timeouts, Verdict
from invsvc_async.reconcile.history import Attempt, End, Reading
from invsvc_async.transport.exchange import Exchange
from invsvc_async.writes.hanging import (
    LEAST,
    AnswerDelays,
    HangingSends,
    SendUnderWay,
)
from invsvc_async.writes.look_beside import look_beside
from tests.faults.conftest import client_of
from tests.faults.test_cancellation import no_task_is_left
from tests.support.virtual_time import LoopClock

pytestmark = pytest.mark.every_python

PATIENT = Timeouts(attempt=30.0, connect=2.0, call=60.0)
URL = "https://me.example/in"
READS = ("webhooks.get", "webhooks.list", "journeys.get")


@pytest.fixture
async def client(service):
    async with client_of(service, timeout=PATIENT, reconcile=ReconcilePolicy()) as made:
        await made.webhooks.list()  # it knows the service's clock
        yield made


def create(client, url=URL, **options):
    return client.webhooks.create(url=url, events=["invoice.created"], **options)


async def update(client, service):
    hook = await client.webhooks.get(service.seed_webhook(description="before").id)
    await asyncio.sleep(6.0)  # reads do not lag for so long
    return client.webhooks.update(hook, description="after")


async def delete(client, service):
    hook = await client.webhooks.get(service.seed_webhook().id)
    await asyncio.sleep(6.0)
    return client.webhooks.delete(hook)


async def change(client, service):
    journey = await client.journeys.get(service.seed_journey().id)
    return client.journeys.update(journey.id, name="after")


async def tagged(client, _service):
    return create(client, tag=True, on_lost_secret="keep")


async def untagged(client, _service):
    return create(client, on_lost_secret="keep")


WRITES = {
    "webhooks.update": update,
    "webhooks.delete": delete,
    "journeys.update": change,
    "webhooks.create": untagged,
    "webhooks.create, tagged": tagged,
}


async def looks_of(service, awaitable):
    """Return the outcome, the seconds until it was there, and how many reads of the state were made for it."""
    before = sum(map(service.ledger.arrivals, READS))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    outcome = await awaitable
    made = sum(map(service.ledger.arrivals, READS)) - before
    return outcome, loop.time() - begun, made


@pytest.mark.parametrize("name", WRITES)
async def test_effect_of_a_write_that_hangs(service, client, name):
    """One read shows it after a second; a create is waited for a little longer, because its answer has a secret."""
    write = await WRITES[name](client, service)
    operation = name.partition(",")[0]
    service.script(operation, "apply, then hang")

    outcome, took, reads = await looks_of(service, write.outcome())

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.evidence.duplicates == ()
    assert took < (4.0 if outcome.secret_lost else 2.0)
    assert len(service.ledger.effects(operation)) == 1
    assert reads == 1
    assert [type(event) for event in outcome.history] == [Attempt, Reading]
    assert outcome.history[0].end is End.LOST
    assert "a read had shown it" in outcome.history[0].error.message
    assert outcome.value is not None
    assert await no_task_is_left() == []


@pytest.mark.parametrize("name", WRITES)
async def test_write_that_hangs_before_its_effect(service, client, name):
    """The read shows nothing, and proves nothing: the attempt goes on to its timeout, and all else is as ever."""
    write = await WRITES[name](client, service)
    operation = name.partition(",")[0]
    before = sum(map(service.ledger.arrivals, READS))
    service.script(operation, "hang", "pass")
    task = asyncio.create_task(write.outcome())

    await asyncio.sleep(29.0)
    looked = sum(map(service.ledger.arrivals, READS)) - before
    outcome = await task

    assert looked == 1
    assert outcome.verdict is Verdict.APPLIED
    assert [event.end for event in attempts(outcome)] == [End.LOST, End.ANSWERED]
    first, again = attempts(outcome)
    assert first.ended - first.started >= 29.0
    assert again.started - first.ended >= ReconcilePolicy().settle_after_loss
    assert all(
        event.started >= first.ended
        for event in outcome.history
        if isinstance(event, Reading)
    )
    assert len(service.ledger.effects(operation)) == 1


def attempts(outcome):
    return [event for event in outcome.history if isinstance(event, Attempt)]


async def test_slow_answer_with_a_secret(service, client):
    """A create whose answer is only slow gets its secret, although a read has shown it before."""
    service.script("webhooks.create", "apply, then slow 2.5")

    outcome, took, reads = await looks_of(service, create(client).outcome())

    assert (outcome.secret, reads) == ("returned", 1)
    assert took < 3.0
    assert [type(event) for event in outcome.history] == [Attempt]


async def test_update_of_a_journey_of_which_nothing_is_known(service, client):
    """The read shows no more than that it is as wanted: the request is given up, and then the window is waited for."""
    write = client.journeys.update(service.seed_journey().id, name="after")
    service.script("journeys.update", "apply, then hang")

    outcome, took, reads = await looks_of(service, write.outcome())

    assert (outcome.verdict, outcome.evidence.basis) == (Verdict.APPLIED, "equal")
    assert took < 3 * LEAST + ReconcilePolicy().settle_after_loss + 1.0
    [attempt] = attempts(outcome)
    assert attempt.end is End.LOST
    assert attempt.ended - attempt.started >= 3 * LEAST
    readings = [event for event in outcome.history if isinstance(event, Reading)]
    assert reads == len(readings) + 1
    assert all(reading.started >= attempt.ended for reading in readings)
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_slow_answer_about_a_journey_of_which_nothing_is_known(service, client):
    """It is waited for a little: it tells at once what the read does not."""
    write = client.journeys.update(service.seed_journey().id, name="after")
    service.script("journeys.update", "apply, then slow 2.5")

    outcome, took, reads = await looks_of(service, write.outcome())

    assert (outcome.evidence.basis, reads) == ("answered", 1)
    assert took < 3.0


async def test_journey_that_was_so_before(service, client):
    """What was changed last before the send is not by the write: the attempt goes on to its timeout."""
    write = client.journeys.update(service.seed_journey(name="after").id, name="after")
    await asyncio.sleep(6.0)
    service.script("journeys.update", "hang")

    outcome, _, _ = await looks_of(service, write.outcome())

    [attempt] = attempts(outcome)
    assert (outcome.verdict, outcome.evidence.basis) == (Verdict.APPLIED, "equal")
    assert attempt.ended - attempt.started >= 29.0


async def test_quick_answers(service, client):
    """Writes that are answered in time cost no read."""
    _, _, reads = await looks_of(
        service, asyncio.gather(*(create(client, f"{URL}/{n}") for n in range(10)))
    )

    assert reads == 0
    assert await no_task_is_left() == []


async def test_writes_that_wait_for_a_connection(service):
    """A request of which no byte has left is not looked at, however long it waits for its place."""
    async with client_of(service, timeout=PATIENT, max_concurrency=2) as client:
        hook = await client.webhooks.get(service.seed_webhook().id)
        service.script("teams.create", "hang 5")
        blocking = asyncio.create_task(client.teams.create(legal_name="One").outcome())
        await service.arrived("teams.create")

        outcome, _, reads = await looks_of(
            service, client.webhooks.update(hook, description="after").outcome()
        )

        blocking.cancel()
        with suppress(asyncio.CancelledError):
            await blocking
    assert (outcome.verdict, len(outcome.history), reads) == (Verdict.APPLIED, 1, 0)


async def test_update_soon_after_it_was_read(service, client):
    """A read may lag: it is made when it can show no state of before, and not at once."""
    hook = await client.webhooks.get(service.seed_webhook(description="before").id)
    service.script("webhooks.update", "apply, then hang")

    outcome, took, reads = await looks_of(
        service, client.webhooks.update(hook, description="after").outcome()
    )

    assert (outcome.verdict, reads) == (Verdict.APPLIED, 1)
    assert ReconcilePolicy().reads_lag - 1.0 < took < ReconcilePolicy().reads_lag + 1.0


async def test_cancelled_while_looked_at(service, client):
    """The write goes to client.unsettled, and the read beside it is abandoned."""
    service.script("webhooks.create", "apply, then hang")
    service.script("webhooks.list", "hang")
    task = asyncio.create_task(create(client).outcome())
    await service.arrived("webhooks.list", 2)

    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert len(client.unsettled) == 1
    assert await no_task_is_left() == []


async def test_closed_while_looked_at(service):
    """The close of the client ends both at once."""
    async with client_of(service, timeout=PATIENT) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "apply, then hang")
        service.script("webhooks.list", "hang")
        task = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.list", 2)
    outcome = await task

    assert (outcome.verdict, outcome.evidence.cause) == (
        Verdict.UNKNOWN,
        "client closed",
    )
    assert await no_task_is_left() == []


async def test_read_beside_that_fails(service, client):
    """It counts for nothing, and is not made again."""
    service.script("webhooks.create", "apply, then hang 8")
    service.script("webhooks.list", "503", "pass")

    outcome, took, _ = await looks_of(
        service, create(client, on_lost_secret="keep").outcome()
    )

    assert outcome.verdict is Verdict.APPLIED
    assert took >= 8.0
    assert not any(
        event.status == 503 for event in outcome.history if isinstance(event, Reading)
    )


async def test_answer_that_is_the_last_of_all(service, client):
    """What is slower than nearly all answers of a client is looked at; it learns what its service needs."""
    for number in range(8):
        service.script("webhooks.create", "slow 4")
        outcome, _, reads = await looks_of(
            service, create(client, f"{URL}/{number}", on_lost_secret="keep").outcome()
        )

    assert (outcome.secret, reads) == ("returned", 0)


@pytest.mark.parametrize(
    ("slow", "answers", "expected"),
    [
        ([], 0, LEAST),
        ([0.5], 100, LEAST),
        ([3.0], 1, 3.05),
        ([3.0] * 4, 100, LEAST),
        ([3.0] * 6, 100, 3.05),
        ([1.2] * 3 + [9.0] * 3, 100, 1.25),
    ],
)
def test_time_of_nearly_all_answers(slow, answers, expected):
    """One in twenty may be slower."""
    times = AnswerDelays()
    for seconds in (*slow, *[0.1] * (answers - len(slow))):
        times.note(seconds)

    assert times.nearly_all == pytest.approx(expected, rel=0.01)


def test_answers_of_long_ago():
    """They count less: a service that has become slow is known soon."""
    times = AnswerDelays()
    for _ in range(1_000_000):
        times.note(0.1)

    for _ in range(60):
        times.note(5.0)

    assert times.nearly_all >= 5.0


async def test_one_timer_for_writes_one_after_the_other():
    """The timer is neither cancelled nor made anew by each write; it ends when no write is left."""
    hanging = HangingSends()
    clock = LoopClock()
    timers = set()
    for _ in range(3):
        exchange = Exchange("PUT", yarl.URL(URL), {}, started=clock.now())
        sending = SendUnderWay(exchange, clock, look_beside, copy_context())
        hanging.begin(sending)
        timers.add(hanging._timer)
        exchange.end = End.ANSWERED
        exchange.ended = clock.now()
        hanging.end(sending)
    [timer] = timers
    await asyncio.sleep(LEAST)
    assert not timer.cancelled()
    assert hanging._timer is None
