"""The SQLite file of an event store: its tables, and how it is opened or created."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["begin", "connect", "connect_again"]

_VERSION: Final = 3
_APPLICATION: Final = 0x696E7665  # "inve": distinguishes this file from other databases
_SCHEMA: Final = (
    # ``due`` of an open delivery is the end of its lease or delay, on the steady clock, which read ``since``
    # when that was decided.  Otherwise it is when the delivery ended, in seconds since the epoch.
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
)
# What each version adds.  It is instant in a file of any size, and a process of an older version that has the
# file open continues to work.
_TO_2: Final = (
    """
    CREATE TABLE kept (
        id INTEGER PRIMARY KEY, received REAL NOT NULL, due REAL NOT NULL, body BLOB NOT NULL
    )
    """,
    "CREATE INDEX kept_due ON kept (due)",
)
# ``ordered`` has the open deliveries that have an ordering key.  All but one of a key are due never.
_TO_3: Final = (
    "ALTER TABLE delivery ADD COLUMN handler TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE ordered (id INTEGER PRIMARY KEY, ordering_key TEXT NOT NULL)",
    "CREATE INDEX ordered_key ON ordered (ordering_key, id)",
    f"PRAGMA user_version = {_VERSION}",
)
# What lists and takes need in files of any version.  An index would be built from all rows, while deliveries
# wait; these tables are filled from the open ones alone.  Triggers also work in processes of older versions.
_LISTS: Final = (
    "CREATE TABLE open_event (id INTEGER PRIMARY KEY)",
    """
    CREATE TABLE waiting (
        handler TEXT NOT NULL, due REAL NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (handler, due, id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TRIGGER delivery_added AFTER INSERT ON delivery WHEN NEW.state = 'open' BEGIN
        INSERT OR IGNORE INTO open_event (id) VALUES (NEW.id);
        INSERT OR IGNORE INTO waiting (handler, due, id)
            SELECT NEW.handler, NEW.due, NEW.id WHERE NEW.body IS NOT NULL;
    END
    """,
    """
    CREATE TRIGGER delivery_removed AFTER DELETE ON delivery WHEN OLD.state = 'open' BEGIN
        DELETE FROM open_event WHERE id = OLD.id;
        DELETE FROM waiting WHERE handler = OLD.handler AND due = OLD.due AND id = OLD.id;
    END
    """,
    """
    CREATE TRIGGER delivery_moved AFTER UPDATE OF state, due, handler, body ON delivery
    WHEN OLD.state = 'open' BEGIN
        DELETE FROM open_event WHERE id = OLD.id AND NEW.state <> 'open';
        DELETE FROM waiting WHERE handler = OLD.handler AND due = OLD.due AND id = OLD.id;
        INSERT OR IGNORE INTO waiting (handler, due, id)
            SELECT NEW.handler, NEW.due, NEW.id WHERE NEW.state = 'open' AND NEW.body IS NOT NULL;
    END
    """,
    """
    CREATE TRIGGER delivery_revived AFTER UPDATE OF state ON delivery
    WHEN OLD.state <> 'open' AND NEW.state = 'open' BEGIN
        INSERT OR IGNORE INTO open_event (id) VALUES (NEW.id);
        INSERT OR IGNORE INTO waiting (handler, due, id)
            SELECT NEW.handler, NEW.due, NEW.id WHERE NEW.body IS NOT NULL;
    END
    """,
    """
    INSERT INTO waiting (handler, due, id)
        SELECT handler, due, id FROM delivery WHERE state = 'open' AND body IS NOT NULL
    """,
    """
    INSERT INTO open_event (id) SELECT id FROM waiting
        UNION ALL SELECT id FROM delivery WHERE state = 'open' AND body IS NULL
    """,
)
# What tells whether the machine was restarted, without reading the open deliveries: the steady clock when one
# of them last began a lease or delay, up to a second late, so that few commits write it.  9e999: not known.
_CLOCK: Final = (
    "CREATE TABLE steady_clock (latest REAL NOT NULL)",
    "INSERT INTO steady_clock (latest) VALUES (9e999)",
    """
    CREATE TRIGGER delivery_timed AFTER INSERT ON delivery WHEN NEW.state = 'open' BEGIN
        UPDATE steady_clock SET latest = NEW.since WHERE latest < NEW.since - 1;
    END
    """,
    """
    CREATE TRIGGER delivery_retimed AFTER UPDATE OF since ON delivery WHEN NEW.state = 'open' BEGIN
        UPDATE steady_clock SET latest = NEW.since WHERE latest < NEW.since - 1;
    END
    """,
)
_ADDED: Final = {"waiting": _LISTS, "steady_clock": _CLOCK}  # by a table of each
_HAS_TABLE: Final = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
_STEPS: Final = {0: _SCHEMA + _TO_2 + _TO_3, 1: _TO_2 + _TO_3, 2: _TO_3}
# A lease of before a reboot also ends later than now: that condition spares a scan of the backlog.
_FREE: Final = """
    UPDATE delivery SET due = ?, since = ? WHERE id IN (
        SELECT id FROM delivery
        WHERE state = 'open' AND body IS NOT NULL AND due > ? AND due < 9e999 AND since > ? LIMIT ?
    )
"""
_LOOK_AGAIN: Final = 0.001  # s
_SLICE: Final = 2_000  # rows in one transaction: other processes write in between
_creating: Final = threading.Lock()  # so that no other thread has connected meanwhile


def connect(path: str, name: str, wait: float, steady: Callable[[], float]) -> sqlite3.Connection:
    """
    Open the file at *path*, waiting *wait* seconds for other processes; end the leases of before a reboot.

    Raises:
        JournalError: It cannot be opened, is foreign, damaged, or of a newer version.
        sqlite3.Error: It is damaged, locked or full.
    """
    try:
        _create(path)
    except OSError as error:
        raise JournalError(
            f"{name}: the file cannot be opened ({error.strerror}). Check the path and its permissions."
        ) from None
    db = sqlite3.connect(path, timeout=wait, isolation_level=None)
    try:
        _prepare(db, name, wait)
        _free_after_restart(db, steady)
        db.execute("PRAGMA busy_timeout = 0").fetchall()  # from now on, ``begin`` waits
    except BaseException:
        db.close()
        raise
    return db


def connect_again(path: str, wait: float = 5.0) -> sqlite3.Connection:
    """
    Open another connection to the file at *path*, which is not created if it was deleted meanwhile.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True, timeout=wait)


def _create(path: str) -> None:
    """
    Create the file at *path* with mode 0600, unless it exists.

    An existing one is not opened: to close it would end the locks that SQLite has on it in this process.
    """
    with _creating:
        if not os.path.exists(path):  # noqa: PTH110 - as the path is given
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare(db: sqlite3.Connection, name: str, wait: float) -> None:
    db.execute("BEGIN")  # one snapshot: another process may be creating the tables at this moment
    found = _version_of(db, name)  # before anything is changed: the file may belong to another program
    db.execute("COMMIT")
    if found == 0:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a file without tables can be given it
    db.execute("PRAGMA synchronous = FULL")
    _to_wal(db, wait)
    if found == _VERSION and not _missing(db):
        return
    db.execute("BEGIN IMMEDIATE")  # two processes may both have found it new
    found = _version_of(db, name)
    for statement in (*_STEPS.get(found, ()), *_missing(db)):
        db.execute(statement)
    db.execute("COMMIT")


def _missing(db: sqlite3.Connection) -> list[str]:
    """Return the statements that add what the file does not have yet."""
    absent = [table for table in _ADDED if not db.execute(_HAS_TABLE, (table,)).fetchone()[0]]
    return [statement for table in absent for statement in _ADDED[table]]


def _free_after_restart(db: sqlite3.Connection, steady: Callable[[], float]) -> None:
    """
    End the leases and delays of before a restart of the machine, with which the steady clock begins anew.

    All open deliveries would be read for this while other processes wait, so it is only done if one of them
    may have begun later than now.
    """
    db.execute("BEGIN IMMEDIATE")
    (latest,) = db.execute("SELECT latest FROM steady_clock").fetchone()
    may_be_left = latest > steady()
    db.execute("COMMIT")
    if not may_be_left:
        return
    while _free(db, steady) == _SLICE:
        pass
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE steady_clock SET latest = ?", (steady(),))
    db.execute("COMMIT")


def _free(db: sqlite3.Connection, steady: Callable[[], float]) -> int:
    """End some of the leases that began later than now, whose holders are gone; return how many."""
    db.execute("BEGIN IMMEDIATE")
    now = steady()  # under the lock: read before it, leases that others take meanwhile would begin later
    freed = db.execute(_FREE, (now, now, now, now, _SLICE)).rowcount
    db.execute("COMMIT")
    return freed


def _version_of(db: sqlite3.Connection, name: str) -> int:
    """Return the version of the file, or 0 if it is new."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != _APPLICATION:
        raise JournalError(f"{name}: the file is another program's database. Choose another path.")
    if not 1 <= version <= _VERSION:
        raise JournalError(f"{name}: it has version {version}, not {_VERSION}. Update this package.")
    found: int = version
    return found


def begin(db: sqlite3.Connection, wait: float) -> None:
    """
    Begin to write, waiting *wait* seconds for other processes.

    SQLite's own waiting looks again ever more rarely, up to every 100 ms, and so misses the pauses of a
    process that prunes the file.
    """
    _patiently(db, "BEGIN IMMEDIATE", wait)


def _to_wal(db: sqlite3.Connection, wait: float) -> None:
    """Switch to write-ahead logging; SQLite itself does not wait for another process that does the same."""
    _patiently(db, "PRAGMA journal_mode = WAL", wait)


def _patiently(db: sqlite3.Connection, statement: str, wait: float) -> None:
    """Run *statement*, again every millisecond while another process has the lock; on the writer's thread."""
    until = time.monotonic() + wait
    while True:
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            # The lower byte: another process that recovers the log after a kill has a code of its own.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN)
        else:
            return
