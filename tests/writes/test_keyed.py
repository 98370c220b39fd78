"""A write under a key of the user's own, by a client without a journal."""

import asyncio

import pytest

from invsvc_async import (
    Batch,
    ConfigurationError,
    Intent,
    InvalidRequestError,
    KeyConflictError,
    Verdict,
)
from tests.batch.conftest import client_of
from tests.durable.writing import cut_off

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
REFUSAL = r"webhooks\.create: .*'order-17'.*journal='calls\.db'.*a batch or an outbox\."


async def by_await(write):
    """Await it."""
    await write


async def by_outcome(write):
    """Ask for its outcome."""
    await write.outcome()


async def by_task(write):
    """Run it as a task."""
    await asyncio.create_task(write)


@pytest.mark.parametrize("run", [by_await, by_outcome, by_task])
async def test_keyed_write_is_refused_before_anything_is_sent(service, client, run):
    """Two processes that await one would have two effects, so the error names what stores keys."""
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=REFUSAL):
            await run(client.webhooks.create(**HOOK).keyed("order-17"))
    assert (service.arrivals(), [*client.unsettled]) == (0, [])


async def test_keyed_intent_is_settled_and_not_resumed(service, client, tmp_path):
    """A batch has it: sent again beside that, it would have no order and no second verdict."""
    service.script("webhooks.create", "apply, then hang")
    async with Batch.open(tmp_path / "run.db", client) as batch:
        write = (
            client.webhooks.create(**HOOK).with_policy(deadline=1.0).keyed("order-17")
        )
        [result] = [each async for each in batch.run([write])]
    intent = Intent.from_json(result.outcome.intent.to_json())

    with pytest.raises(ConfigurationError, match=REFUSAL):
        await client.resume(intent)
    assert (await client.settle(intent)).applied
    assert service.arrivals("webhooks.create") == 1


async def test_refused_write_still_goes_to_a_batch(service, client, tmp_path):
    """The refusal has not used it up."""
    write = client.webhooks.create(**HOOK).keyed("order-17")
    with pytest.raises(ConfigurationError):
        await write
    async with Batch.open(tmp_path / "run.db", client) as batch:
        [result] = [each async for each in batch.run([write])]
    assert (result.key, result.applied) == ("order-17", True)


class OfTheApplication(dict):
    """A journal that is a dict of intents, so that its ``keys`` is a method."""

    async def open(self):
        pass

    async def sending(self, intent):
        self[intent.identity] = intent

    def shelved(self, intent, *, sent):
        pass

    async def settled(self, outcome):
        self.pop(outcome.started_as.identity, None)

    def heard(self, identity):
        pass

    async def open_intents(self):
        for intent in [*self.values()]:
            yield intent

    async def unheard(self):
        for outcome in ():
            yield outcome

    async def aclose(self):
        pass


async def test_journal_whose_keys_mean_something_else(service):
    """A key is refused as without a journal, and what is left is recovered."""
    journal = OfTheApplication()
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=journal) as client:
        with pytest.raises(ConfigurationError, match=REFUSAL):
            await client.webhooks.create(**HOOK).keyed("order-17")
        with pytest.raises(ConfigurationError, match="keeps no keys"):
            await client.outcome_of("order-17")
        await cut_off(service, client.webhooks.create(**HOOK))
        assert [outcome.verdict for outcome in await client.recover()] == [
            Verdict.APPLIED
        ]


async def as_line(write, _client, _folder):
    """Write it as a line for another process."""
    write.to_line()


async def under_another_policy(write, _client, _folder):
    """Change its policy."""
    await write.with_policy(deadline=60.0).outcome()


async def under_another_key(write, _client, _folder):
    """Give it another key."""
    await write.keyed("order-18").outcome()


async def in_a_batch(write, client, folder):
    """Give it to a batch, which has a journal of its own."""
    async with Batch.open(folder / "batch.db", client) as batch:
        _ = [result async for result in batch.run([write])]


WAYS = [as_line, under_another_policy, under_another_key, in_a_batch]
NOT_TWICE = r"(under way|have not begun|would send it again)"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", ["under way", "cancelled"])
async def test_keyed_write_that_has_begun_is_not_handed_on(
    service, tmp_path, moment, way
):
    """As one without a key: what was sent here is not sent there, too."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        write = client.webhooks.create(**HOOK).keyed("order-17")
        service.script("webhooks.create", "apply, then slow 0.3")
        running = asyncio.create_task(write.outcome())
        await service.arrived("webhooks.create")
        if moment == "cancelled":
            running.cancel()
            await asyncio.wait([running])
        with pytest.raises((ConfigurationError, InvalidRequestError), match=NOT_TWICE):
            await way(write, client, tmp_path)
        if moment == "under way":
            assert "under way" in repr(write)
        outcome = await write.outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_keyed_write_that_is_refused_can_be_handed_on(service, tmp_path, way):
    """Nothing of it was sent, because another write has its key."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        await client.webhooks.create(**HOOK, description="other").keyed("order-17")
        write = client.webhooks.create(**HOOK).keyed("order-17")
        with pytest.raises(KeyConflictError):
            await write
        if way is under_another_policy:
            with pytest.raises(KeyConflictError):
                await way(write, client, tmp_path)
        else:
            await way(write, client, tmp_path)
