"""What a power cut leaves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cut_power"]


def cut_power(path: Path) -> None:
    """Let the journal at *path*, which is closed, seem to have been open when the machine lost its power."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO facts VALUES ('open', 'in an earlier run of the machine')")
