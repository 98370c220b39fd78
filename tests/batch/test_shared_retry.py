"""Writes that are made to do again while others are under way, here or elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Timeouts, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_end, all_of


@pytest.fixture
async def client(service):
    """Yield a client that waits for answers also on a slow machine."""
    async with client_of(service, timeout=Timeouts(attempt=30.0)) as made:
        yield made


def refused(client, n):
    """Make keyed updates of hooks that there are not."""
    return [client.webhooks.update(f"wh_none{i}", description="x").keyed(f"row-{i}") for i in range(n)]


async def test_retry_while_results_wait_to_be_taken(client, journal):
    """Writes made to do again while their first results are not taken are done again, and both results come."""
    verdicts, more = [], asyncio.Event()

    async def source():
        for write in refused(client, 30):
            yield write
        await more.wait()

    async with Batch.open(journal, client) as batch:
        async for result in batch.run(source()):
            verdicts.append(result.verdict)
            if len(verdicts) == 1:
                await all_end(batch, 30)
                assert await batch.retry(verdict=Verdict.REFUSED) == 30
                await all_end(batch, 30)
                more.set()
    assert verdicts == [Verdict.REFUSED] * 60


@pytest.mark.one_python
async def test_retry_of_many(client, journal):
    """What is to do again is told in number, and all of it is done."""
    async with Batch.open(journal, client) as batch:
        await all_of(batch, refused(client, 450))
        assert await batch.retry(verdict=Verdict.REFUSED) == 450
        assert await batch.retry(verdict=Verdict.REFUSED) == 0
        assert len(await all_of(batch)) == 450


async def test_retry_of_a_text_that_json_of_the_database_cannot_hold(service, client, journal):
    """A body with a null character, which PostgreSQL's JSON does not take, is to do again like any other."""
    service.script("sheets.save_mapping", "400")
    async with Batch.open(journal, client) as batch:
        [first] = await all_of(batch, [client.sheets.save_mapping({"a": "x\x00y"})])
        assert await batch.retry(verdict=first.verdict) == 1
        [second] = await all_of(batch)
    assert [first.verdict, second.verdict] == [Verdict.REFUSED, Verdict.APPLIED]
    assert service.ledger.effects()[0].body == {"fields": {"a": "x\x00y"}}


async def test_retry_of_a_thing_that_is_written_to(service, client, shared):
    """A write made to do again while later ones of its thing are under way is not sent after them, anywhere."""
    hook = service.seed_webhook()
    service.script("webhooks.update", "400", "slow 0.5", "slow 0.5")
    writes = [client.webhooks.update(hook.id, description=text).keyed(text) for text in "ABC"]
    async with (
        client_of(service) as other,
        Batch.open(shared, client) as one,
        Batch.open(shared, other) as two,
    ):
        running = asyncio.create_task(all_of(one, writes))
        await service.arrived("webhooks.update", 2)
        assert await two.retry(verdict=Verdict.REFUSED) == 1
        first, second = await asyncio.gather(running, all_of(two))
    sent = [entry for entry in service.ledger.entries if entry.operation == "webhooks.update"]
    assert [entry.body["description"] for entry in sent] == ["A", "B", "C"]
    assert sent[2].received_at >= sent[1].applied_at
    again = [result for result in (*first, *second) if result.key == "A"][-1]
    assert again.verdict is Verdict.NOT_APPLIED
    assert "a newer write of this program" in again.message
