"""A file that cannot be written for a while: what waits in it is sent, and told, once it can."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from invsvc_async import JournalError, Outbox
from invsvc_async.batch import Batch
from tests.batch.writing import all_of
from tests.outbox.conftest import enqueue, finished, update, verdict_of
from tests.support.inside import store_beneath
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


class Lock:
    """Another connection has the file at *path* for itself, until ``let_go``."""

    def __init__(self, path):
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN EXCLUSIVE")

    def let_go(self):
        self._connection.rollback()
        self._connection.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait only briefly for a file that others use."""
    monkeypatch.setattr("invsvc_async.durable.store.sqlite._PATIENCE", 0.05)


async def test_dispatching_that_could_not_release_its_lane(
    service, client, tmp_path, caplog
):
    """It goes on once the file can be written again."""
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        service.script("webhooks.update", "slow 0.3")
        [key] = await enqueue(outbox, update(client, service))
        async with asyncio.timeout(60), outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.update")
            lock = Lock(store_beneath(outbox).path)
            await until(lambda: "nothing is sent" in caplog.text)
            lock.let_go()
            assert (await verdict_of(outbox, key, seconds=60)).applied


async def test_run_that_could_not_release_its_lane(service, client, tmp_path):
    """The next run of the same opening sends."""
    hook = service.seed_webhook()

    def writes():
        return [client.webhooks.update(hook.id, description="x").keyed("a")]

    async with asyncio.timeout(60), Batch.open(tmp_path / "run.db", client) as batch:
        service.script("webhooks.update", "slow 0.3")
        running = asyncio.create_task(all_of(batch, writes()))
        await service.arrived("webhooks.update")
        lock = Lock(tmp_path / "run.db")
        with pytest.raises(JournalError):
            await running
        lock.let_go()
        assert [each.applied for each in await all_of(batch, writes())] == [True]


async def test_consumer_that_could_not_end(service, client, tmp_path):
    """What it has not acknowledged is given to the next one of the same opening."""
    async with asyncio.timeout(60), Outbox.open(tmp_path / "app.db", client) as outbox:
        [key] = await finished(outbox, update(client, service))
        leaving = outbox.results()
        assert (await anext(leaving)).key == key
        lock = Lock(store_beneath(outbox).path)
        await leaving.aclose()
        lock.let_go()
        assert (await anext(outbox.results())).key == key
