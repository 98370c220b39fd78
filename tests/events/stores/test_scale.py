"""The work of each statement on a store of many rows: it must not grow with them."""

from __future__ import annotations

import itertools
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import attrs
import pytest

from invsvc_async import events
from invsvc_async.events.stores import scripts
from invsvc_async.storage import sqlite_file
from tests.support.database import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from invsvc_async.events import CatchUpStore
    from invsvc_async.storage.dialect import Script

# Eight tenths are handled, then one is dead, and the last is open, for a handler that is elsewhere.
INTO_SQLITE = """
    WITH RECURSIVE n (i, part) AS (SELECT 0, 0 UNION ALL SELECT i + 1, (i + 1) * 10 / ?1 FROM n WHERE i + 1 < ?1)
    INSERT INTO delivery (key, type, body, state, due, received, handler, subject)
    SELECT 'old' || i, 't', iif(part > 7, x'7b7d', NULL), CASE part WHEN 8 THEN 'dead' WHEN 9 THEN 'open'
        ELSE 'handled' END, iif(part = 9, 0, 1e6), i, 'elsewhere', 'old' || i FROM n
"""
INTO_POSTGRES = """
    INSERT INTO {table} (key, type, body, state, due, received, handler, subject)
    SELECT 'old' || i, 't', CASE WHEN part > 7 THEN '{{}}'::bytea END, CASE part WHEN 8 THEN 'dead'
        WHEN 9 THEN 'open' ELSE 'handled' END, date_part('epoch', now()) - 3600, i, 'elsewhere', 'old' || i
    FROM (SELECT i, i * 10 / {rows} AS part FROM generate_series(0, {rows} - 1) AS i) AS numbered
"""
SHOWN = re.compile(r"Buffers: shared hit=(\d+)(?: read=(\d+))?")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be many."""
    for name in ("COUNTED", "MOST", "WALKED"):
        monkeypatch.setattr(scripts, name, 20)


async def operations(store: CatchUpStore, note: Callable[[str], None]) -> None:
    """Use each method once, and call *note* before it."""
    note("put")
    for key in "abcd":
        await store.put(
            events.Delivery(
                key=key, type="t", body=b"{}", handler="mine", ordering_key="o"
            )
        )
    note("put of a subject")
    about = events.Delivery(key="s", type="t", body=b"{}", handler="for a subject", subject="s", as_of=1.0)  # fmt: skip
    assert await store.put(about)
    note("put unseen")
    unseen = [[attrs.evolve(about, key=None, subject=each)] for each in ("s", "u", "old7")]  # fmt: skip
    assert await store.put_unseen(unseen) == [False, True, False]
    note("name subjects")
    assert await store.name_subjects(5) == 0
    note("knows from")
    assert await store.knows_from() is not None
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
    assert await store.assign(
        second, [events.Delivery(key="b", type="t", body=None, handler="mine")]
    )
    note("bury")
    third, *_ = await store.take(limit=1, lease=60, handlers=["mine"])
    assert await store.bury(third, reason="why")
    note("claim")
    await store.claim(
        events.Delivery(key="c1", type="t", body=None, handler="mine"), lease=60
    )
    note("claim of a known one")
    await store.claim(
        events.Delivery(key="old0", type="t", body=None, handler="mine"), lease=60
    )
    for state in ("open", "handled", "dead", None):
        note(f"events {state}")
        found = await store.events(state=state, limit=3)
    note("revive")
    (letter,) = await store.events(state="dead", limit=1)
    assert await store.revive(letter)
    note("give")
    await store.give(letter, "other")
    note("drop")
    assert await store.drop(letter)
    note("stats")
    await store.stats()
    note("backlog")
    await store.backlog()
    note("prune")
    assert await store.prune(older_than=1e7, bodies=1e7) == 0
    assert found


async def test_steps_of_sqlite_do_not_grow_with_the_rows(tmp_path, monkeypatch) -> None:
    """With 20 times the rows, SQLite runs as many instructions for each operation."""
    counts = [
        await _steps_of(tmp_path / f"{rows}.db", rows, monkeypatch)
        for rows in (500, 10_000)
    ]

    few_rows, many_rows = counts
    grown = {
        name: (few_rows[name], steps)
        for name, steps in many_rows.items()
        if steps > few_rows[name] * 1.5 + 200
    }
    assert grown == {}
    assert len(many_rows) > 15


async def test_steps_of_opening_do_not_grow_with_what_is_delayed(
    tmp_path, monkeypatch
) -> None:
    """Delayed events are not read when the file is opened, unless the machine was restarted."""
    steps = [
        await _steps_of_opening(tmp_path / f"{rows}.db", rows, monkeypatch)
        for rows in (100, 4000)
    ]

    assert steps[1] < steps[0] * 1.5 + 200


async def _steps_of_opening(
    path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Return the instructions that opening takes while *rows* events wait for their next attempt."""
    now = [100.0]
    store = events.SqliteStore(path, steady=lambda: now[0])
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(INTO_SQLITE, (rows,))
        db.execute("UPDATE delivery SET state = 'open', body = x'7b7d', due = 3700")
    now[0] = 101.0
    with monkeypatch.context() as patch:
        steps = _counted(patch)
        await store.open()
        taken = next(steps)
    await store.close()

    now[0] = 1.0
    # the machine was restarted: all are due
    monkeypatch.setattr(sqlite_file, "boot", lambda: str(path))
    assert len(await store.take(limit=rows, lease=10)) == rows
    await store.close()
    return taken


