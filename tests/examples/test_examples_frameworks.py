"""Each example application on its real server: digits, verdicts, transactions and events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from decimal import Decimal

import asyncpg
import httpx
import pytest

from examples import shop
from invsvc_async import ReconcilePolicy, Verdict
from tests.examples.serving import EVENT, KEY, served
from tests.support.waiting import until
from tests.support.web_server import web_server

pytestmark = [pytest.mark.untraced, pytest.mark.usefixtures("root_logger_restored")]

DIGITS = "1234567890.123456789"


@asynccontextmanager
async def asgi(name):
    pytest.importorskip(name)
    module = __import__(f"examples.{name}_app", fromlist=["create_app"])
    async with web_server(module.create_app()) as browser:
        yield browser


@asynccontextmanager
async def process(command):
    pytest.importorskip(command.split()[0])
    async with (
        served(command) as (_, address),
        httpx.AsyncClient(base_url=address, timeout=300) as browser,
    ):
        yield browser


@asynccontextmanager
async def aiohttp():
    from aiohttp import web

    from examples import aiohttp_app

    runner = web.AppRunner(aiohttp_app.create_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{runner.addresses[0][1]}", timeout=30
    ) as browser:
        yield browser
    await runner.cleanup()


SERVERS = {
    "fastapi": lambda: asgi("fastapi"),
    "starlette": lambda: asgi("starlette"),
    "litestar": lambda: asgi("litestar"),
    "aiohttp": aiohttp,
    "django on uvicorn": lambda: process(
        "uvicorn --port 0 examples.django_asgi:application"
    ),
    "django on hypercorn": lambda: process(
        "hypercorn -b 127.0.0.1:0 examples.django_asgi:application"
    ),
}


@pytest.mark.parametrize("server", SERVERS)
async def test_application(server, service, address, monkeypatch):
    """
    Reads have the wire's digits, and a write whose answer is lost is applied once, and said to be.

    A customer that is committed has one webhook, one that is rolled back has none.  An event is stored once.
    """
    service.seed_invoice(total=Decimal(DIGITS))
    # a process of its own would wait for as long as the service may need
    if "django" not in server:
        monkeypatch.setattr(shop, "POLICY", ReconcilePolicy(settle_after_loss=0.1))
        service.script("journeys.update", "apply, then reset")
    tables = await asyncpg.connect(address)
    async with SERVERS[server]() as browser:
        page = await browser.get("/invoices")
        renamed = await browser.put("/journeys/jrn_1/name?name=May")
        missing = await browser.put("/journeys/nowhere/name?name=May")
        invalid = await browser.put("/journeys/jrn_1/name?name=")
        registered = [
            await status_of(browser, f"/customers/{name}")
            for name in ("ana", "ana", "undone-1")
        ]
        events = [
            await browser.post("/events", json=EVENT, headers=each)
            for each in (*[{"X-Events-Key": KEY}] * 2, {})
        ]
        verdict = await found(
            tables,
            "SELECT verdict FROM customers WHERE secret IS NOT NULL AND verdict IS NOT NULL",
        )
        await found(tables, "SELECT key FROM events")
        names = [
            row["name"] for row in await tables.fetch("SELECT name FROM customers")
        ]
    await tables.close()

    # pydantic writes strings
    assert f'"total":{DIGITS}' in page.text.replace(f'"{DIGITS}"', DIGITS)
    assert (renamed.status_code, renamed.json()["verdict"]) == (200, "applied")
    assert renamed.json()["value"]["name"] == "May"
    assert (missing.status_code, missing.json()["verdict"]) == (404, "refused")
    assert (invalid.status_code, invalid.json()["error"]) == (400, "invalid_request")
    assert invalid.json()["message"].startswith("name: ")
    assert set(missing.json()) == {"verdict", "value", "message", "attempts"}
    assert len(service.ledger.effects("journeys.update")) == 1
    assert (registered, names, verdict) == ([202, 500, 500], ["ana"], "applied")
    assert [
        each.body["url"]
        for each in service.ledger.entries
        if each.operation == "webhooks.create"
    ] == ["https://me.example/customers/ana"]
    assert [each.status_code for each in events] == [200, 200, 401]


async def status_of(browser, path):
    try:
        return (await browser.post(path)).status_code
    except (
        httpx.RemoteProtocolError,
        httpx.ReadError,
    ):  # the server ends the connection after an error of the application
        return 500


async def found(tables, text):
    """Wait for a row of *text*, and return its first column."""
    row = await until(lambda: tables.fetchrow(text))
    return row[0]


async def test_fastapi_with_a_credential_that_is_refused(service, address, monkeypatch):
    """That is not about the caller, who is told that something else failed."""
    monkeypatch.setenv("INVSVC_API_KEY", "gt_live_nobody")
    async with asgi("fastapi") as browser:
        answer = await browser.get("/invoices")

    assert answer.status_code == 502
    assert answer.json()["error"] == "bad_gateway"


async def test_fastapi_request_cancelled_in_flight(service, address, monkeypatch):
    """A cancelled ASGI request leaves its intent in `unsettled`, and settling it finds the effect."""
    from examples import fastapi_app

    opened = shop.Shop()
    monkeypatch.setattr(fastapi_app, "Shop", lambda: opened)
    service.script("journeys.update", "apply, then hang")
    scope = {
        "type": "http", "method": "PUT", "path": "/journeys/jrn_1/name", "query_string": b"name=June", "headers": [],
        "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    app = fastapi_app.create_app()
    async with opened.running():
        request = asyncio.create_task(app(scope, nothing_more, taken))
        await until(lambda: service.arrivals("journeys.update"))
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        [intent] = opened.client.unsettled
        client = opened.client.with_options(
            reconcile=ReconcilePolicy(settle_after_loss=0.1)
        )
        settled = await client.settle(intent)

    assert settled.verdict is Verdict.APPLIED


async def nothing_more():
    await asyncio.Event().wait()


async def taken(_message):
    pass


async def test_client_under_thousands_of_tasks(service, address):
    """Two thousand reads at once through the one client are two thousand arrivals, and all succeed."""
    opened = shop.Shop()
    async with opened.running():
        found = await asyncio.gather(
            *(opened.client.users.get("usr_1") for _ in range(2000))
        )

    assert {user.id for user in found} == {"usr_1"}
    assert service.arrivals("users.get") == 2000
