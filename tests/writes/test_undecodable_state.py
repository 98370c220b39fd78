"""Writes to a journey whose state has a number that no parser accepts: their intents and outcomes stay readable."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import (
    ApiKey,
    Client,
    Intent,
    Outcome,
    ReadRetries,
    ReconcilePolicy,
    Verdict,
)
from invsvc_async.codec import decode
from invsvc_async.models import Journey, Webhook

pytestmark = pytest.mark.one_python

HUGE = b"1E999999999999999999999"
JOURNEY = (
    b"""{"id": "jrn_1", "name": "May", "status": "draft", "last_updated": 1700000000000, "graph": {"edges": [],
 "nodes": [{"id": "n", "type": "t", "position": {"x": 1, "y": 2}, "data": {"config": {"a": %s}}}]}}"""
    % HUGE
)
HOOK = b'{"id": "wh_1", "url": "https://me.example/in", "news": %s}' % HUGE
POLICY = ReconcilePolicy(settle_after_loss=0.0, settle_after_error=0.0, deadline=0.1)


@asynccontextmanager
async def client_of(answer, **settings):
    app = web.Application()
    app.router.add_get("/v2/journeys/{id}", shown)
    app.router.add_put("/v2/journeys/{id}", answer)
    server = TestServer(app, host="127.0.0.1")
    async with server:
        address = str(server.make_url("/v2"))
        yield lambda: Client(
            address,
            ApiKey("eyJ.a.b"),
            reads=ReadRetries(attempts=1),
            reconcile=POLICY,
            **settings,
        )


async def shown(_: web.Request) -> web.Response:
    body = b'{"success": true, "timestamp": 1700000000000, "data": %s}' % JOURNEY
    return web.Response(body=body, content_type="application/json")


def test_intent_of_a_model():
    """The baseline of the intent lacks the members that hold it, and the intent is read back."""
    client = Client("https://h.example/v2", ApiKey("eyJ.a.b"))
    journey, hook = decode(Journey, JOURNEY), decode(Webhook, HOOK)
    writes = [
        client.journeys.update(journey, name="June"), client.webhooks.update(hook, status="active"),
        client.webhooks.delete(hook),
    ]  # fmt: skip
    for write in writes:
        intent = write.intent
        write.close()

        assert Intent.from_json(intent.to_json()) == intent
        assert intent.baseline["id"] in ("jrn_1", "wh_1")
        assert "graph" not in intent.baseline
        assert "news" not in intent.baseline


async def test_write_that_is_applied():
    """Its outcome is encoded and read back."""
    async with client_of(shown) as client_at, client_at() as client:
        outcome = await client.journeys.update(
            await client.journeys.get("jrn_1"), name="June"
        ).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert Outcome.from_json(outcome.to_json()).verdict is Verdict.APPLIED


async def test_write_that_is_left_in_a_journal(tmp_path):
    """It is sent, and the next process finds its intent."""
    arrived = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        arrived.set()
        await asyncio.sleep(3600)
        raise AssertionError

    async with client_of(hang, journal=tmp_path / "journal.db") as client_at:
        async with client_at() as client:
            journey = await client.journeys.get("jrn_1")
            task = asyncio.create_task(
                client.journeys.update(journey, name="June").outcome()
            )
            waiting = asyncio.create_task(arrived.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            task.cancel()
            await asyncio.wait([task])
        async with client_at() as client:
            (outcome,) = await client.recover()

    assert (outcome.verdict, outcome.intent.body) == (Verdict.UNKNOWN, {"name": "June"})
