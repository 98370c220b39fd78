"""Enqueueing in a transaction of the application, awaited or from synchronous code: what counts, and what is refused."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from invsvc_async import (
    ApiKey,
    InvalidRequestError,
    JournalError,
    KeyConflictError,
    Outbox,
    Verdict,
)
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.outbox.conftest import (
    CONNECTIONS,
    Rollback,
    engine_at,
    entries_of,
    of_asyncpg,
    of_psycopg as of_awaited,
    outbox_at,
    update,
    verdict_of,
    verdicts_of,
    written,
)
from tests.outbox.sync_connections import (
    POSTGRES,
    SQLITE,
    of_connection,
    of_psycopg,
    of_session,
)
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.inside import outbox_entries, store_beneath

SYNCHRONOUS = {f"{name}, synchronous": made for name, made in POSTGRES.items()} | {
    f"{name}, sqlite, synchronous": made for name, made in SQLITE.items()
}


@asynccontextmanager
async def in_a_thread(made):
    """Enter a connection of synchronous code in a thread of its own; yield it, what begins its transactions, and the thread."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        run = partial(loop.run_in_executor, thread)

        @asynccontextmanager
        async def entered(begin):
            manager = await run(begin)
            found = await run(manager.__enter__)
            try:
                yield found
            except BaseException as error:
                await run(manager.__exit__, type(error), error, error.__traceback__)
                raise
            await run(manager.__exit__, None, None, None)

        async with entered(made) as (connection, transaction, savepoint):
            yield (
                connection,
                partial(entered, transaction),
                partial(entered, savepoint),
                run,
            )


@pytest.fixture(params=[*CONNECTIONS, *SYNCHRONOUS])
async def application(request, address, tmp_path, service, client):
    """
    Yield an application that has a connection of each kind, and an open outbox.

    Synchronous code has a client and an outbox of its own, which it never opens.
    """
    place = tmp_path / "app.db" if "sqlite" in request.param else address
    path = None if place == address else place
    async with Outbox.open(place, client) as outbox:
        if request.param in CONNECTIONS:
            async with CONNECTIONS[request.param](path) as (connection, begin):
                nested = getattr(connection, "begin_nested", None if path else begin)
                put = partial(outbox.enqueue, connection)
                yield SimpleNamespace(
                    client=client,
                    outbox=outbox,
                    transaction=begin,
                    savepoint=nested,
                    enqueue=put,
                )
            return
        made = partial(SYNCHRONOUS[request.param], path)
        async with (
            client_of(service) as own,
            in_a_thread(made) as (connection, begin, nested, run),
        ):
            put = partial(run, Outbox.open(place, own).enqueue_sync, connection)
            yield SimpleNamespace(
                client=own,
                outbox=outbox,
                transaction=begin,
                savepoint=nested,
                enqueue=put,
            )


async def test_transaction_decides(service, application):
    """The ledger has what was committed, once, and nothing of a transaction or savepoint that was rolled back."""
    hook = service.seed_webhook().id

    def put(text, key=None):
        write = update(application.client, service, text, hook)
        return application.enqueue(write if key is None else write.keyed(key))

    async with application.outbox.dispatching():
        with suppress(Rollback):
            async with application.transaction():
                never = [await put("rolled back")]
                raise Rollback
        async with application.transaction():
            keys = [await put("committed")]
            if application.savepoint is not None:
                with suppress(Rollback):
                    async with application.savepoint():
                        never.append(await put("undone"))
                        raise Rollback
            keys += [await put("keyed", "order-1") for _ in range(2)]
            with pytest.raises(
                KeyConflictError, match="another write under the key 'order-1'"
            ):
                await put("other", "order-1")
        async with application.transaction():
            keys.append(await put("keyed", "order-1"))
        assert keys[1:] == ["order-1"] * 3
        assert await verdicts_of(application.outbox, keys) == [Verdict.APPLIED] * 4
        assert [await application.outbox.get(key) for key in never] == [None] * len(
            never
        )
    assert written(service.ledger.entries) == ["committed", "keyed"]


async def test_connection_without_a_transaction_is_refused(service, application):
    """What it executes is committed at once, or by nobody. Nothing is inserted."""
    with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
        await application.enqueue(update(application.client, service))
    assert await entries_of(application.outbox) == []


