"""What needs a lock of the database, or to be the only process, in a real PostgreSQL."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import asyncpg
import pytest

from invsvc_async import ConfigurationError, JournalError
from invsvc_async.storage import postgres_pool
from invsvc_async.storage.postgres_pool import Pool
from tests.support.database import connected, database
from tests.support.waiting import forever, until


@pytest.fixture
async def pool(monkeypatch):
    """Return a pool that tries again soon, connected to a database with a table."""
    monkeypatch.setattr(postgres_pool, "_PAUSE", 0.01)
    made = Pool(database().address, "journal june")
    await made.connect(
        lambda connection: connection.execute(
            "CREATE TABLE IF NOT EXISTS locked (n int)"
        )
    )
    yield made
    await made.aclose()


@pytest.fixture
async def other():
    """Return a connection of somebody else."""
    async with connected() as connection:
        yield connection


async def test_value_that_the_database_cannot_store(pool):
    """It is refused at once, although asyncpg's error is of the same class as that of a lost connection."""
    with pytest.raises(JournalError, match="refused a statement"):
        await pool.fetch("SELECT $1::int", "no number")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            asyncpg.DiskFullError("no space left"),
            "Its disk is full. What was stored before is safe",
        ),
        (
            asyncpg.InvalidSQLStatementNameError('"s1" does not exist'),
            "max_prepared_statements",
        ),
        (asyncpg.QueryCanceledError("canceling statement"), "statement_timeout"),
    ],
)
async def test_words_about_an_error_of_the_server(pool, error, words):
    """They say what is safe, and what to do."""
    with pytest.raises(JournalError, match=words):
        await pool.ask(AsyncMock(side_effect=error))


async def test_pool_that_is_not_open():
    """The words say what to do."""
    with pytest.raises(JournalError, match="Open it first"):
        await Pool(database().address, "journal june").fetch("SELECT 1")


async def test_pool_in_another_event_loop(pool):
    """It is refused before a byte is sent, which would come between the statements of the loop that has it."""

    async def use():
        for act in (lambda: pool.fetch("SELECT 1"), pool.aclose):
            with pytest.raises(ConfigurationError, match="event loop that opened it"):
                await act()

    [[session]] = await pool.fetch("SELECT pg_backend_pid()")
    await asyncio.to_thread(asyncio.run, use())
    [[same]] = await pool.fetch("SELECT pg_backend_pid()")
    assert same == session


@pytest.fixture
def hurry_in_vain(pool, monkeypatch):
    """Return what lets the last statements of a run be waited for in vain."""
    monkeypatch.setattr(postgres_pool, "_TO_LEAVE", 0.01)
    monkeypatch.setattr(postgres_pool, "_END_LASTS", 3600.0)
    pool.patience = 90.0

    async def hurry():
        with pytest.raises(JournalError, match="is away"):
            async with pool.hurried():
                await asyncio.Event().wait()

    return hurry


async def test_hurry_of_another_task(pool, hurry_in_vain, monkeypatch):
    """What others wait for is tried as long as before; after a failure too, once the database answers."""
    monkeypatch.setattr(postgres_pool, "_AT_THE_END", 30.0)
    tries = []

    async def act(_):
        tries.append(pool.wait_of(90.0))
        if len(tries) == 1:
            raise ConnectionResetError
        return "done"

    for _ in range(2):
        await hurry_in_vain()
        assert pool.wait_of(90.0) == 30.0
    assert await pool.steadily(act) == "done"
    assert tries == [30.0, 30.0]
    assert pool.wait_of(90.0) == 90.0
    monkeypatch.setattr(postgres_pool, "_TO_LEAVE", 90.0)
    async with pool.hurried():
        assert pool.wait_of(90.0) == 90.0
    assert pool.wait_of(90.0) == 90.0


async def test_statement_after_a_hurry_in_vain(pool, hurry_in_vain, monkeypatch):
    """It is given up soon: a process whose database is away ends soon."""
    monkeypatch.setattr(postgres_pool, "_AT_THE_END", 0.02)
    await hurry_in_vain()
    async with asyncio.timeout(60):
        with pytest.raises(JournalError, match="is away"):
            await pool.steadily(lambda _: asyncio.Event().wait())


async def test_run_that_begins_anew_after_a_hurry_in_vain(
    pool, hurry_in_vain, monkeypatch
):
    """Its statements have their usual time: otherwise none would succeed over a slow connection."""
    monkeypatch.setattr(postgres_pool, "_AT_THE_END", 0.02)

    async def act(_):
        await asyncio.sleep(0.1)  # sleeps: a distant server, which takes longer
        return "done"

    await hurry_in_vain()
    monkeypatch.setattr(postgres_pool, "_END_LASTS", 0.0)
    assert await pool.steadily(act) == "done"


