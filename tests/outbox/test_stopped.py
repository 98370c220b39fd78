"""A process that is stopped beyond its lease, and wakes up in the middle of its writes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from invsvc_async import Verdict
from tests.outbox.conftest import verdict_of
from tests.outbox.stopped import POINTS
from tests.outbox.test_dispatch import enqueue
from tests.outbox.test_results import taken


async def test_process_that_wakes_up_in_the_middle_of_its_writes(
    service, client, outbox, connection, address
):
    """Another has done them meanwhile: it stores nothing, sends nothing, and each write has one effect."""
    hooks = {point: service.seed_webhook().id for point in POINTS}
    writes = [client.webhooks.update(hook, description=point).keyed(point) for point, hook in hooks.items()]
    await enqueue(outbox, connection, *writes)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.outbox.stopped", service.base_url, service.api_key, address
    )
    try:
        await asyncio.to_thread(os.waitpid, child.pid, os.WUNTRACED)  # until it has stopped itself
        assert service.arrivals("webhooks.update") == 1  # the one that waits for its verdict
        async with outbox.dispatching():
            for point in POINTS:
                assert (await verdict_of(outbox, point)).verdict is Verdict.APPLIED
        child.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert service.arrivals("webhooks.update") == 3
    effects = [entry.body["description"] for entry in service.ledger.effects("webhooks.update")]
    assert sorted(effects) == sorted(POINTS)
    assert sorted(await taken(outbox, 3)) == sorted(POINTS)  # their verdicts are as they were
