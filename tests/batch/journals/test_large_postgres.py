"""Large journals in PostgreSQL: pruned in short transactions, and claims found by an index."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.journals.postgres import _TO_REOPEN, PostgresBatch
from tests.batch.writing import all_of, creates
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


FAILED = "UPDATE entries SET verdict = CASE seq % 2 WHEN 0 THEN 'refused' ELSE 'unknown' END, intent = '{}'"
ORDER = "SELECT key FROM entries ORDER BY seq"


class StoppedError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("keys", [None, [f"row-{n}" for n in range(1000, 1, -1)]], ids=["all", "keys"])
async def test_forced_retry_that_is_stopped(journal, connection, monkeypatch, keys):
    """Stopped anywhere, each entry is either finished in its place or to do at the end; a repetition does the rest."""
    await connection.execute(FAILED)
    await connection.execute("DELETE FROM entries WHERE seq > 1000")
    before = [row["key"] for row in await connection.fetch(ORDER)]
    steadily, left = journal.steadily, 0

    async def stop(act):
        nonlocal left
        left -= 1
        if left == 0:
            raise StoppedError
        return await steadily(act)

    monkeypatch.setattr(journal, "steadily", stop)
    verdicts = {Verdict.UNKNOWN: True, Verdict.REFUSED: False}
    for number in (1, 2, 3, 4) if keys is None else (6, 7, 8, 9):
        left = number
        with pytest.raises(StoppedError):
            await journal.reopen_as_newest(verdicts, keys)
        torn = "SELECT count(*) FROM entries WHERE (state = 2) <> (seq <= 12000)"
        assert await connection.fetchval(torn) == 0
    assert await connection.fetchval("SELECT count(*) FROM entries WHERE state = 0") >= 200
    await journal.reopen_as_newest(verdicts, keys)
    left = len(before) if keys is None else len(before) - 1
    assert await connection.fetchval("SELECT count(*) FROM entries WHERE state = 0") == left
    assert [row["key"] for row in await connection.fetch(ORDER)] == before


async def test_retry_finds_each_slice_by_an_index(journal, connection):
    """The next entries to reopen are found without a look at the entries that are applied."""
    await connection.execute("UPDATE entries SET verdict = 'refused', intent = '{}' WHERE seq % 50 = 0")
    await connection.execute("ANALYZE entries")
    args = ["refused", "unknown"], 6000, 12000, 50
    plan = [row[0] for row in await connection.fetch(f"EXPLAIN {_TO_REOPEN}", *args)]
    assert [line.split(" using ")[1].split()[0] for line in plan if " entries " in line] == ["not_applied"]
    assert not any("Seq Scan" in line for line in plan)


async def test_retry_of_many_keys(journal, connection, monkeypatch):
    """Keys that are not in the journal, or come twice, are no harm; they are looked up in slices."""
    await connection.execute(FAILED)
    keys = [f"row-{n % 700}" for n in range(1500)] + ["none"] * 500
    assert await journal.reopen(Verdict.REFUSED, keep_sends=True, keys=keys) == 349


async def test_sends_write_no_index(service, client):
    """The note that a write is sent stays on the page of its row, so that no index grows with it."""
    many = 300
    async with Batch.open(database().journal("sends"), client) as batch:
        await all_of(batch, creates(client, many))
    connection = await asyncpg.connect(database().address)
    text = """
        SELECT n_tup_upd AS all, n_tup_hot_upd AS without_index FROM pg_stat_user_tables
        WHERE relname = 'entries' AND schemaname = 'invsvc_sends'
    """
    try:  # the server counts them some time after they are committed
        while (row := await connection.fetchrow(text))["all"] < 2 * many:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
    finally:
        await connection.close()
    assert row["all"] == 2 * many
    assert row["without_index"] > 0.9 * many  # a row that is done may have taken the room on a page
