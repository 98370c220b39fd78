"""Untagged creates of one URL under keys, drawn at random: no two of them wait for each other for ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from tests.batch.conftest import client_of
from tests.durable.test_restored import SOON
from tests.durable.writing import create

pytestmark = pytest.mark.one_python

FAULTS = (
    "pass",
    "reset",
    "hang",
    "400",
    "500",
    "slow 0.15",
    "apply, then reset",
    "apply, then hang",
    "apply, then 500",
    "late 0.1, then reset",
)
ROUNDS = 6  # the last two are without cancellations and short deadlines


def drawn_tasks(chance, clients, keys, *, is_wild):
    """Run the writes of *keys* at once, some of them in each client; return the tasks and their keys."""
    tasks = []
    for key in chance.sample(keys, len(keys)):
        chosen = clients if chance.random() < 0.3 else [chance.choice(clients)]
        for client in chosen:
            deadline = chance.choice([0.1, 1.0, 3.0, 20.0]) if is_wild else 30.0
            write = create(client, key, tag=False).with_policy(deadline=deadline)
            task = asyncio.create_task(write.outcome())
            if is_wild and chance.random() < 0.4:
                later = asyncio.get_running_loop().call_later
                later(chance.uniform(0.01, 2.0), task.cancel)
            tasks.append((key, task))
    if is_wild and chance.random() < 0.3:
        tasks += [
            (intent.key, asyncio.create_task(client.settle(intent)))
            for client in clients
            for intent in client.unsettled[:2]
        ]
    return tasks


# in the last one, runs of creates in doubt meet
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 16])
async def test_creates_at_random(service, address, shared, seed):
    """
    Each run ends, and each key has one effect at most, and a webhook of its own.

    One may stay UNKNOWN, because nothing but the time tells its webhook from that of another key.
    """
    chance = Random(seed)
    keys = "abcde"[: chance.randint(2, 5)]
    service.script("webhooks.create", *chance.choices(FAULTS, k=chance.randint(2, 8)))
    journals = [shared, shared] if seed % 2 else [address]
    made = {}
    for turn in range(ROUNDS):
        async with AsyncExitStack() as stack, asyncio.timeout(300):
            clients = [
                await stack.enter_async_context(
                    client_of(service, journal=journal, timeout=SOON)
                )
                for journal in journals
            ]
            tasks = drawn_tasks(chance, clients, keys, is_wild=turn < ROUNDS - 2)
            await asyncio.wait([task for _, task in tasks])
        for key, task in tasks:
            outcome = None if task.cancelled() else task.result()
            if outcome is not None and outcome.applied:
                assert made.setdefault(key, outcome.value.id) == outcome.value.id
            elif outcome is not None:
                assert key not in made, outcome.explain()

    effects = [entry.target for entry in service.ledger.effects("webhooks.create")]
    assert len(made) == len(set(made.values()))
    assert set(made.values()) <= set(effects)
    assert len(made) <= len(effects) <= len(keys)
