"""The entries of a journal in one SQLite file, which one process owns at a time."""

from __future__ import annotations

import sqlite3
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.durable.entry import State, entry_of
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.sqlite_file import APPLICATION, SqliteFile, fact
from invsvc_async.storage.slices import slices
from invsvc_async.storage.sqlite_writer import transaction
from invsvc_async.storage.table_version import VERSION

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from invsvc_async.durable.entry import Entry

__all__ = ["SqliteEntries"]

T = TypeVar("T")

# The triggers count the sends.
_TABLES = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE commons (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, content BLOB NOT NULL, state INTEGER NOT NULL,
    run INTEGER NOT NULL, operation TEXT NOT NULL, verdict TEXT, common INTEGER, intent TEXT, outcome TEXT,
    claim TEXT, done_at INTEGER, position INTEGER
);
CREATE TABLE states (thing TEXT PRIMARY KEY, seq INTEGER NOT NULL, team TEXT, state TEXT, stamp INTEGER);
CREATE INDEX not_done ON entries (seq) WHERE state < 2;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX claimed ON entries (seq) WHERE claim IS NOT NULL;
CREATE INDEX finished ON entries (position) WHERE position IS NOT NULL;
CREATE TRIGGER sent_first AFTER INSERT ON entries WHEN NEW.state = 1
    BEGIN UPDATE facts SET value = value + 1 WHERE name = 'sends'; END;
CREATE TRIGGER sent_again AFTER UPDATE OF state ON entries WHEN NEW.state = 1
    BEGIN UPDATE facts SET value = value + 1 WHERE name = 'sends'; END;
