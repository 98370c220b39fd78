"""``client.settle`` of an intent that has a key: the journal has the verdict before the application has it."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import attrs
import pytest

from invsvc_async import Timeouts, Verdict
from tests.batch.conftest import POLICY, client_of
from tests.durable.test_keys_seen_before import late
from tests.durable.writing import cut_off
from tests.support.database import database
from tests.support.waiting import cancel


@pytest.fixture
def database_journal(request):
    name = sha256(request.node.name.encode()).hexdigest()[:12]
    return f"{database().address}&journal=settled_{name}"


@pytest.fixture(params=["file", "database"])
def journal(request, tmp_path):
    if request.param == "file":
        return tmp_path / "calls.db"
    return request.getfixturevalue("database_journal")


def renamed(client, name):
    return client.journeys.update("jrn_1", name=name).keyed(name)


async def cut(service, write, operation="journeys.update"):
    """Await *write* until it has arrived, and then no more."""
    service.script(operation, "apply, then hang")
    before = service.arrivals(operation)
    awaiting = asyncio.create_task(write.outcome())
    await service.arrived(operation, before + 1)
    await cancel(awaiting)


def names(service):
    return [entry.body["name"] for entry in service.ledger.effects("journeys.update")]


async def test_verdict_is_stored_under_the_key(service, journal):
    """The next process has it, even if somebody undoes the write in between."""
    async with client_of(service, journal=journal) as client:
        await cut(service, renamed(client, "Alpha"))
        [intent] = client.unsettled
        assert (await client.settle(intent)).applied
        assert (await client.outcome_of("Alpha")).applied
        assert not client.unsettled
    async with client_of(service) as person:
        await person.journeys.update("jrn_1", name="Before")
    async with client_of(service, journal=journal) as client:
        again = await renamed(client, "Alpha").outcome()
    assert (again.applied, again.replayed) == (True, True)
    assert names(service) == ["Alpha", "Before"]


@pytest.mark.parametrize("key", ["Alpha", "Beta"])
async def test_next_write_after_it(service, journal, key):
    """It ends, and so does the same write again."""
    async with client_of(service, journal=journal) as client:
        await cut(service, renamed(client, "Alpha"))
        await client.settle(client.unsettled[0])
        assert (await renamed(client, key).outcome()).applied
    assert names(service) == ["Alpha", "Beta"][: 1 + (key == "Beta")]


async def test_what_was_unknown(service, journal):
    """Its new verdict replaces the old one."""
    async with client_of(service, journal=journal) as client:
        service.script("journeys.update", "apply, then reset")
        service.script("journeys.get", *["503"] * 6)
        first = await renamed(client, "Alpha").with_policy(deadline=0.3).outcome()
        assert first.verdict is Verdict.UNKNOWN
        assert (await client.settle(first.intent)).applied
        assert (await client.outcome_of("Alpha")).applied
    assert names(service) == ["Alpha"]


async def test_verdict_that_another_run_has_found(service, journal):
    """A run under the key that uses it stores it."""
    async with client_of(service, journal=journal) as client:
        await cut(service, renamed(client, "Alpha"))
        [intent] = client.unsettled
        settling = [asyncio.create_task(client.settle(intent)) for _ in range(2)]
        running = asyncio.create_task(renamed(client, "Alpha").outcome())
        outcomes = [*await asyncio.gather(*settling), await running]
        assert all(each.applied for each in outcomes)
        assert (await client.outcome_of("Alpha")).applied
    assert names(service) == ["Alpha"]


def created(client):
    return client.webhooks.create(
        url="https://me.example/a", events=["invoice.created"]
    ).keyed("Alpha")


def renamed_to_alpha(client):
    return renamed(client, "Alpha")


@pytest.mark.parametrize(
    ("operation", "made"),
    [("journeys.update", renamed_to_alpha), ("webhooks.create", created)],
)
async def test_intent_of_a_run_before_the_last_one(service, journal, operation, made):
    """Its write was done anew under the key, so the verdict of that run is the one."""
    async with client_of(service, journal=journal) as client:
        service.script(operation, "hang")
        running = asyncio.create_task(made(client).outcome())
        await service.arrived(operation)
        await cancel(running)
        [intent] = client.unsettled
        assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
        assert (await made(client).outcome()).applied
        assert not client.unsettled
    async with client_of(service) as person:
        await person.journeys.update("jrn_1", name="Before")
    async with client_of(service, journal=journal) as client:
        settled = await client.settle(intent)
    assert settled.applied, settled.explain()
    again = 1 + (operation == "journeys.update")  # a person's
    assert len(service.ledger.effects(operation)) == again


@pytest.mark.parametrize(
    ("since", "said"),
    [("zzzzz 99", "answered so to a re-send"), ("wanted text", "matched before")],
)
async def test_state_before_an_intent_that_is_sent_anew(service, journal, since, said):
    """It is read again: what somebody has written since the first run was not written over that one."""
    hook = service.seed_webhook(description="old words").id
    async with client_of(service, journal=journal) as client:
        await client.webhooks.get(hook)
        update = client.webhooks.update(hook, description="wanted text").keyed("k")
        service.script("webhooks.update", "hang")
        await cut_off(service, update)
        [intent] = client.unsettled
        assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
    async with client_of(service) as person:
        await person.webhooks.update(hook, description=since)
    async with client_of(service, journal=journal) as client:
        await client.journeys.get("jrn_1")  # so that the service's clock is known
        service.script("webhooks.update", "reset")
        outcome = await client.resume(intent).outcome()
    assert outcome.applied, outcome.explain()
    assert said in outcome.message


async def test_intent_that_another_process_has_settled(service, database_journal):
    """A run under its key that does it anew has its verdict, so the client has it no longer as unsettled."""
    async with (
        client_of(service, journal=database_journal) as one,
        client_of(service, journal=database_journal) as other,
    ):
        service.script("webhooks.create", "hang")
        running = asyncio.create_task(created(one).outcome())
        await service.arrived("webhooks.create")
        await cancel(running)
        [intent] = one.unsettled
        assert (await other.settle(intent)).verdict is Verdict.NOT_APPLIED
        assert (await created(one).outcome()).applied
        assert not one.unsettled
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_intent_settles_another_write(service, journal):
    """If its key has another write by now, that one is left as it is."""
    async with client_of(service, journal=journal) as client:
        await cut(service, renamed(client, "Alpha"))
        [intent] = client.unsettled
        await client.resolve(intent, applied=False, because="it was undone")
        assert await client.forget("Alpha")
        await client.journeys.update("jrn_1", name="Beta").keyed("Alpha").outcome()
        assert (await client.settle(intent)).intent.identity == intent.identity
        assert (await client.outcome_of("Alpha")).value.name == "Beta"


def created(client):
    return client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    ).keyed("k")


async def test_intent_whose_key_is_run_by_another_process_meanwhile(
    service, database_journal
):
    """The verdict is that of the run, which has sent the write again."""
    settings = {
        "journal": database_journal,
        "timeout": Timeouts(attempt=2.0),
        "reconcile": attrs.evolve(POLICY, settle_after_loss=2.0, reads_lag=0.0),
    }
    async with (
        asyncio.timeout(300),
        client_of(service, **settings) as client,
        client_of(service, **settings) as other,
    ):
        # Nothing comes of the first send any more when the second one arrives.
        service.script("webhooks.create", "hang", "late 1, then reset")
        await cut_off(service, created(client))
        [intent] = client.unsettled
        run = asyncio.create_task(created(other).outcome())
        await service.arrived("webhooks.create", 2)
        outcomes = [await client.settle(intent), await run]
    is_same_effect(service, outcomes)


async def test_intent_whose_key_is_run_by_this_process_meanwhile(
    service, database_journal, monkeypatch
):
    """The same, if the run is about to acquire the entry when the settling begins."""
    brief = Timeouts(attempt=0.5)
    async with (
        asyncio.timeout(300),
        client_of(service, journal=database_journal, timeout=brief) as client,
    ):
        service.script("webhooks.create", "hang")
        await cut_off(service, created(client))
        [intent] = client.unsettled
        with late(client, monkeypatch, "_take") as taking:
            run = asyncio.create_task(created(client).outcome())
            await taking.reached.wait()
            settling = asyncio.create_task(client.settle(intent))
            # sleeps: a settling beside the run would end
            await asyncio.wait([settling], timeout=3)
            taking.go_on.set()
            outcomes = await asyncio.gather(settling, run)
    is_same_effect(service, outcomes)


async def not_applied_at_first(service, client):
    """Return the intent of a run of the key that had no effect, as another run has found."""
    service.script("webhooks.create", "hang")
    await cut_off(service, created(client))
    [intent] = client.unsettled
    assert (await client.settle(intent)).verdict is Verdict.NOT_APPLIED
    return intent


async def test_earlier_intent_while_another_process_does_it_anew(
    service, database_journal
):
    """The later run counts, since it may have an effect."""
    async with (
        asyncio.timeout(300),
        client_of(service, journal=database_journal) as client,
        client_of(service, journal=database_journal) as other,
    ):
        intent = await not_applied_at_first(service, client)
        service.script("webhooks.create", "late 1, then reset")
        run = asyncio.create_task(created(other).outcome())
        await service.arrived("webhooks.create", 2)
        outcomes = [await client.settle(intent), await run]
    is_same_effect(service, outcomes)


@pytest.mark.parametrize(
    ("fate", "verdict"),
    [("apply, then hang", Verdict.APPLIED), ("hang", Verdict.NOT_APPLIED)],
)
async def test_earlier_intent_after_a_later_run_was_cut_off(
    service, journal, fate, verdict
):
    """What that has sent is settled first."""
    async with asyncio.timeout(300), client_of(service, journal=journal) as client:
        intent = await not_applied_at_first(service, client)
        service.script("webhooks.create", fate)
        running = asyncio.create_task(created(client).outcome())
        await service.arrived("webhooks.create", 2)
        await cancel(running)
        assert (await client.settle(intent)).verdict is verdict
        assert not client.unsettled
    assert len(service.ledger.effects("webhooks.create")) == (fate != "hang")


async def test_earlier_intent_after_a_later_run_is_unknown(service, journal):
    """That is settled first, too."""
    async with asyncio.timeout(300), client_of(service, journal=journal) as client:
        intent = await not_applied_at_first(service, client)
        service.script("webhooks.create", "apply, then reset")
        service.script("webhooks.list", "hang")
        later = await created(client).with_policy(deadline=2.0).outcome()
        assert later.verdict is Verdict.UNKNOWN
        outcomes = [await client.settle(intent), await created(client).outcome()]
    is_same_effect(service, outcomes)


async def test_earlier_intent_of_a_journal_before(service, tmp_path):
    """A later run that was refused says nothing about it."""
    async with client_of(service, journal=tmp_path / "before.db") as client:
        service.script("webhooks.create", "apply, then hang")
        await cut_off(service, created(client))
        [intent] = client.unsettled
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        service.script("webhooks.create", "422")
        assert (await created(client).outcome()).verdict is Verdict.REFUSED
        assert (await client.settle(intent)).applied


def is_same_effect(service, outcomes):
    """Check that *outcomes* tell of the one webhook that was made."""
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2, [
        each.explain() for each in outcomes
    ]
    [effect] = service.ledger.effects("webhooks.create")
    assert {each.value.id for each in outcomes} == {effect.target}
