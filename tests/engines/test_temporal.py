"""Activities of ``examples/temporal_activities.py`` that are cancelled and run again, without a server of Temporal."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from invsvc_async import ApiKey, Client, ReconcilePolicy, SecretLostError

pytest.importorskip("temporalio")

from temporalio.testing import ActivityEnvironment

from examples.temporal_activities import Invoicing, keep_secret

URL = "https://k.example/order-1"


def environment(
    workflow: str = "order-1", activity: str = "1", attempt: int = 1
) -> ActivityEnvironment:
    """Return what an attempt of an activity runs in."""
    here = ActivityEnvironment()
    here.info = replace(
        here.info, workflow_id=workflow, activity_id=activity, attempt=attempt
    )
    return here


@pytest.fixture
async def register(service, tmp_path):
    """Yield the activity of a worker."""
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
    client = Client(
        service.base_url, ApiKey(service.api_key), journal=tmp_path / "calls.db", reconcile=policy,
        on_secret=keep_secret,
    )  # fmt: skip
    async with client:
        yield Invoicing(client).register


async def cancelled(service, register, step):
    """Run the activity of order-1, and cancel it when its write has arrived, of which *step* says what happens."""
    service.script("webhooks.create", step)
    first = environment()
    running = asyncio.create_task(first.run(register, URL))
    await service.arrived("webhooks.create")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_run_after_one_that_was_cancelled_before_the_effect(service, register):
    """It does the write, once; the runs after it return the same, and other activities do their own."""
    await cancelled(service, register, "hang")
    assert not service.ledger.effects("webhooks.create")

    made = [await environment(attempt=attempt).run(register, URL) for attempt in (2, 3)]
    assert [made[0]] * 2 == made
    others = [
        await environment(*ids).run(register, f"{URL}{number}")
        for number, ids in enumerate([("order-1", "2"), ("order-2", "1")])
    ]
    assert [entry.target for entry in service.ledger.effects("webhooks.create")] == [
        made[0],
        *others,
    ]


async def test_run_after_one_that_was_cancelled_after_the_effect(service, register):
    """It finds the webhook, and says that its secret is lost."""
    await cancelled(service, register, "apply, then hang")

    for attempt in (2, 3):
        with pytest.raises(SecretLostError):
            await environment(attempt=attempt).run(register, URL)
    assert (
        len(service.ledger.effects("webhooks.create")),
        service.arrivals("webhooks.create"),
    ) == (1, 1)
