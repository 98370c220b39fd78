"""Large journals in PostgreSQL: pruned in short transactions, and claims found by an index."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from invsvc_async.batch.journals.postgres import PostgresBatch
from tests.support.database import database

ROWS = 12_000
LATER = round((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1000)
MADE = """
INSERT INTO entries (key, chunk, thing, content, state, run, operation, verdict, outcome, done_at)
SELECT 'row-' || n, 1, '/webhooks/' || n, '', 2, 1, 'webhooks.update', 'applied', '{}', 1
FROM generate_series(1, $1) AS n
"""
STATES = "INSERT INTO states SELECT thing, seq, 'team_1', '{}', 1 FROM entries"
LEFT = "SELECT count(*) FROM entries WHERE outcome IS NOT NULL"


@pytest.fixture
async def journal(request):
    """Make a journal of ROWS finished entries, each with the state that it left."""
    entries = PostgresBatch(database().journal(f"p{abs(hash(request.node.name))}"))
    await entries.open()
    await entries.ask(lambda connection: connection.execute(MADE, ROWS))
    await entries.fetch(STATES)
    yield entries
    await entries.aclose()


@pytest.fixture
async def connection(journal):
    """Open another connection to its tables."""
    other = await asyncpg.connect(
        database().address, server_settings={"search_path": f"invsvc_{journal.settings.batch}"}
    )
    yield other
    await other.close()


async def test_claims_are_found_by_an_index(journal, connection, monkeypatch):
    """A worker that joins reads the claims without a look at all entries, even before the table is analysed."""
    asked = []
    fetch = journal.fetch

    async def noted(text, *values):
        asked.append((text, values))
        return await fetch(text, *values)

    await connection.execute("UPDATE entries SET claim = '=wh_1' WHERE key IN ('row-1', 'row-9')")
    monkeypatch.setattr(journal, "fetch", noted)
    assert list(await journal.claims(100)) == [("=wh_1", "row-9"), ("=wh_1", "row-1")]
    [(text, values)] = asked
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {text}", *values))
    assert " using claimed on entries" in plan


async def waits_for(connection) -> None:
    """Wait until another connection waits for a lock of *connection*."""
    waiting = (
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
    )
    async with asyncio.timeout(60):
        while not await connection.fetchval(waiting):  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.02)


async def test_what_is_pruned_stays_so(journal, connection):
    """A prune that was stopped in the middle has stored what it did, and the next one does the rest."""
    async with connection.transaction():
        await connection.execute("SELECT 1 FROM entries WHERE key = $1 FOR UPDATE", f"row-{ROWS}")
        pruning = asyncio.create_task(journal.prune(LATER))
        await waits_for(connection)
        left = await connection.fetchval(LEFT)
        pruning.cancel()
        await asyncio.wait([pruning])
    assert 0 < left < ROWS
    assert await journal.prune(LATER) == left
    assert await connection.fetchval(LEFT) == 0
    assert await connection.fetchval("SELECT count(*) FROM states WHERE state IS NOT NULL") == 0


async def test_prune_of_what_another_worker_changes(journal, connection):
    """A state that a worker is storing is left alone: the worker and the prune do not wait for each other."""
    async with connection.transaction():
        await connection.execute("UPDATE states SET stamp = 2 WHERE thing = '/webhooks/7'")
        async with asyncio.timeout(30):
            assert await journal.prune(LATER) == ROWS
    kept = await connection.fetch("SELECT thing FROM states WHERE state IS NOT NULL")
    assert [row["thing"] for row in kept] == ["/webhooks/7"]


async def test_two_prunes_and_a_retry(journal, connection):
    """They take turns, and each entry is counted once."""
    await connection.execute("UPDATE entries SET verdict = 'refused', intent = '{}', thing = NULL")
    first, second, reopened = await asyncio.gather(
        journal.prune(LATER), journal.prune(LATER), journal.reopen("refused", keep_sends=True)
    )
    assert first + second + reopened == ROWS
