"""Statements on a connection of the application's, in the transaction that is open on it."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from invsvc_async.errors import InvalidRequestError
from invsvc_async.storage.dialect import Script, await_script, run_script

if TYPE_CHECKING:
    from collections.abc import Sequence


T = TypeVar("T")
Database: TypeAlias = Literal["PostgreSQL", "SQLite"]
Kinds: TypeAlias = dict[tuple[str, str], str]

# The classes of connections, by module and name: whose they are.  A library that is not imported cannot have
# made one.
_AWAITED: Final[Kinds] = {
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg.pool", "PoolConnectionProxy"): "asyncpg",
    ("psycopg", "AsyncConnection"): "psycopg",
    ("aiosqlite", "Connection"): "sqlite3",
    ("sqlalchemy.ext.asyncio", "AsyncSession"): "session",
    ("sqlalchemy.ext.asyncio", "AsyncConnection"): "sqlalchemy",
    ("sqlalchemy.ext.asyncio", "async_scoped_session"): "scoped",
}
_CALLED: Final[Kinds] = {
    ("psycopg", "Connection"): "psycopg",
    ("sqlite3", "Connection"): "sqlite3",
    ("sqlalchemy.orm", "Session"): "session",
    ("sqlalchemy.engine", "Connection"): "sqlalchemy",
    ("sqlalchemy.orm", "scoped_session"): "scoped",
    ("django.utils.connection", "ConnectionProxy"): "django",
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): "django",
}
_TO_AWAIT = (
    "Pass one of asyncpg, psycopg 3 (AsyncConnection), aiosqlite, or an AsyncSession or AsyncConnection of "
    "SQLAlchemy; enqueue_sync takes others."
)
_TO_CALL = (
    "Pass one of psycopg 3 (Connection), sqlite3 or Django, or a Session or Connection of SQLAlchemy; "
    "enqueue takes asynchronous ones."
)
_ELSEWHERE = (
    "connection: its database does not have this outbox. Pass a connection to the database at the address of "
    "`Outbox.open`."
)
_NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
_PLACE = re.compile(r"\$(\d+)")
# What databases say about a table of an outbox that they do not have
_MISSING = re.compile(
    r'no such table: invsvc_|relation "\w+_outbox_[^"]*" does not exist'
)


async def run(
    connection: object,
    database: Database,
    script: Script[T],
) -> T:
    """
    Run *script* on *connection*, which must be one to *database*, and in a transaction.

    Its statements have ``$1``, ``$2``, … as parameters, and each returns rows. Nothing is committed, rolled
    back or tried again.

    Raises:
        InvalidRequestError: It is not such a connection. Nothing was executed.
        Exception: An error of the driver, as it is; one about a missing outbox has a note.
    """
    kind, connection = _checked(connection, database, _AWAITED, _TO_AWAIT)
    try:
        return await await_script(script, partial(_awaited, kind, connection))
    except Exception as error:
        if _MISSING.search(str(error)):
            error.add_note(_ELSEWHERE)
        raise


def run_now(
    connection: object,
    database: Database,
    script: Script[T],
) -> T:
    """Run *script* as :func:`run` does, on a connection whose statements are not awaited."""
    kind, connection = _checked(connection, database, _CALLED, _TO_CALL)
    return run_script(script, partial(_called, kind, connection))


def _checked(
    connection: Any,
    database: Database,
    kinds: Kinds,
    supported: str,
) -> tuple[str, Any]:  # Any: the drivers' types
    """Return whose *connection* is, of *kinds*, and itself, or the session of this scope if it has some."""
    kind = _kind(connection, kinds)
    if kind == "scoped":
        return _checked(connection(), database, kinds, supported)
    if kind is None:
        name = type(connection).__qualname__
        raise InvalidRequestError(
            f"connection: {name} is not supported", hint=supported
        )
    theirs, is_open = _state(kind, connection)
    if theirs != database:
        raise InvalidRequestError(
            f"connection: is one to {theirs}, but the outbox is in {database}",
            hint="Pass a connection to the outbox's own database.",
        )
    if not is_open:
        raise _not_open()
    return kind, connection


async def _awaited(
    kind: str,
    connection: Any,
    text: str,
    values: Sequence[object],
) -> Any:  # Any: the drivers' types, and their rows
    match kind:
        case "asyncpg":
            return await connection.fetch(text, *values)
        case "psycopg":
            from psycopg.rows import tuple_row

            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(*_for_psycopg(cursor, text, values))
                return await cursor.fetchall()
        case "sqlite3":
            async with connection.cursor() as cursor:
                cursor.row_factory = None  # not the application's
                await cursor.execute(_PLACE.sub(r"?\1", text), tuple(values))
                return await cursor.fetchall()
        case _:
            return await connection.run_sync(
                lambda sync: _called(kind, sync, text, values)
            )


def _called(
    kind: str | None,
    connection: Any,
    text: str,
    values: Sequence[object],
) -> Any:  # Any: the same
    match kind:
        case "psycopg":
            from psycopg.rows import tuple_row

            with connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(*_for_psycopg(cursor, text, values)).fetchall()
        case "sqlite3":
            cursor = connection.cursor()
            cursor.row_factory = None  # not the application's
            return cursor.execute(_PLACE.sub(r"?\1", text), tuple(values)).fetchall()
        case "django":
            with connection.cursor() as cursor:
                cursor.execute(_PLACE.sub(r"%(v\1)s", text), _named(values))
                return cursor.fetchall()
        case _:
            if kind == "session":
                connection = connection.connection()
                # which the session has chosen for it alone
                if _level_of(connection) == "AUTOCOMMIT":
                    raise _not_open()
            from sqlalchemy import text as clause

            return connection.execute(
                clause(_PLACE.sub(r":v\1", text)), _named(values)
            ).all()


def _for_psycopg(
    cursor: object,
    text: str,
    values: Sequence[object],
) -> tuple[str, object]:
    if (
        _kind(cursor, {("psycopg", "AsyncRawCursor"): "", ("psycopg", "RawCursor"): ""})
        is not None
    ):
        return text, values
    return _PLACE.sub(r"%(v\1)s", text), _named(values)


def _named(values: Sequence[object]) -> dict[str, object]:
    return {f"v{number}": value for number, value in enumerate(values, 1)}


def _kind(connection: object, kinds: Kinds) -> str | None:
    for (module, name), kind in kinds.items():
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and isinstance(connection, found):
            return kind
    return None


def _state(kind: str, connection: Any) -> tuple[str, bool]:  # Any: the drivers' types
    """Return the database of *connection*, and whether it is in a transaction."""
    match kind:
        case "asyncpg":
            return (
                "PostgreSQL",
                not connection.is_closed() and connection.is_in_transaction(),
            )
        case "psycopg":
            return "PostgreSQL", _is_open(connection.info.transaction_status.name)
        case "sqlite3":
            try:
                return "SQLite", connection.in_transaction
            except ValueError:  # aiosqlite's, and closed
                return "SQLite", False
        case "django":
            return _NAMES.get(
                connection.vendor, str(connection.vendor)
            ), connection.in_atomic_block
        case _:
            sync = getattr(connection, "sync_connection", connection)
            bound = connection.get_bind() if kind == "session" else sync
            is_open = _level_of(bound) != "AUTOCOMMIT" and bool(
                connection.in_transaction()
            )
            return _NAMES.get(bound.dialect.name, str(bound.dialect.name)), is_open


def _is_open(status: str) -> bool:  # as psycopg names those of libpq
    if status == "INERROR":
        raise InvalidRequestError(
            "connection: its transaction has failed",
            hint="Roll it back, and begin another.",
        )
    if status == "ACTIVE":
        raise InvalidRequestError(
            "connection: waits for earlier statements, perhaps of its pipeline",
            hint="Await those first, those of a pipeline by its sync().",
        )
    return status == "INTRANS"


# Any: an engine or connection of SQLAlchemy, and its isolation level
def _level_of(bound: Any) -> Any:
    """Return the isolation level that *bound* was given, or ``None``."""
    level = bound.get_execution_options().get("isolation_level")
    return level or getattr(bound.dialect, "_on_connect_isolation_level", None)


def _not_open() -> InvalidRequestError:
    return InvalidRequestError(
        "connection: is closed or not in a transaction",
        hint="Begin one on it first: what is enqueued is sent only once your own transaction is committed.",
    )
