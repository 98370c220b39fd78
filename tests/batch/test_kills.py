"""Batches through kill -9, alone and beside other workers: at random moments, and at each transition of an item."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from invsvc_async import Verdict
from invsvc_async.simulator import Simulator
from tests.batch.child import AT_ONCE, TRANSITIONS, begin
from tests.batch.killing import (
    FAULTS,
    kill_often,
    kill_others,
    main as amid_troubles,
    seed,
    verdicts_of,
    violations,
)
from tests.batch.killing_troubles import Runs
from tests.support.children import gone_after
from tests.support.database import database

pytestmark = [pytest.mark.untraced, pytest.mark.silence(1)]


class Story(Runs):
    """A batch of *items* writes in a service, and what the ledger says of it in the end."""

    def __init__(self, service, journal, folder, items):
        super().__init__(service, journal, folder / "writes.jsonl")
        self.asked = seed(service, items, self._file)

    @asynccontextmanager
    async def running(self, *, works=False):
        """Run a process that has the input, or one that works beside it, as long as the block."""
        async with gone_after(await self.begin(works=works)) as child:
            yield child

    async def dies(self, *transition):
        """Run the batch in a process that is killed at a transition, or to its end; return the exit code."""
        where = self._service.base_url, self._journal, self._file
        child = await begin(*where, key=self._service.api_key, dies=transition or None)
        return await child.wait()

    async def ended(self):
        """Check that the ledger agrees with the journal; return the verdicts."""
        await self._service.settled()
        verdicts = await verdicts_of(self._journal)
        assert violations(self._service, self.asked, verdicts) == []
        return Counter(verdicts.values())


async def test_batch_killed_at_random_moments(tmp_path, journal):
    """Killed under faults, each write has happened once or is named unknown, and every verdict is true."""
    async with Simulator(seed=11, faults=FAULTS, latency=0.005) as service:
        story = Story(service, journal, tmp_path, 500)
        await kill_often(service, story, 10, random.Random(11))
        assert (await story.ended())[Verdict.UNKNOWN] <= 5


async def test_batch_killed_amid_troubles(capsys):
    """With outages, dead tokens, refusals and retries among the kills, verdicts and order agree with the ledger."""
    assert await amid_troubles(200, 3, 11), capsys.readouterr().out


@pytest.mark.parametrize("transition", TRANSITIONS)
async def test_batch_killed_at_a_transition(journal, tmp_path, transition):
    """Killed right before or after an item's step, the batch ends with each write applied once."""
    async with Simulator(latency=0.002) as service:
        story = Story(service, journal, tmp_path, 40)
        assert [await story.dies(transition, 7), await story.dies()] == [-9, 0]
        assert await story.ended() == {Verdict.APPLIED: len(story.asked)}


@pytest.mark.parametrize("workers", [2, 4])
async def test_workers_share_a_batch_though_one_is_killed(tmp_path, shared, workers):
    """Of several workers one is killed, and the others do its part: every write is applied once."""
    async with Simulator(latency=0.01) as service, AsyncExitStack() as stack:
        story = Story(service, shared, tmp_path, 1000)
        first, other, *_ = [
            await stack.enter_async_context(story.running(works=number > 0))
            for number in range(workers)
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
            # sleeps: past its silence, by the clock of the database
            await asyncio.sleep(2.5)
            other.send_signal(signal.SIGCONT)
            assert await first.wait() == 0
        # On a busy machine, the writes that it had in flight may be past telling.
        assert (await story.ended())[Verdict.UNKNOWN] <= AT_ONCE


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
