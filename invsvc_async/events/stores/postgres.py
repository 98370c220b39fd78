"""
An event store in one PostgreSQL table, which several machines may share.

Leases are timed by the server's clock, and a worker skips the rows that another one has locked.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from invsvc_async.errors import ConfigurationError, JournalError, takes_secrets
from invsvc_async.events.stores import scripts
from invsvc_async.events.stores.scripted import ScriptedStore, in_slices
from invsvc_async.storage.dialect import PostgresDialect
from invsvc_async.storage.table_version import VERSION, check_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.events.stores import Delivery
    from invsvc_async.events.stores.postgres_puts import GroupedPuts
    from invsvc_async.storage.dialect import Script

__all__ = ["PostgresStore"]

T = TypeVar("T")

_MARK: Final = "invsvc_async events, "
_LOCK: Final = 0x696E7665  # an arbitrary number: only one process may create the table
_TIMEOUT: Final = 5.0  # s for one statement: the sender waits 10 s
_SLICE: Final = 0.02  # s that one statement of prune is to take
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_WORDS: Final = {
    "id": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "bytes": "bytea",
    # now() is the time before the transaction waited for a locked row; clock_timestamp() is the time after.
    "now": "date_part('epoch', clock_timestamp())",
    "began": "date_part('epoch', now())",
    "calendar": "date_part('epoch', now())",
    "picked": "= ANY (ARRAY(SELECT id FROM picked))",
}
_OTHERWISE: Final = "Handle what is open in it with that version, or choose another table"


@attrs.define(eq=False)
class _Connected:
    """The connections of one event loop; no other one can use them."""

    opening: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    puts: GroupedPuts | None = None


class PostgresStore(ScriptedStore):
    """
    Store deliveries in *table* of the database at *dsn*; the table is created if it does not exist.

    Needs the extra ``postgres``.  Give each receiver a table of its own, because its workers take whatever is
    in it.  *connections* limits the pool of this process.
    """

    @takes_secrets
    def __init__(self, dsn: str, *, table: str = "invsvc_delivery", connections: int = 8) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigurationError("table: not a valid name. Use lower-case letters, digits and _.")
        self._dsn = dsn
        self._table = table
        self._dialect = PostgresDialect(t=table, **_WORDS)
        self._connections = connections
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connected] = {}

    def __repr__(self) -> str:
        return f"PostgresStore(table={self._table!r})"  # the address may contain a password

    async def open(self) -> None:
        """
        Connect, and create the table if it does not exist; does nothing if it is open.

        Raises:
            ConfigurationError: The extra ``postgres`` is not installed.
            JournalError: The database cannot be used, or the table is foreign or of a newer version.
        """
        await self._opened()

    async def close(self) -> None:
        """Close the connections of this event loop; the next use opens them again."""
        here = self._here()
        puts, here.puts = here.puts, None
        if puts is not None:
            await puts.pool.aclose()

    async def _put(self, delivery: Delivery) -> bool | None:
        return await (await self._opened()).put(delivery)

    async def _ask(self, script: Callable[[], Script[T]], *, together: bool = False) -> T:
        pool = (await self._opened()).pool
        return await (pool.run(self._dialect, script) if together else self._dialect.run(pool, script()))

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        return await self._ask(script)

    async def _in_slices(self, script: Callable[[int], Script[int]]) -> int:
        return await in_slices(lambda rows: self._ask(lambda: script(rows)), seconds=_SLICE)

    async def _opened(self) -> GroupedPuts:
        here = self._by_loop.get(asyncio.get_running_loop())
        if here is not None and here.puts is not None:
            return here.puts
        try:
            from invsvc_async.events.stores.postgres_puts import GroupedPuts
            from invsvc_async.storage.postgres_pool import Pool
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"PostgresStore: {error.name} is not installed. Install invsvc-async[postgres]."
            ) from None
        here = self._here()
        async with here.opening:
            if here.puts is None:
                # Each statement is tried once, because the sender waits for only 10 s.
                name = "the event store's database"
                pool = Pool(self._dsn, name, size=self._connections, patience=_TIMEOUT, retry=False)
                await pool.connect(self._prepare)
                here.puts = GroupedPuts(pool, self._dialect)
            return here.puts

    def _here(self) -> _Connected:
        """Return what belongs to this event loop, and forget those that are closed by now."""
        for loop in list(self._by_loop):  # a copy: another loop may add its own
            left = self._by_loop.pop(loop, None) if loop.is_closed() else None
            if left is not None and left.puts is not None:
                left.puts.pool.give_up()
        return self._by_loop.setdefault(asyncio.get_running_loop(), _Connected())

    async def _prepare(self, connection: Any) -> None:  # Any: asyncpg has no types
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass($1)", self._table) is None:
            await self._dialect.run(connection, scripts.create())
            await connection.execute(f"COMMENT ON TABLE {self._table} IS '{_MARK}schema {VERSION}'")
            return
        found = await connection.fetchval("SELECT obj_description(to_regclass($1))", self._table) or ""
        if not found.startswith(_MARK):
            raise JournalError(f"table {self._table}: it is another program's. Choose another table.")
        _, of_schema, version = found.partition("schema ")
        check_version(f"table {self._table}", version if of_schema else None, _OTHERWISE)
