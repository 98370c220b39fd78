"""
Where a store of writes is: in a file, or in a database that processes share; and of which kind a file is.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qsl, urlencode

from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.statements import store_sql
from invsvc_async.durable.store.tables import Opening
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.durable.store.postgres import PostgresStore

# Operations use what both have: ``run``, ``rows``, ``entries``, ``put``, ``open_in``, ``notify`` and
# ``listen``, and what a store says of itself: ``how``, ``version``, ``is_shared``, ``silence``, ``commons``,
# ``ends_to_note``.
Store: TypeAlias = "SqliteStore | PostgresStore"


# In the query of a journal's address: the namespace of its keys; and the words of a person that another
# credential has the same mode, or that what a restored journal may lack was looked for (``key_names``).
_NAMES: Final = ("namespace", "same_mode", "complete")
LANES: Final = 64  # of a batch or an outbox in a database; one in a file has one lane
# The tables by which files of these kinds are recognised.
_OF_OUTBOX: Final = "invsvc_outbox"  # in the file of an application
_OF_EVENTS: Final = "delivery"


def store_at(
    place: str | Path, kind: str, *, create: bool = True, **how: bool
) -> Store:
    """
    Return the store of *kind* (``"batch"``, ``"outbox"`` or ``"journal"``) at *place*, not open yet.

    The settings are those of :class:`Opening`.

    Raises:
        ConfigurationError: It is a PostgreSQL database, and the extra ``postgres`` is not installed; or an
            address of another form.
        JournalError: A file does not exist, and *create* is false or *reading* is true.
    """
    if not is_postgres(str(place)):
        store = file_at(place, kind, **how)
        has_to_exist = how.get("reading") or not create
        if has_to_exist and not store.path.exists():
            raise JournalError(
                f"journal {place}: the file does not exist. Check the path."
            )
        return store
    try:
        from invsvc_async.durable.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{kind}: {error.name} is not installed. Install invsvc-async with its extra 'postgres'."
        ) from error
    return PostgresStore(str(place), _opening(kind, LANES, create=create, **how))


def file_at(path: str | Path, kind: str, **how: bool) -> SqliteStore:
    """Return the store of *kind* in the file at *path*."""
    return SqliteStore(path, _opening(kind, 1, **how))


def _opening(kind: str, lanes: int, **how: bool) -> Opening:
    if kind == "journal":
        # Each process makes a lane of its own, and nobody is asked about a copy.
        return Opening(kind, lanes=0, run_by=None, **how)
    return Opening(
        kind,
        lanes=lanes,
        counted=kind == "batch",
        run_by=f"the {kind}",
        **how,
    )


def without_names(address: str | Path) -> tuple[str | Path, dict[str, str]]:
    """Remove ``namespace``, ``same_mode`` and ``complete`` from *address*, or a path; return both."""
    place, mark, query = str(address).partition("?")
    asked = parse_qsl(query, keep_blank_values=True)
    named = {name: value for name, value in asked if name in _NAMES}
    _check_names(named)
    if not (mark and named):
        return address, named
    rest = urlencode([pair for pair in asked if pair[0] not in named], safe="/,:@")
    return f"{place}?{rest}" if rest else place, named


def _check_names(named: dict[str, str]) -> None:
    """Raise ConfigurationError if a value that names a namespace, or says something of it, is invalid."""
    if not re.fullmatch(r"[\w.-]{1,64}", named.get("namespace", "x"), re.ASCII):
        raise ConfigurationError(
            "journal: namespace is invalid. Use 1 to 64 of a-z, A-Z, 0-9, _, - and ."
        )
    for name in _NAMES[1:]:
        if named.get(name, "true") != "true":
            raise ConfigurationError(
                f"journal: {name} is invalid. Use {name}=true, or leave it out."
            )


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
    names = {name for (name,) in connection.execute(store_sql.TABLES_IN_FILE)}
    if _OF_OUTBOX in names:
        return "outbox"
    if "facts" not in names:
        return None
    if _OF_EVENTS in names:
        return "events"
    found = connection.execute(store_sql.KIND_OF_FILE).fetchone()
    kind = None if found is None else str(found[0])
    # "outbox" is the kind of the journal beside an application's file.  Commands are given that file instead.
    if kind in {"batch", "journal"}:
        return kind
    return None
