"""
An event store in one PostgreSQL table, which several machines may share.

Leases are timed by the server's clock, and a worker skips the rows that another one has locked.

If that clock is set back, times of before are in the future.  A delivery that nobody has had yet was due when
it came, and a lease ends at the latest when one that begins now would: each store looks for others now and
then, and corrects them.  What waits for its retry may be late by as much as the clock was set back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from functools import partial
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import attrs

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.errors import ConfigurationError, JournalError, takes_secrets
from invsvc_async.events.stores import Delivery, made_up_key, statements
from invsvc_async.events.stores.scripts import How, ScriptedStore, create, row_of
from invsvc_async.events.stores.statements import SCHEMA
from invsvc_async.storage.dialect import Connection, PostgresDialect, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.storage.postgres_pool import Pool

T = TypeVar("T")
_Put: TypeAlias = "tuple[Delivery, asyncio.Future[bool]]"

_log: Final = logging.getLogger("invsvc_async.events")
_MARK: Final = "invsvc_async events, "
_LOCK: Final = 0x696E7665  # an arbitrary number: only one process may create the table
_LOCK_TABLES: Final = "SELECT pg_advisory_xact_lock($1)"
_LONGEST_UPGRADE: Final = 3600.0  # s
_TIMEOUT: Final = 5.0  # s for one statement: the sender waits 10 s
_PUTS: Final = 500  # deliveries of one statement
_BYTES: Final = 8 << 20  # of their bodies, unless one is larger
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_WORDS: Final = {
    "id": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "bytes": "bytea",
    # now() is the time before the transaction waited for a locked row; clock_timestamp() is the time after.
    "now": "date_part('epoch', clock_timestamp())",
    "began": "date_part('epoch', now())",
    "calendar": "date_part('epoch', now())",
    "picked": statements.PICKED_IN_DATABASE,
}
_CORRECT_EVERY: Final = 5.0  # s
_MAY_NOT: Final = "42501"  # SQLSTATE: the role does not own the table


@attrs.define(eq=False)
class _Connected:
    """The connections of an event loop; no other loop can use them."""

    opening: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    puts: GroupedPuts | None = None


class PostgresStore(ScriptedStore):
    """
    Store deliveries in *table* of the database at *dsn*.

    The table is created if it does not exist; without *create*, that is an error.

    Needs the extra ``postgres``.  Give each receiver a table of its own, because its workers take whatever is
    in it.  *connections* limits the pool of this process.
    """

    @takes_secrets
    def __init__(
        self,
        dsn: str,
        *,
        table: str = "invsvc_delivery",
        connections: int = 8,
        create: bool = True,
    ) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigurationError(
                "table: not a valid name. Use lower-case letters, digits and _."
            )
        self._table = table
        events = EventTable(table, PostgresDialect(t=table, **_WORDS), creates=create)
        super().__init__(PostgresEvents(dsn, connections, events))

    def __repr__(self) -> str:
        return f"PostgresStore(table={self._table!r})"  # the address may contain a password

    async def open(self) -> None:
        """
        Connect, and create the table if it does not exist; does nothing if it is open.

        Raises:
            ConfigurationError: The extra ``postgres`` is not installed.
            JournalError: The database cannot be used, or the table is foreign or of a newer version.
        """
        await self._database.open()

    async def close(self) -> None:
        """Close the connections of this event loop; the next use opens them again."""
        await self._database.close()


@attrs.frozen
class EventTable:
    """
    The table of events: it is created by the first connection, or brought up to date after that.

    *creates*: it is created if it does not exist; else that is an error.
    """

    name: str
    dialect: PostgresDialect
    creates: bool

    async def prepare(self, connection: Connection) -> None:
        """
        Create the table, or check that it is one of events, perhaps of an earlier version.

        Raises:
            JournalError: It is missing, foreign, or of a version that the package does not know.
        """
        await connection.execute(_LOCK_TABLES, _LOCK)
        if await connection.fetchval("SELECT to_regclass($1)", self.name) is None:
            if not self.creates:
                raise JournalError(
                    f"table {self.name}: does not exist. Check its name and the database."
                )
            await self.dialect.run(connection, create())
            await self._note_version(connection)
            return
        await self._version(connection)

    async def upgrade(self, connection: Connection) -> None:
        """
        Bring a table of an earlier version up to date, which takes as long as some passes through it.

        Processes of that version may use the table, and go on afterwards.

        Raises:
            JournalError: The role may not change it.
        """
        await connection.execute(_LOCK_TABLES, _LOCK)
        known = await self._version(connection)
        if known < SCHEMA.version:
            _log.warning(
                "table %s: it has version %d, and is brought up to date.",
                self.name,
                known,
            )
            await self._upgrade(connection, known)

    async def _version(self, connection: Connection) -> int:
        found = (
            await connection.fetchval(
                "SELECT obj_description(to_regclass($1))", self.name
            )
            or ""
        )
        if not found.startswith(_MARK):
            raise JournalError(
                f"table {self.name}: it is another program's. Choose another table."
            )
        _, of_schema, version = found.partition("schema ")
        return SCHEMA.check(f"table {self.name}", version if of_schema else None)

    async def _upgrade(self, connection: Connection, known: int) -> None:
        await connection.execute("SET LOCAL lock_timeout = '2s'")
        try:
            await self.dialect.run(connection, SCHEMA.upgrade(known))
            await self._note_version(connection)
        except Exception as error:
            if getattr(error, "sqlstate", None) != _MAY_NOT:
                raise
            raise JournalError(
                f"table {self.name}: it has version {known}, an earlier one, and the role of the address "
                "may not change it. Nothing was changed. Let its owner open the store once."
            ) from error

    async def _note_version(self, connection: Connection) -> None:
        await connection.execute(
            f"COMMENT ON TABLE {self.name} IS '{_MARK}schema {SCHEMA.version}'"
        )


class PostgresEvents:
    """
    The connections to the database at *dsn*, of each event loop that uses the *table*, and what runs by them.

    *size* limits those of one event loop.
    """

    def __init__(
        self,
        dsn: str,
        size: int,
        table: EventTable,
    ) -> None:
        self._dsn = dsn
        self._size = size
        self._table = table
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connected] = {}
        # by handlers: the last (monotonic s)
        self._corrections: dict[tuple[str, ...] | None, float] = {}

    async def open(self) -> None:
        """Connect, and prepare the table; does nothing if this event loop has connections."""
        await self.opened()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        here = self._here()
        puts, here.puts = here.puts, None
        if puts is not None:
            await puts.pool.aclose()

    def corrected(self, lease: float, names: Sequence[str] | None) -> Script[None]:
        """Correct times of before the clock was set back, of what *names* get, or all; now and then."""
        group = None if names is None else tuple(names)
        now = time.monotonic()
        if now >= self._corrections.get(group, -inf) + _CORRECT_EVERY:
            self._corrections[group] = now
            yield statements.CORRECT, (lease, names)

    async def put(self, delivery: Delivery) -> bool:
        """Store a delivery together with those that wait meanwhile."""
        return await (await self.opened()).put(delivery)

    async def run(self, script: Callable[[], Script[T]], how: How) -> T:
        """Run a new *script*; one that runs "together" does so in a transaction."""
        pool = (await self.opened()).pool
        dialect = self._table.dialect
        if how == "together":
            return await pool.ask(lambda connection: dialect.run(connection, script()))
        return await dialect.run(pool, script())

    async def opened(self) -> GroupedPuts:
        """Return the store of deliveries for this event loop; connections are opened if there are none."""
        here = self._here()
        async with here.opening:
            if here.puts is None:
                try:
                    from invsvc_async.storage.postgres_pool import Pool, in_transaction
                except ModuleNotFoundError as error:
                    words = (
                        f"PostgresStore: {error.name} is not installed. "
                        "Install invsvc-async with its extra 'postgres'."
                    )
                    raise ConfigurationError(words) from None
                # Each statement is tried once, because the sender waits for only 10 s.
                name = "the event store's database"
                pool = Pool(
                    self._dsn,
                    name,
                    size=self._size,
                    patience=_TIMEOUT,
                    retry=False,
                )
                await pool.connect(self._table.prepare)
                try:
                    await pool.steadily(
                        partial(in_transaction, act=self._table.upgrade),
                        within=_LONGEST_UPGRADE,
                    )
                except BaseException:
                    pool.give_up()
                    raise
                here.puts = GroupedPuts(pool, self._table.dialect)
            return here.puts

    def _here(self) -> _Connected:
        """Return the state of this event loop, and forget the state of closed loops."""
        for loop in list(self._by_loop):  # a copy: another loop may add its own
            left = self._by_loop.pop(loop, None) if loop.is_closed() else None
            if left is not None and left.puts is not None:
                left.puts.pool.give_up()
        return self._by_loop.setdefault(asyncio.get_running_loop(), _Connected())


class GroupedPuts:
    """
    ``PUT`` in *dialect*, by the connections of *pool*, in groups.

    All deliveries that come while one statement runs share the next one.
    """

    def __init__(self, pool: Pool, dialect: PostgresDialect) -> None:
        self.pool: Pool = pool
        self._dialect = dialect
        self._waiting: list[_Put] = []
        self._running: asyncio.Task[None] | None = None

    async def put(self, delivery: Delivery) -> bool:
        """Store a delivery to be handled; ``False`` if its key is known."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, done))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="invsvc events put")
        return await done

    async def _run(self) -> None:
        group: list[_Put] = []
        try:
            while group := self._next_group():
                await self._store(group)
        finally:  # this task is cancelled if its event loop ends
            for _, done in (*group, *self._waiting):
                done.cancel()
            self._waiting.clear()

    def _next_group(self) -> list[_Put]:
        """Remove and return the deliveries of one statement, which can change each row only once."""
        group: list[_Put] = []
        left: list[_Put] = []
        keys: set[str | None] = set()
        size = 0
        for each in self._waiting:
            delivery, done = each
            if done.done():  # nobody waits for it any more
                continue
            size += len(delivery.body or b"")
            if delivery.key in keys or len(group) == _PUTS or (group and size > _BYTES):
                left.append(each)
            else:
                group.append(each)
                keys |= {delivery.key} - {None}
        self._waiting = left
        return group

    async def _store(self, group: Sequence[_Put]) -> None:
        """Store a group; after a refusal, each delivery alone, so that each fails only for its own error."""
        from invsvc_async.storage.postgres_pool import AWAY

        rows = [
            row_of(each, each.key or made_up_key(), (len(group) - number) / 1e6)
            for number, (each, _) in enumerate(group)
        ]
        try:
            in_order = sorted(rows, key=itemgetter(0))
            new = dict(
                await self.pool.fetch(
                    *self._dialect.translated(statements.PUT, (in_order,))
                )
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait get it
            if len(group) > 1 and not isinstance(error.__cause__, AWAY):
                for each in group:
                    await self._store([each])
                return
            for _, done in group:
                settle(done, result=False, error=error)
            return
        for (key, *_), (_, done) in zip(rows, group, strict=True):
            settle(done, new.get(key, False), None)
