"""An outbox in another event loop than the one that opened it: of a thread, or of a forked process."""

from __future__ import annotations

import asyncio

import aiosqlite
import asyncpg
import pytest

from invsvc_async import ConfigurationError, Outbox, Verdict
from tests.batch.conftest import client_of
from tests.outbox.conftest import entries_of, verdict_of
from tests.support.database import database


@pytest.mark.parametrize("where", ["PostgreSQL", "SQLite"])
async def test_outbox_in_another_event_loop(service, client, address, tmp_path, where):
    """Every use is refused in words, and costs the loop that has it nothing."""
    path = address if where == "PostgreSQL" else tmp_path / "app.db"

    def update():
        return client.webhooks.update(service.seed_webhook().id, description="mine")

    async with Outbox.open(path, client) as outbox, outbox.dispatching():

        async def first_result():
            await anext(outbox.results())

        async def dispatch():
            async with outbox.dispatching():
                pass

        uses = (
            lambda: outbox.enqueue(object(), update()),
            lambda: outbox.get("a"),
            lambda: outbox.wait("a"),
            lambda: outbox.send(update()),
            lambda: outbox.retry("a"),
            lambda: outbox.drop("a"),
            lambda: outbox.prune(older_than=0.0),
            first_result,
            dispatch,
            lambda: outbox.__aexit__(None, None, None),
        )

        async def use_all():
            for use in uses:
                with pytest.raises(ConfigurationError, match="event loop that opened it"):
                    await use()

        await asyncio.to_thread(asyncio.run, use_all())
        if where == "PostgreSQL":
            connection = await asyncpg.connect(database().address)
            async with connection.transaction():
                key = await outbox.enqueue(connection, update())
            await connection.close()
        else:
            async with aiosqlite.connect(path) as connection:
                await connection.execute("BEGIN")
                key = await outbox.enqueue(connection, update())
                await connection.commit()
        assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED


@pytest.mark.parametrize("where", ["PostgreSQL", "SQLite"])
async def test_outbox_that_is_open_already(client, address, tmp_path, where):
    """It is not opened again, so that nothing is left open once it is closed."""
    path = address if where == "PostgreSQL" else tmp_path / "app.db"
    outbox = Outbox.open(path, client)
    for _ in range(2):
        async with outbox:
            with pytest.raises(ConfigurationError, match="open already"):
                await outbox.__aenter__()
            assert await entries_of(outbox) == []


async def test_client_of_another_event_loop(service, tmp_path):
    """Dispatching is refused at once, because nothing could be sent."""
    client = client_of(service)
    await client.webhooks.list()

    async def dispatch():
        async with Outbox.open(tmp_path / "app.db", client) as outbox:
            with pytest.raises(ConfigurationError, match="event loop that used it first"):
                async with outbox.dispatching():
                    pass

    await asyncio.to_thread(asyncio.run, dispatch())
    await client.aclose()
