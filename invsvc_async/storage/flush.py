"""What has to survive a power cut is flushed to the disk, also where the system's own call does less."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if sys.platform == "darwin":
    import fcntl

if TYPE_CHECKING:
    import sqlite3


def flush(number: int) -> None:
    """
    Return once what was written to the file with this *number* is on the disk.

    Raises:
        OSError: The disk failed.
    """
    if sys.platform == "darwin":
        # fsync leaves it in the cache of the drive; some file systems have nothing else
        with suppress(OSError):
            fcntl.fcntl(number, fcntl.F_FULLFSYNC)
            return
    os.fsync(number)


def flush_commits(connection: sqlite3.Connection) -> None:
    """Set SQLite to flush its commits in the same way."""
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
