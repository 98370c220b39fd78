"""Writes under keys, and others without a key, to the same things in one journal: in their order, with true verdicts."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ReconcilePolicy, Verdict
from invsvc_async.durable.key_claims import Claims
from invsvc_async.durable.key_names import Namespaces
from tests.batch.conftest import client_of
from tests.durable.writing import cut_off
from tests.support.gate import gate
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, until

pytestmark = [pytest.mark.one_python, pytest.mark.silence(1)]

# The service applies what is late within the windows.
LATE = 1.0  # s
POLICY = ReconcilePolicy(
    settle_after_error=0.2,
    settle_after_loss=2.0,
    reads_lag=0.0,
    clock_slack=0.0,
    clock_band=0.0,
)


def opened(service, address):
    """Make the client of one process."""
    return client_of(service, journal=address, reconcile=POLICY)


def renaming(client, journey, name):
    return client.journeys.update(journey, name=name)


def toggling(client, hook, status):
    return client.webhooks.update(hook, status=status)


def applied(service, operation, field):
    """Return what took effect in *field*, in the order of the effects."""
    effects = sorted(
        service.ledger.effects(operation), key=lambda entry: entry.applied_at
    )
    return [entry.body[field] for entry in effects]


def is_shared(address):
    return isinstance(address, str)


def newest(journey):
    return lambda client: renaming(client, journey, "third").keyed("third")


async def has_entry(client, key):
    """Return whether the journal of *client* has an entry under *key*."""
    entries = await store_beneath(client).entries("true")
    return any(key in each.key for each in entries)


async def by_another(service, address, write):
    """Return the outcome of *write*, which is given the client of another process, after those before it."""
    async with opened(service, address) as client:
        return await write(client).outcome()


async def test_key_that_was_overtaken_by_a_write_without_one(service, address):
    """The newer write undoes what the key did: that is no reason to do it again, here or in another process."""
    hook = service.seed_webhook(status="active").id

    def keyed(client):
        return toggling(client, hook, "inactive").keyed("k")

    async with opened(service, address) as client:
        await client.webhooks.get(hook)
        service.script("webhooks.update", "apply, then hang")
        await cut_off(service, keyed(client))
        assert (await toggling(client, hook, "active").outcome()).applied
        here = await keyed(client).outcome()
    elsewhere = await by_another(service, address, keyed)
    for each in (here, elsewhere):
        assert (each.verdict, each.evidence.cause) == (
            Verdict.UNKNOWN,
            "perhaps overtaken",
        )
    assert applied(service, "webhooks.update", "status") == ["inactive", "active"]


async def test_change_of_the_program_itself_is_nobody_elses(service, address):
    """The key had no effect, and a later write without one had: nobody else has changed the journey."""
    journey = service.seed_journey(name="old").id

    def keyed(client):
        return renaming(client, journey, "first").keyed("k")

    async with opened(service, address) as client:
        await client.journeys.get(journey)
        service.script("journeys.update", "hang")
        await cut_off(service, keyed(client))
        assert (await renaming(client, journey, "second").outcome()).applied
    outcome = await by_another(service, address, keyed)
    assert outcome.verdict is Verdict.UNKNOWN
    assert applied(service, "journeys.update", "name") == ["second"]


async def test_key_that_was_refused_is_not_done_over_a_newer_write(service, address):
    """It is overtaken, whether the newer write has a key or not."""
    journey = service.seed_journey(name="old").id

    def keyed(client):
        return renaming(client, journey, "first").keyed("k")

    service.script("journeys.update", "409")
    async with opened(service, address) as client:
        assert (await keyed(client).outcome()).verdict is Verdict.REFUSED
        assert (await renaming(client, journey, "second").outcome()).applied
        outcome = await keyed(client).outcome()
    assert (outcome.verdict, outcome.evidence.cause) == (
        Verdict.NOT_APPLIED,
        "overtaken",
    )
    assert applied(service, "journeys.update", "name") == ["second"]


async def test_key_beside_a_write_that_is_in_doubt(service, address):
    """An older key is overtaken by it; a newer one of another process does not wait for whoever has it open."""
    journey = service.seed_journey(name="old").id

    def keyed(client, name):
        return renaming(client, journey, name).keyed(name)

    service.script("journeys.update", "409", "hang")
    async with opened(service, address) as client:
        assert (await keyed(client, "first").outcome()).verdict is Verdict.REFUSED
        await cut_off(service, renaming(client, journey, "second"))
        [left] = client.unsettled
        outcome = await keyed(client, "first").outcome()
        assert (outcome.verdict, outcome.evidence.cause) == (
            Verdict.NOT_APPLIED,
            "overtaken",
        )
        if is_shared(address):
            # Else it would wait for ever.
            async with asyncio.timeout(120):
                assert (await by_another(service, address, newest(journey))).applied
    outcome = await by_another(service, address, newest(journey))
    assert outcome.applied
    assert left.body["name"] == "second"
    assert applied(service, "journeys.update", "name") == ["third"]


async def test_key_that_is_newer_than_a_write_without_one(service, address):
    """A write that came before it overtakes nothing."""
    journey = service.seed_journey(name="old").id
    async with opened(service, address) as client:
        assert (await renaming(client, journey, "first").outcome()).applied
        service.script("journeys.update", "409")
        write = renaming(client, journey, "second").keyed("k")
        assert (await write.outcome()).verdict is Verdict.REFUSED
    outcome = await by_another(
        service,
        address,
        lambda client: renaming(client, journey, "second").keyed("k"),
    )
    assert outcome.applied
    assert applied(service, "journeys.update", "name") == ["first", "second"]


async def second_waits_for_first(service, address, first, second):
    """Check that *second*, of the next process, waits until *first*, left in doubt, can no longer take effect."""
    journey = service.seed_journey(name="old").id
    async with opened(service, address) as client:
        await client.journeys.get(journey)
        service.script("journeys.update", f"late {LATE}, then reset")
        await cut_off(service, first(renaming(client, journey, "first")))
    outcome = await by_another(
        service,
        address,
        lambda client: second(renaming(client, journey, "second")),
    )
    assert outcome.applied
    assert applied(service, "journeys.update", "name") == ["first", "second"]


def under_a_key(write):
    return write.keyed("k")


def without_one(write):
    return write


async def test_write_that_may_still_land_under_a_key(service, address):
    """A write without a key, in the next process, waits until the key's can no longer take effect."""
    await second_waits_for_first(service, address, under_a_key, without_one)


