"""Whether the SQLite file of an event store is undamaged, and still the one that was opened."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_errors import check, in_words

__all__ = ["FileCheck", "SameFile"]

_log: Final = logging.getLogger("invsvc_async.events")
_SMALL: Final = 8 << 20  # bytes of a file that is checked before its first use: about 0.1 s
_STEPS: Final = 10_000  # of SQLite's virtual machine, between looks at whether to stop
_LOOK_EVERY: Final = 1.0  # s; one for each commit made puts slower, because it releases the GIL
_AGAIN: Final = 60.0  # s until the next check, if one could not be completed
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SameFile:
    """Recognise that the file at *path* was deleted or replaced: what is stored in it would be lost."""

    def __init__(self, path: str, name: str) -> None:
        self._path = Path(path)
        self._name = name
        self._opened: tuple[int, int] | None = None
        self._looked = float("-inf")

    def remember(self) -> None:
        """Store which file it is, once it is open."""
        self._opened = self._found()

    def check(self) -> None:
        """
        Compare the file with the one that was opened, at most once a second.

        Raises:
            JournalError: It is another one, or there is none.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        if self._found() != self._opened:
            raise JournalError(
                f"{self._name}: the file was deleted or replaced while it was open. Stop all its receivers, "
                "put the right file in its place, and start them again."
            )
        self._looked = now

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


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

    async def stop(self) -> None:
        """End the check, if it runs."""
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._is_done():
            if self._stopping.wait(_AGAIN):
                return

    def _is_done(self) -> bool:
        """Check the file once; return ``False`` if the check has to be repeated."""
        try:
            with closing(sqlite3.connect(self._path)) as db:
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
