"""The work of each statement on a store of many rows: it must not grow with them."""

from __future__ import annotations

import itertools
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from invsvc_async import JournalError, events
from invsvc_async.events.stores import estimates, postgres, postgres_indexes, sqlite_upkeep
from invsvc_async.events.stores.estimates import estimate, starts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from invsvc_async.events import HandlerStore

# Eight tenths are handled, then one is dead, and the last is open, for a handler that is elsewhere.
INTO_SQLITE = """
    WITH RECURSIVE n (i, part) AS (SELECT 0, 0 UNION ALL SELECT i + 1, (i + 1) * 10 / ?1 FROM n WHERE i + 1 < ?1)
    INSERT INTO delivery (key, type, body, state, due, since, reason, received, handler)
    SELECT 'old' || i, 't', iif(part > 7, x'7b7d', NULL), CASE part WHEN 8 THEN 'dead' WHEN 9 THEN 'open'
        ELSE 'handled' END, iif(part = 9, 0, 1e6), 0, '', i, 'elsewhere' FROM n
"""
INTO_POSTGRES = """
    INSERT INTO {table} (key, type, body, state, due, handler)
    SELECT 'old' || i, 't', CASE WHEN part > 7 THEN '{{}}'::bytea END, CASE part WHEN 8 THEN 'dead'
        WHEN 9 THEN 'open' ELSE 'handled' END, now() - interval '1 h', 'elsewhere'
    FROM (SELECT i, i * 10 / {rows} AS part FROM generate_series(0, {rows} - 1) AS i) AS numbered
"""
LISTED = "SELECT handler, due, id FROM waiting ORDER BY id"
TO_LIST = "SELECT handler, due, id FROM delivery WHERE state = 'open' AND body IS NOT NULL ORDER BY id"
OPEN = "SELECT id FROM open_event ORDER BY id"
TO_OPEN = "SELECT id FROM delivery WHERE state = 'open' ORDER BY id"
SHOWN = re.compile(r"Buffers: shared hit=(\d+)(?: read=(\d+))?")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be many."""
    for module in (estimates, postgres, sqlite_upkeep):
        monkeypatch.setattr(module, "EXACT", 20)
        monkeypatch.setattr(module, "SAMPLE", 20)
    for module in (postgres, sqlite_upkeep):
        monkeypatch.setattr(module, "COUNTED", 20)
        monkeypatch.setattr(module, "WALKED", 20)
    monkeypatch.setattr(estimates, "_SAMPLES", 10)


async def operations(store: HandlerStore, note: Callable[[str], None]) -> None:
    """Use each method once, and call *note* before it."""
    note("put")
    for key in "abcd":
        await store.put(events.Delivery(key=key, type="t", body=b"{}", handler="mine", ordering_key="o"))
    note("take")
    (first,) = await store.take(limit=9, lease=60, handlers=["", "mine"])
    note("take all")
    await store.take(limit=1, lease=60)
    note("handled")
    assert await store.handled(first, body=b"{}")
    (second,) = await store.take(limit=1, lease=60, handlers=["mine"])
    note("release")
    assert await store.release(second, delay=0)
    (second,) = await store.take(limit=1, lease=60, handlers=["mine"])
    note("assign")
    assert await store.assign(second, [events.Delivery(key="b", type="t", body=None, handler="mine")])
    note("bury")
    third, *_ = await store.take(limit=1, lease=60, handlers=["mine"])
    assert await store.bury(third, reason="why")
    note("claim")
    await store.claim(events.Delivery(key="c1", type="t", body=None, handler="mine"), lease=60)
    note("claim of a known one")
    await store.claim(events.Delivery(key="old0", type="t", body=None, handler="mine"), lease=60)
    for state in ("open", "handled", "dead", None):
        note(f"events {state}")
        found = await store.events(state=state, limit=3)
    note("revive")
    (letter,) = await store.dead_letters(limit=1)
    assert await store.revive(letter)
    note("give")
    await store.give(letter, "other")
    note("drop")
    assert await store.drop(letter)
    note("stats")
    await store.stats()
    note("backlog")
    await store.backlog()
    assert found


async def test_steps_of_sqlite_do_not_grow_with_the_rows(tmp_path, monkeypatch) -> None:
    """With 20 times the rows, SQLite runs as many instructions for each operation."""
    counts = [await _steps_of(tmp_path / f"{rows}.db", rows, monkeypatch) for rows in (500, 10_000)]

    few_rows, many_rows = counts
    grown = {
        name: (few_rows[name], steps)
        for name, steps in many_rows.items()
        if steps > few_rows[name] * 1.5 + 200
    }
    assert grown == {}
    assert len(many_rows) > 15


async def test_steps_of_opening_do_not_grow_with_what_is_delayed(tmp_path, monkeypatch) -> None:
    """Delayed events are not read when the file is opened, unless the machine was restarted."""
    steps = [await _steps_of_opening(tmp_path / f"{rows}.db", rows, monkeypatch) for rows in (100, 4000)]

    assert steps[1] < steps[0] * 1.5 + 200


async def _steps_of_opening(path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the instructions that opening takes while *rows* events wait for their next attempt."""
    now = [100.0]
    store = events.SqliteStore(path, steady=lambda: now[0])
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(INTO_SQLITE, (rows,))
        db.execute("UPDATE delivery SET state = 'open', body = x'7b7d', due = 3700, since = 100")
    now[0] = 101.0
    with monkeypatch.context() as patch:
        steps = _counted(patch)
        await store.open()
        taken = next(steps)
    await store.close()

    now[0] = 1.0  # the machine was restarted: all are due
    assert len(await store.take(limit=rows, lease=10)) == rows
    await store.close()
    return taken