async def test_session_that_commits_by_itself_is_refused(service, client, outbox):
    """An engine in autocommit mode has no transactions, though its sessions seem to; so has one such connection."""
    for whole in (True, False):
        given = {"isolation_level": "AUTOCOMMIT"} if whole else {}
        async with (
            engine_at("asyncpg", **given) as engine,
            AsyncSession(engine) as session,
            session.begin(),
        ):
            if not whole:
                await session.connection(
                    execution_options={"isolation_level": "AUTOCOMMIT"}
                )
            with pytest.raises(
                InvalidRequestError, match="closed or not in a transaction"
            ):
                await outbox.enqueue(session, update(client, service))
    assert await entries_of(outbox) == []


@pytest.mark.parametrize("made", [of_session, of_connection, "a session's connection"])
async def test_engine_of_synchronous_code_that_commits_by_itself_is_refused(
    client, outbox, made
):
    """The same is true of its sessions and connections."""
    mode = {"isolation_level": "AUTOCOMMIT"}
    opened = made(None, **mode) if callable(made) else of_session(None)
    with opened as (connection, transaction, _), transaction():
        if not callable(made):
            connection.connection(execution_options=mode)
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            outbox.enqueue_sync(
                connection, client.webhooks.update("wh_1", description="x")
            )
    assert await entries_of(outbox) == []


async def test_connections_that_are_of_no_use(
    service, client, outbox, address, tmp_path
):
    """A failed transaction, another database, one of the other kind of code, a pool and none at all: each is named."""
    write = update(client, service)
    async with of_awaited() as (connection, _):
        with pytest.raises(psycopg.Error):
            await connection.execute("SELECT 1 FROM nowhere")
        with pytest.raises(InvalidRequestError, match="has failed"):
            await outbox.enqueue(connection, write)
        await connection.rollback()
    with of_psycopg(None) as (connection, transaction, _):
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 FROM nowhere")
        with pytest.raises(InvalidRequestError, match="has failed"):
            outbox.enqueue_sync(connection, write)
        connection.rollback()
        with (
            transaction(),
            pytest.raises(
                InvalidRequestError,
                match=r"Connection is not supported\. .* enqueue_sync takes",
            ),
        ):
            await outbox.enqueue(connection, write)
    async with of_awaited() as (connection, transaction), transaction():
        with pytest.raises(
            InvalidRequestError,
            match=r"AsyncConnection is not supported\. .* enqueue takes",
        ):
            outbox.enqueue_sync(connection, write)
    async with aiosqlite.connect(tmp_path / "app.db") as connection:
        await connection.execute("BEGIN")
        with pytest.raises(
            InvalidRequestError, match="one to SQLite, but the outbox is in PostgreSQL"
        ):
            await outbox.enqueue(connection, write)
    with sqlite3.connect(tmp_path / "app.db", isolation_level=None) as connection:
        connection.execute("BEGIN")
        with pytest.raises(
            InvalidRequestError, match="one to SQLite, but the outbox is in PostgreSQL"
        ):
            outbox.enqueue_sync(connection, write)
        with pytest.raises(InvalidRequestError, match="is not supported"):
            await outbox.enqueue(connection, write)
    connection.close()
    async with asyncpg.create_pool(database().address, min_size=1, max_size=1) as pool:
        with pytest.raises(
            InvalidRequestError, match="connection: Pool is not supported"
        ):
            await outbox.enqueue(pool, write)
    with pytest.raises(InvalidRequestError, match="connection: str is not supported"):
        outbox.enqueue_sync(address, write)
    assert await entries_of(outbox) == []


async def test_connection_to_another_database_than_that_of_a_file(
    service, client, tmp_path
):
    """One to PostgreSQL is refused, and so is a closed one; in another file, the driver finds no table."""
    async with Outbox.open(tmp_path / "app.db", client) as outbox:
        async with aiosqlite.connect(tmp_path / "other.db") as other:
            await other.execute("BEGIN")
            with pytest.raises(
                aiosqlite.OperationalError, match="no such table: invsvc_outbox"
            ):
                await outbox.enqueue(other, update(client, service))
        async with aiosqlite.connect(tmp_path / "app.db") as closed:
            pass
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            await outbox.enqueue(closed, update(client, service))
        async with of_asyncpg() as (other, transaction), transaction():
            with pytest.raises(
                InvalidRequestError,
                match="one to PostgreSQL, but the outbox is in SQLite",
            ):
                await outbox.enqueue(other, update(client, service))
        assert await entries_of(outbox) == []


