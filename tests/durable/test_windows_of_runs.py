"""Writes that a run goes on with whose windows are longer than those of the run before: they count for its own sends."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Intent, ReconcilePolicy, Timeouts, Verdict
from tests.batch.conftest import HOOK, client_of
from tests.durable.writing import cut_off
from tests.support.waiting import cancel

pytestmark = [pytest.mark.one_python]

SHORT = ReconcilePolicy(
    settle_after_error=0.1,
    settle_after_loss=0.3,
    reads_lag=0.1,
    deadline=20.0,
)
LONG = attrs.evolve(SHORT, settle_after_loss=2.5, deadline=40.0)
# What arrives only within the longer windows, and is not answered.
LATE, UNTIL_LATE = "late 1.5, then reset", 1.6  # s
SOON = {"timeout": Timeouts(attempt=2.0)}
UPDATE, CREATE = "webhooks.update", "webhooks.create"


def under(service, policy, **settings):
    return client_of(
        service,
        reconcile=policy,
        on_secret=lambda _key, _hook: None,
        **SOON,
        **settings,
    )


@pytest.fixture
def writes(service):
    """Return what makes an update or a create, by its operation."""
    hook = service.seed_webhook(description="first words").id
    return {
        UPDATE: lambda client: client.webhooks.update(hook, description="new words"),
        CREATE: lambda client: client.webhooks.create(**HOOK, on_lost_secret="keep"),
    }


def bodies(service, operation):
    return [entry.body for entry in service.ledger.effects(operation)]


async def lose_answer_under_short_windows(service, address, operation, made):
    """Run what *made* returns once, with the short windows, and cancel it after its answer was lost."""
    service.script(operation, "reset")
    async with under(service, SHORT, journal=address) as client:
        await cut_off(service, made(client))


async def check_one_effect(service, operation, outcome):
    """Check that the write has one effect, and that *outcome* says so, also of what lands after it."""
    await asyncio.sleep(UNTIL_LATE)  # sleeps: until nothing can land any more
    found = bodies(service, operation)
    assert (outcome.verdict, len(found)) == (Verdict.APPLIED, 1), outcome.explain()


@pytest.mark.parametrize("operation", [UPDATE, CREATE])
async def test_key_that_is_run_again(service, address, writes, operation):
    """The third run, whose windows are short again, judges the sends of the second by the long ones."""

    def made(client):
        return writes[operation](client).keyed("k")

    await lose_answer_under_short_windows(service, address, operation, made)
    service.script(operation, LATE)
    async with under(service, LONG, journal=address) as client:
        outcome = await made(client).outcome()
    await check_one_effect(service, operation, outcome)
    async with under(service, SHORT, journal=address) as client:
        again = await made(client).outcome()
    assert again.verdict is Verdict.APPLIED
    assert len(bodies(service, operation)) == 1


async def test_third_run_of_a_key(service, address, writes):
    """What the second run has sent, and left open, is judged by the windows of that run."""

    def made(client):
        return writes[UPDATE](client).keyed("k")

    await lose_answer_under_short_windows(service, address, UPDATE, made)
    service.script(UPDATE, LATE)
    async with under(service, LONG, journal=address) as client:
        running = asyncio.create_task(made(client).outcome())
        await service.arrived(UPDATE, 2)
        await cancel(running)
        [left] = client.unsettled
    assert left.policy.settle_after_loss == LONG.settle_after_loss
    async with under(service, SHORT, journal=address) as client:
        outcome = await made(client).outcome()
    await check_one_effect(service, UPDATE, outcome)


@pytest.mark.parametrize("operation", [UPDATE, CREATE])
async def test_intent_that_another_client_resumes(service, writes, operation):
    async with under(service, SHORT) as client:
        service.script(operation, "reset")
        await cut_off(service, writes[operation](client).tagged())
        [left] = client.unsettled
    service.script(operation, LATE)
    async with under(service, LONG) as client:
        await client.webhooks.list()
        resumed = client.resume(Intent.from_json(left.to_json()), same_mode=True)
        outcome = await resumed.outcome()
    await check_one_effect(service, operation, outcome)


async def test_policy_of_a_write_that_is_resumed(service, writes):
    """Longer windows of it count for its own sends, and shorter ones do not shorten those of the sends before."""
    async with under(service, LONG) as client:
        service.script(UPDATE, LATE)
        await cut_off(service, writes[UPDATE](client))
        [left] = client.unsettled
        resumed = client.resume(left).with_policy(settle_after_loss=0.0)
        outcome = await resumed.outcome()
    await check_one_effect(service, UPDATE, outcome)


async def test_older_copy_of_an_intent_that_is_settled(service, writes):
    """The client that has sent the write since knows the windows of that send."""
    async with under(service, SHORT) as client:
        service.script(UPDATE, "reset")
        await cut_off(service, writes[UPDATE](client))
        [left] = client.unsettled
    async with under(service, LONG) as client:
        await client.webhooks.list()
        service.script(UPDATE, LATE)
        resumed = asyncio.create_task(client.resume(left, same_mode=True).outcome())
        await service.arrived(UPDATE, 2)
        await cancel(resumed)
        outcome = await client.settle(left, same_mode=True)
    await check_one_effect(service, UPDATE, outcome)


async def test_write_that_is_awaited_again_after_another_run(service, writes):
    """The run between was resumed from an intent whose windows somebody has made shorter."""
    async with under(service, LONG) as client:
        service.script(UPDATE, "reset")
        write = writes[UPDATE](client)
        await cut_off(service, write)
        [left] = client.unsettled
        service.script(UPDATE, "reset")
        brief = client.with_options(reconcile=SHORT)
        await cut_off(service, brief.resume(attrs.evolve(left, policy=SHORT)))
        service.script(UPDATE, LATE)
        outcome = await write.outcome()
    await check_one_effect(service, UPDATE, outcome)
