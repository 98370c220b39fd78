"""A pool of PostgreSQL connections, and the retries while the database is away."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

from invsvc_async.concurrency.cancellation import cancellations, raise_if_cancelled
from invsvc_async.errors import ConfigurationError, JournalError, without_frames

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from invsvc_async.storage.dialect import Connection


T = TypeVar("T")
log: logging.Logger = logging.getLogger("invsvc_async.storage")

_CLIENT = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
_SERVER = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
AWAY = (OSError, *_CLIENT, *_SERVER, asyncpg.TooManyConnectionsError)
# Nothing was done, because of others' transactions or connections; a role may have a lock_timeout.
_OTHERS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
_STOOD_STILL = asyncpg.IdleInTransactionSessionTimeoutError
_UNDONE = (*_OTHERS, _STOOD_STILL, asyncpg.TooManyConnectionsError)
# Classes of SQLSTATE whose messages contain no stored value: connection, login, database, syntax and rights,
# resources, shutdown, system.
_WITHOUT_VALUES = {"08", "28", "3D", "42", "53", "57", "58"}
_Errors: TypeAlias = tuple[type[Exception], ...]
# What fails, and which of ``AWAY`` last: values that cannot be stored; on the first connection also a host
# that has no address, and what a pooler does not pass on.
_OF_OTHERS: tuple[_Errors, _Errors] = (
    (JournalError, *AWAY, asyncpg.PostgresError),
    (ValueError,),
)
_OF_FIRST: tuple[_Errors, _Errors] = (
    (*_OF_OTHERS[0], ValueError, OverflowError),
    (ValueError, socket.gaierror, asyncpg.ProtocolViolationError),
)
_NO_STATEMENTS = (
    "A pooler in transaction mode does not keep prepared statements. What was stored before is safe. Use its "
    "session mode, let it keep them (PgBouncer: max_prepared_statements, from 1.21), or connect without it."
)
_UNUSABLE = "cannot be used", "Check its address, and that the server runs."
_AWAY = "is away", "Check that its server can be reached."
_REFUSED = "refused a statement", "The server's log says why."
_CHANGED = "Somebody has changed or deleted a table. Nothing was stored. Put the schema back as it was."
STANDBY = "the server is a standby, which is read-only. Nothing was stored. Use the primary's address."
READ_ONLY = (
    "transactions are read-only here, by default_transaction_read_only. Nothing was stored. Turn that off "
    "for the role, the database or the server."
)
# What to do about an error of the server, by SQLSTATE.
_HINTS = {
    "25006": "Nothing was stored. If the server is a standby, use the primary's address. Otherwise turn "
    "default_transaction_read_only off for the role, the database or the server.",
    "22P05": "Its encoding lacks a character. Use a database with ENCODING 'UTF8'.",
    "26000": _NO_STATEMENTS,
    "3F000": "No schema of its search_path exists. Set search_path for the role, or create the schema.",
    "42501": "The role lacks a right. Let the owner grant it: to create tables, CREATE on the database or "
    "schema; to read, USAGE on the schema and SELECT on its tables; to work, also INSERT, UPDATE and DELETE, "
    "and USAGE on its sequences.",
    "42703": _CHANGED,
    "42P01": _CHANGED,
    "42P05": _NO_STATEMENTS,
    "53100": "Its disk is full. What was stored before is safe. Make room, and run again.",
    "53300": "Let the role, the database or the server have more connections, or close others.",
    "53200": "It is out of memory. What was stored before is safe. Run again later.",
    "55P03": "Another transaction uses the table, perhaps one of the application. Nothing was changed. End "
    "that one, or try again.",
    "57014": "It was cancelled, perhaps by a statement_timeout of the role. What was stored before is safe.",
}
# What is stored before a send must outlast a crash of the server, whatever the default of the role.
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
# The same as an expression, for one transaction: a pooler may give each of them another session.
DURABLY = f"({_DURABLE.strip().replace('false', 'true')})"
PATIENCE = 60.0  # s of retries while the database is away
_TO_OPEN = PATIENCE  # s of retries of the first connection
AT_ONCE = 5.0  # s of them if a person waits
_ANSWER = 30.0  # s to wait for an answer before the connection is dropped
# Not the default of a role or database: after a lock, a statement must see what others have committed.
# A process that stands still in a transaction (stopped, its machine suspended or cut off) would keep its
# locks for as long. The server ends its session instead, and the process runs the transaction again.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'"
_TO_LEAVE = 2.0  # s for the last statements of a run that was stopped
_AT_THE_END = 0.5  # s for all others once those were not answered
_END_LASTS = 5.0  # s for which that is so
_TO_CLOSE = 5.0  # s to disconnect
_PAUSE = 0.2  # s between tries


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """
    A connection whose prepared statements have names of their own.

    asyncpg numbers them in each process.  Behind a pooler that gives several processes one session, a name
    could then be that of another process's statement, which would be run instead.

    ``name`` is how ``pg_stat_activity`` calls the session, also behind a pooler.
    """

    name: str = ""

    def _get_unique_id(self, prefix: str) -> str:
        return f"__{prefix}_{uuid4().hex}__"


class Pool:
    """
    At most *size* connections to the database at *address*, which errors call *name*.

    *patience* is how long a statement is tried, in seconds; without *retry* it is tried once.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        size: int = 5,
        patience: float = PATIENCE,
        retry: bool = True,
    ) -> None:
        self._address = address
        self._name = name
        self._size = size
        self._retry = retry
        self._pool: Connection = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the pool
        self.patience: float = patience
        self.to_open: float = _TO_OPEN
        # When the last statements of a run were not answered in time, if nothing has been since (loop time).
        self._in_vain_since: float | None = None
        self._application = "invsvc"
        # The connections that were lost in an act, by name, and when (loop time): the server may still go on
        # with it.
        self._lost: dict[str, float] = {}

    async def connect(
        self, prepare: Callable[[Connection], Awaitable[None]], **server_settings: str
    ) -> None:
        """Connect, and run *prepare* on a connection, in a transaction; again while the database is away."""
        self._loop = asyncio.get_running_loop()
        self._application = server_settings.get("application_name", self._application)
        create: Any = asyncpg.create_pool  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        limits = {
            "min_size": 0,
            "max_size": self._size,
            "timeout": min(self.patience, 10.0),
        }
        ours = {
            "reset": _no_reset,
            "init": self.connected,
            "connection_class": _Connection,
        }
        # It connects when it lends its first connection.
        self._pool = await _without_frames(
            create(self._address, server_settings=server_settings, **limits, **ours)
        )
        try:
            await self.steadily(
                lambda connection: in_transaction(connection, prepare), is_first=True
            )
        except JournalError:
            await self.aclose()
            raise

    async def connected(self, connection: Connection) -> None:
        """Prepare a new connection. A subclass may check it, and raise JournalError."""
        connection.name = f"{self._application} {uuid4().hex[:12]}"
        named = f"SELECT set_config('application_name', '{connection.name}', false)"
        await connection.execute(f"{_DURABLE}; {named}")

    def wait_of(self, usual: float) -> float:
        """
        Return how long to wait for statements, in seconds: *usual*, or less at the end of a run.

        It is less if the last statements of a run were not answered just now, so that a process whose
        database is away ends soon. But it is less only for a while: a process may also begin a run anew, and
        then a distant database needs longer to connect.
        """
        since = self._in_vain_since
        if since is None:
            return usual
        is_at_the_end = asyncio.get_running_loop().time() < since + _END_LASTS
        return min(usual, _AT_THE_END) if is_at_the_end else usual

    async def aclose(self) -> None:
        """Disconnect; raise ConfigurationError in another event loop, unless its own one is closed."""
        has_open_loop = self._loop is not None and not self._loop.is_closed()
        if self._pool is not None and has_open_loop:
            self._check_loop()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(self.wait_of(min(self.patience, _TO_CLOSE))):
                    await pool.close()
            except AWAY:
                pool.terminate()

    def give_up(self) -> None:
        """Drop the connections of an event loop that is closed. The server then sees their end."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(RuntimeError):  # its transports cannot tell their loop
                pool.terminate()

    async def ask(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Run *act* on a connection, in a transaction of its own; again while the database is away."""
        return await self.steadily(lambda connection: in_transaction(connection, act))

    async def fetch(self, text: str, *values: object) -> list[Connection]:
        """Run a statement, in a transaction of its own, as :meth:`ask` does; return the rows."""
        return await self.steadily(lambda connection: connection.fetch(text, *values))

    async def steadily(
        self,
        act: Callable[[Connection], Awaitable[T]],
        *,
        is_first: bool = False,
        within: float | None = None,
    ) -> T:
        """
        Run *act* on a connection, again while the database is away, or ends it because of others.

        *act* must be idempotent, and its result must describe the state that it makes, not the one that it
        finds: if only the reply was lost, the second try finds what the first has done. *is_first*: the
        address may be wrong. *within* is how long one try may take, in seconds, if that is long.

        Raises:
            JournalError: The database stayed away, or refused a statement.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        told = not is_first
        cancelled = cancellations()
        most = self.to_open if is_first else inf
        failures, lasting = _OF_FIRST if is_first else _OF_OTHERS
        while True:
            try:
                result = await self._tried(act, within)
            except failures as error:
                failed = without_frames(error)  # those of asyncpg show the password
            else:
                self._in_vain_since = None
                return result
            raise_if_cancelled(cancelled)  # asyncpg may raise an error in place of it
            if isinstance(failed, JournalError):
                raise failed
            is_away = isinstance(failed, AWAY) and not isinstance(failed, lasting)
            is_undone = isinstance(failed, _UNDONE)
            may_succeed = is_undone or (is_away and self._retry)
            patience = self.wait_of(self.patience)
            is_late = loop.time() >= begun + min(patience, most)
            if is_late or not may_succeed:
                raise self._refusal(failed, is_away=is_away, is_first=is_first)
            if not told:
                told = True
                log.warning(
                    "%s cannot be reached yet (%s); trying on", self._name, _why(failed)
                )
            await asyncio.sleep(min(patience, _PAUSE))

    async def _tried(
        self, act: Callable[[Connection], Awaitable[T]], within: float | None
    ) -> T:
        """Run *act* on a connection, once; *within* is as in :meth:`steadily`."""
        limit = within or min(self.wait_of(self.patience), _ANSWER)
        async with asyncio.timeout(limit), self.lent() as connection:
            return await act(connection)

    def _refusal(
        self,
        failed: Exception,
        *,
        is_away: bool,
        is_first: bool,
    ) -> JournalError:
        """Return the error for a statement that is not tried again."""
        wrong, advice = _AWAY if is_away else _REFUSED
        if is_first:
            wrong, advice = _UNUSABLE
        refusal = self._error(wrong, failed, advice, is_away=is_away)
        # The text of a ValueError may be a stored value, or part of the address with its password.
        refusal.__cause__ = None if isinstance(failed, ValueError) else failed
        refusal.__suppress_context__ = True
        return refusal

    def _error(
        self,
        wrong: str,
        error: Exception,
        advice: str,
        *,
        is_away: bool = False,
    ) -> JournalError:
        """
        Build the JournalError for *error*: *wrong* says what failed, *advice* what to do.

        If *error* is one for which there is more specific advice, that is used instead.
        """
        if place := re.match(
            "permission denied for (schema|database) (.+)", str(error)
        ):
            kind = place[1].upper()
            advice = f"Let an owner run: GRANT CREATE ON {kind} {place[2]} TO the role of the address."
        else:
            advice = _HINTS.get(_state(error), advice)
        return JournalError(
            f"{self._name} {wrong} ({_why(error)}). {advice}", is_away=is_away
        )

    @asynccontextmanager
    async def hurried(self) -> AsyncGenerator[None]:
        """
        Wait only briefly for the statements of the block, the last ones of a run that ends.

        After a failure, the statements that follow are waited for even less (``wait_of``), until one
        succeeds.

        Raises:
            JournalError: The time was too short.
        """
        try:
            async with asyncio.timeout(self.wait_of(_TO_LEAVE)):
                yield
        except (JournalError, TimeoutError, asyncio.CancelledError) as error:
            self._in_vain_since = asyncio.get_running_loop().time()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise JournalError(f"{self._name} {'. '.join(_AWAY)}") from without_frames(
                error
            )

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[Connection]:
        """Lend a connection; cut it off if the borrower is cancelled, because returning it would wait."""
        if self._pool is None:
            raise JournalError(f"{self._name} is not open. Open it first.")
        self._check_loop()
        pool = self._pool
        connection = await _without_frames(pool.acquire(timeout=10.0))
        name: str = connection.name
        try:
            if lost := {**self._lost}:
                await self.until_ended(connection, lost)
                for each in lost:
                    self._lost.pop(each, None)
            yield connection
        except BaseException as error:
            # An error of a statement, or of what is done with its rows, ends the act.
            has_ended = isinstance(error, Exception) and not isinstance(error, AWAY)
            if not has_ended:
                self._lost[name] = asyncio.get_running_loop().time()
            if isinstance(error, asyncio.CancelledError):
                # it is lost already, which must not hide what is raised
                with suppress(asyncpg.InterfaceError):
                    connection.terminate()
            raise
        finally:
            await pool.release(connection)

    async def until_ended(
        self, connection: Connection, lost: Mapping[str, float]
    ) -> None:
        """
        Wait for what the server still does for *lost* connections, where a subclass has to.

        It has their names, and when each was lost (loop time).
        """

    def _check_loop(self) -> None:
        """
        Check that this is the pool's event loop.

        What another one sent, perhaps of a forked process, would come between the statements of the first.
        """
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"{self._name}: belongs to the event loop that opened it. Open it in each process, and for "
                "each loop."
            )


async def _without_frames(connecting: Awaitable[Connection]) -> Connection:
    """
    Await *connecting*; raise its errors without the frames of asyncpg, which have the password.

    An application's own timeout ends it, too: the traceback of a cancellation has frames like any other.
    """
    try:
        return await connecting
    except BaseException as error:  # noqa: BLE001 - raised again below
        ended = without_frames(error)
    try:
        raise ended
    finally:
        del connecting, ended  # which refer to those frames


async def in_transaction(
    connection: Connection, act: Callable[[Connection], Awaitable[T]]
) -> T:
    """
    Run *act* in a transaction.

    asyncpg's own context manager would wait for the rollback when it is cancelled; the server does that.
    """
    await connection.execute(_BEGIN)
    try:
        result = await act(connection)
    except Exception:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return result


async def _no_reset(_connection: object) -> None:
    """Return a connection without asyncpg's four statements: no session state is changed here."""


def _why(error: Exception) -> str:
    """Name *error*, with its text unless that may contain a stored value."""
    name = type(error).__name__
    if not str(error) or _may_have_value(error):
        return name
    return f"{name}: {error}"


def _may_have_value(error: Exception) -> bool:
    """Return whether a stored value may be in the text of *error*."""
    if isinstance(error, ValueError):
        return True
    state = _state(error)
    return bool(state) and state[:2] not in _WITHOUT_VALUES


def _state(error: Exception) -> str:
    """Return the SQLSTATE of an error of the server, or an empty text."""
    return getattr(error, "sqlstate", None) or ""
