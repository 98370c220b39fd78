"""Batches that workers share in PostgreSQL: killed, stopped and woken, the database restarted."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from invsvc_async import ConfigurationError, JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import entries_of
from invsvc_async.simulator import Simulator
from tests.batch.killing import FAULTS, kill_often, kill_others, seed, verdicts_of, violations
from tests.batch.killing_troubles import Runs
from tests.support.children import gone_after
from tests.support.database import database

pytestmark = [pytest.mark.untraced, pytest.mark.silence(1)]


class Story(Runs):
    """A shared batch of *items* writes in a service, and what the ledger says of it in the end."""

    def __init__(self, service, journal, folder, items):
        super().__init__(service, journal, folder / "writes.jsonl")
        self.asked = seed(service, items, self._file)

    def running(self, *, works=False):
        """Run a process that has the input, or one that works beside it, as long as the block."""
        return gone_after_start(self.begin(works=works))

    async def ended(self):
        """Check that the ledger agrees with the journal; return the verdicts."""
        await self._service.settled()
        verdicts = await verdicts_of(self._journal)
        assert violations(self._service, self.asked, verdicts) == []
        return Counter(verdicts.values())


@asynccontextmanager
async def gone_after_start(starting):
    async with gone_after(await starting) as child:
        yield child


async def test_shared_batch_killed_at_random_moments(tmp_path, shared):
    """Killed three times under faults, each write has happened once or is named unknown, and every verdict is true."""
    async with Simulator(seed=12, faults=FAULTS, latency=0.005) as service:
        story = Story(service, shared, tmp_path, 400)
        await kill_often(service, story, 3, random.Random(12))
        assert (await story.ended())[Verdict.UNKNOWN] <= 4


@pytest.mark.parametrize("workers", [2, 4])
async def test_workers_share_a_batch_though_one_is_killed(tmp_path, shared, workers):
    """Of several workers one is killed, and the others do its part: every write is applied once."""
    async with Simulator(latency=0.01) as service, AsyncExitStack() as stack:
        story = Story(service, shared, tmp_path, 1000)
        first, other, *_ = [
            await stack.enter_async_context(story.running(works=number > 0)) for number in range(workers)
        ]
        await service.arrived("webhooks.update", 200)
        other.kill()
        assert await first.wait() == 0
        assert await story.ended() == {Verdict.APPLIED: len(story.asked)}


async def test_worker_that_was_stopped_and_wakes_sends_nothing(tmp_path, shared):
    """A worker that is stopped past its silence and woken finds its lanes taken over, and nothing happens twice."""
    async with Simulator(latency=0.01) as service:
        story = Story(service, shared, tmp_path, 1000)
        async with story.running() as first, story.running(works=True) as other:
            await service.arrived("webhooks.update", 300)
            other.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2.5)
            other.send_signal(signal.SIGCONT)
            assert await first.wait() == 0
        assert (await story.ended())[Verdict.UNKNOWN] == 0


async def test_workers_stopped_and_killed_under_faults(tmp_path, shared):
    """Workers join, are stopped and woken or killed, under faults: nothing happens twice, every verdict is true."""
    async with Simulator(seed=3, faults=FAULTS, latency=0.05) as service:
        story = Story(service, shared, tmp_path, 1000)
        assert await kill_others(service, story, 3, random.Random(3)) > 0
        assert (await story.ended())[Verdict.UNKNOWN] <= 8


async def test_database_restarted_in_the_middle(tmp_path, shared):
    """A restart of the database holds the batch up, and ends nothing."""
    async with Simulator(latency=0.01) as service:
        story = Story(service, shared, tmp_path, 800)
        async with story.running() as first:
            await service.arrived("webhooks.update", 200)
            await database().restart()
            assert await first.wait() == 0
        assert (await story.ended())[Verdict.APPLIED] == len(story.asked)


async def test_file_has_no_workers(client, tmp_path):
    """Workers are of shared batches: with a file, the words say what to do."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        with pytest.raises(ConfigurationError, match="cannot be shared"):
            batch.work()


@pytest.mark.parametrize(
    "more", ["batch=A-B", "outbox=june", "silence=0.1", "silence=x", "silence=nan", "silence=inf"]
)
def test_address_that_cannot_work(more):
    """A setting in the address that cannot work is refused at once."""
    with pytest.raises(ConfigurationError, match="the batch's address"):
        entries_of(f"postgresql://host/db?{more}")


@pytest.mark.parametrize("reading", [False, True])
async def test_batch_that_is_not_there(reading):
    """What only looks at a batch, or makes of it to do again, makes none of a mistyped name, and says so."""
    address = database().journal("mistyped")
    for _ in range(2):
        with pytest.raises(JournalError, match="it has no batch 'mistyped'"):
            await entries_of(address, create=False, reading=reading).open()
