"""A rate of a client: when its new writes begin, in virtual time, and what does not wait for it."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ConfigurationError, Verdict
from invsvc_async.batch import Batch
from tests.batch.writing import SECRETS, all_of, creates
from tests.faults.conftest import client_of

RATE = 2.0
CLOSE = 0.2  # s by which virtual times may differ
HOOK = {"events": ["invoice.created"]}


def times_of(service, operation="webhooks.create"):
    """Return when they took effect, in s since the first one."""
    arrived = [each.received_at for each in service.ledger.effects(operation)]
    return [each - arrived[0] for each in arrived]


@pytest.mark.parametrize("keyed", [False, True])
async def test_new_writes_are_spread_evenly(service, tmp_path, keyed):
    """
    Six at once begin half a second apart, also of different views, and `waited` tells for how long each did.

    They are not to one thing, so with keys, whose entries a thread stores, any may be the next one.
    """
    settings = {"rate": RATE, "journal": tmp_path / "calls.db", "on_secret": print}
    async with client_of(service, **settings) as client:
        views = [client, client.with_options(team=None)]
        urls = [f"https://me.example/{number}" for number in range(6)]
        writes = [
            views[number % 2].webhooks.create(url=url, **HOOK)
            for number, url in enumerate(urls)
        ]
        if keyed:
            writes = [write.keyed(url) for write, url in zip(writes, urls, strict=True)]
        outcomes = await asyncio.gather(*(write.outcome() for write in writes))
    assert times_of(service) == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5], abs=CLOSE)
    waited = {url: each.waited for url, each in zip(urls, outcomes, strict=True)}
    in_order = [each.body["url"] for each in service.ledger.effects()]
    assert sorted(in_order) == urls
    assert [waited[url] for url in in_order] == pytest.approx(
        [0, 0.5, 1, 1.5, 2, 2.5], abs=CLOSE
    )


async def test_writes_to_one_thing_keep_their_order(service):
    """The rate does not let a later update pass an earlier one."""
    service.seed_journey(id="jrn_1")
    async with client_of(service, rate=20.0) as client:
        names = [f"name {number}" for number in range(8)]
        updates = [client.journeys.update("jrn_1", name=name) for name in names]
        await asyncio.gather(*updates)
    assert [each.body["name"] for each in service.ledger.effects()] == names


async def test_what_the_rate_does_not_hold(service, tmp_path):
    """Reads, and what is sent again, begin at once, and so do the writes of a batch."""
    service.script("webhooks.create", "503", "pass")
    async with client_of(service, rate=0.01) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.webhooks.create(url="https://me.example/0", **HOOK)
        await client.webhooks.list()
        async with Batch.open(tmp_path / "run.db", client, **SECRETS) as batch:
            assert len(await all_of(batch, creates(client, 5))) == 5
        assert loop.time() - began < 20
    assert len(service.ledger.effects("webhooks.create")) == 6


async def test_cancelled_while_it_waits(service):
    """Nothing was sent, nothing is kept of it, and the next write takes the turn after."""
    async with client_of(service, rate=RATE) as client:
        await client.webhooks.create(url="https://me.example/0", **HOOK)
        waiting = asyncio.create_task(
            client.webhooks.create(url="https://me.example/1", **HOOK).outcome()
        )
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not client.unsettled
        await client.webhooks.create(url="https://me.example/2", **HOOK)
    assert times_of(service) == pytest.approx([0, 1.0], abs=CLOSE)


async def test_closed_while_a_write_waits(service):
    """It is not sent, and says that the client was closed."""
    client = client_of(service, rate=0.01)
    await client.webhooks.create(url="https://me.example/0", **HOOK)
    waiting = asyncio.create_task(
        client.webhooks.create(url="https://me.example/1", **HOOK).outcome()
    )
    await asyncio.sleep(0.1)
    await client.aclose()
    with pytest.raises(ConfigurationError, match="closed"):
        await waiting
    assert service.ledger.arrivals("webhooks.create") == 1


async def test_awaited_again_after_it_was_sent(service):
    """A write that goes on is no new one: it does not wait for the rate again."""
    async with client_of(service, rate=0.01) as client:
        service.script("webhooks.create", "apply, then hang 9")
        write = client.webhooks.create(url="https://me.example/0", **HOOK)
        running = asyncio.create_task(write.outcome())
        await service.arrived("webhooks.create")
        running.cancel()
        await asyncio.wait([running])
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = await write.outcome()
        assert loop.time() - began < 20
    assert outcome.verdict is Verdict.APPLIED
    assert service.ledger.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan"), "2", True])
def test_no_rate(service, rate):
    """A rate is a positive number."""
    with pytest.raises(ConfigurationError, match="rate: must be a number"):
        client_of(service, rate=rate)
