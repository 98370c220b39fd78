"""Copying of SQLite's log into the file by a thread, so that no delivery's commit does it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from typing import Final

from invsvc_async.concurrency.threads import joined
from invsvc_async.events.stores.sqlite_schema import connect_again
from invsvc_async.events.stores.sqlite_upkeep import checkpoint

__all__ = ["Checkpoints", "changes_until_next"]

_log: Final = logging.getLogger("invsvc_async.events")
_WANTED: Final = 1_000  # pages of the log, after which SQLite's own commits would copy it
# Changed rows between two copies: if each has a commit of its own, and if many share one.
_FEWEST: Final = 250
_MOST: Final = 4_000
_PAGES: Final = 8_000  # of the log, 32 MB; beyond, the thread is too slow, and commits do it


class Checkpoints:
    """
    Copy the log of the file at *path* after every few hundred or thousand changes of one connection.

    A commit that does it, as SQLite's commits do by default, holds deliveries up by tens of milliseconds.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._copied = 0
        self._changes = _FEWEST
        self._due = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"invsvc log of {name}", daemon=True)

    def start(self, db: sqlite3.Connection) -> None:
        """Start the thread, and leave the work of *db* to it."""
        db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES}").fetchall()
        self._thread.start()

    def committed(self, db: sqlite3.Connection, _is_clean: bool = True) -> None:  # noqa: FBT001, FBT002 - as the writer calls it
        """Wake the thread if *db* has changed enough."""
        if db.total_changes - self._copied >= self._changes:
            self._copied = db.total_changes
            self._due.set()

    def end(self) -> None:
        """Ask the thread to end soon, even if it is about to start."""
        self._stopping = True
        self._due.set()

    async def stop(self) -> None:
        """End the thread, if it runs; it may take as long as a checkpoint."""
        self.end()
        await joined(self._thread)

    def _run(self) -> None:
        try:
            with closing(connect_again(self._path)) as db:
                while self._due.wait() and not self._stopping:
                    self._due.clear()
                    self._changes = changes_until_next(self._changes, checkpoint(db))
        except sqlite3.Error as error:  # commits do it from now on
            _log.warning("The log of the event store cannot be copied beside its use: %s", error)


def changes_until_next(changes: int, pages: int) -> int:
    """Return after how many changes to copy the log next, if it had *pages* after so many."""
    wanted = changes * _WANTED // max(pages, _WANTED // 2)
    return max(_FEWEST, min(_MOST, wanted))
