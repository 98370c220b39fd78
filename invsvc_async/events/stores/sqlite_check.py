"""The search for damage in the SQLite file of an event store, beside its use."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from typing import Final

from invsvc_async.concurrency.threads import joined
from invsvc_async.errors import JournalError
from invsvc_async.events.stores.sqlite_schema import connect_again
from invsvc_async.storage.sqlite_errors import check, in_words

__all__ = ["FileCheck"]

_log: Final = logging.getLogger("invsvc_async.events")
_SMALL: Final = 8 << 20  # bytes of a file that is checked before its first use: about 0.1 s
_STEPS: Final = 10_000  # of SQLite's virtual machine, between looks at whether to stop
_AGAIN: Final = 60.0  # s until the next check, if one could not be completed
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class FileCheck:
    """
    Compare the tables of the file at *path* with their indexes: an event whose key is lost is handled again.

    A large file takes seconds, and the sender waits for only ten.  It is checked in a thread with its own
    connection, while deliveries are stored.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"invsvc check of {name}", daemon=True)
        self.failure: JournalError | None = None
        """What is wrong with the file, once that is known."""

    def start(self, db: sqlite3.Connection) -> None:
        """
        Check the small file of *db* now, or start the thread for a large one.

        Raises:
            JournalError: The small file is damaged.
        """
        ((pages,), (size,)) = (
            db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
        )
        if pages * size <= _SMALL:
            check(db, self._name)
        else:
            self._thread.start()

    def end(self) -> None:
        """Ask the check to end soon, even if it is about to start."""
        self._stopping.set()

    async def stop(self) -> None:
        """End the check, if it runs."""
        self.end()
        await joined(self._thread)

    def _run(self) -> None:
        while not self._is_done():
            if self._stopping.wait(_AGAIN):
                return

    def _is_done(self) -> bool:
        """Check the file once; return ``False`` if the check has to be repeated."""
        try:
            with closing(connect_again(self._path)) as db:
                db.set_progress_handler(self._stopping.is_set, _STEPS)
                check(db, self._name)
        except Exception as error:  # noqa: BLE001 - the check must not end without a word
            if self._stopping.is_set():
                return True
            if not _is_damage(error):  # too many open files, for example
                _log.warning("%s", in_words(f"check of {self._name}", error))
                return False
            self.failure = in_words(self._name, error)
            _log.error("%s", self.failure)
        return True


def _is_damage(error: Exception) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, JournalError) or (code is not None and code & 0xFF in _DAMAGE)