INSERT INTO facts VALUES ('schema', '{VERSION}');
PRAGMA application_id = {APPLICATION};
"""  # noqa: S608 - our own text
_COLUMNS = (
    "key", "content", "state", "run", "operation", "verdict", "common", "intent", "outcome", "claim",
    "done_at", "position",
)  # fmt: skip
_ALL = f"seq, {', '.join(_COLUMNS)}"
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in {"key", "run"})
_CHANGES = f"{_REPLACED}, run = max(run, excluded.run)"  # the input may have contained it again meanwhile
# Adapting a value of another type than these (also None) is slow in sqlite3.
_NULLS = 7  # columns at the end that may be NULL, which is passed as an empty text
_MARKS = ", ".join(["?"] * (len(_COLUMNS) - _NULLS) + ["nullif(?, '')"] * _NULLS)
_UPSERT = f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608 - our own text
_CONFLICT = f" ON CONFLICT (key) DO UPDATE SET {_CHANGES}"
_STATE = _COLUMNS.index("state")
_MOST_ROWS = 256  # in one statement
_STEP = 16  # statements have a multiple of this many rows: few enough to stay prepared


class SqliteEntries(SqliteFile):
    """
    The entries of one file.

    With *reading*, nothing is changed, and another process may own the file.  *kind* distinguishes a batch's
    journal from a client's.
    """

    def __init__(self, path: str | Path, kind: str, *, reading: bool = False) -> None:
        super().__init__(path, kind, reading=reading)
        self.commons: Commons = Commons()
        self._at_once = 0  # rows in one statement, at most
        self._commons_stored = 0  # how many are committed
        self._sends = 0  # rows that the current group has stored as about to be sent
        self._on_sends: Callable[[sqlite3.Connection, int | None], None] | None = None

    def put(self, entry: Entry) -> asyncio.Future[None]:
        """Store *entry*, replacing any of its key; the future completes once it is on the disk."""
        return self._open_writer.store((entry.key, row_of(entry)))

    def shelve(self, entry: Entry) -> None:
        """Store *entry* without waiting; does nothing if the journal is closed."""
        if self._writer is not None:
            self.put(entry)

    def take_out(self, key: str) -> asyncio.Future[None]:
        """Delete the entry of *key*."""
        return self._open_writer.store((key, None))

    async def next_run(self) -> int:
        """Start another run, and return its number."""
        return await self.ask(_next_run)

    # --- on the writer's thread

    def _prepare(self, connection: sqlite3.Connection) -> None:
        super()._prepare(connection)
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)  # 999 in old builds
        self._at_once = min(_MOST_ROWS, most // len(_COLUMNS) // _STEP * _STEP)

    def _create(self, connection: sqlite3.Connection) -> None:
        kind = f"INSERT INTO facts VALUES ('kind', '{self.kind}');"  # noqa: S608 - our own text
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {kind} COMMIT;")

    def _load(self, connection: sqlite3.Connection) -> None:
        super()._load(connection)
        for number, text in connection.execute("SELECT number, text FROM commons"):
            self.commons.load(number, text)

    def _store_group(self, connection: sqlite3.Connection, values: list[Any]) -> None:  # Any: rows by key
        self._store(connection, dict(values))

    def _store(self, connection: sqlite3.Connection, rows: dict[str, tuple[Any, ...] | None]) -> None:
        """
        Write *rows* in the open transaction, or in one of their own.

        Usually they are one statement, which is its own transaction.  Each further statement releases the
        GIL several times, and getting it back from a busy event loop takes milliseconds.
        """
        kept = [row for row in rows.values() if row is not None]
        if connection.in_transaction or not self._is_one_statement(connection, kept, rows):
            with transaction(connection):
                self._store_commons(connection)
                for some in slices(kept, self._at_once):
                    self._sends += _upsert(connection, some)
                gone = [(key,) for key, row in rows.items() if row is None]
                connection.executemany("DELETE FROM entries WHERE key = ?", gone)
        else:
            self._sends += _upsert(connection, kept)

    def _group_ended(self, connection: sqlite3.Connection, is_clean: bool) -> None:  # noqa: FBT001 - of Writer
        """Report how many sends a group has stored, which is not known if a part of it failed."""
        sends, self._sends = self._sends, 0
        if self._on_sends is not None:
            self._on_sends(connection, sends if is_clean else None)

    def _is_one_statement(
        self, connection: sqlite3.Connection, kept: list[tuple[Any, ...]], rows: dict[str, Any]
    ) -> bool:
        if self._commons_stored < len(self.commons.texts):
            self._commons_stored = _commons_in(connection)
        whole = self._commons_stored == len(self.commons.texts)
        return whole and len(kept) == len(rows) <= self._at_once

    def _store_commons(self, connection: sqlite3.Connection) -> None:
        """Add those that the file lacks, as it says itself: a failed group was rolled back."""
        texts, stored = self.commons.texts, _commons_in(connection)
        fresh = [(number, texts[number]) for number in range(stored + 1, len(texts) + 1)]
        connection.executemany("INSERT INTO commons VALUES (?, ?)", fresh)


def row_of(entry: Entry) -> tuple[str | int | bytearray, ...]:
    """Return the columns of *entry* as they are stored."""
    return (
        entry.key, bytearray(entry.content), int(entry.state), entry.run, entry.operation,
        entry.verdict or "", entry.common or "", entry.intent or "", entry.outcome or "",
        entry.claim or "", entry.done_at or "", entry.position or "",
    )  # fmt: skip


def _commons_in(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT coalesce(max(number), 0) FROM commons").fetchone()[0]
    return found


def _upsert(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """
    Write *rows* with one statement; the last is repeated to fill it up, which changes nothing.

    Return how many, repetitions included, were stored as about to be sent.
    """
    if len(rows) > _STEP:
        rows = [*rows, *repeat(rows[-1], -len(rows) % _STEP)]
    connection.execute(_statement(len(rows)), tuple(chain.from_iterable(rows)))
    return [row[_STATE] for row in rows].count(State.SENDING)


@cache
def _statement(rows: int) -> str:
    return _UPSERT + ", ".join([f"({_MARKS})"] * rows) + _CONFLICT


def _next_run(connection: sqlite3.Connection) -> int:
    number = int(fact(connection, "runs") or 0) + 1
    connection.execute("INSERT OR REPLACE INTO facts VALUES ('runs', ?)", (str(number),))
    return number


def entries(connection: sqlite3.Connection, where: str, values: Sequence[object] = ()) -> list[Entry]:
    """Select entries; *where* is never user input."""
    found = connection.execute(f"SELECT {_ALL} FROM entries WHERE {where}", values)  # noqa: S608 - our own text
    names = ("seq", *_COLUMNS)
    return [entry_of(dict(zip(names, row, strict=True))) for row in found]
