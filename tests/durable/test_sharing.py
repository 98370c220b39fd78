"""Processes that share a batch: their list, their signals, what an idle one costs, and how they divide the writes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time

import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.lane_share import LaneShare
from invsvc_async.client import options_of
from invsvc_async.durable.entries import Entries
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.members import Sign
from invsvc_async.errors import JournalError
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates
from tests.durable.stores import end, fill, opened, store_of
from tests.support.database import database, failing_at_return
from tests.support.waiting import until

# s of silence: what happens at beats alone, and what need not wait for one
LONG, SHORT = 3600, 1


@pytest.fixture
def address(request):
    return database().journal(f"w{abs(hash(request.node.nodeid))}", silence=SHORT)


async def work(batch):
    return [result async for result in batch.work()]


async def done(batch, number):
    return (await batch.summary()).done == number


async def shared(service, address, number, *, latency, **settings):
    """Do *number* writes with two workers, the second with *settings*; return how many each has done."""
    service.latency = latency
    async with (
        client_of(service) as client,
        client_of(service) as other,
        Batch.open(address, client, **SECRETS) as one,
        Batch.open(address, other, **SECRETS, **settings) as two,
        asyncio.timeout(300),
    ):
        helping = asyncio.create_task(work(two))
        await until(one.workers)
        first = await all_of(one, creates(client, number))
        await two.stop()
        second = await helping
    assert (
        len({each.key for each in (*first, *second)})
        == len(first) + len(second)
        == number
    )
    told = [(each.key, each.message) for each in (*first, *second) if not each.applied]
    assert told == []
    assert len(service.ledger.effects()) == number
    return len(first), len(second)


@pytest.mark.slow
async def test_two_workers_share_few_writes(service, address):
    """Of 200 writes, each gets its part; the run does not wait for a sign of life to see that all is done."""
    assert (
        min(
            await shared(
                service,
                address.replace("silence=1", f"silence={LONG}"),
                200,
                latency=0.05,
            )
        )
        >= 40
    )


@pytest.mark.slow
async def test_unequal_workers(service, address):
    """One with a single write in flight leaves most of its lanes to the other, which is hungry."""
    # longer than a busy machine stands still
    address = address.replace("silence=1", "silence=10")
    fast, slow = await shared(service, address, 400, latency=0.1, concurrency=1)
    assert 0 < slow < fast / 2


async def test_idle_worker_asks_seldom(client, address, monkeypatch):
    """It asks for little at each sign of life, and for nothing in between."""
    asked = []
    async with Batch.open(address, client, **SECRETS) as batch:
        running = asyncio.create_task(work(batch))
        await until(batch.workers)
        steadily = batch.entries.store.steadily
        monkeypatch.setattr(
            batch.entries.store,
            "steadily",
            lambda act: asked.append(act) or steadily(act),
        )
        await until(lambda: asks_seldom(asked, 8 * SHORT / 4))
        monkeypatch.undo()
        assert asked
        await batch.stop()
        await running


async def asks_seldom(asked, seconds):
    """Return whether at most two transactions for each sign of life were asked for in the next *seconds*."""
    begun, earlier = time.monotonic(), len(asked)
    await asyncio.sleep(seconds)  # sleeps: over which statements are counted
    return len(asked) - earlier <= 2 + 2 * (time.monotonic() - begun) / (SHORT / 4)


async def test_idle_worker_is_told_of_work(service, client, address):
    """It begins at once, not at its next sign of life, and so does one that joins."""
    address = address.replace("silence=1", f"silence={LONG}")
    service.latency = 0.05
    async with (
        client_of(service) as other,
        Batch.open(address, client, concurrency=1, **SECRETS) as one,
        Batch.open(address, other, **SECRETS) as two,
        asyncio.timeout(300),
    ):
        helping = asyncio.create_task(work(two))
        await until(one.workers)
        assert len(await all_of(one, creates(client, 60))) < 60
        await two.stop()
        assert await helping


async def test_sign_of_life_that_fails(service, client, address, monkeypatch):
    """The next one comes within seconds, however seldom they are: before it, the worker has no lanes."""
    address = address.replace("silence=1", f"silence={LONG}")
    # reaches: how long it waits
    monkeypatch.setattr("invsvc_async.batch.signs_of_life._AFTER_FAILURE", 0.1)
    divide, failed = LaneShare.divide, []

    async def fails_at_first(share, *, has_more):
        # The worker asks when it joins, and when it begins to listen.
        if len(failed) < 3:
            failed.append(share)
            raise JournalError("the database is away.") from ConnectionResetError()
        await divide(share, has_more=has_more)

    # reaches: a database that is away for some statements of a worker
    monkeypatch.setattr(LaneShare, "divide", fails_at_first)
    async with Batch.open(address, client, **SECRETS) as batch, asyncio.timeout(300):
        assert len(await all_of(batch, creates(client, 20))) == 20
    assert len(failed) == 3
    assert len(service.ledger.effects()) == 20


async def test_lanes_that_were_released_before_a_worker_listened(
    client, address, monkeypatch
):
    """It acquires them once it listens, not at its next sign of life."""
    address = address.replace("silence=1", f"silence={LONG}")
    hear = Entries.hear
    released = asyncio.Event()

    async def hear_late(entries, woken):
        await released.wait()
        await hear(entries, woken)

    # reaches: a connection that is opened late
    monkeypatch.setattr(Entries, "hear", hear_late)
    async with Batch.open(address, client, **SECRETS) as batch, asyncio.timeout(300):
        store = batch.entries.store
        other = Leases(store, options_of(client).core.clock)
        await other.beat(Sign())
        await other.take(batch.entries.lanes)
        running = asyncio.create_task(work(batch))
        asked, steadily = [], store.steadily
        monkeypatch.setattr(
            store, "steadily", lambda act: asked.append(act) or steadily(act)
        )
        hungry = "SELECT 1 FROM {s}members WHERE hungry = 1"
        await until(lambda: store.rows(hungry))
        await until(lambda: asks_seldom(asked, 8 * SHORT / 4))
        await other.leave()
        released.set()
        owned = "SELECT 1 FROM {s}lanes WHERE owner IS NOT NULL"
        await until(lambda: store.rows(owned))
        await batch.stop()
        await running


async def test_database_that_sends_no_notifications(service, address, monkeypatch):
    """As behind a pooler in transaction mode: work is found at signs of life."""
    monkeypatch.setattr(
        "invsvc_async.durable.store.statements.store_sql.NOTIFY",
        "SELECT {arg 1 text} FROM {rows 2 a:text}",
    )
    assert sum(await shared(service, address, 100, latency=0.05)) == 100


async def test_list_of_workers(service, client, address, monkeypatch):
    """Who they are, where, what they have done, and which of them are silent."""
    # reaches: so that the one that leaves says so, however slow the database is
    monkeypatch.setattr("invsvc_async.storage.postgres_pool._TO_LEAVE", 300.0)
    address = address.replace(f"silence={SHORT}", "silence=60")
    async with Batch.open(address, client, **SECRETS) as batch:
        gone = Leases(batch.entries.store, options_of(client).core.clock)
        await gone.beat(said("gone", 7, 1.5, 2))
        await batch.entries.store.rows(
            "UPDATE {s}members SET seen = seen - 240, begun = begun - 3600"
        )
        running = asyncio.create_task(work(batch))
        await until(lambda: has_workers(batch, 2))
        async with (
            client_of(service) as other,
            Batch.open(address, other, **SECRETS) as more,
        ):
            await all_of(more, creates(other, 30))
        await until(lambda: done(batch, 30))
        silent, mine, left = await batch.workers()
        await batch.stop()
        await running
        ended = (await batch.workers())[1]
    assert (silent.done, silent.rate, silent.lanes, silent.alive, silent.ended) == (
        7,
        1.5,
        2,
        False,
        False,
    )
    assert 240 <= silent.silent < 3600
    assert (mine.host, mine.pid, mine.alive) == (
        socket.gethostname(),
        os.getpid(),
        True,
    )
    assert (left.ended, left.alive, ended.ended) == (True, False, True)
    assert ended.done + left.done == 30


def said(host, done, rate, lanes):
    return Sign(
        status=json.dumps(
            {"host": host, "pid": 1, "done": done, "rate": rate, "lanes": lanes}
        )
    )


async def has_workers(batch, number):
    return len(await batch.workers()) == number


async def test_worker_that_listens_on_a_connection_that_ends(
    service, client, address, monkeypatch
):
    """It listens on another one, and meanwhile looks for work by itself."""
    monkeypatch.setattr("invsvc_async.durable.store.postgres._RECONNECT", 0.2)
    address = address.replace("silence=1", f"silence={LONG}")
    async with Batch.open(address, client, **SECRETS) as batch:
        running = asyncio.create_task(work(batch))
        listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        for _ in range(2):
            rows = await until(lambda: batch.entries.store.rows(listening))
            await batch.entries.store.rows(
                "SELECT pg_terminate_backend($1)", rows[0][0]
            )
        async with (
            client_of(service) as other,
            Batch.open(address, other, **SECRETS) as more,
        ):
            await all_of(more, creates(other, 30))
        await batch.stop()
        await running
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 30}


async def test_listening_that_is_cancelled_as_its_connection_ends(
    monkeypatch, tmp_path, request
):
    """It ends, also if returning the connection raises in place of the cancellation."""
    async with opened(store_of("PostgreSQL", tmp_path, request.node.nodeid)) as store:
        heard = []
        monkeypatch.setattr(store, "lent", failing_at_return(store.lent))
        listening = asyncio.create_task(store.listen(heard.append))
        await until(lambda: asyncio.sleep(0, heard))
        listening.cancel()
        ended, _ = await asyncio.wait([listening], timeout=300)
        assert ended
        assert heard == [""]


@pytest.mark.parametrize("lost", [True, False])
async def test_results_of_a_process_that_was_silent(client, tmp_path, request, lost):
    """It gives what nobody has taken over meanwhile, and all that it finishes from then on."""
    clock = options_of(client).core.clock
    async with opened(
        store_of("PostgreSQL", tmp_path, request.node.nodeid, lanes=1)
    ) as store:
        silent, other = (
            Leases(store, clock, gives=True),
            Leases(store, clock, gives=True),
        )
        await silent.beat()
        (lane,) = await silent.take(1)
        first, second = await fill(store, "first", "second")
        first.taker = silent.taker
        await end(lane, first)
        await store.rows("UPDATE {s}members SET seen = seen - 3600")
        silent.until = 0.0
        if lost:
            await other.beat()
            assert [entry.key for entry in await Consumer(other).take(9)] == ["first"]
        await silent.beat()
        second.taker = silent.taker
        await end(lane, second)
        assert first.taker != second.taker
        assert await Consumer(silent).has(first) is not lost
        assert await Consumer(silent).has(second)
        assert await Consumer(other).take(9) == []
