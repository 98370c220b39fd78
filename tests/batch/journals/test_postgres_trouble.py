"""Databases that are away at first, read-only, full, without rights or behind a pooler: what opening them says."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from invsvc_async import JournalError
from invsvc_async.batch import Batch
from invsvc_async.batch.places import entries_of
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.durable.entry import Entry, State
from invsvc_async.storage import postgres_pool
from tests.batch.writing import all_of, creates
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.note_commits import NOTED


@pytest.fixture
def name(request):
    return f"g{abs(hash(request.node.name))}"


@pytest.fixture
async def owner():
    """Yield a connection of the database's owner."""
    connection = await asyncpg.connect(database().address)
    yield connection
    await connection.close()


@pytest.fixture
async def role(owner, name):
    """Yield the name of a role that has no rights."""
    await owner.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    await owner.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def address_of(role, name, **more):
    """Return the address of a journal, for a role."""
    whole = database().journal(name, silence=1, **more)
    user = urlsplit(whole).username
    return whole.replace(f"//{user}:@", f"//{role}@").replace(f"//{user}@", f"//{role}@")


@asynccontextmanager
async def opened(journal):
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()


async def error_of(address, **settings):
    """Return the words with which opening is refused."""
    with pytest.raises(JournalError) as failure:
        async with opened(entries_of(address, **settings)):
            pass
    return str(failure.value)


async def test_database_that_is_away_at_first(name, caplog):
    """Opening waits for it, as running does, and a log line says so."""
    async with database_proxy() as proxy:
        proxy.cut()
        with caplog.at_level(logging.WARNING, "invsvc_async.storage"):
            opening = asyncio.create_task(PostgresBatch(proxy.journal(name)).open())
            async with asyncio.timeout(30):
                while "cannot be reached yet" not in caplog.text:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.02)
        assert not opening.done()
        await proxy.open()
        await opening


async def test_database_that_restarts_while_it_is_opened(name):
    """No open fails."""
    restarting = asyncio.create_task(database().restart())
    while not restarting.done():
        async with opened(PostgresBatch(database().journal(name))):
            pass
    await restarting


async def test_role_that_may_not_create(role, name, owner):
    """The error says of what: the database, or a schema made beforehand. The rights that it names are enough."""
    said = await error_of(address_of(role, name))
    assert "denied for database postgres). Let an owner run: GRANT CREATE ON DATABASE" in said
    await owner.execute(f"CREATE SCHEMA invsvc_{name}")
    assert f"denied for schema invsvc_{name})" in await error_of(address_of(role, name))
    await owner.execute(f"GRANT CREATE, USAGE ON SCHEMA invsvc_{name} TO {role}")
    async with opened(PostgresBatch(address_of(role, name))) as journal:
        assert (await journal.summary()).total == 0


async def test_role_with_the_rights_of_a_worker(service, client, role, name, owner):
    """A journal made by another role, and the rights that the error names, are enough for a worker."""
    async with opened(PostgresBatch(database().journal(name))):
        pass
    address, every = address_of(role, name), f"IN SCHEMA invsvc_{name} TO {role}"
    assert f"denied for schema invsvc_{name})" in await error_of(address)
    await owner.execute(f"GRANT USAGE ON SCHEMA invsvc_{name} TO {role}")
    assert "denied for table facts)" in await error_of(address)
    await owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES {every}")
    await owner.execute(f"GRANT USAGE ON ALL SEQUENCES {every}")
    async with Batch.open(address, client) as batch:
        await all_of(batch, creates(client, 30))
        await batch.entries.prune(2**50)
        await batch.entries.tidy()
        assert (await batch.summary()).done == 30


async def test_role_that_may_only_read(role, name, owner):
    """It can report, and is refused before anything is sent if it would work."""
    async with opened(PostgresBatch(database().journal(name))):
        pass
    await owner.execute(
        f"GRANT USAGE ON SCHEMA invsvc_{name} TO {role}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA invsvc_{name} TO {role}"
    )
    async with opened(entries_of(address_of(role, name), reading=True)) as journal:
        assert (await journal.summary()).total == 0
        assert await journal.workers() == []
    assert "denied for table facts). The role lacks a right" in await error_of(address_of(role, name))


@pytest.mark.parametrize("reading", [False, True])
@pytest.mark.parametrize("version", [None, "0", "7", "x"])
async def test_tables_of_another_version(name, owner, version, reading):
    """A development version, or a newer one, has made them: they are refused as they are."""
    async with opened(PostgresBatch(database().journal(name))):
        pass
    change = "DELETE FROM {0} WHERE name = 'schema'" if version is None else "UPDATE {0} SET value = '{1}'"
    await owner.execute(change.format(f"invsvc_{name}.facts", version))
    words = await error_of(database().journal(name), reading=reading)
    assert f"its tables have {'no version' if version is None else f'version {version}'}, and this" in words
    assert "Finish what is open in it with that version" in words


