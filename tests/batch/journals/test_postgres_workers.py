"""Workers of a batch in PostgreSQL: their list, their signals, what an idle one costs, and how they share."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time

import pytest

from invsvc_async import ConfigurationError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.journals.chunk_workers import Sign
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.journals.postgres_schema import Settings
from invsvc_async.cli.commands.batch_workers import plain_worker
from invsvc_async.durable.entry import Entry, State
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.support.database import database, failing_at_return


@pytest.fixture
def address(request):
    return database().journal(f"w{abs(hash(request.node.name))}", silence=1)


@pytest.fixture
async def journal(address):
    opened = PostgresBatch(address)
    await opened.open()
    yield opened
    await opened.aclose()


async def work(batch):
    return [result async for result in batch.work()]


async def until(condition):
    """Wait until *condition* returns something true."""
    async with asyncio.timeout(30):
        while not (found := await condition()):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
    return found


async def test_two_workers_share_few_writes(service, address):
    """Of 200 writes, which are one chunk, a worker that has nothing to do gets its part."""
    service._app.latency = 0.05
    async with (
        client_of(service) as client,
        client_of(service) as other,
        Batch.open(address, client) as one,
        Batch.open(address, other) as two,
    ):
        helping = asyncio.create_task(work(two))
        await until(one.entries.workers)
        first = await all_of(one, creates(client, 200))
        await two.stop()
        second = await helping
    assert len(first) + len(second) == 200
    assert min(len(first), len(second)) >= 40
    assert len(service.ledger.effects()) == 200


async def test_run_ends_soon_after_the_other_worker(service, address):
    """It does not wait for a heartbeat to see that the other's results were taken."""
    service._app.latency = 0.02
    address = address.replace("silence=1", "silence=3600")
    async with (
        client_of(service) as client,
        client_of(service) as other,
        Batch.open(address, client) as one,
        Batch.open(address, other) as two,
        asyncio.timeout(300),
    ):
        helping = asyncio.create_task(work(two))
        await until(one.entries.workers)
        first = await all_of(one, creates(client, 200))
        await two.stop()
        assert len(first) < len(first + await helping) == 200


async def test_idle_worker_asks_seldom(service, client, address, monkeypatch):
    """It takes one transaction in 0.75 of the time after which a silent worker counts as dead: 0.14 a second by default."""
    asked = []
    async with Batch.open(address, client) as batch:
        running = asyncio.create_task(work(batch))
        await until(batch.entries.workers)
        steadily = batch.entries.steadily
        monkeypatch.setattr(batch.entries, "steadily", lambda act: asked.append(act) or steadily(act))
        await until(lambda: asks_seldom(asked, 2.2))
        await until(lambda: asyncio.sleep(0, asked))
        monkeypatch.undo()
        await batch.stop()
        await running


@pytest.mark.parametrize("lasting", [False, True], ids=["run", "worker"])
async def test_worker_whose_results_wait_asks_seldom(service, client, address, monkeypatch, lasting):
    """Also while nobody takes its results; its run stays alive, so that no other run gives them."""
    seen, asked = "SELECT max(seen) FROM runs WHERE NOT ended", []
    async with Batch.open(address, client, on_secret=lambda *_: None) as batch:
        if lasting:
            service.script("webhooks.create", *["403"] * 30)
            await all_of(batch, creates(client, 30))
            await batch.retry(failed=True)
        running = batch.work() if lasting else batch.run(creates(client, 30))
        await anext(running)
        await until(lambda: done(batch, 30))
        await until(lambda: asyncio.sleep(0, not running._work))
        assert batch.entries.owes_results
        before = (await batch.entries.fetch(seen))[0][0]
        steadily = batch.entries.steadily
        monkeypatch.setattr(batch.entries, "steadily", lambda act: asked.append(act) or steadily(act))
        await until(
            lambda: asks_seldom(asked, 1.6)
        )  # on a busy machine, what follows the last write takes a while
        await until(lambda: asyncio.sleep(0, asked))
        monkeypatch.undo()
        await until(lambda: seen_since(batch, seen, before))


async def asks_seldom(asked, seconds):
    """Whether no more than a transaction in 0.75 seconds was asked for in the next *seconds*."""
    begun, earlier = time.monotonic(), len(asked)
    await asyncio.sleep(seconds)
    return len(asked) - earlier <= 1 + (time.monotonic() - begun) / 0.75


