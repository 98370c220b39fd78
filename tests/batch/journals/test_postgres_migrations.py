"""Journals in PostgreSQL made by earlier versions: migrated to the latest while others use them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.journals.postgres_migrations import LATEST
from tests.batch.journals.old_schemas import BEFORE_STATES, COUNTED_ANEW, OLD, old_schema
from tests.support.database import database

pytestmark = pytest.mark.one_python

ROWS = """
INSERT INTO entries (key, chunk, thing, content, state, run, operation, verdict, outcome, claim, done_at)
SELECT 'row-' || n, 1, 'team_1 /webhooks/' || n, '', 2, 1, 'webhooks.update', 'unknown',
    CASE n % 3 WHEN 0 THEN '{"lost":true}' WHEN 1 THEN '{"overtaken":true}' END, 'wh', 1
FROM generate_series(1, 300) AS n
"""
MADE = """
SELECT c.relname || ' ' || coalesce(pg_get_indexdef(i.indexrelid), '') || coalesce(i.indisvalid::text, '')
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = $1::regnamespace
UNION ALL SELECT attrelid::regclass || ' ' || attname || ' ' || format_type(atttypid, atttypmod) || attnotnull
FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND attnum > 0
UNION ALL SELECT tgname || tgrelid::regclass || ' ' || pg_get_functiondef(tgfoid)
FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE c.relnamespace = $1::regnamespace
UNION ALL SELECT name || value FROM facts
"""


@pytest.fixture
def name(request):
    return f"m{abs(hash(request.node.name))}"


async def made(connection, name):
    """Return what there is in the schema, and the journal's facts."""
    rows = await connection.fetch(MADE, name)
    return sorted(row[0].replace(name, "SCHEMA") for row in rows)


async def opened(name):
    """Open the journal, and return it."""
    journal = PostgresBatch(database().journal(name))
    await journal.open()
    return journal


@pytest.fixture
async def latest():
    """Return what there is in a new journal."""
    journal = await opened("newest")
    async with journal.lent() as connection:
        found = await made(connection, "invsvc_newest")
    await journal.aclose()
    return found


@pytest.mark.parametrize("rows", ["", ROWS], ids=["empty", "rows"])
@pytest.mark.parametrize("tables", OLD.values(), ids=OLD)
async def test_old_schema_becomes_the_latest(name, latest, tables, rows):
    """Whatever version made it, with or without rows, it then has the same tables and indexes as a new one."""
    async with old_schema(f"invsvc_{name}", tables) as old:
        await old.execute(rows or "SELECT 1")
        journal = await opened(name)
        assert await made(old, f"invsvc_{name}") == latest
        assert (await journal.summary()).unknown == (300 if rows else 0)
        await journal.aclose()


async def test_version_6_becomes_the_latest(name, latest):
    """Its counts are kept, also by workers that have it open meanwhile."""
    before = await opened(name)
    async with before.lent() as connection:
        await connection.execute(COUNTED_ANEW)
        assert await made(connection, f"invsvc_{name}") != latest
        await connection.execute(ROWS)
        journal = await opened(name)
        await connection.execute("UPDATE entries SET verdict = 'refused' WHERE key < 'row-2'")
        assert await made(connection, f"invsvc_{name}") == latest
        many = await connection.fetchval("SELECT count(*) FROM entries WHERE verdict = 'refused'")
    found = await journal.summary()
    assert found.verdicts == {Verdict.UNKNOWN: 300 - many, Verdict.REFUSED: many}
    assert (found.secrets_lost, found.overtaken) == (100, 100)
    await journal.aclose()
    await before.aclose()


async def test_migration_stopped_after_each_statement(name, latest, monkeypatch):
    """It goes on where it was stopped, and ends as one that was not."""
    number, stopped = 0, True
    while stopped:
        number += 1
        each = f"{name}_{number}"
        async with old_schema(f"invsvc_{each}", BEFORE_STATES) as old:
            await old.execute(ROWS)
            with monkeypatch.context() as patch:
                stop_after(number, patch)
                try:
                    await (await opened(each)).aclose()
                    stopped = False
                except StoppedError:
                    pass
            journal = await opened(each)
            assert await made(old, f"invsvc_{each}") == latest
            things = await old.fetchval("SELECT count(*) FROM entries WHERE thing LIKE '/webhooks/%'")
            assert (things, await old.fetchval("SELECT count(*) FROM states")) == (300, 300)
            assert (await journal.summary()).total == 300
            await journal.aclose()
    assert number > 10


class StoppedError(Exception):
    """The process ends here."""


def stop_after(number, patch):
    """Stop after the *number*-th statement of a migration."""
    left = number

    def counted(method):
        async def call(self, what):
            nonlocal left
            result = await method(self, what)
            left -= 1
            if left == 0:
                raise StoppedError
            return result

        return call

    patch.setattr(PostgresBatch, "steadily", counted(PostgresBatch.steadily))
    patch.setattr(PostgresBatch, "at_leisure", counted(PostgresBatch.at_leisure))


async def test_workers_that_open_an_old_journal_at_once(name, latest):
    """One of them migrates it, and the others wait for that."""
    async with old_schema(f"invsvc_{name}", BEFORE_STATES) as old:
        await old.execute(ROWS)
        for journal in await asyncio.gather(*(opened(name) for _ in range(4))):
            await journal.aclose()
        assert await made(old, f"invsvc_{name}") == latest


async def test_index_whose_build_was_stopped(name, latest):
    """What is left of it is removed, and the index is built."""
    async with old_schema(f"invsvc_{name}", OLD["with claimed"]) as old:
        await old.execute(ROWS)
        await old.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'claimed'::regclass")
        await (await opened(name)).aclose()
        assert await made(old, f"invsvc_{name}") == latest


async def test_worker_that_writes_during_a_migration(name, latest):
    """While the build of an index waits for the transaction of one worker, another worker writes."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX%'"
    async with old_schema(f"invsvc_{name}", BEFORE_STATES) as old:
        await old.execute(ROWS)
        other = await asyncpg.connect(
            database().address, server_settings={"search_path": f"invsvc_{name}", "lock_timeout": "25s"}
        )
        async with old.transaction():
            await old.execute("UPDATE entries SET run = 2 WHERE key = 'row-1'")
            opening = asyncio.create_task(opened(name))
            async with asyncio.timeout(30):
                while not await other.fetch(waiting):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.02)
            await other.execute("UPDATE entries SET run = 2 WHERE key = 'row-2'")
            assert not opening.done()
        await other.close()
        await (await opening).aclose()
        assert await made(old, f"invsvc_{name}") == latest


@pytest.mark.parametrize("version", [str(LATEST + 1), "x", "0"])
async def test_journal_of_a_newer_package(name, version):
    """It is refused in words, and stays as it is."""
    journal = await opened(name)
    await journal.fetch("UPDATE facts SET value = $1 WHERE name = 'schema'", version)
    await journal.aclose()
    with pytest.raises(JournalError, match=f"has version {version}, and this package reads versions 1 to"):
        await opened(name)
