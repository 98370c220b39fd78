"""Untagged creates in doubt, beside webhooks that other processes made, whose claims are not under their URL."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Batch, JournalError, Verdict
from invsvc_async.durable.keyed_run import KeyedRun
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import run_all
from tests.durable.test_restored import SOON
from tests.durable.writing import create, cut_off

pytestmark = pytest.mark.one_python

OTHER = "https://other.example/in"


def made(service):
    """Return the ids of what was created, by the URL with which it was."""
    return {
        entry.body["url"]: entry.target
        for entry in service.ledger.effects("webhooks.create")
    }


async def left_without_effect(service, address, key="k1"):
    """Send a create in a process that ends before its answer; it has no effect."""
    service.script("webhooks.create", "hang", "pass")
    async with client_of(service, journal=address, timeout=SOON) as client:
        await client.webhooks.list()
        write = client.webhooks.create(**HOOK, tag=False)
        await cut_off(service, write if key is None else write.keyed(key))


async def edited_since(service, address):
    """Create a webhook for another URL in a process of its own, and give it the URL of the first create."""
    async with client_of(service, journal=address, timeout=SOON) as client:
        other = await create(client, "k2", tag=False, url=OTHER)
    service.change_webhook(other.id, url=HOOK["url"])
    return other.id


@pytest.mark.parametrize("by", ["a keyed update", "somebody else"])
async def test_webhook_that_another_process_made_for_another_url(service, address, by):
    """The answer gave it to that create, whatever its URL is now: this one is sent again."""
    await left_without_effect(service, address)
    if by == "somebody else":
        other = await edited_since(service, address)
    else:
        async with client_of(service, journal=address, timeout=SOON) as client:
            other = (await create(client, "k2", tag=False, url=OTHER)).id
            await client.webhooks.update(other, url=HOOK["url"]).keyed("k3")
    async with client_of(service, journal=address, timeout=SOON) as client:
        outcome = await create(client, "k1", tag=False).outcome()
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert made(service) == {OTHER: other, HOOK["url"]: outcome.value.id}


async def test_create_without_a_key_beside_a_webhook_of_a_keyed_one(service, address):
    """The journal of the client has the claims of keyed creates, for those without a key, too."""
    await left_without_effect(service, address, key=None)
    await edited_since(service, address)
    async with client_of(service, journal=address, timeout=SOON) as client:
        [outcome] = await client.recover(same_mode=True)
    assert outcome.verdict is Verdict.NOT_APPLIED, outcome.explain()


async def test_batch_beside_a_webhook_of_an_earlier_run(service, client, tmp_path):
    """The store of a batch has the claims of its creates, for those that a later run settles."""
    await client.webhooks.list()
    service.script("webhooks.create", "hang", "pass")
    async with Batch.open(tmp_path / "run.db", client, tag=False) as batch:
        writes = [create(client, "k1"), create(client, "k2", url=OTHER)]
        async for result in batch.run(writes):
            assert result.key == "k2"
            break
    other = result.outcome.value.id
    service.change_webhook(other, url=HOOK["url"])
    async with client_of(service) as second:
        verdicts = {
            each.key: each.verdict
            for each in await run_all(tmp_path / "run.db", second)
        }
    assert verdicts["k1"] is Verdict.APPLIED
    assert [
        entry.body["url"] for entry in service.ledger.effects("webhooks.create")
    ] == [
        OTHER,
        HOOK["url"],
    ]


async def test_claims_that_cannot_be_read(service, address, monkeypatch):
    """The list that was read is no evidence then: it is read again."""
    await left_without_effect(service, address)
    other = await edited_since(service, address)
    take, tried = KeyedRun.take_claims_on, []

    async def away_at_first(run, listed):
        tried.append(listed)
        if len(tried) == 1:
            raise JournalError("journal: it is away.")
        await take(run, listed)

    # reaches: a store that is away at this statement alone
    monkeypatch.setattr(KeyedRun, "take_claims_on", away_at_first)
    async with client_of(service, journal=address, timeout=SOON) as client:
        outcome = await create(client, "k1", tag=False).outcome()
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert made(service) == {OTHER: other, HOOK["url"]: outcome.value.id}
    assert tried[0] == [other]


async def test_raw_create_of_another_process(service, shared):
    """What its answer shows is claimed in the journal, too, although it waits for no other entry."""
    async with (
        client_of(service, journal=shared, timeout=SOON) as one,
        client_of(service, journal=shared, timeout=SOON) as other,
    ):
        for client in (one, other):
            await client.webhooks.list()
        service.script("webhooks.create", "hang", "pass")
        create_in_doubt = create(one, "k1", tag=False)
        running = asyncio.create_task(create_in_doubt.outcome())
        await service.arrived("webhooks.create", 1)
        raw = await other.write("POST", "/webhooks", json=HOOK).keyed("k2")
        outcome = await running
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert [entry.target for entry in service.ledger.effects("webhooks.create")] == [
        raw["id"],
        outcome.value.id,
    ]
