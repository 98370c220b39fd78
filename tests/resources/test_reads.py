"""Every read of the specification against the service in a box: what was seeded comes as models."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from invsvc_async.client import Client
from invsvc_async.errors import (
    AuthenticationError,
    FieldError,
    NotFoundError,
    PermissionDeniedError,
)
from invsvc_async.transport.credentials import ApiKey, PersonToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.simulator import Simulator

pytestmark = pytest.mark.every_python

UUID4 = "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11"


@pytest.fixture
async def client(service: Simulator) -> AsyncIterator[Client]:
    """Yield a client with the live key."""
    async with Client(service.base_url, ApiKey(service.api_key)) as client:
        yield client


@pytest.fixture
async def person(service: Simulator) -> AsyncIterator[Client]:
    """Yield a client with a person's token."""
    async with Client(service.base_url, PersonToken(service.person_token)) as client:
        yield client


async def test_journey(service, client):
    """A journey comes with its graph and its state."""
    seeded = service.seed_journey(name="Dunning")

    journey = await client.journeys.get(seeded.id)

    assert (journey.id, journey.name, journey.status) == (seeded.id, "Dunning", "draft")
    assert isinstance(journey.graph.nodes, tuple)
    assert journey.meta.timestamp is not None


async def test_invoice_with_awkward_money(service, client):
    """Money has the digits of the wire, and times are aware."""
    service.seed_invoice(idempotency_key="k", total=Decimal("1234567890.123456789"))

    (invoice,) = await client.invoices.egress(idempotency_key="k")

    assert str(invoice.total) == "1234567890.123456789"
    assert invoice.created_at.tzinfo is UTC
    assert invoice.problems == ()


async def test_invoices_between_two_dates(service, client):
    """Both ends of a range are within it."""
    moments = [datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    for moment in moments:
        service.seed_invoice(created_at=int(moment.timestamp() * 1000), series="RANGE")

    found = await client.invoices.egress(
        series="RANGE",
        created_after=moments[1],
        created_before=moments[2].date(),
        limit=100,
    )

    assert sorted(invoice.created_at for invoice in found) == moments[1:3]


async def test_page_with_a_broken_invoice(service, client):
    """A field that breaks its type costs that field: the page and the item's other fields are whole."""
    service.script("invoices.egress", "bad item")

    page = await client.invoices.egress(limit=10)

    (problem,) = page.problems
    assert problem.address.startswith("$.data[")
    assert len(page) == 10
    broken = next(invoice for invoice in page if invoice.problems)
    with pytest.raises(FieldError):
        _ = broken.total
    assert broken.uuid


async def test_download_status(service, client):
    """A completed request names its packages, whose bytes can be had."""
    seeded = service.seed_download()

    download = await client.invoices.wait_for_download(seeded["request_id"])

    assert download.status == "completed"
    package = download.packages[0]
    assert await client.download(f"/invoices/download/package/{package.id}").read()


async def test_download_that_is_not_there(client):
    """An error in place of bytes is the service's error."""
    with pytest.raises(NotFoundError):
        await client.download("/invoices/download/package/none").read()


async def test_retention_files(service, client):
    """Both files come, or the one of the type asked for."""
    retention = service.seed_retention()

    assert len(await client.retentions.files(retention.id)) == 2
    (file,) = await client.retentions.files(retention.id, file_type="xml")
    assert file.content.startswith(b"<")


async def test_user(service, client):
    """A user comes with an address."""
    seeded = service.seed_user()

    user = await client.users.get(seeded["id"])

    assert (user.id, user.email) == (seeded["id"], seeded["email"])


async def test_payment_link(service, client):
    """A link's amounts are exact."""
    seeded = service.seed_link()

    link = await client.payments.link(seeded["id"])

    assert link.id == seeded["id"]
    assert isinstance(link.amount, Decimal)


async def test_reminder(service, client):
    """A reminder's answer is kept whole."""
    service.seed_reminder("pay_1", UUID4, note="x")

    assert (await client.payments.reminder_operation("pay_1", UUID4)).content[
        "note"
    ] == "x"


async def test_dbtable_listings(service, person):
    """A person's token reads both listings of the table-database provider."""
    service.seed_base("app_1", [{"id": "tbl_1", "fields": []}])

    hooks = await person.teams.dbtable_webhooks(service.team, limit=5)
    tables = await person.teams.dbtable_tables(service.team, "app_1")

    assert hooks.scope in {"mode", "shared"}
    assert [table["id"] for table in tables.data] == ["tbl_1"]


async def test_webhooks_and_health(service, client):
    """Webhooks come without their secret; the probe answers a client whose key is refused."""
    hook = service.seed_webhook(url="https://me.example/in")

    assert (await client.webhooks.get(hook.id)).secret is None
    assert [found.id for found in await client.webhooks.list(limit=100)] == [hook.id]
    service.revoke(service.api_key)
    assert (await client.webhooks.health()).status == "ok"
    with pytest.raises(PermissionDeniedError):
        await client.webhooks.list()


async def test_unlisted_read(service, client):
    """Anything else that the service has can be read, with exact numbers."""
    hook = service.seed_webhook()

    envelope = await client.request("GET", "/webhooks", params={"limit": 1})

    assert envelope.data[0]["id"] == hook.id
    assert envelope.timestamp is not None


async def test_credential_that_expired(service, client):
    """A 401 of the authentication layer is raised under its own words."""
    service.expire(service.api_key)

    with pytest.raises(AuthenticationError):
        await client.users.get("usr_1")
