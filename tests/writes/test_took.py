"""How long a write took from the call to its verdict, and how much of that it waited for others."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Outcome, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.durable.conftest import address, shared  # noqa: F401 - pytest finds them by name
from tests.support.waiting import cancel

ROUNDING = 1e-6  # s


async def second_of_two(service, one, other, *keys):
    """Send an update that is never answered, then another of the same thing, cancel the first; return the outcome."""
    service.seed_journey(id="jrn_1")
    for client in (one, other):
        await client.journeys.get("jrn_1")
    service.script("journeys.update", "hang 600")
    writes = [
        client.journeys.update("jrn_1", name=name)
        for client, name in ((one, "one"), (other, "two"))
    ]
    if keys:
        writes = [write.keyed(key) for write, key in zip(writes, keys, strict=True)]
    first = asyncio.create_task(writes[0].outcome())
    await service.arrived("journeys.update", 1)
    second = asyncio.create_task(writes[1].outcome())
    await asyncio.sleep(0.1)
    await cancel(first)  # the second one waits for its windows, too
    return await second


def check_waited(outcome):
    """Check the times by the history, which begins once the write has its turn; all are of one clock."""
    assert outcome.applied
    span = outcome.history[-1].ended - outcome.history[0].started
    assert outcome.waited > 0
    assert outcome.took >= outcome.waited + span - ROUNDING


async def test_update_that_waited_for_nothing(service):
    """It took as long as its request, and that is all that is told."""
    hook = service.seed_webhook().id
    async with client_of(service) as client:
        outcome = await client.webhooks.update(hook, description="x").outcome()
    assert (outcome.verdict, outcome.waited) == (Verdict.APPLIED, 0.0)
    assert (
        outcome.took
        >= outcome.history[-1].ended - outcome.history[0].started - ROUNDING
        > 0
    )
    assert (
        f"  took {outcome.took:.3f} s from the call to the verdict\n"
        in outcome.explain()
    )


async def test_update_that_waited_for_an_earlier_one(service):
    """The wait is in both times, the story says so, and both are in each form of it."""
    async with client_of(service) as client:
        outcome = await second_of_two(service, client, client)
    check_waited(outcome)
    told = f"took {outcome.took:.3f} s from the call to the verdict; {outcome.waited:.3f} s of that it waited"
    assert told in outcome.explain()
    back = Outcome.from_json(outcome.to_json())
    assert (back.took, back.waited) == (outcome.took, outcome.waited)


@pytest.mark.steady_time
async def test_keyed_update_that_waited(service, address):  # noqa: F811 - a fixture
    """The same, and later runs get the times of the one that found the verdict."""
    async with client_of(service, journal=address) as client:
        outcome = await second_of_two(service, client, client, "one", "two")
        again = await client.outcome_of("two")
    check_waited(outcome)
    assert (again.took, again.waited) == pytest.approx(
        (outcome.took, outcome.waited), abs=0.001
    )


@pytest.mark.steady_time
async def test_keyed_update_that_waited_for_another_process(service, shared):  # noqa: F811 - a fixture
    """The other one has the thing: that is a wait for an earlier write, too."""
    journal = f"{shared}0"
    async with (
        client_of(service, journal=journal) as one,
        client_of(service, journal=journal) as other,
    ):
        check_waited(await second_of_two(service, one, other, "one", "two"))


async def test_result_of_a_batch(service, tmp_path):
    """Its seconds are those of the outcome."""
    async with (
        client_of(service) as client,
        Batch.open(tmp_path / "run.db", client) as batch,
    ):
        [result] = await all_of(batch, creates(client, 1))
    assert result.seconds == pytest.approx(result.outcome.took, abs=0.001)
    assert result.seconds > 0
