"""A store of writes in one SQLite file, which one process uses at a time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.durable.entry import State
from invsvc_async.durable.epoch import Epoch
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.restored import mark_restored
from invsvc_async.durable.sqlite_file import APPLICATION, SqliteFile
from invsvc_async.durable.store import ENTRY, Owned, entry_in, keep
from invsvc_async.durable.tables import create
from invsvc_async.storage.dialect import MOST, SqliteDialect
from invsvc_async.storage.slices import slices
from invsvc_async.storage.sqlite_writer import transaction

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.last_writes import Left
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState

__all__ = ["SqliteStore"]

T = TypeVar("T")

_DIALECT = SqliteDialect(
    s="",
    serial="INTEGER PRIMARY KEY AUTOINCREMENT",  # the number of a deleted entry is not given again
    filled="",
    durably="1",
    now="((julianday('now') - 2440587.5) * 86400.0)",
)
# The lock of the file shows that whoever had it before is dead.
_FREE = "UPDATE lanes SET owner = NULL"
_COUNT = "UPDATE facts SET value = value + ? WHERE name = 'sends'"


class SqliteStore(SqliteFile):
    """
    The store of *kind* in the file at *path*.

    A file that was put back from an older copy is recognised by the file ``.epoch`` beside it.  *it* is what
    errors advise to run; without it, that is logged, and what is open is settled as if it had been sent
    since.
    """

    silence: float = inf

    def __init__(self, path: str | Path, kind: str, *, it: str | None = None, reading: bool = False) -> None:
        super().__init__(path, kind, reading=reading)
        self.commons: Commons = Commons(shared=True)
        self._stored_commons: set[int] = set()
        self._storing: list[int] = []  # common parts that the current group stores
        self._sends = 0  # entries that the current group has stored as about to be sent
        self._epoch = Epoch(self.path, self._name, mark=partial(self._do, mark_restored), it=it)

    async def open_for(self, session: ClientState | None, *, same_mode: bool) -> None:
        """
        Acquire the file, or create it.

        Raises:
            JournalError: Another process owns it; it is damaged, not of this kind, or of another version; the
                folder is not writable.

        """
        del session, same_mode  # of each entry that is settled
        await self.open()

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Run a new *script* in a transaction, after all earlier requests."""
        return await self._open_writer.run(_DIALECT, script)

    async def rows(self, text: str, *values: Any) -> Sequence[Any]:  # Any: as the columns
        """Run one statement, and return its rows."""
        return await self.ask(
            lambda connection: connection.execute(*_DIALECT.translated(text, values)).fetchall()
        )

    async def entries(self, where: str, *values: Any) -> list[Entry]:  # Any: as the columns
        """Select entries; *where* is our own text, and calls the table *e*."""
        text = f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE {where}"  # noqa: S608 - our own text
        return [entry_in(row) for row in await self.rows(text, *values)]

    def put(self, entry: Entry, lane: Owned, left: Left | None = None) -> asyncio.Future[None]:
        """Store *entry* together with others; the future completes once it is on the disk."""
        del left  # of journals, whose entries end with their verdicts
        return self._open_writer.store((entry, lane))

    def forget(self, keys: Sequence[str]) -> None:
        """Delete entries, without waiting: the event loop may be closed."""
        marks = [(key,) for key in keys]
        self.ask(
            lambda connection: connection.executemany("DELETE FROM entries WHERE key = ?", marks) and None
        )

    async def idle(self) -> None:
        """Do nothing: what is pending is stored before what is requested next."""

    @asynccontextmanager
    async def hurried(self) -> AsyncGenerator[None]:
        """Do nothing: a file answers soon."""
        yield

    # --- on the writer's thread

    def _do(self, script: Callable[[], Script[T]], connection: sqlite3.Connection) -> T:
        return _DIALECT.run(connection, script())

    def _create(self, connection: sqlite3.Connection) -> None:
        with transaction(connection, "BEGIN IMMEDIATE"):
            self._do(lambda: create(lanes=0, kind=self.kind), connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        super()._prepare(connection)
        if not self._reading:
            self._epoch.begin(connection)
            connection.execute(_FREE)

    def _load(self, connection: sqlite3.Connection) -> None:
        super()._load(connection)
        for number, text in connection.execute("SELECT number, text FROM commons"):
            self.commons.load(number, text)
            self._stored_commons.add(number)

    def _release(self) -> None:
        self._epoch.close()
        super()._release()

    def _store_group(self, connection: sqlite3.Connection, values: list[tuple[Entry, Owned]]) -> None:
        last = {entry.key: (entry, lane) for entry, lane in values}  # the later one counts
        sends = sum(entry.state is State.SENDING for entry, _ in last.values())
        with transaction(connection):
            self._store_commons(connection)
            for some in slices([*last.values()], MOST):
                connection.execute(*_DIALECT.translated(*keep(some))).fetchall()
            if sends:
                connection.execute(_COUNT, (sends,))
        self._sends += sends

    def _store_commons(self, connection: sqlite3.Connection) -> None:
        if len(self._stored_commons) == len(self.commons.texts):
            return
        fresh = [each for each in [*self.commons.texts.items()] if each[0] not in self._stored_commons]
        connection.executemany("INSERT INTO commons VALUES (?, ?) ON CONFLICT DO NOTHING", fresh)
        self._storing = [number for number, _ in fresh]

    def _group_ended(self, connection: sqlite3.Connection, is_clean: bool) -> None:  # noqa: FBT001 - of Writer
        """Repeat beside the file how many sends a group has stored."""
        sends, self._sends = self._sends, 0
        stored, self._storing = self._storing, []
        if is_clean:
            self._stored_commons.update(stored)
        self._epoch.ended(connection, sends if is_clean else None)
