"""The table of an outbox in the application's own file of SQLite, into which its transactions insert."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "INSERT",
    "IS_THERE",
    "IS_USED",
    "Row",
    "connected",
    "count_new",
    "delete_rows",
    "drop",
    "journal_of",
    "mark",
    "moved_rows",
    "new_of_key",
    "new_rows",
    "use_journal",
]

_VERSION = 1
_TABLE = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, thing TEXT,
    digest TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, common TEXT NOT NULL,
    intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT {_VERSION},
    UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
INSERT = """
INSERT INTO invsvc_outbox (base_url, key, thing, digest, operation, number, common, intent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING seq
"""
IS_THERE = "SELECT 1 FROM sqlite_master WHERE name = 'invsvc_outbox_journal'"
IS_USED = "SELECT 1 FROM invsvc_outbox_journal WHERE base_url = $1"
_ROWS = """
SELECT seq, key, thing, digest, operation, number, common, intent FROM invsvc_outbox
    WHERE base_url = ? AND moved = ?
"""
_PATIENCE = 5.0  # s to wait for a lock of the application


class Row(NamedTuple):
    """A write that a transaction has inserted; ``common`` and ``intent`` are empty once it was moved."""

    seq: int
    key: str
    thing: str | None
    digest: str
    operation: str
    number: int  # of the common part
    common: str
    intent: str


def connected(path: Path, *, reading: bool) -> sqlite3.Connection:
    """
    Connect to the file at *path*, and create the tables that are missing; with *reading*, change nothing.

    Raises:
        JournalError: The file cannot be used, or its table is of another version.

    """
    name = f"outbox {path}"
    try:
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        try:
            if reading:
                connection.execute("PRAGMA query_only = 1")
            else:
                connection.executescript(_TABLE)
            names = [row[1] for row in connection.execute("PRAGMA table_info(invsvc_outbox)")]
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise in_words(name, error) from error
    if "digest" not in names:
        connection.close()
        raise JournalError(
            f"{name}: its table invsvc_outbox is of another version. Use the version of the package that "
            "created it, or a newer one."
        )
    return connection


def new_rows(base_url: str, limit: int, connection: sqlite3.Connection) -> list[Row]:
    """Return the first rows that were not moved yet."""
    found = connection.execute(f"{_ROWS} ORDER BY seq LIMIT ?", (base_url, 0, limit))
    return [Row(*row) for row in found]


def count_new(base_url: str, connection: sqlite3.Connection) -> int:
    """Count the rows that were not moved yet."""
    text = "SELECT count(*) FROM invsvc_outbox WHERE base_url = ? AND moved = 0"
    return int(connection.execute(text, (base_url,)).fetchone()[0])


def new_of_key(base_url: str, key: str, connection: sqlite3.Connection) -> list[Row]:
    """Return the row of *key*, if it was not moved yet."""
    return [Row(*row) for row in connection.execute(f"{_ROWS} AND key = ?", (base_url, 0, key))]


def moved_rows(base_url: str, after: int, limit: int, connection: sqlite3.Connection) -> list[Row]:
    """Return the next rows after *after* that were moved."""
    found = connection.execute(f"{_ROWS} AND seq > ? ORDER BY seq LIMIT ?", (base_url, 1, after, limit))
    return [Row(*row) for row in found]


def journal_of(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> str | None:
    """Return the epoch of the journal that has moved rows of this file: *epoch* if there was none yet."""
    text = "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = ?"
    row = connection.execute(text, (base_url,)).fetchone()
    return epoch if row is None else row[0]


def use_journal(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> None:
    """Note the epoch of the journal that moves rows of this file."""
    connection.execute("INSERT OR REPLACE INTO invsvc_outbox_journal VALUES (?, ?)", (base_url, epoch))


def mark(moved: Sequence[int], connection: sqlite3.Connection) -> None:
    """Mark rows as moved, and delete their intents."""
    text = "UPDATE invsvc_outbox SET moved = 1, common = '', intent = '' WHERE seq = ?"
    connection.executemany(text, [(seq,) for seq in moved])


def drop(base_url: str, key: str, connection: sqlite3.Connection) -> int:
    """Delete the row of *key*, if it was not moved yet; return how many."""
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ? AND moved = 0"
    return connection.execute(text, (base_url, key)).rowcount


def delete_rows(base_url: str, keys: Sequence[str], connection: sqlite3.Connection) -> None:
    """Delete the rows of *keys*."""
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ?"
    connection.executemany(text, [(base_url, key) for key in keys])