async def test_key_after_a_write_without_one_that_may_still_land(service, address):
    """A key, in the next process, waits until the write without one can no longer take effect."""
    await second_waits_for_first(service, address, without_one, under_a_key)


async def test_create_that_may_still_land_under_a_key(service, address):
    """A create without a key, of the same URL, does not take the webhook of the key for its own."""

    def create(client):
        return client.webhooks.create(
            url="https://me.example/in",
            events=["invoice.created"],
            tag=False,
            on_lost_secret="keep",
        )

    async with opened(service, address) as client:
        await client.webhooks.list()
        service.script("webhooks.create", f"late {LATE}, then reset", "reset")
        await cut_off(service, create(client).keyed("k"))
    async with opened(service, address) as client:
        await client.webhooks.list()
        outcome = await create(client).outcome()
        of_key = await create(client).keyed("k").outcome()
    first, second = service.ledger.effects("webhooks.create")
    assert (of_key.applied, of_key.value.id) == (True, first.target)
    assert (outcome.applied, outcome.value.id) == (True, second.target)


@pytest.mark.parametrize("end", ["closed", "cut off"])
@pytest.mark.parametrize("earlier_one", ["has a key", "is run again", "has none"])
async def test_write_without_a_key_after_one_that_may_still_land(
    service, address, earlier_one, end
):
    """It waits until the other one can have no effect any more, also if that is run again meanwhile."""
    journey = service.seed_journey(name="old").id
    service.script("journeys.update", f"late {LATE}, then reset")

    def earlier(client):
        write = renaming(client, journey, "earlier")
        return write if earlier_one == "has none" else write.keyed("k")

    async with opened(service, address) as client:
        if end == "closed":
            running = asyncio.create_task(earlier(client).outcome())
            await service.arrived("journeys.update")
        else:
            await cut_off(service, earlier(client))
    if end == "closed":
        assert (await running).verdict is Verdict.UNKNOWN
    async with opened(service, address) as client:
        later = asyncio.create_task(renaming(client, journey, "later").outcome())
        if earlier_one == "is run again":
            await asyncio.sleep(0)
            await earlier(client).outcome()
        assert (await later).applied
    assert applied(service, "journeys.update", "name") == ["earlier", "later"]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("order", ["without, with, without", "with, without, with"])
