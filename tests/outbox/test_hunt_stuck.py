"""A file that cannot be written for a while: what waits is sent once it can."""

import asyncio
import sqlite3

import pytest

from invsvc_async import JournalError, Outbox
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import all_of
from tests.outbox.conftest import enqueue, update, verdict_of
from tests.support.inside import store_beneath
from tests.support.waiting import until


def locked(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    return other


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("invsvc_async.durable.store.sqlite._PATIENCE", 0.05)


async def test_outbox_goes_on(service, client, tmp_path, caplog):
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        service.script("webhooks.update", "slow 0.3")
        [key] = await enqueue(outbox, update(client, service))
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.update")
            other = locked(store_beneath(outbox).path)
            await until(lambda: "nothing is sent" in caplog.text)
            other.rollback()
            other.close()
            assert (await verdict_of(outbox, key, seconds=10)).applied


async def test_batch_goes_on(service, client, tmp_path):
    async with Batch.open(tmp_path / "run.db", client) as batch:
        service.script("webhooks.update", "slow 0.3")
        hook = service.seed_webhook().id

        def writes():
            return [client.webhooks.update(hook, description="x").keyed("a")]

        running = asyncio.create_task(all_of(batch, writes()))
        await service.arrived("webhooks.update")
        other = locked(tmp_path / "run.db")
        with pytest.raises(JournalError):
            await running
        other.rollback()
        other.close()
        async with asyncio.timeout(10):
            assert [each.applied for each in await all_of(batch, writes())] == [True]
