"""Choosing the writes that are to do again, in journals of both kinds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from invsvc_async import InvalidRequestError, JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.durable.store.sqlite import DIALECT
from invsvc_async.durable.store.statements.entry_sql import REOPEN_CHOSEN
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates, run_all
from tests.support.database import database

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["file", "database"])
def journal(request, tmp_path):
    """Return a journal for this test, of both kinds."""
    if request.param == "file":
        return tmp_path / "run.db"
    return database().journal(f"a{abs(hash(request.node.name))}", silence=30)


async def keys_to_do(batch):
    """Return the keys that the next run sends."""
    return [entry.key for entry in await batch.entries.not_done(100)]


async def test_retry_of_keys(service, client, journal):
    """Only writes with these keys are to do again, and not those that are applied."""
    service.script("webhooks.create", *["403"] * 4, "pass")
    async with Batch.open(journal, client, concurrency=1) as batch:
        await all_of(batch, creates(client, 5))
        assert await batch.retry(keys=["row-1", "row-3", "row-4", "none"]) == 2
        assert await keys_to_do(batch) == ["row-1", "row-3"]
        assert await batch.retry(keys=["row-0"], verdict="unknown") == 0
        assert await batch.retry(keys=[]) == 0


async def test_retry_of_what_failed(service, client, journal):
    """Several verdicts, or all writes that were not applied."""
    service.script("webhooks.create", "403", "apply, then reset", "pass", "403")
    service.script("webhooks.list", *["403"] * 9)
    async with Batch.open(journal, client, concurrency=1) as batch:
        results = await all_of(batch, creates(client, 4))
        assert [each.verdict for each in results] == [
            "refused",
            "unknown",
            "applied",
            "refused",
        ]
        assert await batch.retry(verdict=[Verdict.UNKNOWN, "not applied"]) == 1
        assert await batch.retry(failed=True) == 2
        assert await keys_to_do(batch) == ["row-0", "row-1", "row-3"]


def names(service):
    """Return the names that took effect, in their order."""
    return [entry.body["name"] for entry in service.ledger.effects("journeys.update")]


async def test_overtaken_write_has_a_reason_of_its_own(service, client, journal):
    """One that a newer write has overtaken is not sent; its result, the journal and the summary say so, also later."""
    journey = service.seed_journey()
    service.script("journeys.update", "403")
    writes = [
        client.journeys.update(journey.id, name=name).keyed(name)
        for name in ("k1", "k2")
    ]
    first = await run_all(journal, client, writes)
    async with client_of(service) as other, Batch.open(journal, other) as batch:
        assert await batch.retry(verdict=Verdict.REFUSED) == 1
        [result] = await all_of(batch)
        assert (result.key, result.verdict, result.overtaken) == (
            "k1",
            Verdict.NOT_APPLIED,
            True,
        )
        assert "a newer write of this program" in result.message
        assert [(each.key, each.overtaken) async for each in batch.results()] == [
            ("k1", True),
            ("k2", False),
        ]
        summary = await batch.summary()
        assert (summary.verdicts[Verdict.NOT_APPLIED], summary.overtaken) == (1, 1)
    assert {each.key: each.verdict for each in first} == {
        "k1": "refused",
        "k2": "applied",
    }
    assert (names(service), service.arrivals("journeys.update")) == (["k2"], 2)


async def test_forced_writes_keep_their_order(service, client, journal):
    """Sent as the newest writes of one thing, in the order of the input; they are not overtaken by those before."""
    journey = service.seed_journey()
    service.script("journeys.update", "403", "403", "403")
    writes = [
        client.journeys.update(journey.id, name=name).keyed(name)
        for name in ("k1", "k2", "k3", "k4")
    ]
    async with Batch.open(journal, client) as batch:
        await all_of(batch, writes)
        await batch.retry(failed=True)
        assert {each.overtaken for each in await all_of(batch)} == {True}
        assert await batch.retry(failed=True, force=True) == 3
        assert {(each.verdict, each.overtaken) for each in await all_of(batch)} == {
            (Verdict.APPLIED, False)
        }
        assert (await batch.summary()).overtaken == 0
        assert await batch.retry(failed=True, force=True) == 0
    assert names(service) == ["k4", "k1", "k2", "k3"]


def stopped_after(run, count):
    """Return *run* that fails after *count* scripts, as if the process ended."""
    left = iter(range(count))

    async def ran(script):
        if next(left, None) is None:
            raise JournalError("stopped")
        return await run(script)

    return ran


@pytest.mark.parametrize("force", [False, True])
async def test_retry_and_prune_that_are_stopped(
    service, client, journal, monkeypatch, force
):
    """Each slice is whole: nothing is moved and not reopened. The next call does the rest."""
    monkeypatch.setattr("invsvc_async.durable.entries._AT_ONCE", 2)
    monkeypatch.setattr("invsvc_async.durable.entries._LOOKED_AT", 2)
    journey = service.seed_journey()
    service.script("journeys.update", *["403"] * 6)
    names_asked = [f"k{number}" for number in range(7)]
    writes = [
        client.journeys.update(journey.id, name=name).keyed(name)
        for name in names_asked
    ]
    async with Batch.open(journal, client) as batch:
        await all_of(batch, writes)
        store = batch.entries.store
        monkeypatch.setattr(store, "run", stopped_after(store.run, 2))
        with pytest.raises(JournalError, match="stopped"):
            await batch.retry(verdict="refused", force=force)
        monkeypatch.delattr(store, "run")
        again = await keys_to_do(batch)
        assert again == names_asked[: len(again)]
        assert len(again) == 4
        assert await batch.retry(verdict="refused", force=force) + len(again) == 6
        await all_of(batch)
        assert await batch.prune(done_before=FAR) == 7
        assert await batch.prune(done_before=FAR) == 0
    assert names(service) == ["k6", *names_asked[:6]] if force else ["k6"]


async def test_retry_of_nothing_in_particular(client, journal):
    """Something must be chosen, and applied writes cannot be."""
    bad = (
        ({}, "failed"),
        ({"verdict": ["refused", "applied"]}, "second effect"),
        ({"verdict": "other"}, "other"),
        ({"keys": "row-1"}, "keys"),
    )
    async with Batch.open(journal, client) as batch:
        for chosen, words in bad:
            with pytest.raises(InvalidRequestError, match=words):
                await batch.retry(**chosen)


async def test_retry_does_not_write_the_index_of_keys(client, tmp_path):
    """The entries of one slice are neighbours, but their keys are spread over the whole file."""
    text, values = DIALECT.translated(REOPEN_CHOSEN, ([(1, "{}", None)],))
    async with Batch.open(tmp_path / "run.db", client) as batch:
        index = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_entries_1'"
        [(keys,)] = await batch.entries.store.rows(index)
        steps = await batch.entries.store.ask(
            lambda connection: connection.execute(f"EXPLAIN {text}", values).fetchall()
        )
    written = {step[3] for step in steps if step[1] == "OpenWrite"}
    assert written
    assert keys not in written