async def test_writes_of_both_kinds_at_once(service, address, order, is_known):
    """All take effect in the order in which they were begun, whatever has to be read before."""
    journey = service.seed_journey(name="old").id
    names = [f"{number} {kind}" for number, kind in enumerate(order.split(", "))]
    async with opened(service, address) as client:
        if is_known:
            assert (await renaming(client, journey, "0").outcome()).applied
        writes = [renaming(client, journey, name) for name in names]
        runs = [
            write.keyed(name) if name.endswith("with") else write
            for name, write in zip(names, writes, strict=True)
        ]
        outcomes = await asyncio.gather(*(each.outcome() for each in runs))
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * len(names)
    assert applied(service, "journeys.update", "name")[-len(names) :] == names


async def test_write_without_a_key_that_is_asked_for_as_a_key_before_it_ends(
    service, address
):
    """It takes effect after the one that has waited for that key."""
    journey = service.seed_journey(name="old").id
    async with opened(service, address) as client:
        assert (await renaming(client, journey, "0").outcome()).applied
        with gate(service, "journeys.update") as held:
            keyed = asyncio.create_task(
                renaming(client, journey, "1").keyed("1").outcome()
            )
            await until(lambda: held.held)
            waiting = asyncio.create_task(renaming(client, journey, "2").outcome())
            await client.journeys.get(journey)  # meanwhile it has begun to wait
        outcomes = [await keyed, await renaming(client, journey, "3").outcome()]
        outcomes.append(await waiting)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 3
    assert applied(service, "journeys.update", "name") == ["0", "1", "2", "3"]


async def test_writes_without_a_key_leave_nothing_of_their_things(service, address):
    """A journal in which no key is used does not grow with the things that are changed."""
    async with opened(service, address) as client:
        journeys = [service.seed_journey().id for _ in range(3)]
        await asyncio.gather(
            *(renaming(client, each, "new").outcome() for each in journeys)
        )
        rows = await store_beneath(client).rows("SELECT thing FROM {s}states")
    assert rows == []


