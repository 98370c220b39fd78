"""Databases that are away at first, read-only, full or without rights: what opening them says."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import asyncpg
import pytest

from invsvc_async import JournalError
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import entries_of, summary_of, workers_of
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.store.adding import numbers
from invsvc_async.durable.store.deleting import drop
from invsvc_async.durable.store.facts import Facts
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.tables import Opening
from invsvc_async.storage import postgres_pool
from tests.batch.writing import all_of, creates, opened as opened_batch
from tests.durable.stores import SENT, end, fill, lanes_of, opened
from tests.support.database import connected, database
from tests.support.database_proxy import database_proxy
from tests.support.note_commits import note_commits
from tests.support.waiting import until


@pytest.fixture
def name(request):
    return f"g{abs(hash(request.node.name))}"


@pytest.fixture
async def owner():
    """Yield a connection of the database's owner."""
    async with connected() as connection:
        yield connection


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
    return whole.replace(f"//{user}:@", f"//{role}@").replace(
        f"//{user}@", f"//{role}@"
    )


def batch_at(address):
    """Return the store of a batch at *address*."""
    return PostgresStore(address, Opening("batch", 2, counted=True, run_by="the batch"))


async def made(name):
    """Make the tables of the batch *name*."""
    async with opened_batch(database().journal(name)):
        pass


async def error_of(address, **settings):
    """Return the words with which opening is refused."""
    with pytest.raises(JournalError) as failure:
        await entries_of(address, **settings).open()
    return str(failure.value)


async def test_database_that_is_away_at_first(name, caplog):
    """Opening waits for it, as running does, and a log line says so."""
    async with database_proxy() as proxy:
        proxy.cut()
        with caplog.at_level(logging.WARNING, "invsvc_async.storage"):
            opening = asyncio.create_task(entries_of(proxy.journal(name)).open())
            await until(lambda: "cannot be reached yet" in caplog.text)
        assert not opening.done()
        await proxy.open()
        await opening


async def test_database_that_restarts_while_it_is_opened(name):
    """No open fails."""
    restarting = asyncio.create_task(database().restart())
    while not restarting.done():
        await made(name)
    await restarting


async def test_role_that_may_not_create(client, role, name, owner):
    """The error says of what: the database, or a schema made beforehand. The rights that it names are enough."""
    said = await error_of(address_of(role, name))
    assert (
        "denied for database postgres). Let an owner run: GRANT CREATE ON DATABASE"
        in said
    )
    await owner.execute(f"CREATE SCHEMA invoicing_batch_{name}")
    assert f"denied for schema invoicing_batch_{name})" in await error_of(
        address_of(role, name)
    )
    await owner.execute(
        f"GRANT CREATE, USAGE ON SCHEMA invoicing_batch_{name} TO {role}"
    )
    async with Batch.open(address_of(role, name), client) as batch:
        await all_of(batch, creates(client, 3))


async def test_role_with_the_rights_of_a_worker(service, client, role, name, owner):
    """A journal made by another role, and the rights that the error names, are enough for a worker."""
    await made(name)
    address, every = (
        address_of(role, name),
        f"IN SCHEMA invoicing_batch_{name} TO {role}",
    )
    assert f"denied for schema invoicing_batch_{name})" in await error_of(address)
    await owner.execute(f"GRANT USAGE ON SCHEMA invoicing_batch_{name} TO {role}")
    assert "denied for table facts)" in await error_of(address)
    await owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES {every}")
    await owner.execute(f"GRANT USAGE ON ALL SEQUENCES {every}")
    async with Batch.open(address, client) as batch:
        await all_of(batch, creates(client, 30))
        assert await batch.retry(failed=True) == 0
        assert await batch.entries.prune(2**50) == 30
        assert (await batch.summary()).done == 30


async def test_role_that_may_only_read(role, name, owner):
    """It can report, and is refused before anything is sent if it would work."""
    await made(name)
    await owner.execute(
        f"GRANT USAGE ON SCHEMA invoicing_batch_{name} TO {role}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA invoicing_batch_{name} TO {role}"
    )
    async with opened_batch(address_of(role, name), reading=True) as entries:
        assert ((await summary_of(entries)).total, await workers_of(entries)) == (0, [])
    assert "denied for table facts). The role lacks a right" in await error_of(
        address_of(role, name)
    )


@pytest.mark.parametrize("reading", [False, True])
@pytest.mark.parametrize("version", [None, "0", "7", "x"])
async def test_tables_of_another_version(name, owner, version, reading):
    """A development version, or a newer one, has made them: they are refused as they are."""
    await made(name)
    change = (
        "DELETE FROM {0} WHERE name = 'schema'"
        if version is None
        else "UPDATE {0} SET value = '{1}'"
    )
    await owner.execute(change.format(f"invoicing_batch_{name}.facts", version))
    words = await error_of(database().journal(name), reading=reading)
    assert (
        f"its tables have {'no version' if version is None else f'version {version}'}, and this"
        in words
    )
    if version == "7":
        assert "a newer version of the package made them. Use that version" in words
    else:
        assert "Finish what is open in it with that version" in words