def _counted(patch: pytest.MonkeyPatch) -> itertools.count[int]:
    """Count the instructions of all connections from now on; the check of the file does not run."""
    connect, steps = sqlite3.connect, itertools.count()

    def counting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*arguments, **options)
        db.set_progress_handler(lambda: next(steps) < 0, 1)
        return db

    patch.setattr(
        "invsvc_async.events.stores.sqlite.Upkeep.start", lambda *_, **__: None
    )
    patch.setattr(sqlite3, "connect", counting)
    return steps


async def _steps_of(
    path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
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
async def large(
    postgres: str,
) -> AsyncIterator[tuple[asyncpg.Connection, events.PostgresStore]]:
    """Yield a connection to the database with a table of many rows, and the store of that."""
    store = events.PostgresStore(postgres, table="scale", connections=2)
    await store.open()
    async with connected() as connection:
        await connection.execute(INTO_POSTGRES.format(table="scale", rows=20_000))
        await connection.execute("ANALYZE scale")
        yield connection, store
        await store.close()
        await connection.execute("DROP TABLE scale")


async def test_pages_that_postgres_reads_do_not_grow_with_the_rows(
    large, monkeypatch
) -> None:
    """Each statement reads a few of the 300 pages of the table."""
    store = large[1]
    operation, most = "", dict[str, int]()

    def note(name: str) -> None:
        nonlocal operation
        operation = name

    async def analysed(connection: Any, text: str, *values: object) -> Any:
        if text.lstrip().startswith("LOCK"):  # which has no plan
            return await fetch(connection, text, *values)
        begin, undo = "BEGIN", "ROLLBACK"
        if connection.is_in_transaction():
            begin, undo = "SAVEPOINT before", "ROLLBACK TO SAVEPOINT before"
        await connection.execute(begin)
        explained = await fetch(
            connection, f"EXPLAIN (ANALYZE, BUFFERS) {text}", *values
        )
        await connection.execute(undo)
        plan = "\n".join(row[0] for row in explained)
        # The first line is of the whole statement.
        shown = SHOWN.search(plan)  # locking reads none
        pages = sum(int(number or 0) for number in shown.groups()) if shown else 0
        most[operation] = max(most.get(operation, 0), pages)
        return await fetch(connection, text, *values)

    fetch = asyncpg.Connection.fetch
    monkeypatch.setattr(asyncpg.Connection, "fetch", analysed)
    await operations(store, note)

    assert {name: pages for name, pages in most.items() if pages > 120} == {}
    assert len(most) > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_stats_of_many_events(tmp_path, large, kind) -> None:
    """Few are counted; of more, only so many, and it is said that there are others."""
    store = large[1]
    if kind == "sqlite":
        store = events.SqliteStore(tmp_path / "events.db")
        await store.open()
        with closing(
            sqlite3.connect(tmp_path / "events.db", isolation_level=None)
        ) as db:
            db.execute(INTO_SQLITE, (5_000,))
    while (found := await store.stats())["dead"].has_more:
        for letter in await store.events(state="dead", limit=800):
            await store.drop(letter)
    await store.close()

    assert {state: one.has_more for state, one in found.items()} == {
        "open": True, "handled": True, "dead": False,
    }  # fmt: skip
    assert (found["open"].count, found["handled"].count, found["dead"].count) == (
        20,
        20,
        0,
    )
    assert found["dead"].oldest is None


async def test_prune_of_sqlite_does_not_wait_for_the_disk(
    store: events.SqliteStore, monkeypatch
) -> None:
    """Its transactions are not flushed while they have the lock; those of deliveries are."""
    found: list[int] = []

    def look(self: object, rows: int = 0) -> Script[int]:
        ((mode,),) = yield "PRAGMA synchronous", ()
        found.append(mode)
        return 0

    monkeypatch.setattr(events.SqliteStore, "_shrink_some", scripts.runs("aside")(look))
    await store.prune(older_than=60)
    await scripts.runs("together")(look)(store)
    assert found == [1, 2]


async def test_dead_letters_are_pruned_by_their_age(large) -> None:
    """Old ones go, however many there are; younger ones between them stay."""
    connection, store = large
    await connection.execute(
        "UPDATE scale SET due = date_part('epoch', now()) WHERE state = 'dead' AND id % 4 = 0"
    )
    await store.prune(older_than=1e9, dead=60)
    assert (
        await connection.fetchval("SELECT count(*) FROM scale WHERE state = 'dead'")
        == 500
    )
