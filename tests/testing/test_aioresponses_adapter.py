"""aioresponses under the client: requests mapped, bodies kept, answers taken for whole ones."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ApiKey, Client, NotFoundError, ReconcilePolicy, Verdict
from invsvc_async.testing import VirtualClock, aioresponses

pytestmark = pytest.mark.one_python

BASE = "https://host.example/v2"
HOOK = {
    "id": "wh_1",
    "url": "https://me.example/in",
    "events": ["invoice.created"],
    "status": "active",
}


def envelope(data):
    return {"success": True, "data": data, "timestamp": 1_795_000_000_000}


async def test_read_and_write_through_the_mock():
    """A read and a write are answered, and the body that was sent can be looked at."""
    async with Client(BASE, ApiKey("k")) as client:
        with aioresponses() as mocked:
            mocked.get(f"{BASE}/webhooks?limit=100", payload=envelope([]))
            mocked.post(
                f"{BASE}/webhooks",
                payload=envelope({**HOOK, "secret": "whsec_1"}),
                status=201,
            )
            mocked.delete(
                f"{BASE}/webhooks/wh_1", payload={"success": True, "message": "gone"}
            )
            hook = await client.webhooks.create(url=HOOK["url"], events=HOOK["events"])
            gone = await client.webhooks.delete(hook)
            calls = {method: call for (method, _), (call,) in mocked.requests.items()}

    assert (hook.id, hook.secret, gone.message) == ("wh_1", "whsec_1", "gone")
    assert (
        calls["POST"].kwargs["data"]
        == b'{"url":"https://me.example/in","events":["invoice.created"]}'
    )
    assert calls["POST"].kwargs["headers"]["Authorization"] == "Bearer k"


async def test_error_through_the_mock():
    """An error body gives the error of its status."""
    async with Client(BASE, ApiKey("k")) as client:
        with aioresponses() as mocked:
            body = {
                "success": False,
                "error": {"code": "resource_not_found", "message": "no"},
                "timestamp": 1,
            }
            mocked.get(f"{BASE}/webhooks/wh_1", payload=body, status=404)
            with pytest.raises(NotFoundError, match="resource_not_found"):
                await client.webhooks.get("wh_1")


async def test_settle_window_in_virtual_time():
    """With a clock handed in, fifteen seconds of waiting pass at once, in their order."""
    clock = VirtualClock()
    loop = asyncio.get_running_loop()
    begun, virtually = loop.time(), clock.now()
    policy = ReconcilePolicy(resend="never")
    async with Client(BASE, ApiKey("k"), clock=clock, reconcile=policy) as client:
        with aioresponses() as mocked:
            mocked.get(f"{BASE}/webhooks/wh_1", payload=envelope(HOOK), repeat=True)
            mocked.delete(f"{BASE}/webhooks/wh_1", status=502)
            outcome = await client.webhooks.delete("wh_1").outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert clock.now() - virtually >= 15.0
    assert loop.time() - begun < 15.0  # and the virtual wait is none of it
