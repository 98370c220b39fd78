"""The thread that writes to a file of SQLite."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from invsvc_async import JournalError
from invsvc_async.storage.sqlite_writer import Writer
from tests.support.forks import forks, in_child


@pytest.fixture
def path(tmp_path):
    """Return the path of a file with a table."""
    path = tmp_path / "one.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (n INTEGER CHECK (n > 0))")
    connection.close()
    return path


async def test_file_that_another_program_keeps_locked(path):
    """What was requested together waits for it once, so that a run, and its end, are not held up for minutes."""
    waits = []

    def begin(connection):
        waits.append(connection)
        connection.execute("BEGIN IMMEDIATE")

    writer = Writer(
        "one",
        lambda: sqlite3.connect(path, timeout=0, isolation_level=None),
        begin=begin,
    )
    await writer.start()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    insert = "INSERT INTO numbers VALUES (1)"
    asked = [
        writer.act(lambda connection: connection.execute(insert).rowcount)
        for _ in range(50)
    ]

    found = await asyncio.gather(*asked, return_exceptions=True)

    assert {type(each) for each in found} == {JournalError}
    assert "another connection is using the file" in str(found[0])
    assert len(waits) == 1
    other.execute("ROLLBACK")
    other.close()
    assert await writer.act(lambda connection: connection.execute(insert).rowcount) == 1
    await writer.stop()


async def test_request_that_fails_among_others(path):
    """It fails alone."""
    writer = Writer("one", lambda: sqlite3.connect(path, isolation_level=None))
    await writer.start()

    def insert(number):
        return writer.act(
            lambda connection: (
                connection.execute("INSERT INTO numbers VALUES (?)", (number,)).rowcount
            )
        )

    found = await asyncio.gather(*map(insert, (1, 0, 2)), return_exceptions=True)

    assert found[::2] == [1, 1]
    assert isinstance(found[1], JournalError)
    assert isinstance(found[1].__cause__, sqlite3.IntegrityError)
    await writer.stop()


@forks
async def test_process_that_is_forked(path):
    """It cannot open what its parent had open: SQLite would not lock it, and lose what is stored."""

    async def insert():
        writer = Writer("one", lambda: sqlite3.connect(path, isolation_level=None))
        await writer.start()
        await writer.act(
            lambda connection: (
                connection.execute("INSERT INTO numbers VALUES (1)").rowcount
            )
        )
        await writer.stop()
        return "inserted"

    writer = Writer("one", lambda: sqlite3.connect(path, isolation_level=None))
    await writer.start()
    assert "open when this process was forked" in in_child(
        lambda: asyncio.run(insert())
    )
    await writer.stop()
    assert in_child(lambda: asyncio.run(insert())) == "inserted"
