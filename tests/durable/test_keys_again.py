"""A key that is run again: what its own earlier run left is no later write, and whether its sender has ended."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Verdict
from invsvc_async.reconcile.history import Resumed
from invsvc_async.writes import hanging
from tests.batch.conftest import POLICY, client_of
from tests.durable.writing import rename
from tests.support.gate import PATIENT, gate
from tests.support.inside import store_beneath
from tests.support.waiting import cancel, until

SHORT = attrs.evolve(POLICY, deadline=1.0)


async def left_unknown(service, path, journey, name):
    """Run a keyed update in a process that cannot read: its request is lost, and its verdict is UNKNOWN."""
    service.script("journeys.update", "reset")
    service.script("journeys.get", "pass", *["503"] * 200)
    async with client_of(service, journal=path, reconcile=SHORT) as client:
        outcome = await client.journeys.update(journey, name=name).keyed("k").outcome()
    service.scripts["journeys.get"].clear()
    assert outcome.verdict is Verdict.UNKNOWN


def effects(service):
    return [entry.body["name"] for entry in service.ledger.effects("journeys.update")]


async def test_unknown_update_that_is_run_again(service, tmp_path):
    """It was the last write to its thing, so that nothing has overtaken it: it is proven absent, and sent again."""
    journey, path = service.seed_journey(status="draft").id, tmp_path / "calls.db"
    await left_unknown(service, path, journey, "new")
    async with client_of(service, journal=path) as client:
        again = await client.journeys.update(journey, name="new").keyed("k").outcome()
    assert again.verdict is Verdict.APPLIED, again
    assert effects(service) == ["new"]


@pytest.mark.parametrize("newer", [True, False])
async def test_unknown_update_that_is_run_again_after_a_newer_one(
    service, tmp_path, newer
):
    """Where a newer write to its thing was applied, it is not sent over that; one to another thing changes nothing."""
    journey, other = (service.seed_journey(status="draft").id for _ in range(2))
    path = tmp_path / "calls.db"
    await left_unknown(service, path, journey, "old")
    async with client_of(service, journal=path) as client:
        await client.journeys.update(journey if newer else other, name="newer").keyed(
            "newer"
        )
        again = await client.journeys.update(journey, name="old").keyed("k").outcome()
    assert (again.verdict is Verdict.APPLIED) is not newer, again
    assert effects(service) == (["newer"] if newer else ["newer", "old"])


def gone(outcome):
    """Return whether a run took its write for one whose sender has provably ended."""
    [resumed] = [event for event in outcome.history if isinstance(event, Resumed)]
    return resumed.sender_gone


@pytest.mark.slow
@pytest.mark.parametrize("by", ["a run", "a recovery"])
@pytest.mark.parametrize("left", ["its lane", "the key"])
async def test_sender_of_a_key_that_is_settled_elsewhere(
    monkeypatch, service, shared, left, by
):
    """A process that has released its lane has ended; one that left only the key may have its request under way."""
    # reaches: the sender, which lives here, finds out by itself otherwise
    monkeypatch.setattr(hanging, "LEAST", 3600.0)
    service.script("journeys.update", "apply, then hang")
    async with (
        client_of(service, journal=shared) as sender,
        client_of(service, journal=shared) as later,
    ):
        running = asyncio.create_task(rename(sender, "new", "k").outcome())
        await service.arrived("journeys.update")
        # as a process does whose store was too slow for more when it ended
        if left == "its lane":
            await store_beneath(sender).rows("UPDATE {s}lanes SET owner = NULL")
        else:
            await cancel(running)
        if by == "a run":
            outcome = await rename(later, "new", "k").outcome()
        else:
            [outcome] = await until(later.recover)
        await cancel(running)
    assert outcome.verdict is Verdict.APPLIED
    assert gone(outcome) is (left == "its lane")
    assert service.arrivals("journeys.update") == 1


async def test_keys_that_are_run_while_another_waits(service, tmp_path):
    """A run that waits for its turn behind another key of its thing does not keep keys of other things."""
    one, two = (service.seed_journey(status="draft").id for _ in range(2))
    journal = tmp_path / "calls.db"
    async with client_of(service, journal=journal, timeout=PATIENT) as client:
        order = []

        async def named(journey, name):
            await client.journeys.update(journey, name=name).keyed(name)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            with gate(service, "journeys.update"):
                group.create_task(named(one, "first"))
                await service.arrived("journeys.update")
                for journey, name in ((one, "second"), (two, "other")):
                    group.create_task(named(journey, name))
                await until(lambda: order)
    assert order == ["other", "first", "second"]


async def test_update_that_was_cut_and_run_again_leaves_what_it_wrote(
    service, tmp_path
):
    """The state that the write before it had left is no baseline of the next one, which would blame a stranger."""
    hook = service.seed_webhook(description="before").id
    async with client_of(service, journal=tmp_path / "calls.db") as client:

        def described(text):
            return client.webhooks.update(hook, description=text).keyed(text)

        await described("A")
        service.script("webhooks.update", "apply, then reset", "reset")
        service.script("webhooks.get", *["503"] * 200)
        reads = service.arrivals("webhooks.get")
        running = asyncio.create_task(described("D").outcome())
        await service.arrived("webhooks.get", reads + 1)
        await cancel(running)
        service.scripts["webhooks.get"].clear()

        again = await described("D").outcome()
        after = await described("F").outcome()

    assert again.verdict is Verdict.APPLIED
    assert after.verdict is Verdict.APPLIED, after
    assert [
        entry.body["description"] for entry in service.ledger.effects("webhooks.update")
    ] == ["A", "D", "F"]
