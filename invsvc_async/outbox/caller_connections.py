"""Statements on a connection of the application's, in the transaction that is open on it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["checked", "first_row"]

Database: TypeAlias = Literal["PostgreSQL", "SQLite"]

_SUPPORTED = (
    "Pass one of asyncpg, psycopg 3 (AsyncConnection), aiosqlite, or an AsyncSession or AsyncConnection of "
    "SQLAlchemy."
)
_BEGIN = "Begin one on it first: what is enqueued is sent only once your own transaction is committed."
_PLACE = re.compile(r"\$(\d+)")
_PSYCOPG_FAILED = 3  # libpq's PQTRANS_INERROR
_PSYCOPG_OPEN = 2  # libpq's PQTRANS_INTRANS
_PSYCOPG_BUSY = 1  # libpq's PQTRANS_ACTIVE


def checked(connection: object, database: Database) -> None:
    """
    Check that *connection* is of *database*, and in a transaction.

    Raises:
        InvalidRequestError: It is not.

    """
    connection = _current(connection)
    kind = _kind(connection)
    if kind is None:
        name = type(connection).__qualname__
        raise InvalidRequestError(f"connection: a {name} is not supported", hint=_SUPPORTED)
    theirs, is_open = _state(kind, connection)
    if theirs != database:
        raise InvalidRequestError(
            f"connection: is one to {theirs}, but the outbox is in {database}",
            hint="Pass a connection to the outbox's own database.",
        )
    if not is_open:
        raise _not_open()


async def first_row(connection: Any, text: str, values: Sequence[object]) -> Any:  # Any: the drivers' types
    """
    Run one statement, whose parameters are ``$1``, ``$2``, …, and return its first row or ``None``.

    Nothing is committed, rolled back or tried again.  The errors are those of the driver.
    """
    connection = _current(connection)
    match _kind(connection):
        case "asyncpg":
            return await connection.fetchrow(text, *values)
        case "psycopg":
            from psycopg.rows import tuple_row  # pyright: ignore[reportMissingImports]

            async with connection.cursor(row_factory=tuple_row) as cursor:
                is_raw = isinstance(cursor, _classes("psycopg", "AsyncRawCursor"))
                if is_raw:
                    await cursor.execute(text, values)
                else:
                    await cursor.execute(_PLACE.sub(r"%(v\1)s", text), _named(values))
                return await cursor.fetchone()
        case "aiosqlite":
            async with connection.execute(_PLACE.sub(r"?\1", text), tuple(values)) as cursor:
                return await cursor.fetchone()
        case _:
            from sqlalchemy import text as sql  # pyright: ignore[reportMissingImports]

            if _is_session(connection):
                connection = await connection.connection()
                if _level_of(connection.sync_connection) == "AUTOCOMMIT":  # of this connection alone
                    raise _not_open()
            return (await connection.execute(sql(_PLACE.sub(r":v\1", text)), _named(values))).first()


def _named(values: Sequence[object]) -> dict[str, object]:
    return {f"v{number}": value for number, value in enumerate(values, 1)}


def _kind(connection: object) -> Literal["asyncpg", "psycopg", "aiosqlite", "sqlalchemy"] | None:
    """Return the library of *connection*. A library that is not imported cannot have made it."""
    if isinstance(connection, _classes("asyncpg", "Connection", "pool.PoolConnectionProxy")):
        return "asyncpg"
    if isinstance(connection, _classes("psycopg", "AsyncConnection")):
        return "psycopg"
    if isinstance(connection, _classes("aiosqlite", "Connection")):
        return "aiosqlite"
    if isinstance(
        connection,
        _classes("sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection"),
    ):
        return "sqlalchemy"
    return None


def _classes(module: str, *names: str) -> tuple[type, ...]:
    found: list[type] = []
    for name in names:
        place: Any = sys.modules.get(module)  # Any: a module, then what it contains
        for part in name.split("."):
            place = getattr(place, part, None)
        if isinstance(place, type):
            found.append(place)
    return tuple(found)


def _is_session(connection: object) -> bool:
    return isinstance(connection, _classes("sqlalchemy.ext.asyncio", "AsyncSession"))


def _current(connection: Any) -> Any:  # Any: the drivers' types
    """Return the session of this scope, if *connection* has one for each."""
    is_scoped = isinstance(connection, _classes("sqlalchemy.ext.asyncio", "async_scoped_session"))
    return connection() if is_scoped else connection


def _state(kind: str, connection: Any) -> tuple[str, bool]:  # Any: the drivers' types
    """Return the database of *connection*, and whether it is in a transaction."""
    match kind:
        case "asyncpg":
            return "PostgreSQL", not connection.is_closed() and connection.is_in_transaction()
        case "psycopg":
            status = connection.info.transaction_status
            if status == _PSYCOPG_FAILED:
                raise InvalidRequestError(
                    "connection: its transaction has failed", hint="Roll it back, and begin another."
                )
            if status == _PSYCOPG_BUSY:
                raise InvalidRequestError(
                    "connection: waits for earlier statements, perhaps of its pipeline",
                    hint="Await those first, those of a pipeline by its sync().",
                )
            return "PostgreSQL", status == _PSYCOPG_OPEN
        case "aiosqlite":
            try:
                return "SQLite", connection.in_transaction
            except ValueError:  # it is closed
                return "SQLite", False
        case _:
            return _sqlalchemy_state(connection)


def _sqlalchemy_state(connection: Any) -> tuple[str, bool]:  # Any: a session or connection
    bound = connection.get_bind() if _is_session(connection) else connection.sync_connection
    names = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
    name = str(names.get(bound.dialect.name, bound.dialect.name))
    return name, _level_of(bound) != "AUTOCOMMIT" and bool(connection.in_transaction())


def _level_of(bound: Any) -> Any:  # Any: an engine or connection of SQLAlchemy, and its isolation level
    """Return the isolation level that *bound* was given, or ``None``."""
    level = bound.get_execution_options().get("isolation_level")
    return level or getattr(bound.dialect, "_on_connect_isolation_level", None)


def _not_open() -> InvalidRequestError:
    return InvalidRequestError("connection: is closed or not in a transaction", hint=_BEGIN)
