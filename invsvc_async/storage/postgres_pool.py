"""
Connect to the PostgreSQL that holds a batch's journal, and ask it again while it is away; never say what is
asked.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import attrs

from invsvc_async._errors import ConfigurationError, JournalError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

__all__ = ["PATIENCE", "Database", "Settings"]

T = TypeVar("T")

SCHEMA = 1
# What is written at every send (state, common, intent) is in no index and in no index's condition: such an
# update writes no index.
_TABLES = """
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE chunks (id bigserial PRIMARY KEY, owner text, done boolean NOT NULL DEFAULT false);
CREATE TABLE entries (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, chunk bigint NOT NULL, thing text, content bytea
    NOT NULL, state smallint NOT NULL, run integer NOT NULL, operation text NOT NULL, verdict text, common
    bigint, intent text, outcome text, claim text, done_at bigint
) WITH (fillfactor = 70);
CREATE INDEX not_done ON entries (chunk, seq) WHERE done_at IS NULL;
CREATE INDEX things ON entries (thing) WHERE done_at IS NULL AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
"""
_AWAY = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError,
         asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)  # fmt: skip
PATIENCE = 60.0  # s for which a database that is away is asked again
_ANSWER = 30.0  # s after which a connection on which no answer came is given up
_TO_LEAVE = 2.0  # s that it has for the last words of a run that was stopped
_AT_THE_END = 0.5  # s of patience once it had nothing to say to them
_PAUSE = 0.2  # s between
_LONGEST = 86_400  # s of silence


@attrs.frozen(kw_only=True)
class Settings:
    """
    What the address says beyond PostgreSQL's own: ``?batch=NAME&slots=8&silence=10``.

    ``slots``: chunks in work at once, on all machines (0: any number); ``silence``: s after which a worker
    counts as dead.
    """

    address: str
    batch: str = "default"
    slots: int = 0
    silence: float = 10.0

    @classmethod
    def of(cls, address: str) -> Settings:
        """
        Take the address apart.

        Raises:
            ConfigurationError: A setting that cannot work.

        """
        parts = urlsplit(address)
        asked = dict(parse_qsl(parts.query))
        own = {name: asked.pop(name) for name in ("batch", "slots", "silence") if name in asked}
        try:
            settings = cls(
                address=urlunsplit(parts._replace(query=urlencode(asked))),
                batch=own.get("batch", "default"),
                slots=int(own.get("slots", 0)),
                silence=float(own.get("silence", 10.0)),
            )
        except ValueError as error:
            raise ConfigurationError(f"the journal's address: {error}") from None
        if not re.fullmatch(r"[a-z0-9_]{1,40}", settings.batch) or settings.slots < 0:
            raise ConfigurationError(
                "the journal's address: batch is 1 to 40 of a-z, 0-9 and _; slots 0 or more"
            )
        if not 1 <= settings.silence <= _LONGEST:  # nor what is no number
            raise ConfigurationError(f"the journal's address: silence is from 1 to {_LONGEST} seconds")
        return settings


class Database:
    """One schema of one database, and the connections to it."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        self._create = create
        self.settings: Settings = Settings.of(address)
        self.pool: Any = None  # Any: asyncpg has no types
        self.patience: float = PATIENCE

    async def open(self) -> None:
        """
        Connect, and make the tables where there are none.

        Raises:
            JournalError: The database cannot be reached, or the journal is of a newer version, or there is
                none and none is to be made.

        """
        schema = f"invsvc_{self.settings.batch}"
        try:
            make: Any = asyncpg.create_pool  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            self.pool = await make(
                self.settings.address, min_size=0, max_size=5, timeout=10.0, reset=_leave_as_it_is,
                server_settings={"search_path": schema, "application_name": "invsvc batch"},
            )  # fmt: skip
            await self._make(schema)
        except (*_AWAY, asyncpg.PostgresError, ValueError) as error:
            await self.aclose()
            raise JournalError(f"the journal's database cannot be used: {error}") from error
        except JournalError:
            await self.aclose()
            raise

    async def _make(self, schema: str) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
            if not await connection.fetchval("SELECT to_regclass($1)", f"{schema}.facts"):
                if not self._create:
                    raise JournalError(f"there is no batch {self.settings.batch!r} in the journal's database")
                await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
                await connection.execute(_TABLES)
                await connection.execute("INSERT INTO facts VALUES ('schema', $1)", str(SCHEMA))
                from pgqueuer.db import AsyncpgDriver
                from pgqueuer.queries import Queries

                await Queries(AsyncpgDriver(connection)).install(create_schema=False)
            version = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        if version != str(SCHEMA):
            raise JournalError(
                f"the journal in {schema} is of version {version}, and this package reads version {SCHEMA}: "
                "use the version that made it, or a newer one"
            )

    async def aclose(self) -> None:
        """Disconnect."""
        pool, self.pool = self.pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), min(self.patience, 5.0))
            except _AWAY:
                pool.terminate()

    async def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        """Ask *question* of a connection, in a transaction of its own; again while the database is away."""

        async def ask() -> T:
            async with self.lent() as connection:
                return await _together(connection, question)

        return await self.steadily(ask)

    async def fetch(self, text: str, *values: object) -> list[Any]:  # Any: asyncpg's rows
        """Run one statement, a transaction of its own, as :meth:`ask` does; gives its rows."""

        async def fetch() -> list[Any]:
            async with self.lent() as connection:
                rows: list[Any] = await connection.fetch(text, *values)
                return rows

        return await self.steadily(fetch)

    async def steadily(self, act: Callable[[], Awaitable[T]]) -> T:
        """
        Do *act*, again while the database is away or silent.

        It must bear being done twice, and must not tell what it found before it, but what it makes so: where
        only the reply was lost, the second time finds what the first has done.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                async with asyncio.timeout(min(self.patience, _ANSWER)):
                    return await act()
            except _AWAY as error:
                if isinstance(error, ValueError):  # a value that it cannot take: no matter of connections
                    raise JournalError(f"the journal's database refused: {error}") from error
                if loop.time() >= begun + self.patience:
                    said = str(error) or "it is silent"
                    raise JournalError(f"the journal's database is away: {said}") from error
                await asyncio.sleep(min(self.patience, _PAUSE))
            except asyncpg.PostgresError as error:
                raise JournalError(f"the journal's database refused: {error}") from error

    @asynccontextmanager
    async def hurried(self) -> AsyncGenerator[None]:
        """
        Wait only shortly for what is asked within; if that was too short, for what is asked later, too.

        Raises:
            JournalError: It was too short.

        """
        self.patience = _TO_LEAVE
        try:
            async with asyncio.timeout(_TO_LEAVE):
                yield
        except (JournalError, TimeoutError) as error:
            self.patience = _AT_THE_END
            raise JournalError("the journal's database is away") from error
        self.patience = PATIENCE

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[Any]:  # Any: asyncpg's connection
        """
        Lend a connection.

        Of who waits no longer it is cut off: to give it back would wait for the database.
        """
        if self.pool is None:
            raise JournalError("the journal is not open")
        pool = self.pool
        connection = await pool.acquire(timeout=10.0)
        try:
            yield connection
        except asyncio.CancelledError:
            connection.terminate()
            raise
        finally:
            await pool.release(connection)


async def _together(connection: Any, question: Callable[[Any], Awaitable[T]]) -> T:  # Any: asyncpg's
    """
    Ask *question* in a transaction.

    asyncpg's own way would, for who is cancelled, first wait until it is undone; the server does that.
    """
    transaction = connection.transaction()
    await transaction.start()
    try:
        answer = await question(connection)
    except Exception:
        await transaction.rollback()
        raise
    await transaction.commit()
    return answer


async def _leave_as_it_is(_connection: object) -> None:
    """Give a connection back without asyncpg's four statements: nothing of a session is changed here."""
