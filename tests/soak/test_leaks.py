"""A short run of calls that fail, time out and are cancelled; ``python -m tests.soak.leaks`` is the long one."""

from __future__ import annotations

import asyncio
import time

import pytest

from invsvc_async import ApiKey, Client, InvsvcError, Timeouts, Verdict
from invsvc_async.client import options_of
from tests.soak.leaks import FAULTS, left_after
from tests.support.served import served
from tests.support.watching import Watch

pytestmark = [pytest.mark.no_secret_scan, pytest.mark.untraced]

CALLS = 1000
TRACED = 2 * 2**20  # bytes: so short a run has hardly warmed up
IN_FLIGHT = 200
AT_ONCE = 5.0  # s: nothing is waited for, but the machine may be busy


async def test_calls_that_end_in_every_way():
    """Nothing is left of them: no task, no socket, no unclosed thing, no exception that nobody took."""
    async with served("--faults", FAULTS) as service:
        left = await left_after(CALLS, service)

    assert left.leaks == []
    assert left.traced < TRACED, left.grown
    assert min(left.failed, left.cancelled, left.timed_out) > CALLS // 100


async def test_client_closed_under_load():
    """It ends at once, leaves nothing behind, and keeps an intent of each write that was in flight."""
    async with served("--latency", "60") as service:
        with Watch() as watch:
            client = Client(
                service.base_url,
                ApiKey(service.api_key),
                timeout=Timeouts(attempt=60),
                max_concurrency=400,
            )
            now = options_of(client).core.clock.now()
            # so that no read goes before
            options_of(client).core.server_clock.learn(1, now, now)
            deletes = [
                client.webhooks.delete(f"wh_{number}") for number in range(IN_FLIGHT)
            ]
            calls = [asyncio.create_task(each.outcome()) for each in deletes]
            calls += [
                asyncio.create_task(client.webhooks.list())
                for _ in range(IN_FLIGHT // 2)
            ]
            while await service.arrivals() < len(calls):  # noqa: ASYNC110 - another process: nothing tells
                await asyncio.sleep(0.05)
            began = time.monotonic()
            await client.aclose()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            seconds = time.monotonic() - began
            leaks = await watch.leaks()

    assert {each.key for each in client.unsettled} == {
        each.intent.key for each in ended[:IN_FLIGHT]
    }
    assert {each.verdict for each in ended[:IN_FLIGHT]} == {Verdict.UNKNOWN}
    assert all(isinstance(each, InvsvcError) for each in ended[IN_FLIGHT:])
    assert seconds < AT_ONCE
    assert leaks == []