async def test_writes_that_cannot_be_stored(service, client, outbox, connection):
    """What has begun, is another client's, has a function of this process or is no write is refused before the insert."""
    begun = update(client, service)
    await begun
    async with client_of(service) as stranger, connection.transaction():
        bad = {
            "have not begun": begun,
            "another client": update(stranger, service),
            "reader: cannot be stored": client.write(
                "POST", "/things", reader=lambda *_: None
            ),
            "must be a write": "webhooks.create",
        }
        with of_psycopg(None) as (other, transaction, _), transaction():
            for words, write in bad.items():
                with pytest.raises(InvalidRequestError, match=words):
                    await outbox.enqueue(connection, write)
                with pytest.raises(InvalidRequestError, match=words):
                    outbox.enqueue_sync(other, write)
    assert await entries_of(outbox) == []


@pytest.mark.parametrize("often", [1, 99])
async def test_key_that_is_deleted_meanwhile(
    service, client, outbox, connection, monkeypatch, often
):
    """The write is inserted, or the error says that it is not: nothing is lost."""
    deleted = "WITH gone AS (DELETE FROM {0}.entries WHERE key = $1) SELECT digest FROM {0}.entries WHERE false"
    hidden = "SELECT digest FROM {0}.entries WHERE key = $1 AND false"
    text = deleted if often == 1 else hidden

    async with connection.transaction():
        await outbox.enqueue(
            connection, update(client, service, "old").keyed("order-1")
        )
    real = outbox_entries(outbox).enqueuing.statements

    def changed(place, new):
        return real(place, new)[0], (text.format(place), (new.key,))

    monkeypatch.setattr(outbox_entries(outbox).enqueuing, "statements", changed)
    async with connection.transaction():
        enqueued = outbox.enqueue(
            connection, update(client, service, "new").keyed("order-1")
        )
        if often == 1:
            await enqueued
        else:
            with pytest.raises(
                JournalError, match=r"cannot be read\. Nothing was inserted"
            ):
                await enqueued
    if often == 1:
        async with outbox.dispatching():
            assert (await verdict_of(outbox, "order-1")).verdict is Verdict.APPLIED
        assert written(service.ledger.effects()) == ["new"]


async def test_error_on_the_connection_is_the_applications(
    service, client, outbox, connection
):
    """If the database goes away, the error is the driver's; nothing is tried again elsewhere, and nothing is sent."""
    writes = [update(client, service).keyed(key) for key in ("cut", "closed")]
    async with outbox.dispatching():
        transaction = connection.transaction()
        await transaction.start()
        await store_beneath(outbox).rows(
            "SELECT pg_terminate_backend($1)", connection.get_server_pid()
        )
        with pytest.raises(
            (asyncpg.PostgresError, asyncpg.InterfaceError, InvalidRequestError)
        ):
            await outbox.enqueue(connection, writes[0])
        connection.terminate()
        with pytest.raises(InvalidRequestError, match="closed or not in a transaction"):
            await outbox.enqueue(connection, writes[1])
        assert await outbox_entries(outbox).first(10) == []
    assert service.arrivals("webhooks.update") == 0


async def test_transactions_on_one_thing_count_in_the_order_of_their_commits(
    service, client, outbox
):
    """The second waits until the first has ended; one on another thing does not wait."""
    hook, other = service.seed_webhook().id, service.seed_webhook().id
    async with of_asyncpg() as (one, _), of_asyncpg() as (two, _):
        first, second = one.transaction(), two.transaction()
        await first.start()
        await second.start()
        await outbox.enqueue(one, update(client, service, "first", hook))
        await outbox.enqueue(two, update(client, service, "other", other))
        waiting = asyncio.create_task(
            outbox.enqueue(two, update(client, service, "second", hook))
        )
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        await first.commit()
        key = await waiting
        await second.commit()
        async with outbox.dispatching():
            await verdict_of(outbox, key)
    assert written(service.ledger.entries, hook) == ["first", "second"]


