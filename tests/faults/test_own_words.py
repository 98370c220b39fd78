"""Writes to a service that stores them in its own words, or in part: nobody is blamed, nothing is lost, nothing is made twice."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Intent, Verdict
from invsvc_async.simulator import Stores
from tests.faults.conftest import SHORT, client_of

EVENTS = ["invoice.created", "payment.created"]
TOKEN = "abcd1234efgh5678"
NODES = [
    {
        "id": name,
        "type": "email",
        "position": {"x": 1.26, "y": 2.74},
        "data": {"config": {}},
    }
    for name in ("a", "b")
]
GRAPH = {"nodes": NODES, "edges": []}
JOURNEYS = {  # what the service does, the field, and what is sent
    "composed": ("nfc", "name", "Cafe\u0301 y recordatorio"),
    "without markup": ("no markup", "description", "<b>All</b> of it"),
    "without emoji": ("no emoji", "name", "Reminder \U0001f600 of May"),
    "without zero-width characters": ("no zero-width", "name", "Remin\u200bder"),
    "trimmed": ("trimmed", "name", "  Reminder "),
    "folded": ("folded", "name", "Dunning, MAY"),
    "masked": ("masked", "description", f"with {TOKEN}"),
    "cut": ("cut", "description", "the first of three reminders, sent after a week"),
    "with entities": ("entities", "name", "Tom & Jerry"),
    "with a viewport": ("viewport", "graph", GRAPH),
    "with nodes in another order": ("reordered", "graph", GRAPH),
    "with rounded positions": ("rounded", "graph", GRAPH),
    "with an alias": ("alias", "triggerType", "manual"),
}
HOOKS = {
    "a masked token": ("masked", "url", f"https://me.example/in?token={TOKEN}"),
    "a masked token in the path": ("masked", "url", f"https://me.example/{TOKEN}/in"),
    "a sorted query": ("sorted", "url", "https://me.example/in?b=1&a=2"),
    "a description with entities": ("entities", "description", "Tom & Jerry"),
}
NAMES = {"triggerType": "trigger_type"}


async def a_journey(client, service, field, sent):
    journey = service.seed_journey(status="draft")
    return "journeys.update", client.journeys.update(
        await client.journeys.get(journey.id), **{NAMES.get(field, field): sent}
    )


async def a_webhook(client, service, field, sent):
    hook = service.seed_webhook(description="before", url="https://before.example/")
    return "webhooks.update", client.webhooks.update(
        await client.webhooks.get(hook.id), **{field: sent}
    )


CASES = [
    *(
        pytest.param(a_journey, *row, id=f"journey {name}")
        for name, row in JOURNEYS.items()
    ),
    *(
        pytest.param(a_webhook, *row, id=f"webhook {name}")
        for name, row in HOOKS.items()
    ),
]


def of_clients(service, operation):
    return [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]


@pytest.mark.parametrize(("write_of", "word", "field", "sent"), CASES)
async def test_lost_update_in_other_words(service, client, write_of, word, field, sent):
    """Live, and when it is settled elsewhere, it is open why it differs, and what differs is told."""
    service.stores = Stores(words=(word,))
    operation, write = await write_of(client, service, field, sent)
    service.script(operation, "apply, then reset")
    outcome = await write.outcome()
    async with client_of(service) as other:
        settled = await other.settle(Intent.from_json(outcome.intent.to_json()))

    for each in (outcome, settled):
        assert each.verdict is Verdict.UNKNOWN
        assert "somebody" not in each.message
        assert TOKEN not in each.message.partition("now")[2]
    assert outcome.evidence.cause == "other words"
    assert field in outcome.message
    assert len(of_clients(service, operation)) == 1


@pytest.mark.parametrize(("write_of", "word", "field", "sent"), CASES)
async def test_lost_keyed_update_in_other_words(
    service, tmp_path, write_of, word, field, sent
):
    """A key keeps no verdict that blames somebody, and the same key again sends nothing twice."""
    service.stores = Stores(words=(word,))
    outcomes = []
    for _ in range(2):
        async with client_of(service, journal=tmp_path / "calls.db") as client:
            if not outcomes:
                operation, write = await write_of(client, service, field, sent)
                service.script(operation, "apply, then reset")
                again = {**write.intent.path, field: sent}
            else:
                thing = (
                    client.journeys
                    if operation.startswith("journeys")
                    else client.webhooks
                )
                write = thing.update(again["id"], **{NAMES.get(field, field): sent})
            outcomes.append(await write.keyed("one").outcome())

    assert [outcome.verdict for outcome in outcomes] == [Verdict.UNKNOWN] * 2
    assert all("somebody" not in outcome.message for outcome in outcomes)
    assert len(of_clients(service, operation)) == 1


@pytest.mark.parametrize("longest", [7, 40])
async def test_lost_update_that_only_lengthens_a_text(service, client, longest):
    """It is sent again once a read has shown a longer text, which the service would have cut; not before."""
    service.stores = Stores(words=("cut",), longest=longest)
    hook = service.seed_webhook(description="Spring")
    service.script("webhooks.update", "reset", "pass", "reset")
    outcomes = [
        await client.webhooks.update(hook.id, description="Spring sale").outcome()
    ]
    other = service.seed_webhook(
        description="All orders of the shop in Puebla"[:longest]
    )
    # which reads it before
    await client.webhooks.update(other.id, events=EVENTS).outcome()
    outcomes.append(
        await client.webhooks.update(hook.id, description="Spring sale").outcome()
    )

    first, second = outcomes
    assert (first.verdict, first.evidence.cause) == (Verdict.UNKNOWN, "not visible")
    assert second.verdict is (Verdict.APPLIED if longest > 7 else Verdict.UNKNOWN), (
        second.explain()
    )
    assert len(of_clients(service, "webhooks.update")) == (2 if longest > 7 else 1)


PART = Stores(partly=1.0)
WHOLE = Stores()


async def in_part(client, service):
    journey = service.seed_journey(
        status="draft", name="before", description="for April"
    )
    known = await client.journeys.get(journey.id)
    service.stores = PART
    return journey.id, client.journeys.update(
        known, name="Dunning", description="of all overdue invoices"
    )


async def test_update_in_part(service, client):
    """It is open, what is there is told, and resuming completes it, once."""
    _, write = await in_part(client, service)
    outcome = await write.outcome()

    assert (outcome.verdict, outcome.evidence.cause) == (Verdict.UNKNOWN, "in part")
    assert "somebody" not in outcome.message
    service.stores = WHOLE
    settled = await client.settle(outcome.intent)
    assert (settled.verdict, settled.evidence.cause) == (Verdict.UNKNOWN, "in part")
    resumed = await client.resume(settled.intent).outcome()
    assert resumed.verdict is Verdict.APPLIED
    assert len(of_clients(service, "journeys.update")) == 2


async def test_update_in_part_under_a_key(service, tmp_path):
    """The same key again completes it, in the next process."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        journey, write = await in_part(client, service)
        first = await write.keyed("one").outcome()
    service.stores = WHOLE
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        again = client.journeys.update(
            journey, name="Dunning", description="of all overdue invoices"
        )
        second = await again.keyed("one").outcome()

    assert (first.verdict, first.evidence.cause) == (Verdict.UNKNOWN, "in part")
    assert second.verdict is Verdict.APPLIED
    assert len(of_clients(service, "journeys.update")) == 2


