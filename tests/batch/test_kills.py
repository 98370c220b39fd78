"""Batches through kill -9: at random moments, and at each transition of an item."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from invsvc_async import Verdict
from invsvc_async.simulator import Simulator
from tests.batch.child import TRANSITIONS, begin
from tests.batch.killing import (
    FAULTS,
    kill_often,
    main as amid_troubles,
    seed,
    verdicts_of,
    violations,
)
from tests.batch.killing_troubles import Runs

pytestmark = pytest.mark.untraced


async def test_batch_killed_at_random_moments(tmp_path):
    """Killed ten times under faults, each write has happened once or is named unknown, and every verdict is true."""
    journal, file = tmp_path / "run.db", tmp_path / "writes.jsonl"
    async with Simulator(seed=11, faults=FAULTS, latency=0.005) as service:
        asked = seed(service, 500, file)
        await kill_often(service, Runs(service, journal, file), 10, random.Random(11))
        verdicts = await verdicts_of(journal)
        assert violations(service, asked, verdicts) == []
    assert Counter(verdicts.values())[Verdict.UNKNOWN] <= 5


async def test_batch_killed_amid_troubles(capsys):
    """With outages, dead tokens, refusals and retries among the kills, verdicts and order agree with the ledger."""
    assert await amid_troubles(200, 3, 11), capsys.readouterr().out


@pytest.mark.silence(1)
@pytest.mark.parametrize("transition", TRANSITIONS)
async def test_batch_killed_at_a_transition(journal, tmp_path, transition):
    """Killed right before or after an item's step, the batch ends with each write applied once."""
    file = tmp_path / "writes.jsonl"
    async with Simulator(latency=0.002) as service:
        asked = seed(service, 40, file)
        for dies, code in ((transition, 7), -9), (None, 0):
            child = await begin(service.base_url, journal, file, key=service.api_key, dies=dies)
            assert await child.wait() == code
        verdicts = await verdicts_of(journal)
        assert violations(service, asked, verdicts) == []
    assert Counter(verdicts.values()) == {Verdict.APPLIED: len(asked)}
