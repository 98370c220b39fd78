"""
The keys already seen in the input of one run.

They are not part of the journal: each machine tracks its own input, and only for the run.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b

from invsvc_async.storage.sqlite_file import in_words

__all__ = ["Met"]


class Met:
    """
    The keys that an input has had, each with the line where it was first.

    They are in an unnamed SQLite file, so memory stays bounded. Nothing is committed or waits for the disk,
    so this can be used on the event loop.
    """

    def __init__(self) -> None:
        self._keys = sqlite3.connect("", isolation_level=None)
        self._keys.execute("PRAGMA journal_mode = OFF")
        self._keys.execute("CREATE TABLE met (key BLOB PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID")
        self._keys.execute("BEGIN")

    def first(self, key: str, line: int = 0) -> int | None:
        """
        Note that *line* has *key*, and return the line that had it before, or ``None``.

        Raises:
            JournalError: The disk is full.

        """
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=16).digest()
        try:
            if self._keys.execute("INSERT OR IGNORE INTO met VALUES (?, ?)", (digest, line)).rowcount == 1:
                return None
            found: int = self._keys.execute("SELECT line FROM met WHERE key = ?", (digest,)).fetchone()[0]
        except sqlite3.Error as error:
            raise in_words("(keys of the input)", error) from error
        return found

    def close(self) -> None:
        """Delete them."""
        self._keys.close()
