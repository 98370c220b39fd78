"""What a service has, and what a search must find in it: each scene is run by a test, and by mutants."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import ApiKey, Client
from invsvc_async.audit import Audit
from invsvc_async.audit.audit import LISTS
from invsvc_async.testing import quick_client

if TYPE_CHECKING:
    from invsvc_async.simulator import Simulator

EGRESS, COMPLEMENTS, WEBHOOKS = LISTS
MINUTE = 60_000  # ms
NOON = 1_790_000_000_000
TAG = "[iv-abcdefghijklmnop]"
CLIENT = {"id": "cli_1", "name": "Mar Adentro", "tax_id": "MAR010101AB1"}
ITEM = {
    "id": "item_1", "description": "Return", "quantity": 2, "unit_price": Decimal("10.50"), "product_key": "84111506",
    "unit_key": "ACT",
}  # fmt: skip
OTHER = {**ITEM, "id": "item_2", "description": "Fee"}
ALIKE = {"client": CLIENT, "items": [ITEM, OTHER], "total": Decimal("42.00")}


async def audited(
    service: Simulator, **settings: object
) -> tuple[Audit, list[tuple[str, str, int, int]]]:
    """Return the search, and of each duplicate its list, its certainty, its number, and how many are in effect."""
    async with quick_client(service) as client:
        with Audit(client, **settings) as audit:
            await audit.read()
            found = [
                (each.what, str(each.certainty), each.count, each.in_effect)
                for each in audit.duplicates()
            ]
    assert not service.ledger.entries  # it never writes
    return audit, found


def seed(service: Simulator, minutes: float = 0, **fields: object) -> str:
    """Make an invoice like all others that this makes, so many minutes after noon, but for *fields*."""
    made = {
        **ALIKE,
        "status": "valid",
        "created_at": NOON + int(minutes * MINUTE),
        **fields,
    }
    return service.seed_invoice(**made)["uuid"]


async def nothing(service):
    """Find nothing: the records that each service has are no duplicates of each other."""
    audit, found = await audited(service)

    assert found == []
    assert (audit.items_read, audit.complete, audit.gaps) == (15, True, [])
    assert (audit.counts, audit.closed) == ({}, 0)


async def one_key(service):
    """Two invoices with one idempotency key are certain, whenever they were made."""
    seed(service, idempotency_key="order-1")
    seed(service, 60 * 24 * 300, idempotency_key="order-1")
    seed(service, 60 * 24 * 400, idempotency_key="order-2")

    audit, found = await audited(service)

    assert found == [(EGRESS, "certain", 2, 2)]
    assert audit.counts == {"certain": 1}


async def one_key_other_content(service):
    """One key with different contents is told as what it is."""
    seed(service, idempotency_key="order-1")
    seed(service, 500, idempotency_key="order-1", total=Decimal(7))

    async with quick_client(service) as client:
        with Audit(client) as audit:
            await audit.read()
            [found] = audit.duplicates()

    assert (
        found.why
        == "one idempotency key, 2 invoices, not all of which have equal client, total and items"
    )


async def empty_key(service):
    """Take an empty key for none."""
    seed(service, idempotency_key="")
    seed(service, 500, idempotency_key="")

    assert (await audited(service))[1] == []


async def keys_of_two_lists(service):
    """Take a key of an invoice and of a payment complement for two."""
    seed(service, idempotency_key="order-1")
    seed(service, 500, idempotency_key="order-1", invoice_type="P")

    assert (await audited(service))[1] == []


async def canceled_since(service):
    """Of which at most one is still valid, it is closed, and does not count as open."""
    seed(service, idempotency_key="order-1", status="canceled")
    seed(service, 500, idempotency_key="order-1")

    audit, found = await audited(service)

    assert found == [(EGRESS, "certain", 2, 1)]
    assert (audit.counts, audit.closed) == ({}, 1)


async def alike_within_minutes(service):
    """Equal client, total and items within minutes are likely; later ones are not."""
    for minutes in (0, 9, 18, 40, 51, 60):
        seed(service, minutes)

    audit, found = await audited(service)

    assert found == [(EGRESS, "likely", 3, 3), (EGRESS, "likely", 2, 2)]
    assert audit.counts == {"likely": 2}
    assert (await audited(service, within=3600))[1] == [(EGRESS, "likely", 6, 6)]
    assert (await audited(service, within=0))[1] == []


async def alike_but_for_form(service):
    """Numbers count by value; ids and the order of items do not count."""
    cheap = {**ITEM, "id": "item_9", "unit_price": Decimal("10.5"), "quantity": 2}
    seed(service)
    seed(service, 1, items=[OTHER, cheap], total=42, idempotency_key="other")

    assert (await audited(service))[1] == [(EGRESS, "likely", 2, 2)]


async def not_alike(service):
    """Another client, total, currency or item is another invoice."""
    seed(service)
    seed(service, 1, client={**CLIENT, "id": "cli_2"})
    seed(service, 2, total=Decimal("42.01"))
    seed(service, 3, currency="USD")
    seed(service, 4, items=[ITEM])
    seed(service, 5, items=[ITEM, ITEM])
    for n, change in enumerate(
        ({"quantity": 3}, {"unit_price": 1}, {"description": "Else"}, {"product_key": "1"}, {"unit_key": "H87"})
    ):  # fmt: skip
        seed(service, 6 + n, items=[ITEM, {**OTHER, **change}])

    assert (await audited(service))[1] == []


async def two_kinds(service):
    """Tell invoices of two kinds apart that were made in turns."""
    for minutes in range(4):
        seed(service, minutes, total=minutes % 2)

    assert (await audited(service))[1] == [(EGRESS, "likely", 2, 2)] * 2


async def alike_beside_a_key(service):
    """Tell what a certain duplicate explains not again as likely, but a third one."""
    seed(service, idempotency_key="order-1")
    seed(service, 1, idempotency_key="order-1")
    assert (await audited(service))[1] == [(EGRESS, "certain", 2, 2)]

    seed(service, 2, idempotency_key="order-2")
    assert (await audited(service))[1] == [
        (EGRESS, "certain", 2, 2),
        (EGRESS, "likely", 3, 3),
    ]


async def complements(service):
    """Payment complements have no totals: their payments tell them apart."""
    paid = {"invoice_type": "P", "total": 0}
    seed(service, **paid, payments=[{"amount": 5, "of": "A"}])
    seed(service, 1, **paid, payments=[{"of": "A", "amount": Decimal("5.0")}])
    seed(service, 2, **paid, payments=[{"amount": 5, "of": "B"}])
    seed(service, 3, **paid, payments=[{"amount": 5, "of": "C"}], invoices=["X"])
    seed(service, 4, **paid, payments=[{"amount": 5, "of": "C"}], invoices=["Y"])

    assert (await audited(service))[1] == [(COMPLEMENTS, "likely", 2, 2)]


async def words_of_likely_ones(service):
    """They say what speaks against a duplicate."""
    relation = {"relationship": "01", "documents": ["A"]}
    same, other = [relation], [{**relation, "documents": ["B"]}]
    seed(service, related_documents=same)
    seed(service, 1, related_documents=same)
    seed(service, 100, related_documents=same, idempotency_key="a")
    seed(service, 101, related_documents=other, idempotency_key="b")
    seed(service, 200, related_documents=same)
    seed(service, 201, related_documents=same, idempotency_key="c")

    async with quick_client(service) as client:
        with Audit(client) as audit:
            await audit.read()
            words = [each.why for each in audit.duplicates()]

    begin = "equal client, total and items, at most 10 min apart, "
    assert words == [
        f"{begin}none with an idempotency key",
        f"{begin}with different idempotency keys, and they relate to different documents",
        f"{begin}some with an idempotency key",
    ]


async def webhooks(service):
    """Active webhooks with equal URL and events get each event twice."""
    events = ("invoice.created", "payment.created")
    service.seed_webhook(events=events)
    service.seed_webhook(events=events[::-1], url="HTTPS://Receiver.example:443/in")
    service.seed_webhook(events=events[:1])
    service.seed_webhook(events=events, url="https://receiver.example/in?b=1")

    audit, found = await audited(service)

    assert found == [(WEBHOOKS, "certain", 2, 2)]
    assert (audit.items_read, audit.complete) == (19, True)


async def webhooks_that_may_be_meant(service):
    """If the URLs are only spelt alike, they are likely; if one is inactive, it is closed."""
    service.seed_webhook(url="https://a.example/in")
    service.seed_webhook(url="https://a.example/in/")
    service.seed_webhook(url="https://b.example/in")
    service.seed_webhook(url="https://b.example/in", status="inactive")

    audit, found = await audited(service)

    assert found == [(WEBHOOKS, "likely", 2, 1), (WEBHOOKS, "likely", 2, 2)]
    assert (audit.counts, audit.closed) == ({"likely": 1}, 1)


async def webhooks_of_one_write(service):
    """Know that a tag belongs to one write, and two tags to two, also of inactive webhooks."""
    service.seed_webhook(url="https://a.example/", description=f"Mine {TAG}")
    service.seed_webhook(
        url="https://a.example/", description=f"Mine {TAG}", status="inactive"
    )
    service.seed_webhook(url="https://b.example/", description=f"Mine {TAG}")
    other = TAG.replace("a", "b")
    service.seed_webhook(url="https://b.example/", description=other, status="inactive")

    assert (await audited(service))[1] == [
        (WEBHOOKS, "certain", 2, 1),
        (WEBHOOKS, "likely", 2, 1),
    ]


async def full_list_of_webhooks(service):
    """There may be others, which the list does not show."""
    for number in range(100):
        service.seed_webhook(url=f"https://receiver.example/{number}")

    audit, found = await audited(service)

    assert (found, audit.complete) == ([], False)
    assert audit.gaps == ["more than 100 webhooks may exist"]


@asynccontextmanager
async def listing(*invoices: dict[str, object]):
    """Run a service that lists these invoices, one on a page; yield a client, and the cursors that it asks for."""
    asked: list[str] = []

    async def listed(request):
        asked.append(request.query.get("next", ""))
        number = int(request.query.get("next", 0))
        following = str(number + 1) if number + 1 < len(invoices) else None
        data = [
            {
                "created_at": NOON,
                "currency": "MXN",
                "status": "valid",
                **invoices[number],
            }
        ]
        return web.json_response(
            {"success": True, "data": data, "next": following, "timestamp": NOON}
        )

    app = web.Application()
    app.router.add_get("/v2/invoices/egress", listed)
    async with (
        TestServer(app, host="127.0.0.1") as server,
        Client(str(server.make_url("/v2")), ApiKey("eyJ.a.b")) as client,
    ):
        yield client, asked


async def fields_that_cannot_be_compared(service):
    """Count them: what can be found without them is found, and the search is not complete."""
    same = {"client": {"id": "cli_1"}, "items": [], "total": 1}
    broken = (
        {**same, "idempotency_key": "a", "items": "none"},
        {**same, "idempotency_key": "a", "total": "much"},
        {**same, "idempotency_key": "a", "created_at": "noon"},
        {**same, "idempotency_key": 7},
        {**same, "idempotency_key": 7},
        {**same, "items": [{"quantity": "few"}]},
        {**same, "client": None},
        {"idempotency_key": "b"},
    )
    shown = [{"uuid": f"{number}", **each} for number, each in enumerate(broken)]
    async with listing(*shown, {**same, "uuid": 9}, {**same}, {**same, "uuid": ""}) as (
        client,
        _,
    ):
        with Audit(client, lists=[EGRESS]) as audit:
            await audit.read()
            found = [(str(each.certainty), each.count) for each in audit.duplicates()]

    assert found == [("certain", 3), ("likely", 2)]
    assert audit.gaps == ["11 have fields that cannot be compared"]

    service.seed_webhook(url=None)
    service.seed_webhook(url=None)
    service.seed_webhook(events=[7])
    audit, found = await audited(service, lists=[WEBHOOKS])
    assert (found, audit.gaps) == ([], ["3 have fields that cannot be compared"])


async def window_of_time(service):
    """Only invoices in the window are compared, as the service filters them."""
    for minutes in (0, 1, 2):
        seed(service, minutes)

    window = {"created_after": NOON + MINUTE, "created_before": NOON + 2 * MINUTE}
    audit, found = await audited(service, lists=[EGRESS], **window)

    assert found == [(EGRESS, "likely", 2, 2)]
    assert audit.items_read == 2


async def listed_again(_service):
    """Count an invoice that two pages show once, as it was shown last; read nothing twice."""
    shown = [
        {"uuid": uuid, "idempotency_key": key, "status": status, "client": {"id": "cli_1"}, "items": [], "total": total}
        for total, (uuid, key, status) in enumerate(
            [("A", "x", "valid"), ("B", "y", "valid"), ("b", "y", "canceled"), ("C", "x", "valid"), ("D", "y", "valid")]
        )
    ]  # fmt: skip
    async with listing(*shown) as (client, asked):
        with Audit(client, lists=[EGRESS, EGRESS]) as audit:
            await audit.read()
            found = list(audit.duplicates())

    uuids = {
        each.in_effect: [item["uuid"].upper() for item in each.items] for each in found
    }
    assert uuids == {2: ["A", "C"], 1: ["B", "D"]}
    assert asked == ["", "1", "2", "3", "4"]


async def many_of_one(service):
    """Name the first fifty of a duplicate, and count all."""
    for number in range(60):
        seed(service, number / 60, idempotency_key="order-1")
        seed(service, 500 + number / 60)

    async with quick_client(service) as client:
        with Audit(client) as audit:
            await audit.read()
            found = list(audit.duplicates())

    assert [(each.count, len(each.items)) for each in found] == [(60, 50), (60, 50)]
    assert [item["created_at"] for item in found[0].items] == [
        NOON + number * 1000 for number in range(50)
    ]


async def cancelled(service):
    """Tell what was found until then, and do not take it for all."""
    seed(service, idempotency_key="order-1")
    seed(service, 500, idempotency_key="order-1")
    service.script("invoices.payment_complements", "hang")

    async with quick_client(service) as client:
        with Audit(client) as audit:
            reading = asyncio.create_task(audit.read())
            await service.ledger.arrived("invoices.payment_complements")
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            found = list(audit.duplicates())

    assert [each.what for each in found] == [EGRESS]
    assert audit.gaps == ["the reading did not end"]


SCENES = {
    scene.__name__: scene
    for scene in (
        nothing, one_key, one_key_other_content, empty_key, keys_of_two_lists, canceled_since, alike_within_minutes,
        alike_but_for_form, not_alike, two_kinds, alike_beside_a_key, complements, words_of_likely_ones, webhooks,
        webhooks_that_may_be_meant, webhooks_of_one_write, full_list_of_webhooks, fields_that_cannot_be_compared,
        window_of_time, listed_again, many_of_one, cancelled,
    )
}  # fmt: skip
