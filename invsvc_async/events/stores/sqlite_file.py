"""The SQLite file of an event store: how it is opened or created, and its clock."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from invsvc_async.errors import JournalError
from invsvc_async.events.stores.scripts import create
from invsvc_async.storage.dialect import SqliteDialect
from invsvc_async.storage.file_lock import FileLock, LockedConnection
from invsvc_async.storage.private_file import make_database_private
from invsvc_async.storage.sqlite_file import opened_as
from invsvc_async.storage.table_version import VERSION, check_version

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "begin", "connect", "connect_again", "dialect_of"]

_APPLICATION: Final = 0x696E7665  # "inve": distinguishes this file from other databases
_FACTS: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID",
    f"INSERT INTO facts VALUES ('schema', {VERSION}), ('opened', ''), ('checked', ''), ('ahead', 0)",  # noqa: S608 - our own text
    f"PRAGMA application_id = {_APPLICATION}",
)
_OTHERWISE: Final = "Handle what is open in it with that version, or choose another file"
_WORDS: Final = {"t": "delivery", "id": "INTEGER PRIMARY KEY", "bytes": "BLOB",
                 "picked": "IN (SELECT id FROM picked)"}  # fmt: skip
# The end of the last lease or delay: of each kind, an index has the times.
_LAST: Final = "SELECT max(due) FROM delivery WHERE state = 'open' AND body {} AND due < 9e999"
_NOTE: Final = "UPDATE facts SET value = ?2 WHERE name = ?1"
_LOOK_AGAIN: Final = 0.001  # s
_creating: Final = threading.Lock()  # so that no other thread has connected meanwhile


class Clock:
    """The clock of leases in a file: *steady*, but a restart of the machine ends those of before."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._ahead = 0.0  # of the steady clock, which then begins anew

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._steady() + self._ahead

    def start(self, db: sqlite3.Connection, opened: str) -> None:
        """Begin; the file was last *opened* as something else if the machine was started since."""
        db.execute("BEGIN IMMEDIATE")
        facts = dict(db.execute("SELECT name, value FROM facts"))
        self._ahead = facts["ahead"]
        if facts["opened"] != opened:
            last = [due for body in ("IS NOT NULL", "IS NULL") for (due,) in db.execute(_LAST.format(body))]
            self._ahead = max((due for due in last if due is not None), default=0.0) - self._steady()
            db.executemany(_NOTE, [("ahead", self._ahead), ("opened", opened)])
        db.execute("COMMIT")


def dialect_of(clock: Clock, calendar: Callable[[], float]) -> SqliteDialect:
    """Return what translates scripts for a file with this *clock*."""
    return SqliteDialect({"now": clock.now, "began": clock.now, "calendar": calendar}, **_WORDS)


def connect(path: str, name: str, wait: float, clock: Clock) -> sqlite3.Connection:
    """
    Open the file at *path*, waiting *wait* seconds for other processes, and start its *clock*.

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
    db = _connected(path, name, wait, None)
    try:
        _prepare(db, path, name, wait)
        clock.start(db, opened_as(Path(path)))
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
    return _connected(path, f"event store {path}", wait, "DEFERRED")


def _connected(path: str, name: str, wait: float, level: Literal["DEFERRED"] | None) -> LockedConnection:
    absolute = Path(path).absolute()
    lock = FileLock(absolute, name, "Use one name for it everywhere, or mount its whole folder.")
    with suppress(OSError):  # SQLite says what is wrong
        lock.join()
    try:
        db = sqlite3.connect(
            f"{absolute.as_uri()}?mode=rw",
            uri=True,
            timeout=wait,
            isolation_level=level,
            factory=LockedConnection,
        )
    except BaseException:
        lock.release()
        raise
    db.release = lock.release
    return db


def _create(path: str) -> None:
    """
    Create the file at *path* with mode 0600, unless it exists.

    An existing one is not opened: to close it would end the locks that SQLite has on it in this process.
    """
    with _creating:
        if not os.path.exists(path):  # noqa: PTH110 - as the path is given
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare(db: sqlite3.Connection, path: str, name: str, wait: float) -> None:
    db.execute("BEGIN")  # one snapshot: another process may be creating the tables at this moment
    is_new = _is_new(db, name)  # before anything is changed: the file may belong to another program
    db.execute("COMMIT")
    make_database_private(path)
    if is_new:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only a file without tables can be given it
    db.execute("PRAGMA synchronous = FULL")
    _patiently(db, "PRAGMA journal_mode = WAL", wait)  # SQLite itself does not wait for another that does it
    if is_new:
        db.execute("BEGIN IMMEDIATE")  # two processes may both have found it new
        if _is_new(db, name):
            SqliteDialect(None, **_WORDS).run(db, create())
            for statement in _FACTS:
                db.execute(statement)
        db.execute("COMMIT")


def _is_new(db: sqlite3.Connection, name: str) -> bool:
    """Return whether the file has no tables; raise if they are another program's, or of another version."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    tables = {each for (each,) in db.execute("SELECT name FROM sqlite_master")}
    if not (application or tables):
        return True
    if application != _APPLICATION:
        raise JournalError(f"{name}: the file is another program's database. Choose another path.")
    text = "SELECT max(value) FROM facts WHERE name = 'schema'"
    check_version(name, db.execute(text).fetchone()[0] if "facts" in tables else None, _OTHERWISE)
    return False


def begin(db: sqlite3.Connection, wait: float) -> None:
    """
    Begin to write, waiting *wait* seconds for other processes.

    SQLite's own waiting looks again ever more rarely, up to every 100 ms, and so misses the pauses of a
    process that prunes the file.
    """
    _patiently(db, "BEGIN IMMEDIATE", wait)


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
