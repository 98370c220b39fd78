"""The search for damage in large journals finds what SQLite's own, slower one finds."""

import random
import sqlite3
from contextlib import closing

import pytest

from invsvc_async.durable.sqlite_entries import SqliteEntries
from invsvc_async.errors import JournalError
from invsvc_async.storage import sqlite_check

ROWS = 400


@pytest.fixture(autouse=True)
def _each_file_is_large(monkeypatch):
    monkeypatch.setattr(sqlite_check, "_LARGE", 0)


@pytest.fixture
async def path(tmp_path):
    """Return the path of a journal with entries in all states, and with keys in no order."""
    entries = SqliteEntries(tmp_path / "run.db", "a batch")
    await entries.open()
    await entries.aclose()
    chance = random.Random(1)  # noqa: S311 - not for cryptography
    rows = [
        (
            chance.randbytes(16).hex(), chance.choice([0, 1, 2]), chance.choice(["applied", "refused", "unknown", None]),
            chance.choice(["worker", None]), chance.choice([number, None]),
        )
        for number in range(ROWS)
    ]  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO entries (key, content, state, run, operation, verdict, claim, position) "
            "VALUES (?1, x'00', ?2, 1, 'webhooks.create', ?3, ?4, ?5)",
            rows,
        )
    return tmp_path / "run.db"


def is_found(path, check):
    """Return whether *check* finds damage in the file at *path*."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            return check(connection) not in {None, "ok"}
        except (JournalError, sqlite3.Error, UnicodeDecodeError):
            return True


def test_damage_that_sqlite_finds(path, tmp_path):
    """Of 150 flipped bits all are found that ``PRAGMA integrity_check`` finds, and no others."""
    whole, chance, many = path.read_bytes(), random.Random(2), 0  # noqa: S311 - the same
    for _ in range(150):
        content = bytearray(whole)
        content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)
        spoilt = tmp_path / "spoilt.db"
        spoilt.write_bytes(content)
        by_sqlite = is_found(spoilt, lambda file: file.execute("PRAGMA integrity_check(1)").fetchone()[0])
        assert is_found(spoilt, lambda file: sqlite_check.check_file(file, "the journal")) is by_sqlite
        many += by_sqlite

    assert 50 < many < 150


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("state < 2", "state < 1"),
        ("verdict <> 'applied'", "verdict = 'refused'"),
        ("position IS NOT NULL", "position > 100"),
    ],
)
def test_index_that_lacks_rows(path, before, after):
    """An index whose entries are not those that its definition demands is damage, and is named."""
    with closing(sqlite3.connect(path)) as connection:
        sqlite_check.check_file(connection, "the journal")  # it is whole
    for old, new in ((before, after), (after, before)):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(
                "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'index'", (old, new)
            )
        if new == after:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("REINDEX")
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(JournalError, match=r"damaged \(the index \w+ differs from its table\)"),
    ):
        sqlite_check.check_file(connection, "the journal")


def test_index_that_is_empty(path):
    """Where an index has no entries and no row belongs into it, nothing is damaged."""
    with closing(sqlite3.connect(path)) as connection:
        with connection:
            connection.execute(
                "UPDATE entries SET state = 2, verdict = 'applied', claim = NULL, position = NULL"
            )
        sqlite_check.check_file(connection, "the journal")


def test_owner_that_writes_meanwhile(path):
    """A reader compares one state of the file."""
    with closing(sqlite3.connect(path)) as owner, closing(sqlite3.connect(path)) as reader:
        reader.isolation_level = None

        def write(statement):
            if "group_concat" in statement or "EXISTS" in statement:
                with owner:
                    owner.execute("DELETE FROM entries WHERE seq = (SELECT min(seq) FROM entries)")

        reader.set_trace_callback(write)
        sqlite_check.check_file(reader, "the journal")
        left = owner.execute("SELECT count(*) FROM entries").fetchone()[0]

    assert left < ROWS, "nothing was written meanwhile"


def test_small_files_are_checked_by_sqlite(path, monkeypatch):
    """They are read in a moment either way."""
    monkeypatch.setattr(sqlite_check, "_LARGE", 1 << 30)
    asked = []
    with closing(sqlite3.connect(path)) as connection:
        connection.set_trace_callback(asked.append)
        sqlite_check.check_file(connection, "the journal")

    assert "PRAGMA integrity_check(1)" in asked
