"""
Open the file in which deliveries are kept, or make it; never touch one that is somebody else's.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, Final

from invsvc_async._errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["connect"]

_VERSION: Final = 1
_APPLICATION: Final = 0x696E7665  # "inve": tells this file from other databases
_SCHEMA: Final = (
    # due: while open, not to be taken before (the end of a lease or of a delay), by the steady clock, which
    # showed ``since`` when that was decided; else when it ended, by the calendar
    """
    CREATE TABLE delivery (
        id INTEGER PRIMARY KEY,
        key TEXT UNIQUE,
        type TEXT NOT NULL,
        body BLOB,
        state TEXT NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due REAL NOT NULL,
        since REAL NOT NULL,
        token TEXT NOT NULL DEFAULT '',
        attempts INTEGER NOT NULL DEFAULT 0,
        reason TEXT NOT NULL,
        received REAL NOT NULL
    )
    """,
    "CREATE INDEX delivery_waiting ON delivery (due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX delivery_claimed ON delivery (due) WHERE state = 'open' AND body IS NULL",
    "CREATE INDEX delivery_handled ON delivery (due) WHERE state = 'handled'",
    "CREATE INDEX delivery_dead ON delivery (id) WHERE state = 'dead'",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_FREE: Final = (
    "UPDATE delivery SET due = ?, since = ? WHERE state = 'open' AND body IS NOT NULL AND since > ?"
)


def connect(path: str, wait: float, steady: Callable[[], float]) -> sqlite3.Connection:
    """
    Open the file at *path*, wait so many seconds for others, and free what was held in an earlier life.

    Raises:
        JournalError: It cannot be opened, is foreign, damaged, or of a newer version.
        sqlite3.Error: It is damaged, held or full.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise JournalError(f"{path} cannot be opened: {error.strerror}. Check path and rights.") from None
    db = sqlite3.connect(path, timeout=wait, isolation_level=None)
    try:
        _prepare(db, path, wait)
        db.execute(_FREE, (steady(),) * 3)  # the clock began anew with the machine: who held them is gone
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: str, wait: float) -> None:
    db.execute("BEGIN")  # one look: another process may be making it at this moment
    _is_new(db, path)  # before anything is changed: the file may be somebody else's
    db.execute("COMMIT")
    db.execute("PRAGMA synchronous = FULL")
    _to_wal(db, wait)
    db.execute("BEGIN IMMEDIATE")  # two processes may both have found it new
    if _is_new(db, path):
        for statement in _SCHEMA:
            db.execute(statement)
    db.execute("COMMIT")
    _check(db, path)


def _check(db: sqlite3.Connection, path: str) -> None:
    """Hold table and indexes against each other: an event whose key was lost would be handled anew."""
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise JournalError(f"{path}: it is damaged ({found}). Put it aside, and restore a copy.")


def _is_new(db: sqlite3.Connection, path: str) -> bool:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return True
    if application != _APPLICATION:
        raise JournalError(f"{path} is another program's database. Choose another path.")
    if version != _VERSION:
        raise JournalError(f"{path} is of version {version}, not {_VERSION}. Update this package.")
    return False


def _to_wal(db: sqlite3.Connection, wait: float) -> None:
    """Switch to write-ahead logging; SQLite does not wait by itself while another process does the same."""
    until = time.monotonic() + wait
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)  # in the writer's thread
        else:
            return