async def test_sqlite_lists_what_is_open(tmp_path) -> None:
    """Whatever is done to events, also by a process of an older version, the lists have the open ones."""
    path = tmp_path / "events.db"
    store = events.SqliteStore(path, clock=lambda: 1e6, steady=lambda: 50.0)
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        lists = old.execute("SELECT type, name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        await store.close()
        for statement in (
            *(f"DROP TRIGGER {name}" for _, name in lists),
            "DROP TABLE waiting",
            "DROP TABLE open_event",
        ):
            old.execute(statement)  # as version 3 made it
        old.execute(INTO_SQLITE, (100,))
        old.execute("INSERT INTO delivery SELECT 999, 'claim', 't', NULL, 'open', 60, 0, '', 0, '', 0, ''")

        def check(operation: str) -> None:
            assert (old.execute(LISTED).fetchall(), operation) == (old.execute(TO_LIST).fetchall(), operation)
            assert (old.execute(OPEN).fetchall(), operation) == (old.execute(TO_OPEN).fetchall(), operation)

        await store.open()
        check("open")
        assert len(old.execute(LISTED).fetchall()) == 10
        await operations(store, check)
        check("end")
        for statement in (
            "UPDATE delivery SET due = due + 5, token = 'old' WHERE state = 'open'",
            "UPDATE delivery SET state = 'handled', body = NULL WHERE state = 'open' AND id % 2",
            "UPDATE delivery SET state = 'open', body = x'' WHERE state = 'dead'",
            "UPDATE delivery SET body = x'' WHERE state = 'open' AND body IS NULL",
            "DELETE FROM delivery WHERE id % 3 = 0",
        ):
            old.execute(statement)
            check(statement)
        await store.close()


def _counted(patch: pytest.MonkeyPatch) -> itertools.count[int]:
    """Count the instructions of all connections from now on; the check of the file does not run."""
    connect, steps = sqlite3.connect, itertools.count()

    def counting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*arguments, **options)
        db.set_progress_handler(lambda: next(steps) < 0, 1)
        return db

    patch.setattr("invsvc_async.events.stores.sqlite.FileCheck.start", lambda *_: None)
    patch.setattr(sqlite3, "connect", counting)
    return steps


