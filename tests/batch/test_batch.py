"""Batches on one SQLite file: keys, order, resuming, what is kept."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import InvalidRequestError, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import HOOK, client_of


def creates(client, n, start=0):
    return (
        client.webhooks.create(url=f"https://me.example/{i}", events=["invoice.created"]).keyed(f"row-{i}")
        for i in range(start, start + n)
    )


async def all_of(batch, writes=()):
    return [result async for result in batch.run(writes)]


async def test_each_write_of_an_input_happens_once(service, client, tmp_path):
    """Every write is applied, and run again all are skipped."""
    secrets = []
    path = tmp_path / "run.db"
    async with Batch.open(path, client, on_secret=lambda key, hook: secrets.append((key, hook.secret))) as batch:
        results = await all_of(batch, creates(client, 40))
        again = await all_of(batch, creates(client, 40))
        summary = await batch.summary()

    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert sorted(result.key for result in results) == sorted(f"row-{i}" for i in range(40))
    assert (again, service.arrivals("webhooks.create"), len(secrets)) == ([], 40, 40)
    assert (summary.total, summary.verdicts) == (40, {Verdict.APPLIED: 40})
