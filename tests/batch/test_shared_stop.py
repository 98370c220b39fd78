"""Batches in PostgreSQL that are stopped: how soon, whatever the database does."""

from __future__ import annotations

import asyncio
import gc

import pytest

from invsvc_async import JournalError, Timeouts, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.waiting import until


@pytest.fixture
def brief(monkeypatch):
    """Let little time be given to a database at the end of a run."""
    monkeypatch.setattr("invsvc_async.storage.postgres_pool._TO_LEAVE", 0.5)
    monkeypatch.setattr("invsvc_async.batch.open_work._TO_STORE", 0.2)
    # Otherwise, on a busy machine, the run may have to ask the database whether its results are still its own.
    monkeypatch.setattr("invsvc_async.durable.leases.LEASE", 100.0)


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("ends", "graces"), [("silence", [3600.0, 0.0]), ("cut", [0.3])]
)
async def test_stop_without_the_database(service, ends, graces):
    """Stopped while the database hangs or is gone, a run is over soon; the next one does what is left, once."""
    name, loop = f"stop{ends}", asyncio.get_running_loop()
    service.latency = 0.05
    async with (
        client_of(service, timeout=Timeouts(attempt=0.5)) as client,
        database_proxy() as proxy,
    ):
        async with Batch.open(proxy.journal(name), client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 100)))
            await service.arrived("webhooks.create", 20)
            getattr(proxy, ends)()
            # sleeps: so that verdicts meet a database that is away
            await asyncio.sleep(0.3)
            batch.entries.store.patience = 3600.0
            stopped = loop.time()
            stops = []
            for grace in graces:
                stops.append(asyncio.create_task(batch.stop(grace)))
                await asyncio.sleep(0)
            await stops[-1]
            stops[0].cancel()
            await running
            assert loop.time() - stopped < 300.0
            batch.entries.store.patience = 0.3
            with pytest.raises(JournalError, match="away"):
                await batch.summary()
        async with Batch.open(database().journal(name, silence=1), client) as batch:
            await all_of(batch, creates(client, 100))
            assert (await batch.summary()).verdicts == {Verdict.APPLIED: 100}
    assert len(service.ledger.effects()) == 100


@pytest.mark.usefixtures("brief")
async def test_stopped_run_whose_results_may_be_of_others(service):
    """If the database cannot say whose they are, the run ends with its error, and the next one gives them."""
    async with (
        client_of(service, timeout=Timeouts(attempt=2.0)) as client,
        database_proxy() as proxy,
    ):
        async with Batch.open(
            proxy.journal("stophand"), client, concurrency=4
        ) as batch:
            running = batch.run(creates(client, 100))
            await anext(running)
            await until(lambda: running._engine.items.finished)
            proxy.cut()
            await batch.stop(0.3)
            running._dispatcher.leases.until = 0.0  # as after a pause
            batch.entries.store.patience = 0.3
            with pytest.raises(JournalError, match="away"):
                await anext(running)
        async with Batch.open(
            database().journal("stophand", silence=1), client
        ) as batch:
            given = [result.key for result in await all_of(batch, creates(client, 100))]
            assert (await batch.summary()).verdicts == {Verdict.APPLIED: 100}
    # nobody could store that the first was taken
    assert {f"row-{n}" for n in range(1, 100)} <= {*given}
    assert len(given) == len({*given})
    assert len(service.ledger.effects()) == 100


async def test_silent_connection_is_given_up(client, monkeypatch):
    """A connection on which nothing comes back is given up, and the question asked on another."""
    async with (
        database_proxy() as proxy,
        Batch.open(proxy.journal("silent"), client) as batch,
    ):
        with monkeypatch.context() as while_silent:
            while_silent.setattr("invsvc_async.storage.postgres_pool._ANSWER", 0.2)
            proxy.silence()
            asking = asyncio.create_task(batch.summary())
            await asyncio.sleep(0.4)  # sleeps: longer than it waits for an answer
            assert not asking.done()
        proxy.speak()
        assert (await asking).total == 0


async def test_what_was_taken_cannot_be_stored(client, shared):
    """A failure to note which results were taken is not reported as an error that nobody handles."""
    told = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context)
    )
    async with Batch.open(shared, client) as batch:
        run = batch.run(creates(client, 2))
        await anext(run)
        await batch.entries.store.rows("ALTER TABLE {s}unheard RENAME TO gone")
        await batch.stop()
        await batch.entries.store.rows("ALTER TABLE {s}gone RENAME TO unheard")
    del run
    gc.collect()
    assert told == []
