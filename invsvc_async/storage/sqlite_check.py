"""
The search for damage in SQLite files.

A kill of the process cannot damage a file; a power cut can, where a disk loses what it has confirmed, and so
can a copy that was made while the file was open.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async.storage.sqlite_errors import damaged

if TYPE_CHECKING:
    import sqlite3

__all__ = ["boot", "check_file", "opened_as"]


def boot() -> str:
    """Return a text that stays the same until the machine is started again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not Linux: the hour in which it was started, as far as the clocks tell
        return f"{(time.time() - time.monotonic()) // 3600:.0f}"


def opened_as(path: Path) -> str:
    """
    Return what an open file notes of itself, and deletes when it is closed.

    If a file at *path* has another note, the machine was started since, or it is a copy.
    """
    found = path.stat()
    return f"{boot()} {found.st_dev} {found.st_ino}"


def check_file(connection: sqlite3.Connection, name: str) -> None:
    """
    Compare the tables of the file *name* with their indexes; that takes a second or more for a million rows.

    Raises:
        JournalError: They differ: the file is damaged.

    """
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged(name, found)