async def test_deadlock_that_the_server_ends(pool, other):
    """The transaction that it chose is run again, and both are done."""
    await other.execute("TRUNCATE locked; INSERT INTO locked VALUES (1), (2)")
    tries, first_locks = [], asyncio.Barrier(2)

    async def the_other_waits():
        return await other.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE locked%'"
        )

    def act(*rows):
        async def act(connection):
            tries.append(rows)
            is_first = len(tries) <= 2
            # Each looks once, so long after it has begun to wait; if both look at once, the server may end both.
            looks_last = rows == (2, 1)
            patience = "10ms" if looks_last else "1min"
            await connection.execute(f"SET LOCAL deadlock_timeout = '{patience}'")
            for row in rows:
                await connection.execute("UPDATE locked SET n = n WHERE n = $1", row)
                if is_first and row == rows[0]:
                    await first_locks.wait()
                    if looks_last:
                        await until(the_other_waits)
            return rows

        return act

    asked = [
        asyncio.create_task(pool.ask(act(1, 2))),
        asyncio.create_task(pool.ask(act(2, 1))),
    ]
    assert await asyncio.gather(*asked) == [(1, 2), (2, 1)]
    assert len(tries) == 3


@pytest.mark.parametrize("retry", [True, False])
async def test_deadlocks_without_an_end(pool, retry):
    """The words say that the database refuses, not that it is away."""
    pool.patience, pool._retry, tries = 0.05, retry, []

    async def act(_):
        tries.append(1)
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    with pytest.raises(JournalError, match="journal june refused a statement"):
        await pool.steadily(act)
    assert len(tries) > 1


async def test_lock_timeout_of_the_role(pool, other):
    """A statement that did not get its lock in that time is run again: others end their transactions."""
    tries = []

    async def act(connection):
        tries.append(1)
        await connection.execute(
            "SET LOCAL lock_timeout = '10ms'; LOCK TABLE locked IN EXCLUSIVE MODE"
        )

    await other.execute("BEGIN; LOCK TABLE locked IN ROW EXCLUSIVE MODE")
    asking = asyncio.create_task(pool.ask(act))
    await until(lambda: len(tries) >= 3 and not asking.done())
    await other.execute("ROLLBACK")
    await asking


async def test_process_that_stands_still_in_a_transaction(pool, other, monkeypatch):
    """The server ends its transaction, so that others get its locks; it runs the transaction again by itself."""
    # reaches: its lock timeout is no setting
    begin = postgres_pool._BEGIN.replace("5s", "100ms")
    monkeypatch.setattr(postgres_pool, "_BEGIN", begin)  # reaches: the same
    tries, goes_on = [], asyncio.Event()

    async def act(connection):
        await connection.execute("LOCK TABLE locked IN EXCLUSIVE MODE")
        tries.append(connection.get_server_pid())
        if len(tries) == 1:
            await goes_on.wait()
        return await connection.fetchval("SELECT 7")

    asking = asyncio.create_task(pool.ask(act))
    await until(lambda: tries)
    await other.execute(
        "BEGIN; SET LOCAL lock_timeout = '1min'; LOCK TABLE locked IN EXCLUSIVE MODE; COMMIT"
    )
    goes_on.set()
    assert await asking == 7
    assert len({*tries}) == 2


async def test_cancellation_once_the_connection_is_lost(pool, other):
    """It is no error of the connection, after which the statement would be run again."""
    tries, lost = [], asyncio.Event()

    async def act(connection):
        tries.append(1)
        connection.add_termination_listener(lambda _: lost.set())
        await other.execute(
            f"SELECT pg_terminate_backend({connection.get_server_pid()})"
        )
        await lost.wait()
        if len(tries) == 1:
            asking.cancel()
            await forever()

    asking = asyncio.create_task(pool.ask(act))
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert tries == [1]


@pytest.mark.parametrize(
    "error", [JournalError("another server"), ConnectionResetError()]
)
async def test_cancellation_that_an_error_replaces(pool, monkeypatch, error):
    """Asyncpg closes a connection that was refused, and then raises why, even if it was cancelled meanwhile."""
    closing = asyncio.Event()

    async def refuse(_):
        raise error

    async def close(connection):
        connection.terminate()
        closing.set()
        await asyncio.Event().wait()

    async with pool.lent():  # so another connection is needed
        pool._pool._init = refuse
        with monkeypatch.context() as patched:
            # reaches: how connections end is noted
            patched.setattr(postgres_pool._Connection, "close", close)
            asking = asyncio.create_task(pool.fetch("SELECT 1"))
            await closing.wait()
            asking.cancel()
            await asyncio.wait([asking], timeout=300)
    assert asking.cancelled()


async def test_cancellation_as_the_connections_are_closed(pool):
    """It is not lost: on Python 3.11, ``wait_for`` returns if what it waits for has just ended."""
    leave, accepted = asyncio.Event(), []

    class Closing:
        async def close(self):
            await leave.wait()
            asyncio.get_running_loop().call_soon(
                lambda: accepted.append(closing.cancel())
            )

    own, pool._pool = pool._pool, Closing()
    closing = asyncio.create_task(pool.aclose())
    await asyncio.sleep(0)
    leave.set()
    await asyncio.wait([closing])
    pool._pool = own
    await asyncio.sleep(0)
    assert [closing.cancelled()] == accepted
