"""What a client's journal promises in a file and in a shared database: nothing that was sent is lost or told falsely."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import ApiKey, SecretLostError, Verdict
from tests.batch.conftest import HOOK, client_of
from tests.durable.child import process
from tests.durable.test_shared_journal import recovered
from tests.durable.writing import cut_off
from tests.support.inside import journal_of, store_beneath


@pytest.mark.untraced
async def test_write_of_a_killed_process_is_settled_by_the_next(service, address):
    """What it had in flight is found out by reading, once it counts as dead; and nothing is sent again."""
    service.script("webhooks.create", "late 0.1, then hang")
    async with process(service, address, "webhooks.create", **HOOK, tag=True) as child:
        await service.arrived("webhooks.create")
        child.kill()
        await child.wait()
    async with client_of(service, journal=address) as client:
        if "silence" in str(address):
            assert await client.recover() == []  # it may still live
            mine = journal_of(client).life.own.leases.name
            await store_beneath(client).rows(
                "UPDATE {s}members SET seen = seen - 3600 WHERE name <> $1", mine
            )
        [outcome] = await recovered(client)
        assert await client.recover() == []
    assert (outcome.verdict, outcome.secret_lost) == (Verdict.APPLIED, True)
    assert (
        len(service.ledger.effects("webhooks.create"))
        == service.arrivals("webhooks.create")
        == 1
    )


@pytest.mark.untraced
@pytest.mark.silence(1)
async def test_verdict_that_nobody_has_had(service, address):
    """
    It was stored before the process died; another one gives it, once, without a request, and the secret is lost.

    Another credential sees nothing of it, unless the caller says that it has the same data mode.
    """
    async with process(
        service,
        address,
        "webhooks.create",
        "SIGKILL after the verdict",
        **HOOK,
        tag=True,
    ) as child:
        await child.wait()
    requests, [effect] = service.arrivals(), service.ledger.effects("webhooks.create")
    async with client_of(
        service, journal=address, credential=ApiKey(service.issue_key())
    ) as rotated:
        [outcome] = await recovered(rotated, same_mode=True)
        for _ in range(10):  # before, while and after it is removed
            assert await rotated.recover(same_mode=True) == []
            await asyncio.sleep(0.02)  # sleeps: over the moment at which it is removed
    async with client_of(service, journal=address) as client:
        assert await client.recover() == []
    assert (outcome.verdict, outcome.message) == (
        Verdict.APPLIED,
        "the service answered so",
    )
    with pytest.raises(SecretLostError) as raised:
        outcome.unwrap()
    assert (raised.value.webhook.id, outcome.value.secret) == (effect.target, None)
    assert service.arrivals() == requests


async def test_cancelled_write_is_left_to_the_next_process(service, address):
    """
    It is open as sent, without an answer, and found out at once, because the process before has left.

    Nothing is sent again, and another credential does not take it.
    """
    service.script("webhooks.create", "apply, then hang")
    async with client_of(service, journal=address) as client:
        await cut_off(service, client.webhooks.create(**HOOK, tag=True))
    async with client_of(
        service, journal=address, credential=ApiKey(service.issue_key())
    ) as rotated:
        assert await rotated.recover() == []
    async with client_of(service, journal=address) as client:
        [outcome] = await client.recover()
    assert [sent.end.kind for sent in outcome.intent.sent] == ["long"]
    assert (outcome.verdict, service.arrivals("webhooks.create")) == (
        Verdict.APPLIED,
        1,
    )


async def test_unknown_write_stays_open(service, address):
    """It is left to the next process, which finds out that it was applied."""
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.get", "pass", "403")
    async with client_of(service, journal=address) as client:
        outcome = await client.webhooks.update(
            service.seed_webhook().id, description="x"
        ).outcome()
        assert outcome.verdict is Verdict.UNKNOWN
        assert await client.recover() == []  # this process has told it
    async with client_of(service, journal=address) as client:
        [outcome] = await client.recover()
    assert outcome.verdict is Verdict.APPLIED
    assert service.arrivals("webhooks.update") == 1


async def test_verdict_of_another_process_that_is_newer_than_ones_own(service, shared):
    """What this process had told of the write before is no reason to forget what was found out since."""
    service.script("webhooks.update", "apply, then reset")
    service.script("webhooks.get", "pass", "403", "403")
    async with client_of(service, journal=shared) as client:
        async with client_of(service, journal=shared) as other:
            write = other.webhooks.update(service.seed_webhook().id, description="x")
            unknown = await write.outcome()
            settled = await client.settle(unknown.intent)
            assert (unknown.verdict, settled.verdict) == (Verdict.UNKNOWN,) * 2
            # It ends before the application has the verdict.
            applied = attrs.evolve(unknown, verdict=Verdict.APPLIED)
            await journal_of(other).settled(applied)
        [recovered] = await client.recover()
    assert recovered.verdict is Verdict.APPLIED
