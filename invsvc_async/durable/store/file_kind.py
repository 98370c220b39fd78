"""Which kind of store a file is, without opening it as one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_KIND: Final = "SELECT value FROM facts WHERE name = 'kind'"
# of an outbox, in the file of the application
_OF_OUTBOX: Final = "invsvc_outbox"
# of an event store
_OF_EVENTS: Final = "delivery"


def kind_of_file(path: Path) -> str | None:
    """
    Return ``"batch"``, ``"journal"``, ``"outbox"`` or ``"events"``; ``None`` if the file is none of them.

    Raises:
        OSError: The file cannot be read as a database.
    """
    place = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(place, uri=True)) as connection:
            return _kind_in(connection)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


def _kind_in(connection: sqlite3.Connection) -> str | None:
    names = {name for (name,) in connection.execute(_TABLES)}
    if _OF_OUTBOX in names:
        return "outbox"
    if "facts" not in names:
        return None
    if _OF_EVENTS in names:
        return "events"
    found = connection.execute(_KIND).fetchone()
    kind = None if found is None else str(found[0])
    # the file beside that of the application, whose place is the store's
    return kind if kind in {"batch", "journal"} else None
