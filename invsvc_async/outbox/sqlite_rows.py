"""The table of an outbox in the application's own file of SQLite, into which its transactions insert."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "INSERT",
    "connected",
    "delete_rows",
    "drop",
    "journal_of",
    "mark",
    "moved_rows",
    "new_of_key",
    "new_rows",
    "unmark",
    "use_journal",
]

_VERSION = 1
_TABLE = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, content BLOB NOT NULL,
    operation TEXT NOT NULL, intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT {_VERSION}, UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
INSERT = """
INSERT INTO invsvc_outbox (base_url, key, content, operation, intent)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING seq
"""
_NEW = """
SELECT seq, key, content, operation, intent FROM invsvc_outbox WHERE base_url = ? AND moved = 0
    ORDER BY seq LIMIT ?
"""
_NEW_OF_KEY = """
SELECT seq, key, content, operation, intent FROM invsvc_outbox WHERE base_url = ? AND key = ? AND moved = 0
"""
_PATIENCE = 5.0  # s to wait for a lock of the application


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
    if "version" not in names:
        connection.close()
        raise JournalError(
            f"{name}: its table invsvc_outbox is of another version. Use the version of the package that "
            "created it, or a newer one."
        )
    return connection


def new_rows(base_url: str, limit: int, connection: sqlite3.Connection) -> list[Any]:  # Any: the columns
    """Return the first rows that were not moved yet."""
    return connection.execute(_NEW, (base_url, limit)).fetchall()


def new_of_key(base_url: str, key: str, connection: sqlite3.Connection) -> list[Any]:  # Any: as above
    """Return the row of *key*, if it was not moved yet."""
    return connection.execute(_NEW_OF_KEY, (base_url, key)).fetchall()


def journal_of(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> str | None:
    """Return the epoch of the journal that has moved rows of this file: *epoch* if there was none yet."""
    text = "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = ?"
    row = connection.execute(text, (base_url,)).fetchone()
    return epoch if row is None else row[0]


def use_journal(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> None:
    """Note the epoch of the journal that moves rows of this file."""
    connection.execute("INSERT OR REPLACE INTO invsvc_outbox_journal VALUES (?, ?)", (base_url, epoch))


def mark(done: list[tuple[int]], kept: list[int], connection: sqlite3.Connection) -> None:
    """Mark rows as moved, and delete the intents of those that are not to be *kept*."""
    connection.executemany("UPDATE invsvc_outbox SET moved = 1 WHERE seq = ?", done)
    rows = [(seq,) for (seq,) in done if seq not in kept]
    connection.executemany("UPDATE invsvc_outbox SET intent = '' WHERE seq = ?", rows)


def unmark(base_url: str, key: str, connection: sqlite3.Connection) -> int:
    """Mark a row as to be moved again, if its intent was kept; return how many."""
    text = "UPDATE invsvc_outbox SET moved = 0 WHERE base_url = ? AND key = ? AND intent <> ''"
    return connection.execute(text, (base_url, key)).rowcount


def moved_rows(values: tuple[object, ...], connection: sqlite3.Connection) -> list[Any]:  # Any: as above
    """Return the next rows that were moved: base URL, number of the last one, and limit are in *values*."""
    text = """
        SELECT seq, key, content, operation FROM invsvc_outbox
        WHERE base_url = ? AND moved = 1 AND seq > ? ORDER BY seq LIMIT ?
    """
    return connection.execute(text, values).fetchall()


def drop(base_url: str, key: str, connection: sqlite3.Connection) -> int:
    """Delete the row of *key*, if it was not moved yet; return how many."""
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ? AND moved = 0"
    return connection.execute(text, (base_url, key)).rowcount


def delete_rows(base_url: str, keys: Sequence[str], connection: sqlite3.Connection) -> None:
    """Delete the rows of *keys*."""
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ?"
    connection.executemany(text, [(base_url, key) for key in keys])
