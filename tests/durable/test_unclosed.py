"""Clients with a journal that are cancelled while they open or close, or never closed: the file is free soon."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref

import anyio
import pytest

from invsvc_async import JournalError
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.store import sqlite as sqlite_store
from tests.batch.conftest import client_of
from tests.support.database import connected
from tests.support.inside import store_beneath
from tests.support.waiting import forever, until, until_no

pytestmark = pytest.mark.silence(1)


def threads_of(path):
    """Return the threads that have the file, or are about to."""
    return [each.name for each in threading.enumerate() if str(path) in each.name]


def threads_left_of(path):
    """Return the same, after a collection: until a moment ago, a callback may have held what has the file."""
    gc.collect()
    return threads_of(path)


@pytest.mark.parametrize("turns", range(1, 12))
@pytest.mark.parametrize("apart", range(3))
async def test_first_use_that_is_cancelled_twice(service, tmp_path, turns, apart):
    """Whenever that happens, the next use of the same client has the journal, and its close releases it."""
    path = tmp_path / "calls.db"
    client = client_of(service, journal=path)
    using = asyncio.create_task(client.recover())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    for _ in range(apart):
        await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait([using])

    assert await client.recover() == []
    await client.aclose()
    assert threads_of(path) == []
    async with client_of(service, journal=path) as other:
        assert await other.recover() == []


@pytest.mark.parametrize("way", ["first use", "async with"])
@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.002, 0.005, 0.01])
async def test_cancelled_scope_around_the_opening(service, tmp_path, way, delay):
    """A scope that cancels each await again leaves nothing locked: not while it ends, and not after it."""
    path = tmp_path / "calls.db"
    client = client_of(service, journal=path)
    with anyio.move_on_after(delay):
        if way == "first use":
            await client.recover()
        else:
            async with client:
                await forever()
    if way == "first use":
        assert await client.recover() == []
        await client.aclose()

    assert threads_of(path) == []
    async with client_of(service, journal=path) as other:
        assert await other.recover() == []


async def test_cancelled_scope_around_the_close(service, tmp_path, monkeypatch):
    """The file is released before the scope ends, and a second close returns once that is so."""
    path, go_on = tmp_path / "calls.db", threading.Event()
    client = await client_of(service, journal=path).__aenter__()
    ended = sqlite_store.LockedConnection.close

    def slow_close(connection):
        go_on.wait(30)
        ended(connection)

    monkeypatch.setattr(sqlite_store.LockedConnection, "close", slow_close)
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.05)  # sleeps: so that a thread closes the file
    again = asyncio.create_task(client.aclose())
    for _ in range(3):
        closing.cancel()
        await asyncio.sleep(0.01)  # sleeps: in which it would end
    assert not (closing.done())
    assert not (again.done())
    go_on.set()
    await asyncio.wait([closing, again])

    assert closing.cancelled()
    assert again.exception() is None
    assert threads_of(path) == []


async def test_client_that_is_dropped_without_being_closed(service, address):
    """It is collected, its thread ends, and the file is free; in a database, it gives no sign of life any more."""
    client = client_of(service, journal=address)
    await client.recover()
    core = options_of(client).core
    dropped = weakref.ref(core.writes.journal)
    name = core.writes.journal.life.own.leases.name
    del client, core
    gc.collect()

    assert dropped() is None
    if not str(address).startswith("postgres"):
        await until_no(lambda: threads_left_of(address))
    async with client_of(service, journal=address) as other:
        assert await other.recover() == []
    if str(address).startswith("postgres"):
        schema = store_beneath(other).schema
        async with connected() as database:
            text = f"SELECT seen FROM {schema}.members WHERE name = $1"
            before = await database.fetchval(text, name)
            # sleeps: two signs of life of a journal whose silence is 1 s
            await asyncio.sleep(0.6)
            assert await database.fetchval(text, name) == before


async def test_client_that_is_not_collected_yet(service, tmp_path):
    """Opening the file collects what was dropped in a cycle."""
    path = tmp_path / "calls.db"
    client = client_of(service, journal=path)
    await client.recover()
    client.itself = client
    del client

    async with client_of(service, journal=path) as other:
        assert await other.recover() == []


async def test_client_that_is_still_there(service, tmp_path):
    """The error says that it is this process, and what to do."""
    path = tmp_path / "calls.db"
    async with client_of(service, journal=path):
        expected = rf"in use by this process itself \({os.getpid()}\).*was never closed\. Close that first"
        with pytest.raises(JournalError, match=expected):
            await client_of(service, journal=path).recover()


async def test_batch_that_is_dropped_without_being_closed(service, client, tmp_path):
    """It releases its journal when it is collected."""
    path = tmp_path / "run.db"
    batch = await Batch.open(path, client).__aenter__()
    del batch

    await until_no(lambda: threads_left_of(path))


@pytest.mark.parametrize("turns", range(1, 10))
async def test_batch_whose_opening_is_cancelled_twice(service, client, tmp_path, turns):
    """The same batch can be opened again."""
    path = tmp_path / "run.db"
    batch = Batch.open(path, client)
    entering = asyncio.create_task(batch.__aenter__())
    for _ in range(turns):
        await asyncio.sleep(0)
    entering.cancel()
    await asyncio.sleep(0)
    entering.cancel()
    await asyncio.wait([entering])
    if not entering.cancelled():
        await batch.__aexit__(None, None, None)

    async with batch:
        pass
    assert threads_of(path) == []


async def test_journal_with_a_hung_disk(tmp_path, monkeypatch):
    """A cancelled close ends all the same, after its bound."""
    path, go_on = tmp_path / "calls.db", threading.Event()
    await (journal := ClientJournal(path)).open()
    ended = sqlite_store.LockedConnection.close
    monkeypatch.setattr(
        sqlite_store.LockedConnection, "close", lambda one: (go_on.wait(30), ended(one))
    )
    monkeypatch.setattr("invsvc_async.concurrency.cancellation.TO_FINISH", 0.05)
    closing = asyncio.create_task(journal.aclose())
    await asyncio.sleep(0.05)  # sleeps: so that a thread closes the file
    closing.cancel()
    await asyncio.wait([closing], timeout=30)

    assert closing.cancelled()
    go_on.set()
    await until(lambda: not threads_of(path))
