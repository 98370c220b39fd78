"""What a person has found out about a write of a batch: its verdict, the counts, and what a report says."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from invsvc_async import InvalidRequestError, JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.reports.not_applied import groups_of
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, creates
from tests.durable.stores import COUNTED, SCAN, counts, unheard
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

BY = {"because": "seen in the dashboard", "by": "ann"}


def mapping(client, key):
    """Save a mapping, which no read of the specification shows."""
    return client.sheets.save_mapping({"a": key}).keyed(key)


async def in_doubt(service, batch, *keys, script="apply, then reset"):
    """Run writes whose outcome nobody knows."""
    service.script("sheets.save_mapping", *[script] * len(keys))
    results = await all_of(batch, [mapping(batch.client, key) for key in keys])
    assert {each.verdict for each in results} == {Verdict.UNKNOWN}


@asynccontextmanager
async def running(run):
    """Take all results of *run* beside the block, and end that with it."""
    task = asyncio.create_task(_all_of(run))
    try:
        yield
    finally:
        if not task.done():
            await cancel(task)


async def _all_of(run):
    return [result async for result in run]


async def counted(batch):
    """Return the counts that the batch keeps, which must be those of its entries."""
    store = batch.entries.store
    kept = {
        which: many
        for which, many in (await counts(store, COUNTED)).items()
        if which[0] == 2
    }
    scanned = {
        which: many
        for which, many in (await counts(store, SCAN)).items()
        if which[0] == 2
    }
    assert kept == scanned
    return kept


async def test_finding_is_the_verdict(service, client, journal):
    """It is counted, given by the next run, and shown with who and why; what is applied is not sent again."""
    async with Batch.open(journal, client) as batch:
        await in_doubt(service, batch, "done", "open", "not done")
        done = await batch.resolve("done", applied=True, **BY)
        not_done = await batch.resolve("not done", applied=False, **BY)
        summary = await batch.summary()
        assert {verdict: many for verdict, many in summary.verdicts.items() if many} == {
            Verdict.APPLIED: 1, Verdict.NOT_APPLIED: 1, Verdict.UNKNOWN: 1,
        }  # fmt: skip
        assert (summary.total, summary.done) == (3, 3)
        assert await counted(batch)
        assert len(await unheard(batch.entries.store)) == 2
        assert [intent.key for intent in client.unsettled] == ["open"]
    sends = service.arrivals("sheets.save_mapping")
    async with client_of(service) as other, Batch.open(journal, other) as batch:
        results = {result.key: result for result in await all_of(batch)}
        stored = await batch.get("done")
        groups = await groups_of(batch.entries, "run.db")
    assert service.arrivals("sheets.save_mapping") == sends
    assert {key: (each.verdict, each.basis) for key, each in results.items()} == {
        "done": (Verdict.APPLIED, "person"),
        "not done": (Verdict.NOT_APPLIED, "person"),
    }
    assert (
        results["done"].message
        == done.message
        == "ann found that it was applied: seen in the dashboard"
    )
    assert (stored.evidence.person, stored.replayed) == (done.evidence.person, True)
    assert {(each.verdict, each.cause): each.count for each in groups} == {
        (Verdict.NOT_APPLIED, "person"): 1,
        (Verdict.UNKNOWN, "no read"): 1,
    }
    assert not_done.evidence.person.by == "ann"


async def test_what_did_not_happen_is_sent_once_it_is_retried(service, client, journal):
    """It is sent at once, because the finding is the proof; the other one stays."""
    async with Batch.open(journal, client) as batch:
        await in_doubt(service, batch, "a", "b", script="reset")
        await batch.resolve("a", applied=True, **BY)
        await batch.resolve("b", applied=False, **BY)
        assert await batch.retry(failed=True) == 1
        results = await all_of(batch)
        assert await counted(batch)
    given = [(each.key, each.basis) for each in results]
    assert given[-1] == ("b", "answered")
    assert [
        entry.body["fields"] for entry in service.ledger.effects("sheets.save_mapping")
    ] == [{"a": "b"}]


async def test_older_write_is_overtaken_by_one_that_a_person_found_applied(
    service, client, journal
):
    """The newer one was sent, and had its effect: the older one is not sent over it."""
    async with Batch.open(journal, client) as batch:
        await in_doubt(service, batch, "older", "newer", script="reset")
        await batch.resolve("older", applied=False, **BY)
        await batch.resolve("newer", applied=True, **BY)
        await batch.retry(failed=True)
        results = {each.key: each for each in await all_of(batch)}
    assert (results["older"].overtaken, results["older"].cause) == (True, "overtaken")
    assert service.arrivals("sheets.save_mapping") == 2


async def test_finding_that_is_refused(service, client, journal):
    """One that is final, an unknown key, a write that waits, and arguments that say nothing."""
    async with Batch.open(journal, client) as batch:
        await all_of(batch, creates(client, 1))
        with pytest.raises(
            JournalError, match="has the verdict applied, which is final"
        ):
            await batch.resolve("row-0", applied=False, **BY)
        with pytest.raises(JournalError, match="is not there"):
            await batch.resolve("row-1", applied=False, **BY)
        with pytest.raises(InvalidRequestError, match="because: must say"):
            await batch.resolve("row-0", applied=True, because="")
        service.script("webhooks.create", "403")
        await all_of(batch, [client.webhooks.create(**HOOK).keyed("refused")])
        await batch.retry(keys=["refused"])
        with pytest.raises(JournalError, match="was never sent"):
            await batch.resolve("refused", applied=True, **BY)


async def test_write_under_way(service, client, journal):
    """Its process finds out: nobody else may say."""
    service.script("sheets.save_mapping", "hang 60")
    async with Batch.open(journal, client) as batch:
        run = batch.run([mapping(client, "k")])
        async with running(run):
            await service.arrived("sheets.save_mapping", 1)
            with pytest.raises(JournalError, match="belongs to a living process"):
                await batch.resolve("k", applied=True, **BY)


async def test_what_a_stopped_run_has_left(service, client, journal):
    """Nobody has it, so it may be resolved; no run sends or settles it then."""
    service.script("sheets.save_mapping", "apply, then hang 60")
    async with Batch.open(journal, client) as batch:
        async with running(batch.run([mapping(client, "k")])):
            await service.arrived("sheets.save_mapping", 1)
            await batch.stop(grace=0.0)
        await batch.resolve("k", applied=True, **BY)
        assert await counted(batch)
    async with Batch.open(journal, client) as batch:
        [result] = await all_of(batch, [mapping(client, "k")])
    assert (result.verdict, result.basis) == (Verdict.APPLIED, "person")
    assert service.arrivals("sheets.save_mapping") == 1


async def test_webhook_that_a_person_found(service, client, journal):
    """Its id is known, so that no other create takes it for its own; its secret is counted as lost."""
    async with Batch.open(journal, client, tag=False) as batch:
        await client.webhooks.list()
        service.script("webhooks.create", "apply, then reset")
        service.script("webhooks.list", "403")
        [result] = await all_of(batch, [client.webhooks.create(**HOOK).keyed("k")])
        assert result.verdict is Verdict.UNKNOWN
        [hook] = await client.webhooks.list()
        await batch.resolve("k", applied=hook.id, **BY)
        [(claim,)] = await batch.entries.store.rows("SELECT claim FROM {s}entries")
        assert (claim, (await batch.summary()).secrets_lost) == (hook.id, 1)
        assert await counted(batch) == {(2, "applied", 1): 1}