async def test_database_that_is_read_only(role, name, owner):
    """As a standby is: a worker is refused before anything is sent, and a report is made."""
    async with opened(PostgresBatch(database().journal(name))):
        pass
    await owner.execute(f"ALTER ROLE {role} SUPERUSER")
    await owner.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    assert "the database is read-only" in await error_of(address_of(role, name))
    async with opened(entries_of(address_of(role, name), reading=True)) as journal:
        assert (await journal.summary()).total == 0
        with pytest.raises(JournalError, match="read-only, perhaps a standby"):
            await journal.fetch("INSERT INTO facts VALUES ('a', 'b')")


async def test_pooler_that_does_not_pass_on_the_schema(role, name, owner):
    """Tables are never looked for, or made, in another schema."""
    await owner.execute(f"ALTER ROLE {role} SUPERUSER")
    journal = PostgresBatch(address_of(role, name))
    connect = journal.connect

    async def without(prepare, **_settings):
        await connect(prepare, application_name="x")

    journal.connect = without
    with pytest.raises(JournalError, match="a pooler does not pass on search_path"):
        await journal.open()


async def test_later_connection_that_looks_for_tables_elsewhere(client):
    """A pooler may discard for the next client what it set for the first."""
    async with Batch.open(database().journal("discarded"), client) as batch:
        batch.entries._pool._connect_kwargs["server_settings"] = {"search_path": "public"}
        await batch.entries.reconnect()
        with pytest.raises(JournalError, match="a pooler does not pass on search_path"):
            await batch.summary()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncpg.DiskFullError("no space left"), "Its disk is full. What was stored before is safe"),
        (asyncpg.InvalidSQLStatementNameError('"s1" does not exist'), "max_prepared_statements"),
        (asyncpg.QueryCanceledError("canceling statement"), "statement_timeout"),
    ],
)
async def test_words_about_an_error_of_the_server(name, error, words):
    """They say what is safe, and what to do."""

    async def fail(_connection):
        raise error

    async with opened(PostgresBatch(database().journal(name))) as journal:
        with pytest.raises(JournalError, match=words):
            await journal.ask(fail)


async def test_stricter_isolation_by_default(name, owner):
    """Two that queue writes to one thing see each other's all the same: they are in one chunk, and so in order."""
    address = database().journal(name, default_transaction_isolation="repeatable%20read")
    lock = f"SELECT pg_advisory_xact_lock(hashtext('invsvc_{name}'))"
    async with opened(PostgresBatch(address)) as one, opened(PostgresBatch(address)) as other:
        await owner.execute(f"BEGIN; {lock}")
        entry = {"state": State.TO_DO, "operation": "webhooks.update", "common": 1, "intent": "{}"}
        asked = []
        for number, each in enumerate((one, other), 1):
            given = [(Entry(key=f"row-{number}", **entry), "/webhooks/wh_1")]
            asked.append(asyncio.create_task(each.hand_out(given)))
            text = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while await owner.fetchval(text) < number:  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.01)
        await owner.execute("COMMIT")
        await asyncio.gather(*asked)
        rows = await one.fetch("SELECT DISTINCT chunk FROM entries")
    assert len(rows) == 1


async def test_conflict_under_a_stricter_isolation(name, owner):
    """A statement that the server ends because of a change since its snapshot is run again."""
    address = database().journal(name, default_transaction_isolation="repeatable%20read")
    async with opened(PostgresBatch(address)) as journal:
        await owner.execute(f"BEGIN; SET LOCAL search_path = invsvc_{name}")
        await owner.execute("UPDATE facts SET value = 'x' WHERE name = 'schema'")
        asking = asyncio.create_task(journal.fetch("UPDATE facts SET value = value || 'y' RETURNING value"))
        text = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while not await owner.fetchval(text):  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.01)
        await owner.execute("COMMIT")
        assert (await asking)[0]["value"] == "xy"


async def test_commits_that_a_default_leaves_in_memory(name):
    """What is stored before a send would be lost if the server crashed: here each commit is on the disk."""
    address = database().journal(name, synchronous_commit="off")
    async with opened(PostgresBatch(address)) as journal:
        assert [*(await journal.fetch("SHOW synchronous_commit"))[0]] == ["on"]
    async with opened(PostgresBatch(address.replace("=off", "=remote_write"))) as journal:
        assert [*(await journal.fetch("SHOW synchronous_commit"))[0]] == ["remote_write"]


@pytest.mark.parametrize("default", ["off", "remote_write"])
async def test_commit_in_another_session_of_a_pooler(name, client, default, monkeypatch):
    """A pooler in transaction mode gives each transaction another one. What is stored before a send is on the disk."""
    monkeypatch.setattr(postgres_pool, "_DURABLE", "SELECT 1")  # this one has only the defaults of the role
    address = database().journal(name, synchronous_commit=default)
    async with Batch.open(address, client) as batch:
        await batch.entries.ask(lambda connection: connection.execute(NOTED))
        hook = await client.webhooks.create(url="https://me.example/in", events=["invoice.created"])
        await all_of(batch, [client.webhooks.update(hook, description="x").keyed("row-1")])
        found = await batch.entries.fact("UPDATE")
    assert found.split() == ["on" if default == "off" else default] * 2  # before the send, and the verdict