async def test_database_that_is_read_only(role, name, owner):
    """A worker is refused before anything is sent, in words of what makes it so, and a report is made."""
    await made(name)
    await owner.execute(f"ALTER ROLE {role} SUPERUSER")
    await owner.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    words = await error_of(address_of(role, name))
    assert "transactions are read-only here, by default_transaction_read_only" in words
    assert "standby" not in words
    async with opened_batch(address_of(role, name), reading=True) as entries:
        assert (await summary_of(entries)).total == 0
        with pytest.raises(
            JournalError, match="default_transaction_read_only off"
        ) as refused:
            await entries.store.rows("INSERT INTO {s}facts VALUES ('a', 'b')")
        assert "If the server is a standby" in str(refused.value)


async def test_server_that_is_a_standby(name, monkeypatch):
    """It is refused in words of that."""
    await made(name)

    class Standby(asyncpg.Connection):
        async def fetchval(self, text, *values, **settings):
            """Answer as a standby does."""
            answers = {
                "SHOW transaction_read_only": "SELECT 'on'",
                "SELECT pg_is_in_recovery()": "SELECT true",
            }
            return await super().fetchval(answers.get(text, text), *values, **settings)

    monkeypatch.setattr(postgres_pool, "_Connection", Standby)
    words = await error_of(database().journal(name))
    assert (
        "the server is a standby, which is read-only. Nothing was stored. Use the primary's address."
        in words
    )


async def test_stricter_isolation_by_default(name, owner):
    """Two that number their writes at the same time see each other's all the same: the numbers are in order."""
    address = database().journal(
        name, default_transaction_isolation="repeatable%20read"
    )
    async with opened(batch_at(address)) as one, opened(batch_at(address)) as other:
        lock = f"SELECT pg_advisory_xact_lock(hashtext('{one.schema}.entries'))"
        await owner.execute(f"BEGIN; {lock}")
        asked = []
        for number, each in enumerate((one, other), 1):
            asked.append(asyncio.create_task(each.run(lambda: numbers(2))))
            await until_locks_wait(owner, number)
        await owner.execute("COMMIT")
        assert await asyncio.gather(*asked) == [[1, 2], [3, 4]]


async def test_conflict_under_a_stricter_isolation(name, owner):
    """A statement that the server ends because of a change since its snapshot is run again."""
    address = database().journal(
        name, default_transaction_isolation="repeatable%20read"
    )
    async with opened(batch_at(address)) as store:
        facts = f"{store.schema}.facts"
        await owner.execute(
            f"BEGIN; UPDATE {facts} SET value = 'x' WHERE name = 'schema'"
        )
        more = "UPDATE {s}facts SET value = value || 'y' WHERE name = 'schema' RETURNING value"
        asking = asyncio.create_task(store.rows(more))
        await until_locks_wait(owner, 1)
        await owner.execute("COMMIT")
        assert [*(await asking)[0]] == ["xy"]


async def until_locks_wait(owner, number):
    """Wait until so many locks are asked for and not granted."""
    waiting = "SELECT count(*) >= $1 FROM pg_locks WHERE NOT granted"
    await until(lambda: owner.fetchval(waiting, number))


async def test_commits_that_a_default_leaves_in_memory(name):
    """What is stored before a send would be lost if the server crashed: here each commit is on the disk."""
    address = database().journal(name, synchronous_commit="off")
    async with opened(batch_at(address)) as store:
        assert [*(await store.rows("SHOW synchronous_commit"))[0]] == ["on"]
    async with opened(batch_at(address.replace("=off", "=remote_write"))) as store:
        assert [*(await store.rows("SHOW synchronous_commit"))[0]] == ["remote_write"]


@pytest.mark.parametrize("default", ["off", "remote_write"])
async def test_commits_in_another_session(name, client, monkeypatch, default):
    """
    What is stored before a send is on the disk, and so is the verdict; what was dropped is gone for good.

    Also in a session that has the defaults of its role alone, as a pooler in transaction mode gives it.
    """
    monkeypatch.setattr(postgres_pool, "_DURABLE", "SELECT 1")
    address = database().journal(name, synchronous_commit=default)
    async with opened(batch_at(address)) as store:
        (lane,) = await lanes_of(store, options_of(client).core.clock)
        entry, _ = await fill(store, "of a batch", "to drop")
        await note_commits(store)
        entry.state, entry.intent = State.SENDING, SENT
        await lane.put(entry)
        await end(lane, entry)
        await lane.put(
            Entry(
                key="of a journal",
                state=State.SENDING,
                operation="webhooks.update",
                intent=SENT,
            )
        )
        await store.run(lambda: drop("to drop", [], done=False))
        found = await Facts(store).beginning("")
    how = "on" if default == "off" else default
    assert (
        found.items()
        >= {"UPDATE": f"{how} {how}", "INSERT": how, "DELETE": how}.items()
    )
