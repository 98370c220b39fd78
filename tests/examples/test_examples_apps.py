"""The example applications, served on real sockets."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from aiohttp import web

from examples import aiohttp_app, fastapi_app
from invsvc_async import ReconcilePolicy, Verdict
from tests.support.web_server import web_server

pytestmark = pytest.mark.untraced

EVENT = {
    "id": "whd_1",
    "type": "invoice.created",
    "created": 1,
    "livemode": True,
    "data": {"object": {"uuid": "A"}},
}
KEY = {"X-Events-Key": "a secret of the dashboard"}


@pytest.fixture
async def fastapi(service):
    app = fastapi_app.create_app()
    async with web_server(app) as browser:
        yield app, browser


async def test_fastapi_reads_and_writes(fastapi, service):
    """A dependency gives each request the one client; a write's verdict is the answer's status."""
    _, browser = fastapi

    assert (await browser.get("/journeys/jrn_1")).json()["id"] == "jrn_1"
    renamed = await browser.put("/journeys/jrn_1/name", params={"name": "May"})

    assert (renamed.status_code, renamed.json()["verdict"]) == (200, "applied")
    assert service.arrivals("journeys.update") == 1


async def test_fastapi_passes_a_refusal_on(fastapi, service):
    """What the service says no to has the same status in the application's own answer."""
    _, browser = fastapi

    answer = await browser.get("/journeys/jrn_none")

    assert answer.status_code == 404
    assert answer.json() == {"error": "resource_not_found"}


async def test_fastapi_receives_an_event_twice(fastapi):
    """The receiver stores an event, answers 200 and handles it once, however often it comes."""
    app, browser = fastapi

    answers = [await browser.post("/events", json=EVENT, headers=KEY) for _ in range(2)]
    forged = await browser.post("/events", json=EVENT)
    async with asyncio.timeout(10):
        while not app.state.seen:  # noqa: ASYNC110 - the worker is another task of the application
            await asyncio.sleep(0.005)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert forged.status_code == 401
    assert app.state.seen == ["whd_1"]


async def test_fastapi_request_cancelled_in_flight(fastapi, service):
    """A cancelled ASGI request leaves its intent in `unsettled`, and settling it finds the effect."""
    app, browser = fastapi
    service.script("journeys.update", "apply, then hang")
    scope = {
        "type": "http", "method": "PUT", "path": "/journeys/jrn_1/name", "query_string": b"name=June", "headers": [],
        "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    request = asyncio.create_task(app(scope, nothing_more, taken))
    async with asyncio.timeout(10):
        while not service.arrivals("journeys.update"):  # noqa: ASYNC110 - the service runs on another thread
            await asyncio.sleep(0.005)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)

    left = (await browser.get("/unsettled")).json()
    client = app.state.client.with_options(reconcile=ReconcilePolicy(settle_after_loss=0.1))
    settled = await client.settle(client.unsettled[0])

    assert len(left) == 1
    assert settled.verdict is Verdict.APPLIED


async def nothing_more():
    await asyncio.Event().wait()


async def taken(_message):
    pass


async def test_fastapi_client_under_thousands_of_tasks(fastapi, service):
    """Two thousand reads at once through the one client are two thousand arrivals, and all succeed."""
    app, _ = fastapi

    found = await asyncio.gather(*(app.state.client.users.get("usr_1") for _ in range(2000)))

    assert {user.id for user in found} == {"usr_1"}
    assert service.arrivals("users.get") == 2000


async def test_aiohttp_app(service):
    """The cleanup context makes one client; a refusal, a success and an event have their own answers."""
    runner = web.AppRunner(aiohttp_app.create_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}") as browser:
        service.script("webhooks.create", "apply, then reset")
        made = await browser.post("/webhooks", content=json.dumps({"url": "https://me.example/in"}))
        event = await browser.post("/events", json=EVENT, headers=KEY)
    await runner.cleanup()

    assert (made.status_code, made.json()["verdict"]) == (
        502,
        "applied",
    )  # its secret was lost with the answer
    assert event.status_code == 200
    assert service.arrivals("webhooks.create") == 1
