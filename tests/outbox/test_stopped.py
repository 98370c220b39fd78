"""A process that is stopped beyond its lease, and wakes up in the middle of its writes."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager

import attrs
import pytest

from invsvc_async import Outbox, Timeouts, Verdict
from invsvc_async.durable.entry import State
from tests.batch.conftest import POLICY, client_of
from tests.outbox.conftest import enqueue, update, verdict_of
from tests.outbox.stopped import POINTS
from tests.outbox.test_results import taken
from tests.support.children import gone_after, started, until_stopped
from tests.support.inside import outbox_entries

PATIENT = attrs.evolve(POLICY, deadline=900.0)


@pytest.mark.untraced
@pytest.mark.silence(1)
async def test_process_that_wakes_up_in_the_middle_of_its_writes(service, address):
    """
    It stores and sends nothing any more, because another has its writes.

    The other one sends what was not sent, finds out what was, and waits as long as the rest may still be sent.
    Then they divide what is new.
    """
    async with (
        client_of(
            service, timeout=Timeouts(attempt=600.0, call=900.0), reconcile=PATIENT
        ) as client,
        Outbox.open(address, client) as outbox,
    ):

        def new():
            return update(client, service, "new")

        async def done(*writes):
            for key in await enqueue(outbox, *writes):
                assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED

        hooks = {point: service.seed_webhook().id for point in POINTS}
        writes = [
            client.webhooks.update(hook, description=point).keyed(point)
            for point, hook in hooks.items()
        ]
        await enqueue(outbox, *writes)
        async with stopped(service, address) as child, outbox.dispatching(grace=0.0):
            for point in ("before the journal", "before the verdict"):
                assert (await verdict_of(outbox, point)).verdict is Verdict.APPLIED
            child.send_signal(signal.SIGCONT)
            # until they have divided the lanes
            while ("new", "stopped") not in sent_to(service):
                await done(*(new() for _ in range(8)))
            await done(new().keyed("last"))
            async with asyncio.timeout(300):
                assert await child.wait() == 0
            assert sent_to(service)[:2] == [
                ("before the verdict", "stopped"),
                ("before the journal", None),
            ]
            assert {text for text, _ in sent_to(service)[2:]} == {"new"}
            assert (
                await outbox_entries(outbox).entry("before the socket")
            ).state is State.SENDING
        made = len(service.ledger.entries)
        given = await taken(outbox, made)
        assert len({*given}) == made
        assert {"before the journal", "before the verdict"} < {*given}


def sent_to(service):
    """Return what was sent, with its sender."""
    return [
        (entry.body["description"], entry.sender) for entry in service.ledger.entries
    ]


@asynccontextmanager
async def stopped(service, address):
    """Run the process until it has stopped itself."""
    child = await started(
        "tests.outbox.stopped", service.base_url, service.api_key, address
    )
    async with gone_after(child):
        await until_stopped(child)
        yield child