@pytest.mark.parametrize(
    "what", ["the other field", "the stored field", "a newer write"]
)
async def test_update_in_part_that_was_changed_since(service, client, what):
    """What is no longer as it was after the verdict is not written over."""
    journey, write = await in_part(client, service)
    outcome = await write.outcome()
    service.stores = WHOLE
    if what == "a newer write":
        await client.journeys.update(journey, name="Newer", description="of nobody")
    else:
        async with client_of(service) as other:
            now = await other.journeys.get(journey)
            is_name = (now.name == "before") is (what == "the other field")
            changes = (
                {"name": "Newsletter"}
                if is_name
                else {"description": "weekly, to all readers"}
            )
            await other.journeys.update(journey, **changes)
    sent = len(of_clients(service, "journeys.update"))
    resumed = await client.resume(outcome.intent).outcome()

    assert resumed.verdict is not Verdict.APPLIED
    assert len(of_clients(service, "journeys.update")) == sent


async def test_completion_that_is_refused(service, client):
    """A refusal of the second send does not say that nothing happened."""
    _, write = await in_part(client, service)
    outcome = await write.outcome()
    service.script("journeys.update", "400")
    resumed = await client.resume(outcome.intent).outcome()

    assert (resumed.verdict, resumed.evidence.cause) == (Verdict.UNKNOWN, "in part")