async def _steps_of(path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how many instructions each operation takes in a file of so many rows."""
    found, running = dict[str, int](), [("open", 0)]

    def note(name: str) -> None:
        now = next(steps)
        last, began = running.pop()
        found[last] = now - began
        running.append((name, now))

    store = events.SqliteStore(path, clock=lambda: 1e6, steady=lambda: 50.0)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(INTO_SQLITE, (rows,))
    with monkeypatch.context() as patch:
        steps = _counted(patch)
        await store.open()
        await operations(store, note)
        note("end")
        await store.close()
    return found


@pytest.fixture
async def large(postgres: str) -> AsyncIterator[tuple[str, events.PostgresStore]]:
    """Yield a table of many rows and its store."""
    store = events.PostgresStore(postgres, table="scale", connections=2)
    await store.open()
    connection = await asyncpg.connect(postgres)
    await connection.execute(INTO_POSTGRES.format(table="scale", rows=20_000))
    await connection.execute("ANALYZE scale")
    yield postgres, store
    await store.close()
    await connection.execute("DROP TABLE scale, scale_kept, scale_ordered")
    await connection.close()


async def test_pages_that_postgres_reads_do_not_grow_with_the_rows(large, monkeypatch) -> None:
    """Each statement reads a few of the 300 pages of the table."""
    address, store = large
    analyst = await asyncpg.connect(address)
    operation, most = "", dict[str, int]()

    def note(name: str) -> None:
        nonlocal operation
        operation = name

    async def analysed(self: events.PostgresStore, statement: str, *values: object) -> Any:
        transaction = analyst.transaction()
        await transaction.start()
        text = f"EXPLAIN (ANALYZE, BUFFERS) {statement.format(table='scale')}"
        plan = "\n".join(row[0] for row in await analyst.fetch(text, *values))
        await transaction.rollback()
        # The first line is of the whole statement.
        pages = sum(int(number or 0) for number in SHOWN.search(plan).groups())
        most[operation] = max(most.get(operation, 0), pages)
        return await rows_of(self, statement, *values)

    rows_of = events.PostgresStore._rows
    monkeypatch.setattr(events.PostgresStore, "_rows", analysed)
    await operations(store, note)
    await analyst.close()

    assert {name: pages for name, pages in most.items() if pages > 120} == {}
    assert len(most) > 10


async def test_indexes_of_a_large_table_are_built_beside_its_use(large, monkeypatch) -> None:
    """Opening leaves them; the next prune builds those that are missing, and repairs one that is broken."""
    address, store = large
    await store.close()
    connection = await asyncpg.connect(address)
    await connection.execute("DROP INDEX scale_open, scale_next")
    monkeypatch.setattr(postgres_indexes, "_SMALL", 0)
    await store.open()
    assert await connection.fetchval("SELECT to_regclass('scale_open')") is None
    assert len(await store.take(limit=3, lease=60, handlers=["elsewhere"])) == 3
    await connection.execute("CREATE INDEX scale_next ON scale (handler)")
    await connection.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass('scale_next')"
    )

    assert await store.prune(older_than=1e9) == 0

    found = await connection.fetch(
        "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
        " WHERE indexrelid IN (to_regclass('scale_open'), to_regclass('scale_next')) AND indisvalid"
    )
    assert sorted(row[0].partition("USING")[2] for row in found) == [
        " btree (handler, due, id) WHERE ((state = 'open'::text) AND (body IS NOT NULL))",
        " btree (id) WHERE (state = 'open'::text)",
    ]
    assert len(await store.take(limit=3, lease=60, handlers=["elsewhere"])) == 3
    await connection.close()


async def test_indexes_that_may_not_be_built(large, monkeypatch, caplog) -> None:
    """A prune goes on without them, and says so; with one connection, they are left to other processes."""
    address, store = large
    await store.close()
    monkeypatch.setattr(postgres_indexes, "_SMALL", 0)
    connection = await asyncpg.connect(address)
    await connection.execute("DROP INDEX scale_next")

    async def refuse(*_: object) -> None:
        raise JournalError("no right")

    alone = events.PostgresStore(address, table="scale", connections=1)
    assert await alone.prune(older_than=1e9) == 0
    await alone.close()
    monkeypatch.setattr(postgres_indexes, "build", refuse)

    await store.prune(older_than=60)

    assert "could not be built: no right" in caplog.text
    assert (await store.counts())["handled"] == 0
    await connection.close()


async def test_stats_of_many_events(tmp_path) -> None:
    """Few are counted; of more there is an estimate, which says that it is one."""
    store = events.SqliteStore(tmp_path / "events.db")
    await store.open()
    with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as db:
        db.execute(INTO_SQLITE, (5_000,))
        db.execute("DELETE FROM delivery WHERE state = 'dead' AND id > 4015")

    found = await store.stats()
    await store.close()

    assert {state: one.is_estimate for state, one in found.items()} == {
        "open": True, "handled": True, "dead": False,
    }  # fmt: skip
    assert (found["open"].count, found["dead"].count) == (pytest.approx(500, rel=0.1), 15)
    assert found["handled"].count == pytest.approx(4_000, rel=0.1)


@pytest.mark.parametrize(
    "ids", [range(1, 2_000_000, 7), [*range(10), 10**9, *range(2 * 10**9, 2 * 10**9 + 9)]]
)
def test_estimate(ids) -> None:
    """Even ids are estimated well, few ones exactly, wherever they are."""
    at = {
        start: [one for one in ids if one >= start][: estimates.SAMPLE] for start in starts(ids[0], ids[-1])
    }
    assert estimate(at, ids[-1]) == pytest.approx(len(ids), rel=0.05)


async def test_prune_of_sqlite_does_not_wait_for_the_disk(tmp_path, monkeypatch) -> None:
    """Its transactions are not flushed while they have the lock; those of deliveries are."""
    store = events.SqliteStore(tmp_path / "events.db")
    found: list[int] = []

    def look(db: sqlite3.Connection, rows: int) -> int:
        found.append(db.execute("PRAGMA synchronous").fetchone()[0])
        return 0

    monkeypatch.setattr(sqlite_upkeep, "shrink_some", look)
    await store.prune(older_than=60)
    assert (found, await store._run(lambda db: look(db, 0)), found) == ([1, 2], 0, [1, 2])
    await store.close()


async def test_dead_letters_are_pruned_by_their_age(large) -> None:
    """Old ones go, however many there are; younger ones between them stay."""
    address, store = large
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE scale SET due = now() WHERE state = 'dead' AND id % 4 = 0")
    await store.prune(older_than=1e9, dead=60)
    assert await connection.fetchval("SELECT count(*) FROM scale WHERE state = 'dead'") == 500
    await connection.close()
