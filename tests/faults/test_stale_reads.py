"""Reads that show an older state, within the settle window, as those of a replica do."""

import attrs
import pytest

from invsvc_async import Verdict
from tests.faults.conftest import SHORT

pytestmark = pytest.mark.every_python

NEVER = attrs.evolve(SHORT, resend="never", reads_lag=0.3)


async def test_journey_changed_back_and_read_stale(service, client):
    """A read from before the last answered update does not show the one that changes it back."""
    journey = service.seed_journey(name="first")
    await client.journeys.update(journey.id, name="second")
    service.script("journeys.update", "reset")
    service.script("journeys.get", "stale 0.2")
    outcome = (
        await client.journeys.update(journey.id, name="first")
        .with_policy(NEVER)
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_updated_twice_and_read_stale(service, client):
    """A read from before the last answered update shows neither a change by somebody else nor one after the write."""
    hook = service.seed_webhook(description="first")
    await client.webhooks.update(hook.id, description="second")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "stale 0.2")
    outcome = (
        await client.webhooks.update(hook.id, description="third")
        .with_policy(NEVER)
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_changed_back_and_read_stale(service, client):
    hook = service.seed_webhook()
    await client.webhooks.update(hook.id, status="inactive")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "stale 0.2")
    outcome = (
        await client.webhooks.update(hook.id, status="active")
        .with_policy(NEVER)
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_changed_back_after_a_lost_answer_and_read_stale(service, client):
    """The first update is found applied by a read, which shows the state before the second."""
    hook = service.seed_webhook()
    service.script("webhooks.update", "apply, then reset")
    await client.webhooks.update(hook.id, status="inactive")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "stale 0.2")
    outcome = (
        await client.webhooks.update(hook.id, status="active")
        .with_policy(NEVER)
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_new_webhook_deleted_and_read_stale(service, client):
    hook = await client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    service.script("webhooks.delete", "reset")
    service.script("webhooks.get", "stale 0.2")
    outcome = await client.webhooks.delete(hook).with_policy(NEVER).outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_changed_to_another_state(service, client):
    """A read within the window shows it, once reads do not show what was before the last change."""
    hook = service.seed_webhook()
    await client.webhooks.update(hook.id, status="inactive")
    service.script("webhooks.update", "apply, then reset")
    policy = attrs.evolve(SHORT, settle_after_loss=2.0)
    outcome = (
        await client.webhooks.update(hook.id, description="paused")
        .with_policy(policy)
        .outcome()
    )

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.evidence.read_at < outcome.evidence.window_until