CREATES = {
    "masked and trimmed": (("masked", "trimmed"), "exact"),
    "sorted and composed": (("sorted", "nfc"), "exact"),
    "forced to be inactive, and masked": (("inactive", "masked"), "exact"),
    "masked and with entities": (("masked", "entities"), "exact"),
    "a tag cut off": (("cut", "masked"), "exact"),
    "created at 0": ((), "zero"),
    "created at in seconds": ((), "seconds"),
    "created at the minute": ((), "minute"),
    "created on the day": ((), "day"),
}


@pytest.mark.parametrize("tag", [True, False])
@pytest.mark.parametrize(("words", "created_at"), CREATES.values(), ids=CREATES)
async def test_lost_create_in_other_words(service, client, words, created_at, tag):
    """It is not made twice, whatever two fields the service changes at once."""
    service.stores = Stores(words=words, created_at=created_at, longest=16)
    service.script("webhooks.create", "apply, then reset")
    write = client.webhooks.create(
        url=f"https://me.example/in?b=1&token={TOKEN}",
        events=EVENTS,
        description=" Cafe\u0301 & more, for all ",
        tag=tag,
        on_lost_secret="keep",
    )
    outcome = await write.outcome()
    async with client_of(service) as other:
        settled = await other.settle(Intent.from_json(outcome.intent.to_json()))
    resumed = await client.resume(outcome.intent).outcome()

    (made,) = (entry.target for entry in of_clients(service, "webhooks.create"))
    for each in (outcome, settled, resumed):
        assert each.verdict in (Verdict.APPLIED, Verdict.UNKNOWN)
        if each.verdict is Verdict.APPLIED:
            assert (each.value.id, each.evidence.duplicates) == (made, ())
        else:
            assert [hook["id"] for hook in each.evidence.candidates] == [made]


@pytest.mark.parametrize("tag", [True, False])
async def test_create_in_a_list_that_shows_ids_twice(service, client, tag):
    """One webhook is no duplicate of its own."""
    service.stores = Stores(twice=1.0)
    service.script("webhooks.create", "apply, then reset")
    outcome = await client.webhooks.create(
        url="https://me.example/in", events=EVENTS, tag=tag, on_lost_secret="keep"
    ).outcome()

    assert (outcome.verdict, outcome.evidence.duplicates) == (Verdict.APPLIED, ())


@pytest.mark.parametrize("tag", [True, False])
async def test_inactive_create_in_a_list_that_hides_it(service, client, tag):
    """That it does not show proves nothing, until the list shows another that is inactive."""
    service.stores = Stores(hides_inactive=True)
    service.script("webhooks.create", "apply, then reset", "reset")
    make = {
        "url": "https://me.example/in",
        "events": EVENTS,
        "status": "inactive",
        "tag": tag,
    }
    outcome = await client.webhooks.create(**make, on_lost_secret="keep").outcome()
    assert (outcome.verdict, outcome.evidence.cause) == (Verdict.UNKNOWN, "not visible")
    assert len(of_clients(service, "webhooks.create")) == 1

    service.stores = WHOLE
    never = attrs.evolve(SHORT, resend="never")
    absent = (
        await client.webhooks.create(**{**make, "url": "https://you.example/"})
        .with_policy(never)
        .outcome()
    )
    assert absent.verdict is Verdict.NOT_APPLIED


async def test_tagged_create_beside_another_of_its_host(service, client):
    """Once the service has shown that it keeps a tag, a new webhook without ours is somebody else's."""
    never = attrs.evolve(SHORT, resend="never")
    make = {"url": "https://me.example/in", "events": EVENTS, "tag": True}
    verdicts = []
    async with client_of(service) as other:
        for _ in range(2):
            arrived = service.arrivals("webhooks.create")
            service.script("webhooks.create", "reset")
            lost = asyncio.create_task(
                client.webhooks.create(**make).with_policy(never).outcome()
            )
            await service.arrived("webhooks.create", arrived + 1)
            await other.webhooks.create(
                url=f"https://me.example/{arrived}", events=EVENTS
            )
            verdicts.append((await lost).verdict)
            await client.webhooks.create(**make)

    assert verdicts == [Verdict.UNKNOWN, Verdict.NOT_APPLIED]
