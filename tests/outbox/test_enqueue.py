"""Enqueueing in a transaction of the application: what it costs, what it refuses, and in which order it counts."""

from __future__ import annotations

import asyncio
import sqlite3

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from invsvc_async import InvalidRequestError, JournalError, Outbox, Verdict
from tests.batch.conftest import HOOK, client_of
from tests.outbox.conftest import (
    Rollback,
    engine_at,
    enqueue,
    entries_of,
    of_asyncpg,
    transaction_of,
    update,
    verdict_of,
)
from tests.support.database import database
from tests.support.database_proxy import database_proxy


async def test_committed_write_is_sent_once_and_rolled_back_never(service, client, connected):
    """On each kind of connection, the transaction decides: the ledger has the committed write, and not the other."""
    outbox, connection, transaction = connected
    async with outbox.dispatching():
        with pytest.raises(Rollback):
            async with transaction():
                gone = await outbox.enqueue(connection, update(client, service, "rolled back"))
                raise Rollback
        async with transaction():
            key = await outbox.enqueue(connection, update(client, service, "committed"))
            assert await outbox.get(key) is None
        outcome = await verdict_of(outbox, key)
    assert outcome.verdict is Verdict.APPLIED
    assert outcome.value.description == "committed"
    assert await outbox.get(gone) is None
    assert [entry.body["description"] for entry in service.ledger.entries] == ["committed"]


async def test_connection_without_a_transaction_is_refused(service, client, connected):
    """Without a transaction nothing is inserted, and the words say what to do."""
    outbox, connection, _ = connected
    with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
        await outbox.enqueue(connection, update(client, service).keyed("alone"))
    assert await outbox._store.entry("alone") is None


@pytest.mark.parametrize("often", [1, 99])
async def test_key_that_is_deleted_meanwhile(service, client, outbox, connection, monkeypatch, often):
    """The write is inserted, or the error says that it is not: nothing is lost."""
    deleted = (
        "WITH gone AS (DELETE FROM {0}.entries WHERE key = $1) SELECT digest FROM {0}.entries WHERE false"
    )
    hidden = "SELECT digest FROM {0}.entries WHERE key = $1 AND false"
    text = deleted if often == 1 else hidden

    async with connection.transaction():
        await outbox.enqueue(connection, update(client, service, "old").keyed("order-1"))
    real = outbox._store._statements

    def changed(place, new):
        return real(place, new)[0], (text.format(place), (new.key,))

    monkeypatch.setattr(outbox._store, "_statements", changed)
    async with connection.transaction():
        enqueued = outbox.enqueue(connection, update(client, service, "new").keyed("order-1"))
        if often == 1:
            await enqueued
        else:
            with pytest.raises(JournalError, match=r"cannot be read\. Nothing was inserted"):
                await enqueued
    if often == 1:
        async with outbox.dispatching():
            assert (await verdict_of(outbox, "order-1")).verdict is Verdict.APPLIED
        assert [entry.body["description"] for entry in service.ledger.effects()] == ["new"]


async def test_session_that_commits_by_itself_is_refused(service, client, outbox):
    """An engine in autocommit mode has no transactions, though its sessions seem to."""
    async with (
        engine_at("asyncpg", isolation_level="AUTOCOMMIT") as engine,
        AsyncSession(engine) as session,
        session.begin(),
    ):
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            await outbox.enqueue(session, update(client, service))


async def test_connection_of_a_session_that_commits_each_statement(service, client, outbox):
    """A session may use one connection in autocommit mode, of which neither it nor its engine knows."""
    async with engine_at("asyncpg") as engine, AsyncSession(engine) as session, session.begin():
        await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            await outbox.enqueue(session, update(client, service))
    assert await entries_of(outbox) == []


async def test_connections_that_are_of_no_use(service, client, outbox, tmp_path):
    """A transaction that has failed, one of another database, and what is not asynchronous: each is named."""
    async with await psycopg.AsyncConnection.connect(database().address) as connection:
        with pytest.raises(psycopg.Error):
            await connection.execute("SELECT 1 FROM nowhere")
        with pytest.raises(InvalidRequestError, match="has failed"):
            await outbox.enqueue(connection, update(client, service))
        await connection.rollback()
    async with aiosqlite.connect(tmp_path / "app.db") as connection:
        await connection.execute("BEGIN")
        with pytest.raises(InvalidRequestError, match="one to SQLite, but the outbox is in PostgreSQL"):
            await outbox.enqueue(connection, update(client, service))
    connection = sqlite3.connect(":memory:")
    with pytest.raises(InvalidRequestError, match="is not supported"):
        await outbox.enqueue(connection, update(client, service))
    connection.close()


