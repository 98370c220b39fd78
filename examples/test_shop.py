"""
Tests of the FastAPI application, with pytest-asyncio.

``TEST_DATABASE_URL=postgresql://… python -m pytest -o asyncio_mode=auto examples``

Each test has a database of its own, which needs the right to create one, and the embedded service, by the
fixtures of the package's pytest plugin.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import httpx
import pytest

from examples import shop
from examples.fastapi_app import create_app
from invsvc_async import ReconcilePolicy

pytestmark = pytest.mark.asyncio
KEY = {"X-Events-Key": "a secret of the dashboard"}
EVENT = {
    "id": "evt_1",
    "type": "invoice.created",
    "created": 1780000000000,
    "livemode": False,
    "data": {"object": {"uuid": "4B1F", "total": 116.0}},
}


@pytest.fixture
async def database(invsvc_database):
    """Give a database with the application's tables; the outbox makes its own."""
    connection = await asyncpg.connect(invsvc_database)
    await connection.execute(Path(__file__).with_name("tables.sql").read_text())
    yield invsvc_database, connection
    await connection.close()


@pytest.fixture
async def application(invsvc_service, database, monkeypatch):
    """Run the application against the service, with short windows."""
    monkeypatch.setenv("INVSVC_BASE_URL", invsvc_service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", invsvc_service.api_key)
    monkeypatch.setenv("DATABASE_URL", database[0])
    monkeypatch.setenv("EVENTS_KEY", KEY["X-Events-Key"])
    quick = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
    monkeypatch.setattr(shop, "POLICY", quick)
    made = shop.Shop()
    app = create_app(made)
    wire = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=wire, base_url="http://shop") as browser,
    ):
        yield browser, made


async def test_customer(application, database, invsvc_service):
    """It is stored with one webhook, whose secret it gets."""
    browser, shop = application
    assert (await browser.post("/customers/ana")).status_code == 202
    await shop.outbox.wait("ana")

    assert await database[1].fetchval("SELECT secret FROM customers")
    assert len(invsvc_service.ledger.effects("webhooks.create")) == 1


async def test_customer_whose_answer_is_lost(application, database, invsvc_service):
    """The webhook is found, but its secret is lost; another one takes its place."""
    browser, _ = application
    invsvc_service.script("webhooks.create", "apply, then reset")
    await browser.post("/customers/ana")
    secret = "SELECT secret FROM customers WHERE verdict = 'applied'"
    while await database[1].fetchval(secret) is None:
        await asyncio.sleep(0.01)

    assert len(invsvc_service.ledger.effects("webhooks.create")) == 2
    assert len(invsvc_service.ledger.effects("webhooks.delete")) == 1


async def test_customer_that_is_rolled_back(application, invsvc_service):
    """Nothing is sent for a second customer of that name."""
    browser, shop = application
    await browser.post("/customers/ana")
    await shop.outbox.wait("ana")

    assert (await browser.post("/customers/ana")).status_code == 500
    assert invsvc_service.arrivals("webhooks.create") == 1


async def test_event_of_each_version(application, database):
    """All are handled; those without a key each time that they come."""
    browser, shop = application
    old = {"event": "invoice.created", "livemode": False, "data": {"uuid": "4B1F"}}
    for event in (EVENT, EVENT, old, old, {"payload": old}):
        assert (await browser.post("/events", json=event, headers=KEY)).is_success
    while (await shop.receiver.store.counts())["open"]:
        await asyncio.sleep(0.01)

    keys = await database[1].fetch("SELECT key FROM events ORDER BY id")
    assert sorted(str(row["key"]) for row in keys) == ["None"] * 3 + ["evt_1"]


async def test_event(application, database):
    """It is handled once, however often it is delivered; a forged one is refused."""
    browser, shop = application
    answers = [
        await browser.post("/events", json=EVENT, headers=key) for key in (KEY, KEY, {})
    ]
    while (await shop.receiver.store.counts())["open"]:
        await asyncio.sleep(0.01)

    assert [answer.status_code for answer in answers] == [200, 200, 401]
    assert await database[1].fetchval("SELECT count(*) FROM events") == 1
