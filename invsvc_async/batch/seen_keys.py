"""
Remember which keys the input of one run has held, in little memory however many; never for another run.

It is no part of the journal: each machine counts its own input, and what it counted is worth nothing once the
run is gone.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from typing import TYPE_CHECKING

from invsvc_async.storage.sqlite_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Met"]


class Met:
    """
    The keys met by *run*.

    They are in a file without a name, which ends with this object and of which SQLite makes none while they
    are few.  Nothing waits for a disk, so the event loop's thread may ask.
    """

    def __init__(self, run: int) -> None:
        self.run: int = run
        self._keys = sqlite3.connect("", isolation_level=None)
        self._keys.execute("PRAGMA journal_mode = OFF")
        self._keys.execute("CREATE TABLE met (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def note(self, keys: Iterable[str]) -> set[str]:
        """
        Note that *keys* are met; gives those that were before.

        Raises:
            JournalError: There is no place for the file.

        """
        try:
            self._keys.execute("BEGIN")
            before = {key for key in keys if not self._is_new(key)}
            self._keys.execute("COMMIT")
        except sqlite3.Error as error:
            raise in_words("(what the input holds)", error) from error
        return before

    def close(self) -> None:
        """Forget them."""
        self._keys.close()

    def _is_new(self, key: str) -> bool:
        digest = blake2b(key.encode(), digest_size=16).digest()
        return self._keys.execute("INSERT OR IGNORE INTO met VALUES (?)", (digest,)).rowcount == 1