async def test_error_on_the_connection_is_the_applications(service, client, outbox, connection):
    """If the database goes away, the error is the driver's; nothing is tried again elsewhere, and nothing is sent."""
    writes = [update(client, service).keyed(key) for key in ("cut", "closed")]
    async with outbox.dispatching():
        transaction = connection.transaction()
        await transaction.start()
        await outbox._store.store.rows("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, InvalidRequestError)):
            await outbox.enqueue(connection, writes[0])
        connection.terminate()
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            await outbox.enqueue(connection, writes[1])
        assert await outbox._store.first(10, None) == []
    assert service.arrivals("webhooks.update") == 0


async def test_same_key_again(service, client, place):
    """The same write under its key is there once; another under that key is refused, and the transaction goes on."""
    hook = service.seed_webhook().id
    one, other = (update(client, service, text, hook).keyed("order-1") for text in "xy")
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        for _ in range(2):  # also after it was sent
            await enqueue(outbox, one, one)
            await verdict_of(outbox, "order-1")
        async with transaction_of(outbox) as connection:
            with pytest.raises(InvalidRequestError, match="another write under the key 'order-1'"):
                await outbox.enqueue(connection, other)
            last = await outbox.enqueue(connection, update(client, service, "z", hook))
        assert (await verdict_of(outbox, last)).verdict is Verdict.APPLIED
    assert [entry.body["description"] for entry in service.ledger.entries] == ["x", "z"]


async def test_writes_that_cannot_be_stored(service, client, outbox, connection):
    """What has begun, is another client's, has a function of this process or is malformed is refused before the insert."""
    begun = update(client, service)
    await begun
    async with client_of(service) as other, connection.transaction():
        with pytest.raises(InvalidRequestError, match="have not begun"):
            await outbox.enqueue(connection, begun)
        with pytest.raises(InvalidRequestError, match="another client"):
            await outbox.enqueue(connection, update(other, service))
        with pytest.raises(InvalidRequestError, match="reader"):
            await outbox.enqueue(connection, client.write("POST", "/things", reader=lambda *_: None))
        with pytest.raises(InvalidRequestError, match="must be a write"):
            await outbox.enqueue(connection, "webhooks.create")
        with pytest.raises(InvalidRequestError, match="url"):
            await outbox.enqueue(connection, client.webhooks.create(**{**HOOK, "url": "nowhere"}))
    assert await outbox._store.first(10, None) == []


async def test_transactions_on_one_thing_count_in_the_order_of_their_commits(service, client, outbox):
    """The second waits until the first has ended; one on another thing does not wait."""
    hook, other = service.seed_webhook().id, service.seed_webhook().id
    async with of_asyncpg() as (one, _), of_asyncpg() as (two, _):
        first, second = one.transaction(), two.transaction()
        await first.start()
        await second.start()
        await outbox.enqueue(one, client.webhooks.update(hook, description="first"))
        await outbox.enqueue(two, client.webhooks.update(other, description="other"))
        waiting = asyncio.create_task(outbox.enqueue(two, client.webhooks.update(hook, description="second")))
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        await first.commit()
        key = await waiting
        await second.commit()
        async with outbox.dispatching():
            await verdict_of(outbox, key)
    sent = [entry.body["description"] for entry in service.ledger.entries if entry.path_id == hook]
    assert sent == ["first", "second"]


async def test_enqueue_is_one_round_trip(service, client, outbox):
    """Once the statement is prepared, an enqueue sends one message and gets one answer; with psycopg always."""
    async with database_proxy() as proxy:
        made = await asyncpg.connect(proxy.address)
        async with made.transaction():
            await outbox.enqueue(made, update(client, service))
            before = proxy.trips
            for _ in range(5):
                await outbox.enqueue(made, update(client, service))
            assert proxy.trips - before == 5
        await made.close()
        async with (
            await psycopg.AsyncConnection.connect(proxy.address) as made,
            made.transaction(),
        ):
            before = proxy.trips
            for _ in range(5):
                await outbox.enqueue(made, update(client, service))
            assert proxy.trips - before == 5


async def test_outbox_of_a_database_that_is_not_there(client):
    """It is an error in words, without the password."""
    outbox = Outbox.open("postgresql://me:hunter2@127.0.0.1:1/none", client)
    outbox._store.store.patience = 0.2
    with pytest.raises(JournalError, match="outbox's database cannot be used") as caught:
        async with outbox:
            pass
    assert "hunter2" not in str(caught.value)