async def test_enqueue_is_one_round_trip(service, client, outbox):
    """Once the statement is prepared, an enqueue sends one message and gets one answer; with psycopg always."""

    async def trips(connection, many):
        before = proxy.trips
        for _ in range(many):
            await outbox.enqueue(connection, update(client, service))
        return proxy.trips - before

    async with database_proxy() as proxy:
        made = await asyncpg.connect(proxy.address)
        async with made.transaction():
            await trips(made, 1)
            assert await trips(made, 5) == 5
        await made.close()
        async with (
            await psycopg.AsyncConnection.connect(proxy.address) as made,
            made.transaction(),
        ):
            assert await trips(made, 5) == 5


@pytest.mark.parametrize(
    "where", ["other name", "other credential", "SQLite", "SQLite without a table"]
)
async def test_database_without_such_an_outbox(
    service, client, outbox, tmp_path, address, where
):
    """It is refused in words, and the transaction goes on."""
    path = tmp_path / "app.db"
    given = (
        {"credential": ApiKey(service.issue_key())}
        if where == "other credential"
        else {}
    )
    if where == "SQLite":
        async with (
            Simulator(seed=9) as elsewhere,
            client_of(elsewhere) as there,
            Outbox.open(path, there),
        ):
            pass
    place = {"other name": outbox_at("nowhere"), "other credential": address}.get(
        where, path
    )
    own = client_of(service, **given)
    made = SQLITE["sqlite3"](path) if where.startswith("SQLite") else of_psycopg(None)
    with made as (connection, transaction, _), transaction():
        with pytest.raises(
            JournalError, match=r"no outbox for http.* Nothing was inserted"
        ):
            Outbox.open(place, own).enqueue_sync(
                connection, own.webhooks.update("wh_1", description="x")
            )
        assert [*connection.execute("SELECT 1")] == [(1,)]
    assert await entries_of(outbox) == []


async def test_outbox_that_continues_one_of_another_credential(
    service, outbox, address
):
    """With ``same_mode``, what a rotated key enqueues goes into the outbox that there is."""
    mine = client_of(service, credential=ApiKey(service.issue_key()))
    hook = service.seed_webhook().id
    with of_psycopg(None) as (connection, transaction, _), transaction():
        rotated = Outbox.open(address, mine, same_mode=True)
        key = rotated.enqueue_sync(
            connection, mine.webhooks.update(hook, description="x")
        )
    assert [entry.key for entry in await entries_of(outbox)] == [key]


async def test_threads_that_enqueue_at_once(service, outbox, address):
    """They share one outbox. Each thing gets its writes in the order of the commits."""
    hook, order, lock = service.seed_webhook().id, [], threading.Lock()
    async with outbox.dispatching(), client_of(service) as own:

        def work(number):
            policy = {"deadline": 100.0 + number}  # a common part of its own
            with of_psycopg(None) as (mine, transaction, _):
                for turn in range(5):
                    with lock, transaction():
                        write = own.webhooks.update(
                            hook, description=f"{number}.{turn}"
                        )
                        order.append(
                            shared.enqueue_sync(mine, write.with_policy(**policy))
                        )

        shared = Outbox.open(address, own)
        await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(4)))
        assert await verdicts_of(outbox, order) == [Verdict.APPLIED] * 20
    found = written(service.ledger.entries)
    for number in range(4):
        assert [text for text in found if text[0] == str(number)] == [
            f"{number}.{turn}" for turn in range(5)
        ]


async def test_enqueue_of_synchronous_code_is_three_round_trips(
    service, client, outbox, address
):
    """Where the outbox is, the common part, and the write."""
    hook, never_opened = service.seed_webhook().id, Outbox.open(address, client)
    async with database_proxy() as proxy:

        def work():
            with psycopg.connect(proxy.address) as connection, connection.transaction():
                for text in ("first", "second"):
                    before = proxy.trips
                    never_opened.enqueue_sync(
                        connection, update(client, service, text, hook)
                    )
                return proxy.trips - before

        assert await asyncio.to_thread(work) == 3
