"""The values of what OpenTelemetry is told: how often each verdict, and how long a download took."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ApiKey, Client, ReadRetries, ReconcilePolicy, Verdict
from tests.support.virtual_time import LoopClock
from tests.test_tracing import HOOK, Seen

pytestmark = pytest.mark.one_python

POLICY = ReconcilePolicy(settle_after_error=0.05, settle_after_loss=0.05, deadline=0.5)


async def test_verdicts_are_counted_once_each(service):
    """A write that ends unknown is counted as that, and not also as one that was left unsettled."""
    once = ReadRetries(attempts=1)
    async with Client(
        service.base_url, ApiKey(service.api_key), reconcile=POLICY, reads=once
    ) as client:
        seen = Seen(client)
        service.script("webhooks.create", "reset")
        service.script("webhooks.list", *["503"] * 100)
        outcome = await client.webhooks.create(**HOOK).outcome()
        service.scripts["webhooks.list"].clear()
        await client.webhooks.create(**{**HOOK, "url": "https://me.example/other"})
        service.script("webhooks.create", "apply, then hang")
        running = asyncio.create_task(
            client.webhooks.create(**{**HOOK, "url": "https://me.example/3"}).outcome()
        )
        await service.arrived("webhooks.create", 3)
        running.cancel()
        await asyncio.wait([running])

    assert outcome.verdict is Verdict.UNKNOWN
    counted = {
        (
            point.attributes["invsvc.operation"],
            point.attributes["invsvc.verdict"],
        ): point.value
        for point in seen.metric("invsvc.writes")
    }
    assert counted == {
        ("webhooks.create", "unknown"): 1,
        ("webhooks.create", "applied"): 1,
        ("webhooks.create", "unsettled"): 1,
    }
    verdicts = [span.attributes.get("invsvc.verdict") for span in seen.spans]
    assert verdicts == ["unknown", "applied", "unsettled"]


async def test_seconds_of_a_download(service):
    """They are those from its request to the end of the block that reads it, by the client's clock."""
    package = service.seed_download()["packages"][0]["id"]
    clock = LoopClock()
    async with Client(service.base_url, ApiKey(service.api_key), clock=clock) as client:
        seen = Seen(client)
        async for _ in client.download(f"/invoices/download/package/{package}"):
            clock.ahead += 40.0

    [point] = seen.metric("http.client.request.duration")
    assert 40.0 <= point.sum < 80.0
    assert point.attributes["http.response.status_code"] == 200
    assert point.attributes["server.address"] == "127.0.0.1"
    assert point.attributes["http.request.method"] == "GET"
