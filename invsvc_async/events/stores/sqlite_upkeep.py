"""What happens to the SQLite file of an event store beside its use: it is checked, copied to and pruned."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invsvc_async.concurrency.threads import joined
from invsvc_async.errors import JournalError
from invsvc_async.events.stores.sqlite_file import begin, connect_again
from invsvc_async.storage.sqlite_file import check_file, in_words, opened_as

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Upkeep", "changes_until_next", "shrink_some", "write_aside"]

_log: Final = logging.getLogger("invsvc_async.events")
_SMALL: Final = 8 << 20  # bytes of a file that is checked before its first use: about 0.1 s
_CHECKED: Final = """
    SELECT value, page_count * page_size FROM facts, pragma_page_count, pragma_page_size
    WHERE name = 'checked'
"""
_STEPS: Final = 10_000  # of SQLite's virtual machine, between looks at whether to stop
_AGAIN: Final = 60.0  # s until the next try, if one failed
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_WANTED: Final = 1_000  # pages of the log, after which SQLite's own commits would copy it
# Changed rows between two copies: if each has a commit of its own, and if many share one.
_FEWEST: Final = 250
_MOST: Final = 4_000
_PAGES: Final = 8_000  # of the log, 32 MB; beyond, the thread is too slow, and commits do it


class Upkeep:
    """
    Copy the log of the file at *path* after every few hundred or thousand changes of one connection.

    A commit that does it, as SQLite's commits do by default, holds deliveries up by tens of milliseconds.

    The same thread first compares the tables of a large file with their indexes, if that is due: an event
    whose key is lost is handled again, but the check takes seconds, and the sender waits for only ten.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._opened = ""
        self._is_checked = True
        self._copied = 0
        self._changes = _FEWEST
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"invsvc upkeep of {name}", daemon=True)
        self.failure: JournalError | None = None
        """What is wrong with the file, once that is known."""

    def start(self, db: sqlite3.Connection) -> None:
        """
        Start the thread, and leave the copying of *db* to it; check a small file now.

        Raises:
            JournalError: The small file is damaged.
        """
        self._opened = opened_as(Path(self._path))
        (checked, size) = db.execute(_CHECKED).fetchone()
        self._is_checked = checked == self._opened
        if not self._is_checked and size <= _SMALL:
            self._check(db)
        db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES}").fetchall()
        self._thread.start()

    def committed(self, db: sqlite3.Connection, _is_clean: bool = True) -> None:  # noqa: FBT001, FBT002 - as the writer calls it
        """Wake the thread if *db* has changed enough."""
        if db.total_changes - self._copied >= self._changes:
            self._copied = db.total_changes
            self._due.set()

    def end(self) -> None:
        """Ask the thread to end soon, even if it is about to start."""
        self._stopping.set()
        self._due.set()

    async def stop(self) -> None:
        """End the thread, if it runs; it may take as long as a checkpoint."""
        self.end()
        await joined(self._thread)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(connect_again(self._path)) as db:
                    self._keep_up(db)
            except Exception as error:  # noqa: BLE001 - the thread must not end without a word
                if self._stopping.is_set():
                    return
                if not self._is_checked and _is_damage(error):
                    self.failure = in_words(self._name, error)
                    _log.error("%s", self.failure)
                    return
                # Too many open files, for example; commits copy the log from some size on.
                _log.warning("%s", in_words(f"upkeep of {self._name}", error))
                self._stopping.wait(_AGAIN)

    def _keep_up(self, db: sqlite3.Connection) -> None:
        if not self._is_checked:
            db.set_progress_handler(self._stopping.is_set, _STEPS)
            self._check(db)
            db.set_progress_handler(None, 0)
        while self._due.wait() and not self._stopping.is_set():
            self._due.clear()
            self._changes = changes_until_next(self._changes, checkpoint(db))

    def _check(self, db: sqlite3.Connection) -> None:
        check_file(db, self._name)
        with db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'checked'", (self._opened,))
        self._is_checked = True


def changes_until_next(changes: int, pages: int) -> int:
    """Return after how many changes to copy the log next, if it had *pages* after so many."""
    wanted = changes * _WANTED // max(pages, _WANTED // 2)
    return max(_FEWEST, min(_MOST, wanted))


def shrink_some(db: sqlite3.Connection, rows: int) -> int:
    """Return free pages to the file system, at most *rows*; return how many."""
    free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    freed = min(free, rows)
    for _ in range(freed):
        db.execute("PRAGMA incremental_vacuum(1)")  # Python's driver frees only one at a time
    return freed


def write_aside(db: sqlite3.Connection, work: Callable[[], int], wait: float) -> int:
    """
    Run *work* in a transaction that does not wait for the disk, so that deliveries wait only while it runs.

    A power cut may undo it.  The commits of deliveries flush it with their own.
    """
    db.isolation_level = None
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    begin(db, wait)
    changed = work()
    db.execute("COMMIT")
    checkpoint(db)  # disk writes would else pile up until they hold the deliveries' commits up
    return changed


def checkpoint(db: sqlite3.Connection) -> int:
    """
    Copy the log into the file; unlike a writer's own checkpoints, this one holds no writer up.

    Returns how many pages the log has.
    """
    pages: int
    [(_, pages, _)] = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return pages


def _is_damage(error: Exception) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, JournalError) or (code is not None and code & 0xFF in _DAMAGE)
