"""A webhook of a batch whose secret was lost, replaced in the run that made it, after a kill, and by the command."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Batch, InvalidRequestError
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.resources.replacing import POLICY
from tests.resources.test_lost_secrets import (
    LOST,
    MOST_STEPS,
    Kept,
    check_one_with_secret,
    child_of,
    living,
)

URL = "https://me.example/0"


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
async def client(service, kept, tmp_path):
    settings = {"journal": tmp_path / "calls.db", "reconcile": POLICY}
    async with client_of(service, on_secret=kept, **settings) as made:
        yield made


async def test_result_of_the_run_that_made_it(service, client, kept, journal):
    """The result is enough; the batch then names the webhook in its place."""
    service.script("webhooks.create", LOST)
    async with Batch.open(journal, client, on_secret=kept) as batch:
        [result] = await all_of(batch, creates(client, 1))
        hook = await client.webhooks.replace_lost(result)
        [told] = [each async for each in batch.results()]
        outcome = await batch.get("row-0")
        summary = await batch.summary()

    assert living(service, URL) == [hook.id]
    assert kept.calls == [("row-0", hook.id)]
    assert (told.thing, told.secret, told.replaced_by) == (
        result.thing,
        "lost",
        hook.id,
    )
    assert hook.id in outcome.message
    assert (summary.secrets_lost, summary.secrets_replaced) == (0, 1)


@pytest.mark.parametrize("takes", [True, False])
async def test_result_that_is_told_again(service, client, kept, journal, takes):
    """After a kill, the result that nobody took has all that is needed, also where it had the secret itself."""
    if takes:
        service.script("webhooks.create", LOST)
    settings = {"on_secret": kept} if takes else {}
    async with Batch.open(journal, client, **settings) as batch:
        async for _untaken in batch.run(creates(client, 1)):
            break
    async with Batch.open(journal, client, **settings) as batch:
        [again] = await all_of(batch)
        hook = await client.webhooks.replace_lost(again)

    assert again.secret_lost
    assert living(service, URL) == [hook.id]
    assert kept.calls == [("row-0", hook.id)]


async def test_later_by_its_key(service, client, kept, journal):
    """The journal of the batch has what was asked for, for as long as it is not pruned; again sends nothing."""
    service.script("webhooks.create", LOST)
    async with Batch.open(journal, client, on_secret=kept) as batch:
        await all_of(batch, creates(client, 1))
    async with Batch.open(journal, client, on_secret=kept) as batch:
        outcome = await batch.get("row-0")
        hook = await client.webhooks.replace_lost(outcome)
        sent = len(service.ledger.entries)
        again = await client.webhooks.replace_lost(await batch.get("row-0"))
        assert len(service.ledger.entries) == sent
        await batch.entries.prune(2**52)
        [pruned] = [each async for each in batch.results()]
        with pytest.raises(InvalidRequestError):
            await client.webhooks.replace_lost(pruned)

    assert (again.id, again.secret) == (hook.id, None)
    assert living(service, URL) == [hook.id]
    assert len(service.ledger.entries) == sent


async def test_many_at_once(service, client, kept, journal):
    """All who replace it get the one webhook, of which one call got the secret."""
    service.script("webhooks.create", LOST)
    async with Batch.open(journal, client, on_secret=kept) as batch:
        [result] = await all_of(batch, creates(client, 1))
        hooks = await asyncio.gather(
            *(client.webhooks.replace_lost(result) for _ in range(8))
        )
    assert {each.id for each in hooks} == {*living(service, URL)}
    assert len(kept.calls) == 1


async def test_taken_or_unwanted_secret_is_not_replaced(service, client, kept, journal):
    """Who took the result has the secret; nothing is deleted."""
    async with Batch.open(journal, client) as batch:
        [result] = await all_of(batch, creates(client, 1))
        assert result.secret == "returned"
        with pytest.raises(InvalidRequestError):
            await client.webhooks.replace_lost(result)
        with pytest.raises(InvalidRequestError):
            await client.webhooks.replace_lost(await batch.get("row-0"))
    assert living(service, URL) == [result.thing]


# --- kills


@pytest.mark.untraced
async def test_killed_at_each_step(service, tmp_path):
    """Whatever was done by then, the next run of the batch ends with one webhook, whose secret was kept."""
    for last in range(1, MOST_STEPS):
        url = f"{URL}/{last}"
        batch = tmp_path / f"{last}.batch"
        service.script("webhooks.create", LOST)
        child = await child_of(service, tmp_path, url, last, batch)
        ended_by_itself = await child.wait() == 0
        if not ended_by_itself:
            again = await child_of(service, tmp_path, url, last, batch, is_again=True)
            assert await again.wait() == 0
        check_one_with_secret(service, tmp_path, url, last)
        if ended_by_itself:
            break
    assert 12 < last < MOST_STEPS - 1
