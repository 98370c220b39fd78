"""
The keys already seen in the input of one run.

They are not part of the journal: each machine tracks its own input, and only for the run.
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
    The keys seen by *run*.

    They are in an unnamed SQLite file, so memory stays bounded. Nothing waits for the disk, so this can be
    used on the event loop.
    """

    def __init__(self, run: int) -> None:
        self.run: int = run
        self._keys = sqlite3.connect("", isolation_level=None)
        self._keys.execute("PRAGMA journal_mode = OFF")
        self._keys.execute("CREATE TABLE met (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def note(self, keys: Iterable[str]) -> set[str]:
        """
        Note *keys*, and return those that were seen before.

        Raises:
            JournalError: The disk is full.

        """
        try:
            self._keys.execute("BEGIN")
            before = {key for key in keys if not self._is_new(key)}
            self._keys.execute("COMMIT")
        except sqlite3.Error as error:
            raise in_words("(keys of the input)", error) from error
        return before

    def close(self) -> None:
        """Delete them."""
        self._keys.close()

    def _is_new(self, key: str) -> bool:
        digest = blake2b(key.encode(), digest_size=16).digest()
        return self._keys.execute("INSERT OR IGNORE INTO met VALUES (?)", (digest,)).rowcount == 1
