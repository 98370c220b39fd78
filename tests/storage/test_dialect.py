"""The same scripts on SQLite and PostgreSQL."""

import sqlite3

import pytest

from invsvc_async.storage.dialect import MOST, PostgresDialect, SqliteDialect
from invsvc_async.storage.postgres_pool import Pool
from invsvc_async.storage.sqlite_writer import Writer
from tests.support.database import database

ROWS = [("a", 1, "xy"), ("b", 2, None), ("c", 3, "é")]


@pytest.fixture(params=["sqlite", "postgres"])
async def run(request, tmp_path):
    """Run a script on one of the databases, in a transaction of its own."""
    if request.param == "sqlite":
        writer = Writer(
            "scripts",
            lambda: sqlite3.connect(tmp_path / "scripts.db", isolation_level=None),
        )
        await writer.start()
        dialect = SqliteDialect(t="things")
        yield lambda script, *values: writer.run(dialect, lambda: script(*values))
        await writer.stop()
        return
    pool = Pool(database().address, "the database")
    await pool.connect(
        lambda connection: connection.execute("CREATE SCHEMA IF NOT EXISTS scripts")
    )
    dialect = PostgresDialect(t="scripts.things")
    yield lambda script, *values: pool.ask(
        lambda connection: dialect.run(connection, script(*values))
    )
    await pool.fetch("DROP TABLE IF EXISTS scripts.things")
    await pool.aclose()


def make():
    yield "CREATE TABLE {t} (key text PRIMARY KEY, number bigint, note text)", ()


ADD = """
    INSERT INTO {t} (key, number, note) SELECT * FROM {rows 1 key:text number:bigint note:text} WHERE true
    ON CONFLICT (key) DO NOTHING RETURNING key
"""
THOSE = """
    SELECT key, number, note, {arg 2 bigint} FROM {t} WHERE number >= $2 AND key {any 1 text}
    ORDER BY number {update}
"""


def add(rows):
    return (yield ADD, (rows,))


def those(keys, least=0):
    rows = yield THOSE, (keys, least)
    return [tuple(row) for row in rows]


async def test_lists_of_rows_and_of_values(run):
    await run(make)
    assert [key for (key,) in await run(add, ROWS)] == ["a", "b", "c"]
    assert [key for (key,) in await run(add, [*ROWS[:1], ("d", 4, "")])] == ["d"]
    assert await run(those, ["c", "a", "?"], 1) == [("a", 1, "xy", 1), ("c", 3, "é", 1)]


async def test_no_value_is_stored_as_null(run):
    """In each column, whatever its type, and where a statement is given one value alone."""

    def nulls():
        rows = yield (
            "SELECT key FROM {t} WHERE number IS NULL AND note IS NULL AND {arg 1 text} IS NULL",
            (None,),
        )
        return [key for (key,) in rows]

    await run(make)
    await run(add, [("a", None, None), ("b", 2, None), ("c", None, "")])
    assert await run(nulls) == ["a"]


@pytest.mark.parametrize("many", [0, 1, 2, 3, 7, 8, 9, MOST])
async def test_lists_of_each_length(run, many):
    await run(make)
    rows = [(f"{number:03}", number, None) for number in range(many)]
    assert len(await run(add, rows)) == many
    assert await run(those, [key for key, *_ in rows]) == [(*row, 0) for row in rows]


async def test_script_that_fails_leaves_nothing(run):
    def fails():
        yield from add(ROWS[1:2])
        raise KeyError("of the script")

    await run(make)
    with pytest.raises(Exception, match="of the script"):
        await run(fails)
    assert not await run(those, ["b"])


async def test_statements_for_one_database(run):
    def which():
        one = yield "{postgres} SELECT 'postgres'", ()
        other = yield "{sqlite} SELECT 'sqlite'", ()
        return [name for (name,) in (*one, *other)]

    found = await run(which)
    assert found in (["postgres"], ["sqlite"])


async def test_statements_that_change_rows(run):
    """They have a row for each that they changed."""
    await run(make)
    await run(add, ROWS)

    def change(least):
        return len(
            (yield "UPDATE {t} SET number = 9 WHERE number >= $1 {changed}", (least,))
        )

    assert [await run(change, least) for least in (2, 10)] == [2, 0]


def test_clocks_of_sqlite():
    """A name of a clock is the time, once for each statement, whatever other values there are."""
    times = iter([1.0, 2.0, 3.0, 4.0])
    dialect = SqliteDialect({"now": lambda: next(times), "day": lambda: 7.0})
    db = sqlite3.connect(":memory:")
    text = "SELECT {now}, $1, {now}, {day} WHERE 1 {any 2 bigint}"
    found = [
        db.execute(*dialect.translated(text, ("x", [1] * many))).fetchall()
        for many in (1, 3)
    ]
    plain = [
        db.execute(*dialect.translated("SELECT $1, {now}", ("x",))).fetchall()
        for _ in range(2)
    ]
    assert found == [[(1.0, "x", 1.0, 7.0)], [(2.0, "x", 2.0, 7.0)]]
    assert plain == [[("x", 3.0)], [("x", 4.0)]]
    db.close()


async def test_sqlite_stores_each_text_and_blob(tmp_path):
    db = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    db.execute("CREATE TABLE things (key, number, note)")
    SqliteDialect(t="things").run(
        db, add_all([("a\0b", 1, b"\0\xff"), ("'", 1.5, None)])
    )
    assert db.execute("SELECT * FROM things").fetchall() == [
        ("a\0b", 1, b"\0\xff"),
        ("'", 1.5, None),
    ]
    db.close()


def add_all(rows):
    yield (
        "INSERT INTO {t} SELECT * FROM {rows 1 key:text number:bigint note:bytea}",
        (rows,),
    )


def test_list_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="Divide it"):
        SqliteDialect().translated(
            "SELECT 1 WHERE 1 {any 1 bigint}", ([1] * (MOST + 1),)
        )


def test_values_for_sqlite_need_no_adapter():
    """`sqlite3` looks for an adapter of each ``None``, also of those that fill up a list."""
    _, values = SqliteDialect(t="things").translated(
        ADD, ([("a", None, "x"), ("b", 2, None), ("c", None, None)],)
    )
    assert len(values) > 9
    assert {type(each) for each in values} == {str, int, float}


def test_few_statements_are_prepared():
    dialect = SqliteDialect()
    texts = {
        dialect.translated("SELECT 1 WHERE 1 {any 1 bigint}", ([1] * many,))[0]
        for many in range(1, 101)
    }
    assert len(texts) == 8
