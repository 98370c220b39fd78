"""How long a write took from the call to its verdict, and how much of that it waited for others."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Outcome, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_of
from tests.durable.conftest import address, shared  # noqa: F401 - pytest finds them by name

HELD = 0.5  # s that the first of two writes is not answered


async def two(service, client, *keys):
    """Send an update that is not answered for a while, then another of the same thing; return both outcomes."""
    service.seed_journey(id="jrn_1")
    await client.journeys.get("jrn_1")
    service.script("journeys.update", f"hang {HELD}")
    writes = [client.journeys.update("jrn_1", name=name) for name in ("one", "two")]
    if keys:
        writes = [write.keyed(key) for write, key in zip(writes, keys, strict=True)]
    first = asyncio.create_task(writes[0].outcome())
    await service.arrived("journeys.update", 1)
    second = await writes[1].outcome()
    return await first, second


async def test_update_that_waited_for_an_earlier_one(service):
    """The wait is in both times, and the story says so."""
    async with client_of(service) as client:
        first, second = await two(service, client)
    assert {first.verdict, second.verdict} == {Verdict.APPLIED}
    assert first.took >= HELD / 2
    assert first.waited == 0.0
    assert HELD / 2 < second.waited <= second.took
    assert f"took {first.took:.3f} s from the call to the verdict\n" in first.explain()
    told = f"took {second.took:.3f} s from the call to the verdict; {second.waited:.3f} s of that it waited"
    assert told in second.explain()
    back = Outcome.from_json(second.to_json())
    assert (back.took, back.waited) == (second.took, second.waited)


async def test_keyed_update_that_waited(service, address):  # noqa: F811 - a fixture
    """The same, and later runs get the times of the one that found the verdict."""
    async with client_of(service, journal=address) as client:
        _, second = await two(service, client, "one", "two")
        again = await client.outcome_of("two")
    assert HELD / 2 < second.waited <= second.took
    assert (again.took, again.waited) == pytest.approx((second.took, second.waited), abs=0.001)


async def test_keyed_update_that_waited_for_another_process(service, shared):  # noqa: F811 - a fixture
    """The other one has the thing: that is a wait for an earlier write, too."""
    journal = f"{shared}0"
    async with client_of(service, journal=journal) as one, client_of(service, journal=journal) as other:
        service.seed_journey(id="jrn_1")
        for client in (one, other):
            await client.journeys.get("jrn_1")
        service.script("journeys.update", f"hang {HELD}")
        first = asyncio.create_task(one.journeys.update("jrn_1", name="one").keyed("one").outcome())
        await service.arrived("journeys.update", 1)
        second = await other.journeys.update("jrn_1", name="two").keyed("two").outcome()
        await first
    assert second.applied
    assert HELD / 2 < second.waited <= second.took


async def test_result_of_a_batch(service, tmp_path):
    """Its seconds are those from the start of the write."""
    service.script("webhooks.create", f"hang {HELD}")
    async with client_of(service) as client, Batch.open(tmp_path / "run.db", client) as batch:
        write = client.webhooks.create(url="https://me.example/1", events=["invoice.created"]).keyed("k")
        [result] = await all_of(batch, [write])
    assert result.seconds >= HELD / 2
