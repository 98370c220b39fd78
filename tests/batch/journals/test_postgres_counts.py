"""The counts of a journal in PostgreSQL, which are kept as entries change: they are those of its entries."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.result import Summary
from invsvc_async.durable.entry import Entry, State
from tests.batch.writing import all_of
from tests.support.database import database

pytestmark = pytest.mark.one_python

LATER = 2**50
SCAN = """
SELECT state, verdict, count(*) AS many, count(*) FILTER (WHERE outcome LIKE '%"lost":true%') AS lost,
    count(*) FILTER (WHERE outcome LIKE '%"overtaken":true%') AS overtaken
FROM entries GROUP BY state, verdict
"""
ENDS = ['{"lost":true}', '{"overtaken":true}', '{"lost":true,"overtaken":true}', "{}"]


@pytest.fixture
def name(request):
    return f"c{abs(hash(request.node.name))}"


@pytest.fixture
async def journal(name):
    opened = PostgresBatch(database().journal(name))
    await opened.open()
    yield opened
    await opened.aclose()


async def scanned(journal) -> Summary:
    """Count the entries by looking at each."""
    rows = await journal.fetch(SCAN)
    return Summary(
        to_do=sum(row["many"] for row in rows if row["state"] == State.TO_DO),
        sending=sum(row["many"] for row in rows if row["state"] == State.SENDING),
        verdicts={Verdict(row["verdict"]): row["many"] for row in rows if row["state"] == State.DONE},
        secrets_lost=sum(row["lost"] for row in rows),
        overtaken=sum(row["overtaken"] for row in rows),
    )


def given(names):
    return [
        (Entry(key=key, content=b"", state=State.TO_DO, operation="x", intent="{}"), None) for key in names
    ]


async def worker(journal, number, chance):
    """Store entries, send and end them, and let some again be to do; statements fail or are cancelled between."""
    for turn in range(6):
        keys = [f"{number}-{turn}-{i}" for i in range(chance.randint(1, 9))]
        await journal.hand_out(given(keys))
        chunk = (await journal.fetch("SELECT chunk FROM entries WHERE key = $1", keys[0]))[0][0]
        await journal.take(chunk, f"token.{number}")
        for state in (State.SENDING, State.DONE):
            stored = [
                journal.put(
                    Entry(
                        key=key, state=state, operation="x", intent="{}",
                        verdict=chance.choice(list(Verdict)) if state is State.DONE else None,
                        outcome=chance.choice(ENDS) if state is State.DONE else None,
                        done_at=1 if state is State.DONE else None,
                    ),
                    chunk, f"token.{number}",
                )
                for key in keys if chance.random() < 0.8
            ]  # fmt: skip
            await asyncio.gather(*stored)
        match chance.randrange(4):
            case 0:
                await journal.reopen(chance.choice([Verdict.REFUSED, Verdict.UNKNOWN]), keep_sends=True)
            case 1:
                await journal.prune(LATER)
            case 2:
                with pytest.raises(JournalError):
                    await journal.ask(delete_and_fail)
            case _:
                await journal.fetch("DELETE FROM entries WHERE key = $1", keys[0])


async def delete_and_fail(connection):
    await connection.execute(
        "DELETE FROM entries WHERE seq = 1"
    )  # of one, so that no two wait for each other
    await connection.execute("SELECT 1 / 0")


async def test_counts_of_workers_at_once(journal, monkeypatch):
    """Whatever they do, and while counts are folded, no entry is counted twice or not at all."""
    monkeypatch.setattr("invsvc_async.batch.journals.postgres._FEW", 2)
    monkeypatch.setattr("invsvc_async.batch.journals.postgres._FOLD", fold_of(5))
    chance = random.Random(4)  # noqa: S311 - no secrets
    await asyncio.gather(*(worker(journal, number, chance) for number in range(6)))
    found = await journal.summary()
    assert found == await scanned(journal)
    assert found.total > 50
    before = (await journal.fetch("SELECT count(*) FROM counts"))[0][0]
    for _ in range(before):
        await asyncio.gather(*(journal.fold_counts() for _ in range(3)))
    assert await journal.summary() == found


def fold_of(many):
    from invsvc_async.batch.journals.postgres import _FOLD

    return _FOLD.replace("10000", str(many))


async def test_counts_are_folded(journal):
    """However many changes there were, few rows are left to add up, and no statement looks at the entries."""
    await journal.fetch(
        "INSERT INTO counts SELECT n, 2, 'applied', false, false, 1 FROM generate_series(1, 9000) n"
    )
    assert (await journal.summary()).verdicts == {Verdict.APPLIED: 9000}
    await journal.fold_counts()
    assert (await journal.fetch("SELECT count(*) FROM counts"))[0][0] == 1
    await journal.fetch("ALTER TABLE entries RENAME TO hidden")
    assert (await journal.summary()).verdicts == {Verdict.APPLIED: 9000}
    await journal.fetch("ALTER TABLE hidden RENAME TO entries")


@pytest.mark.parametrize(
    ("path", "prepare"),
    [
        ("public", "CREATE TABLE IF NOT EXISTS public.counts (LIKE {journal}.counts)"),
        ("public, {journal}", "CREATE TABLE IF NOT EXISTS public.counts (LIKE {journal}.counts)"),
        ("{journal}", "CREATE TEMP TABLE counts (LIKE {journal}.counts)"),
        ("{journal}, public", "SELECT 1"),
        ("{journal}", "SELECT 1"),
    ],
)
async def test_counts_by_sessions_that_look_elsewhere(journal, path, prepare):
    """Whoever changes entries, and whatever other tables of that name the session finds: they are counted."""
    await journal.hand_out(given("abc"))
    other = await asyncpg.connect(
        database().address, server_settings={"search_path": path.format(journal=journal.schema)}
    )
    try:
        await other.execute(prepare.format(journal=journal.schema))
        entries = f"{journal.schema}.entries"
        more = "(key, chunk, content, state, run, operation) VALUES ($1, 1, '', 0, 1, 'x')"
        for key in "de":  # the second time from a plan that is kept, if any is
            await other.execute(f"INSERT INTO {entries} {more}", key)
            await other.execute(f"UPDATE {entries} SET state = 2, verdict = 'refused' WHERE key = $1", key)  # noqa: S608 - our own text
            await other.execute(f"DELETE FROM {entries} WHERE key = $1", chr(ord(key) - 3))  # noqa: S608 - as above
        assert await journal.summary() == await scanned(journal)
        assert await journal.summary() == Summary(to_do=1, verdicts={Verdict.REFUSED: 2})
    finally:
        await other.execute("DROP TABLE IF EXISTS public.counts")
        await other.close()


async def test_counts_by_one_session_that_changes_where_it_looks(journal):
    """A plan that is kept, as workers do, is not used where the name means another table."""
    async with journal.lent() as connection:
        keeps = "SELECT current_schemas(true) = ARRAY['pg_catalog', $1]::name[]"
        assert await connection.fetchval(keeps, journal.schema)
        await connection.execute("CREATE TABLE IF NOT EXISTS public.counts (LIKE counts)")
        try:
            more = f"INSERT INTO {journal.schema}.entries (key, chunk, content, state, run, operation)"
            for number, path in enumerate([journal.schema, "public", journal.schema] * 3):
                await connection.execute(f"SET search_path = {path}")
                await connection.execute(f"{more} VALUES ('{number}', 1, '', 0, 1, 'x')")
            assert await connection.fetchval("SELECT count(*) FROM public.counts") == 0
        finally:
            await connection.execute(f"DROP TABLE public.counts; SET search_path = {journal.schema}")
    assert (await journal.summary()).to_do == 9


async def test_counts_of_a_batch(service, client, name):
    """Those of a batch that was retried and pruned."""
    service.script("webhooks.update", "400", "400", "pass", "reset")
    hook = service.seed_webhook()
    async with Batch.open(database().journal(name, silence=1), client) as batch:
        writes = [client.webhooks.update(hook.id, description=str(n)).keyed(str(n)) for n in range(30)]
        await all_of(batch, writes)
        assert await batch.retry(failed=True) > 0
        assert await batch.summary() == await scanned(batch.entries)
        await all_of(batch)
        await batch.entries.prune(LATER)
        assert await batch.summary() == await scanned(batch.entries)
        assert (await batch.summary()).total == 30