@pytest.mark.parametrize("ends", ["answered", "cut off"])
async def test_key_that_another_process_claims_before_a_write_without_one_is_over(
    service, shared, monkeypatch, ends
):
    """The run goes on with the entry: a key for which that write waits may wait for the entry."""
    journey = service.seed_journey(name="old").id
    looked, may_claim = asyncio.Event(), asyncio.Event()
    claim, look = Claims.claim, Claims.look

    async def held_back(self, run, entry):
        if "third" in run.name:
            await may_claim.wait()
        return await claim(self, run, entry)

    async def noted(self, name, mine=None):
        found = await look(self, name, mine)
        if "second" in name:
            looked.set()
        return found

    def keyed(client, name):
        return renaming(client, journey, name).keyed(name)

    async with opened(service, shared) as one, opened(service, shared) as other:
        for client in (one, other):
            await client.journeys.get(journey)
        # reaches: nothing else makes a claim late
        monkeypatch.setattr(Claims, "claim", held_back)
        # reaches: nothing else tells that a run has looked
        monkeypatch.setattr(Claims, "look", noted)
        third = asyncio.create_task(keyed(one, "third").outcome())
        await asyncio.sleep(0)
        without = asyncio.create_task(renaming(one, journey, "fourth").outcome())
        await asyncio.sleep(0)
        second = asyncio.create_task(keyed(one, "second").outcome())
        await looked.wait()
        if ends == "cut off":
            service.script("journeys.update", "hang")
            await cut_off(service, keyed(other, "second"))
            may_claim.set()
        else:
            with gate(service, "journeys.update"):
                elsewhere = asyncio.create_task(keyed(other, "second").outcome())
                await service.arrived("journeys.update")
                may_claim.set()
                await until(lambda: has_entry(one, "third"))
            assert (await elsewhere).applied
        async with asyncio.timeout(300):
            outcomes = await asyncio.gather(second, third, without)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 3, [
        each.explain() for each in outcomes
    ]
    assert applied(service, "journeys.update", "name") == ["second", "third", "fourth"]


async def test_runs_of_a_key_that_need_different_time_to_find_its_name(
    service, address, monkeypatch
):
    """They take place in the order of their starts, since writes that start between them rely on that."""
    journey = service.seed_journey(name="old").id
    is_named, may_go = asyncio.Event(), asyncio.Event()
    name = Namespaces.name

    async def late_at_first(self, *given, **more):
        if not is_named.is_set():
            is_named.set()
            await may_go.wait()
        return await name(self, *given, **more)

    async with opened(service, address) as client:
        await client.outcome_of("none")
        # reaches: nothing else makes one run slower than the next one
        monkeypatch.setattr(Namespaces, "name", late_at_first)
        first = asyncio.create_task(renaming(client, journey, "a").keyed("k").outcome())
        await is_named.wait()
        without = asyncio.create_task(renaming(client, journey, "b").outcome())
        await asyncio.sleep(0)  # sleeps: it starts
        again = asyncio.create_task(renaming(client, journey, "a").keyed("k").outcome())
        await asyncio.sleep(0)  # sleeps: it starts
        may_go.set()
        async with asyncio.timeout(300):
            outcomes = await asyncio.gather(first, without, again)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 3
    assert applied(service, "journeys.update", "name") == ["a", "b"]


async def test_key_that_is_forgotten_and_run_again_as_another_one_looks_at_it(
    service, address, monkeypatch
):
    """The other one was behind it, and is ahead now: they do not wait for each other."""
    journey = service.seed_journey(name="old").id
    is_seen, may_go = asyncio.Event(), asyncio.Event()
    look = Claims.look

    def keyed(client, name):
        return asyncio.create_task(
            renaming(client, journey, name).keyed(name).outcome()
        )

    async def late_for_the_second(self, name, mine=None):
        is_of_second = asyncio.current_task() is second
        if is_of_second and "first" in name and not is_seen.is_set():
            is_seen.set()
            await may_go.wait()
        return await look(self, name, mine)

    async with opened(service, address) as client:
        with gate(service, "journeys.update") as before:
            zeroth = keyed(client, "zeroth")
            first = keyed(client, "first")
            second = keyed(client, "second")
            await until(lambda: before.held)
            await until(lambda: has_entry(client, "first"))
            await cancel(first)
            # reaches: nothing else makes the time between two statements longer
            monkeypatch.setattr(Claims, "look", late_for_the_second)
        assert (await zeroth).applied
        await is_seen.wait()
        assert await client.forget("first")
        again = keyed(client, "first")
        await until(lambda: has_entry(client, "first"))
        may_go.set()
        async with asyncio.timeout(300):
            outcomes = await asyncio.gather(second, again)
    assert [each.verdict for each in outcomes] == [Verdict.APPLIED] * 2
    assert applied(service, "journeys.update", "name") == ["zeroth", "second", "first"]
