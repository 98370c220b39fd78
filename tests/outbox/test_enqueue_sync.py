"""Enqueueing from synchronous code, in a process or thread that has no event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import suppress

import psycopg
import pytest

from invsvc_async import ApiKey, InvalidRequestError, JournalError, KeyConflictError, Outbox, Verdict
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.outbox.conftest import Rollback, entries_of, of_psycopg as of_awaited, outbox_at, verdict_of
from tests.outbox.sync_connections import POSTGRES, SQLITE, of_connection, of_psycopg, of_session
from tests.support.database_proxy import database_proxy

KINDS = [
    *(pytest.param(made, False, id=f"{name}, PostgreSQL") for name, made in POSTGRES.items()),
    *(pytest.param(made, True, id=f"{name}, SQLite") for name, made in SQLITE.items()),
]


class Application:
    """Synchronous code: it has a client and an outbox of its own, which it never opens."""

    def __init__(self, service, place, path=None, **given):
        self.client = client_of(service, **given)
        self.outbox = Outbox.open(place, self.client)
        self.path = path
        self.hooks = [service.seed_webhook().id for _ in range(4)]

    def update(self, text, key=None, hook=0):
        write = self.client.webhooks.update(self.hooks[hook], description=text)
        return write if key is None else write.keyed(key)

    def enqueue(self, connection, text, key=None, hook=0):
        return self.outbox.enqueue_sync(connection, self.update(text, key, hook))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.mark.parametrize(("made", "in_file"), KINDS)
async def test_transaction_decides(service, client, address, path, made, in_file):
    """The ledger has what was committed, once, and nothing of a transaction or savepoint that was rolled back."""
    place, where = (path, path) if in_file else (address, None)
    async with Outbox.open(place, client) as outbox, outbox.dispatching():
        application = Application(service, place)

        def work():
            with made(where) as (connection, transaction, savepoint):
                with suppress(Rollback), transaction():
                    gone = application.enqueue(connection, "rolled back")
                    raise Rollback
                with transaction():
                    key = application.enqueue(connection, "committed")
                    with suppress(Rollback), savepoint():
                        undone = application.enqueue(connection, "undone")
                        raise Rollback
                    for _ in range(2):
                        assert application.enqueue(connection, "keyed", "order-1") == "order-1"
                    with pytest.raises(KeyConflictError, match="another write under the key 'order-1'"):
                        application.enqueue(connection, "other", "order-1")
                with transaction():
                    last = application.enqueue(connection, "keyed", "order-1")
            return key, last, gone, undone

        key, last, *never = await asyncio.to_thread(work)
        for each in (key, last):
            assert (await verdict_of(outbox, each)).verdict is Verdict.APPLIED
        assert [await outbox.get(each) for each in never] == [None, None]
    assert [entry.body["description"] for entry in service.ledger.entries] == ["committed", "keyed"]


@pytest.mark.parametrize(("made", "in_file"), KINDS)
async def test_connection_without_a_transaction_is_refused(service, client, address, path, made, in_file):
    """What it executes is committed at once, or by nobody. Nothing is inserted."""
    place, where = (path, path) if in_file else (address, None)
    async with Outbox.open(place, client) as outbox:
        application = Application(service, place)

        def work():
            with made(where) as (connection, _, _), pytest.raises(InvalidRequestError) as caught:
                application.enqueue(connection, "alone")
            return str(caught.value)

        assert "closed or not in a transaction" in await asyncio.to_thread(work)
        assert await entries_of(outbox) == []


@pytest.mark.parametrize("made", [of_session, of_connection])
async def test_engine_in_autocommit_mode_is_refused(service, outbox, address, made):
    """It has no transactions, though its sessions seem to."""
    application = Application(service, address)
    with (
        made(None, isolation_level="AUTOCOMMIT") as (connection, transaction, _),
        transaction(),
        pytest.raises(InvalidRequestError, match="closed or not in a transaction"),
    ):
        application.enqueue(connection, "alone")
    with of_session(None) as (session, transaction, _), transaction():
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            application.enqueue(session, "alone")
    assert await entries_of(outbox) == []


async def test_connections_that_are_of_no_use(service, outbox, address, path):
    """A failed transaction, another database, an asynchronous connection and none at all: each is named."""
    application = Application(service, address)
    with of_psycopg(None) as (connection, _, _):
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 FROM nowhere")
        with pytest.raises(InvalidRequestError, match="has failed"):
            application.enqueue(connection, "x")
    connection = sqlite3.connect(path)
    connection.execute("BEGIN")
    with pytest.raises(InvalidRequestError, match="one to SQLite, but the outbox is in PostgreSQL"):
        application.enqueue(connection, "x")
    connection.close()
    async with of_awaited() as (connection, transaction), transaction():
        with pytest.raises(InvalidRequestError, match=r"AsyncConnection is not supported\. .* enqueue takes"):
            application.enqueue(connection, "x")
    with (
        of_psycopg(None) as (connection, transaction, _),
        transaction(),
        pytest.raises(InvalidRequestError, match=r"Connection is not supported\. .* enqueue_sync takes"),
    ):
        await outbox.enqueue(connection, outbox._client.webhooks.update("wh_1", description="x"))
    with pytest.raises(InvalidRequestError, match="a str is not supported"):
        application.enqueue(address, "x")
    assert await entries_of(outbox) == []


async def test_writes_that_cannot_be_stored(service, client, outbox, address):
    """One with a function of this process, one of another client, and what is no write are refused."""
    application = Application(service, address)
    with of_psycopg(None) as (connection, transaction, _), transaction():
        with pytest.raises(InvalidRequestError, match="reader: cannot be stored"):
            write = application.client.write("POST", "/things", reader=lambda *_: None)
            application.outbox.enqueue_sync(connection, write)
        with pytest.raises(InvalidRequestError, match="another client"):
            application.outbox.enqueue_sync(connection, client.webhooks.update("wh_1", description="x"))
        with pytest.raises(InvalidRequestError, match="must be a write"):
            application.outbox.enqueue_sync(connection, "webhooks.update")
    assert await entries_of(outbox) == []


@pytest.mark.parametrize("where", ["other name", "other credential", "SQLite", "SQLite without a table"])
async def test_database_without_such_an_outbox(service, client, outbox, path, address, where):
    """It is refused in words, and the transaction goes on."""
    given = {"credential": ApiKey(service.issue_key())} if where == "other credential" else {}
    if where == "SQLite":
        async with Simulator(seed=9) as elsewhere, client_of(elsewhere) as there, Outbox.open(path, there):
            pass
    in_file = where.startswith("SQLite")
    place = {"other name": outbox_at("nowhere"), "other credential": address}.get(where, path)
    application = Application(service, place, **given)
    made = SQLITE["sqlite3"](path) if in_file else of_psycopg(None)
    with made as (connection, transaction, _), transaction():
        with pytest.raises(JournalError, match=r"no outbox for http.* Nothing was inserted"):
            application.enqueue(connection, "x")
        assert [*connection.execute("SELECT 1")] == [(1,)]
    assert await entries_of(outbox) == []


async def test_outbox_that_continues_one_of_another_credential(service, outbox, address):
    """With ``same_mode``, what a rotated key enqueues goes into the outbox that there is."""
    mine = client_of(service, credential=ApiKey(service.issue_key()))
    hook = service.seed_webhook().id
    with of_psycopg(None) as (connection, transaction, _), transaction():
        rotated = Outbox.open(address, mine, same_mode=True)
        key = rotated.enqueue_sync(connection, mine.webhooks.update(hook, description="x"))
    assert [entry.key for entry in await entries_of(outbox)] == [key]


async def test_outbox_that_only_reads(service, client, outbox, path):
    """It enqueues nothing."""
    async with Outbox.open(path, client):
        pass
    reader = Outbox.open(path, client, reading=True)
    with (
        SQLITE["sqlite3"](path) as (connection, transaction, _),
        transaction(),
        pytest.raises(JournalError, match="opened with reading=True"),
    ):
        reader.enqueue_sync(connection, client.webhooks.update("wh_1", description="x"))


async def test_threads_that_enqueue_at_once(service, client, address, connection):
    """They share one outbox. Each thing gets its writes in the order of the commits."""
    async with Outbox.open(address, client) as outbox, outbox.dispatching():
        application, order, lock = Application(service, address), [], threading.Lock()

        def work(number):
            policy = {"deadline": 100.0 + number}  # a common part of its own
            with of_psycopg(None) as (mine, transaction, _):
                for turn in range(5):
                    with lock, transaction():
                        write = application.update(f"{number}.{turn}").with_policy(**policy)
                        order.append(application.outbox.enqueue_sync(mine, write))

        await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(4)))
        for key in order:
            assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
    texts = [entry.body["description"] for entry in service.ledger.entries]
    assert len(texts) == 20
    for number in range(4):
        mine = [text for text in texts if text.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}" for turn in range(5)]


async def test_enqueue_is_three_round_trips(service, outbox, address):
    """Where the outbox is, the common part, and the write."""
    application = Application(service, address)

    def work():
        with psycopg.connect(proxy.address) as connection, connection.transaction():
            application.enqueue(connection, "first")
            before = proxy.trips
            application.enqueue(connection, "second")
            return proxy.trips - before

    async with database_proxy() as proxy:
        assert await asyncio.to_thread(work) == 3
