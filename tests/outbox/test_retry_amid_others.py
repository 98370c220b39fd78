"""A retried write, while newer ones to its thing keep coming: it gets its verdict all the same."""

from __future__ import annotations

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.outbox.conftest import enqueue, update, verdict_of, written

pytestmark = pytest.mark.one_python

AHEAD = 8  # writes of the stream that are not done, so that their line does not become empty
MOST = 80  # writes of the stream: the retried one has got no verdict amid them


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (Verdict.REFUSED, Verdict.NOT_APPLIED),
        (Verdict.UNKNOWN, Verdict.UNKNOWN),
    ],
)
async def test_write_that_is_retried_amid_a_stream_of_newer_ones(place, first, again):
    """
    It is overtaken: not sent, and told so before the stream ends. The newer ones keep their order.

    An UNKNOWN one is settled in its turn, and stays UNKNOWN: no read can tell any more.
    """
    async with Simulator(seed=1, latency=0.05) as service, client_of(service) as client:
        hook = service.seed_webhook().id
        if first is Verdict.REFUSED:
            service.script("webhooks.update", "403")
        else:
            service.script("webhooks.update", "reset")
            service.script("webhooks.get", "pass", "403")

        def numbered(count, after=0):
            return [
                update(client, service, f"{each}", hook).keyed(f"{each}")
                for each in range(after, after + count)
            ]

        async with Outbox.open(place, client) as outbox, outbox.dispatching():
            await enqueue(outbox, update(client, service, "old", hook).keyed("old"))
            assert (await verdict_of(outbox, "old")).verdict is first
            sent = len(await enqueue(outbox, *numbered(AHEAD)))
            assert (await verdict_of(outbox, "0")).verdict is Verdict.APPLIED
            assert await outbox.retry("old") == ["old"]
            while sent < MOST and await outbox.get("old") is None:
                await verdict_of(outbox, f"{sent - AHEAD}")
                sent += len(await enqueue(outbox, *numbered(1, after=sent)))
            retried = await outbox.get("old")
            assert retried is not None, "not amid the stream"
            assert retried.verdict is again
            await verdict_of(outbox, f"{sent - 1}")
        effects = written(service.ledger.effects(), hook)
        assert effects == [f"{each}" for each in range(sent)]
