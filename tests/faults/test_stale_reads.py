"""Reads that show an older state, within the settle window, as those of a replica do."""

from __future__ import annotations

import attrs
import pytest

from invsvc_async import Verdict
from tests.faults.conftest import SHORT

pytestmark = pytest.mark.every_python

NEVER = attrs.evolve(SHORT, resend="never")


async def test_journey_changed_back_and_read_stale(service, client):
    """A read from before the last answered update does not show the one that changes it back."""
    journey = service.seed_journey(name="first")
    await client.journeys.update(journey.id, name="second")
    service.script("journeys.update", "reset")
    service.script("journeys.get", "stale 0.2")
    outcome = await client.journeys.update(journey.id, name="first").with_policy(NEVER).outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_updated_twice_and_read_stale(service, client):
    """A read from before the last answered update does not show that somebody else changed the webhook."""
    hook = service.seed_webhook(description="first")
    await client.webhooks.update(hook.id, description="second")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "stale 0.2")
    outcome = await client.webhooks.update(hook.id, description="third").with_policy(NEVER).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