async def seen_since(batch, text, before):
    return (await batch.entries.fetch(text))[0][0] > before


async def test_idle_worker_is_told_of_work(service, client, address):
    """It begins at once, not at its next look."""
    address = address.replace("silence=1", "silence=8")
    async with (
        client_of(service) as other,
        Batch.open(address, client, concurrency=1) as one,
        Batch.open(address, other) as two,
    ):
        helping = asyncio.create_task(work(two))
        await until(one.entries.workers)
        await asyncio.sleep(0.3)
        async with asyncio.timeout(30):
            assert len(await all_of(one, creates(client, 60))) < 60
        await two.stop()
        assert await helping


async def test_database_that_sends_no_signals(service, client, address, monkeypatch, caplog):
    """As behind a pooler in transaction mode: a log line says so, and work is found all the same."""
    for module in ("chunk_workers", "chunk_queue", "chunk_fencing"):
        monkeypatch.setattr(f"invsvc_async.batch.journals.{module}.SIGNAL", "SELECT pg_notify('none', '{}')")
    monkeypatch.setattr("invsvc_async.batch.journals.chunk_workers._ECHO", 0.1)
    address = address.replace("silence=1", "silence=8")
    async with (
        client_of(service) as other,
        Batch.open(address, client) as one,
        Batch.open(address, other) as two,
    ):
        with caplog.at_level(logging.WARNING, "invsvc_async.batch"):
            helping = asyncio.create_task(work(two))
            await until(two.entries.workers)
            await until(lambda: asyncio.sleep(0, "sends no notifications" in caplog.text))
        service._app.latency = 0.05
        results = await all_of(one, creates(client, 200))
        await two.stop()
        assert len(results) + len(await helping) == 200
        assert len(results) < 200


async def done(batch, number):
    return (await batch.summary()).done == number


async def test_list_of_workers(service, client, address, journal):
    """Who they are, where, what they have done, and which of them are silent."""
    await journal.sign(Sign("gone", 7, 1.5, 2))
    await journal.fetch("UPDATE workers SET seen = now() - interval '4 s', begun = now() - interval '1 h'")
    async with Batch.open(address, client) as batch:
        running = asyncio.create_task(work(batch))
        await until(lambda: listed(batch, 2))
        await all_of_other(service, address, 30)
        await until(lambda: done(batch, 30))
        gone, mine, other = await batch.entries.workers()
        await batch.stop()
        await running
        ended = (await batch.entries.workers())[1]
    assert (gone.done, gone.rate, gone.chunks, gone.alive, gone.ended) == (7, 1.5, 2, False, False)
    assert 4 <= gone.silent < 100
    assert (mine.host, mine.pid, mine.alive) == (socket.gethostname(), os.getpid(), True)
    assert (other.ended, other.alive) == (True, False)
    assert ended.ended
    assert ended.done + other.done == 30


async def listed(batch, number):
    return len(await batch.entries.workers()) == number


async def all_of_other(service, address, number):
    async with client_of(service) as other, Batch.open(address, other) as batch:
        await all_of(batch, creates(other, number))


def entries(number, thing=lambda _: None):
    return [
        (Entry(key=f"k{n}", content=b"", state=State.TO_DO, operation="x", intent="{}"), thing(n))
        for n in range(number)
    ]


async def test_divided_chunk_keeps_things_together(journal):
    """Writes to one thing stay in one chunk, and so do those that may have been sent."""
    await journal.hand_out(entries(100, lambda n: f"thing {n % 30}"))
    await journal.fetch("UPDATE entries SET state = 1 WHERE key = 'k99'")
    offer = await journal.next_chunk(Sign("me", 0, 0.0, 0))
    assert await journal.divide(offer.handed.chunk, 3)
    rows = await journal.fetch("SELECT thing, count(DISTINCT chunk) AS n FROM entries GROUP BY thing")
    assert {row["n"] for row in rows} == {1}
    rows = await journal.fetch("SELECT chunk, count(*) AS n FROM entries GROUP BY chunk ORDER BY chunk")
    assert len(rows) == 2
    assert min(row["n"] for row in rows) >= 20
    kept = (await journal.fetch("SELECT chunk FROM entries WHERE key = 'k99'"))[0][0]
    assert kept == offer.handed.chunk


