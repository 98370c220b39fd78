"""Journals of clients whose opening is cancelled, and clients that are used from another event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from invsvc_async import Client, ConfigurationError, JournalError, Verdict, Webhook
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.store import sqlite as sqlite_store
from invsvc_async.testing import serving
from tests.batch.conftest import HOOK, client_of
from tests.support.power_cut import check_that_lasts, cut_power
from tests.support.waiting import cancel, until_no

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def threads_of(path):
    """Return the names of threads that have not ended; one may have done its work just before."""
    return [each.name for each in threading.enumerate() if str(path) in each.name]


async def test_client_is_cancelled_while_its_large_journal_is_checked(
    service, tmp_path, monkeypatch
):
    """The check ends at once, and the file is free for another client of this process."""
    path, begun = tmp_path / "journal.db", threading.Event()
    async with client_of(service, journal=path) as client:
        await client.recover()
    cut_power(path)

    def check(connection, *_):
        begun.set()
        connection.execute(ENDLESS)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_store, "check_file", check)
        entering = asyncio.create_task(client_of(service, journal=path).__aenter__())
        await asyncio.to_thread(begun.wait, 30)
        entering.cancel()
        async with asyncio.timeout(300):
            await asyncio.wait([entering])
    assert entering.cancelled()
    async with client_of(service, journal=path) as client:
        assert await client.recover() == []
    await until_no(lambda: threads_of(path))


@pytest.mark.parametrize("then", ["close", "open"])
async def test_opening_that_is_cancelled(tmp_path, monkeypatch, then):
    """The file stays this owner's while a thread still opens it; no thread is left once it is closed."""
    path = tmp_path / "journal.db"
    await (journal := ClientJournal(path)).open()
    await journal.aclose()
    journal, other = ClientJournal(path), ClientJournal(path)
    async with check_that_lasts(monkeypatch, path) as begun:
        opening = asyncio.create_task(journal.open())
        await begun()
        await cancel(opening)
        with pytest.raises(JournalError, match="is in use"):
            await other.open()
    if then == "open":
        await journal.open()
        assert [intent async for intent in journal.open_intents()] == []
    await journal.aclose()
    await other.open()
    await other.aclose()
    await until_no(lambda: threads_of(path))


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 6])
async def test_close_that_is_cancelled(service, tmp_path, turns):
    """Whenever that happens, the file is released, and the write in flight is in it."""
    path = tmp_path / "journal.db"
    client = await client_of(service, journal=path).__aenter__()
    await client.webhooks.list()
    service.script("webhooks.create", "hang")
    writing = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
    await service.arrived("webhooks.create")
    closing = asyncio.create_task(client.aclose())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, writing])
    for thread in threading.enumerate():
        # it stores what was requested, and then releases the file
        if str(path) in thread.name:
            await asyncio.to_thread(thread.join)
    async with client_of(service, journal=path) as other:
        [outcome] = await other.recover()
    assert outcome.verdict is Verdict.NOT_APPLIED


# what the closed loop had cannot be closed
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.no_secret_scan  # which keeps the client
def test_client_with_a_journal_in_another_event_loop(address):
    """It is refused in words and nothing is sent; once its loop is closed, it can be closed in another one."""

    async def recover(client):
        return await client.recover()

    async def again():
        async with client_of(service, journal=address) as other:
            return await other.recover()

    with serving() as service:
        client = client_of(service, journal=address, headers={"Connection": "close"})
        with asyncio.Runner() as runner:
            runner.run(created(client))
            for use in (created, recover, Client.aclose):
                with pytest.raises(
                    ConfigurationError, match="belongs to the event loop"
                ):
                    asyncio.run(use(client))
        asyncio.run(client.aclose())
        if isinstance(address, Path):  # it is free
            assert asyncio.run(again()) == []
        assert service.arrivals("webhooks.create") == 1
    del client
    gc.collect()


async def created(client: Client) -> Webhook:
    return await client.webhooks.create(**HOOK)
