"""A batch whose requests hang after their effect: it neither waits for their timeout, nor pauses for them."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import ReconcilePolicy, Timeouts, Verdict
from invsvc_async.batch import Batch
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates, made_once
from tests.support.virtual_time import LoopClock, service_clock

pytestmark = [pytest.mark.steady_time, pytest.mark.slow]

MANY = 60
AT_ONCE = 20
HUNG = AT_ONCE  # the first ones, so that no answer comes between them: more than pause a batch


@pytest.fixture
async def service():
    async with Simulator(clock=service_clock()) as running:
        yield running


async def test_batch_without_a_pause(service, path):
    """All are applied, once each, in a few seconds instead of the timeout of an attempt."""
    pauses = []
    service.script("webhooks.create", *["apply, then hang"] * HUNG)
    settings = {
        "clock": LoopClock(),
        "reconcile": ReconcilePolicy(),
        "timeout": Timeouts(attempt=25.0),
    }
    loop = asyncio.get_running_loop()
    async with client_of(service, **settings) as client:
        begun = loop.time()
        async with Batch.open(path, client, concurrency=AT_ONCE, **SECRETS) as batch:
            watching = asyncio.create_task(_watched(batch, pauses))
            results = await all_of(batch, creates(client, MANY))
            watching.cancel()

    assert [result.verdict for result in results] == [Verdict.APPLIED] * MANY
    assert made_once(service) == MANY
    assert sum(result.basis == "tag" for result in results) == HUNG
    assert loop.time() - begun < 15.0
    assert pauses == []


async def _watched(batch, pauses):
    """Keep why *batch* is paused, whenever it is."""
    while True:
        progress = batch.progress
        if progress is not None and progress.paused:
            pauses.append(progress.paused)
        await asyncio.sleep(0.01)