async def test_chunk_that_a_worker_had_is_not_divided(journal):
    """Its writes may be under way, so the next worker settles all of them."""
    await journal.hand_out(entries(100))
    offer = await journal.next_chunk(Sign("me", 0, 0.0, 0))
    await journal.take(offer.handed.chunk, "old.1")
    assert not await journal.divide(offer.handed.chunk, 2)


async def test_worker_that_listens_on_a_connection_that_ends(service, client, address, monkeypatch):
    """It listens on another one, and meanwhile looks for work by itself."""
    monkeypatch.setattr("invsvc_async.batch.journals.chunk_workers._AGAIN", 0.2)
    async with Batch.open(address, client) as batch:
        running = asyncio.create_task(work(batch))
        listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        for _ in range(2):
            rows = await until(lambda: batch.entries.fetch(listening))
            await batch.entries.fetch("SELECT pg_terminate_backend($1)", rows[0][0])
        await all_of_other(service, address, 30)
        await batch.stop()
        await running
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 30}


async def test_listening_that_is_cancelled_as_its_connection_ends(journal, monkeypatch):
    """It ends, also if returning the connection raises in place of the cancellation."""
    monkeypatch.setattr("invsvc_async.batch.journals.chunk_workers._AGAIN", 0.0)
    works = []
    monkeypatch.setattr(journal, "lent", failing_at_return(journal.lent))
    listening = asyncio.create_task(journal.listen(lambda _: None, works.append))
    await until(lambda: asyncio.sleep(0, works))
    listening.cancel()

    done, _ = await asyncio.wait([listening], timeout=30)
    assert done
    assert works == [True, False]


async def test_what_is_done_is_deleted(service, client, address):
    """Chunks that are done, the queue's log and workers of old are deleted, and the batch goes on."""
    async with Batch.open(address, client) as batch:
        await all_of(batch, creates(client, 30))
        journal = batch.entries
        await journal.fetch("UPDATE pgqueuer_log SET created = created - interval '2 hours'")
        await journal.fetch("UPDATE workers SET seen = seen - interval '2 days'")
        await journal.tidy()
        for table in ("pgqueuer_log", "chunks", "workers"):
            assert await journal.fetch(f"SELECT 1 FROM {table}") == []  # noqa: S608 - our own text
        assert len(await all_of(batch, creates(client, 40))) == 10


async def test_runs_that_gave_nothing_are_deleted(service, client, address):
    """Those with results stay, because results are read by their runs; so do runs whose input is open."""
    async with Batch.open(address, client) as batch:
        journal = batch.entries
        first = await all_of(batch, creates(client, 30))
        await all_of(batch)
        await journal.fetch("INSERT INTO runs (run, ended, has_open_input) VALUES (77, true, true)")
        await journal.fetch("INSERT INTO runs (run, ended) VALUES (78, false)")
        await journal.tidy()
        assert len(await journal.fetch("SELECT run FROM runs")) == 4
        await journal.fetch("UPDATE runs SET seen = seen - interval '2 hours'")
        await journal.tidy()
        assert [row["run"] for row in await journal.fetch("SELECT run FROM runs ORDER BY run")] == [1, 77, 78]
        assert {each.key for each in first} == {each.key async for each in batch.results(since=0)}


async def test_command_that_lists_workers(journal, address):
    """It prints each worker, with its state; as JSON, all fields of it."""
    address = address.replace("silence=1", "silence=3600")
    journal.settings = Settings.of(address)
    await journal.sign(Sign("one", 1234, 5.25, 2))
    await journal.sign(Sign("two", 0, 0.0, 0, ended=True))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "batch", "workers", address, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    lines = [line.split("\t")[2:6] for line in out.decode().splitlines()]
    assert lines[1:] == [["working", "1,234", "5.2", "2"], ["ended", "0", "0.0", "0"]]
    one, two = [plain_worker(each) for each in await journal.workers()]
    assert (one["done"], one["rate"], one["alive"], two["ended"]) == (1234, 5.25, True, True)
    assert json.dumps([one, two])


async def test_workers_of_a_file(client, tmp_path):
    """A file has none, and the error says what has."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        with pytest.raises(ConfigurationError, match="a journal in a file has none"):
            await batch.workers()
