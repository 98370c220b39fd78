"""The application's own SQLite file, in which its transactions insert rows for an outbox."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.store import application_table
from invsvc_async.durable.store.sqlite import DIALECT
from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_file import SameFile
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.enqueued import Statement
    from invsvc_async.storage.dialect import Cell


_SLOW = 0.5
_FAST = 0.01  # s between looks for new rows; fast for a while after an enqueue in this process
_FAST_FOR = 5.0  # s
_PATIENCE = 5.0  # s to wait for a lock of the application


class ApplicationFile:
    """The application's file at *path*, as far as the outbox for *base_url* uses it: a table of rows."""

    def __init__(self, path: str | Path, base_url: str) -> None:
        self.path: Path = Path(path)
        self.base_url: str = base_url
        self.commons: Commons = Commons()  # of the store into which rows are moved
        self._writer: Writer | None = None  # the thread that has the file
        self.has_more: bool = True  # whether its table is of the second version
        self._fast_until = 0.0  # loop time
        self._enqueued = asyncio.Event()

    async def open(self, *, reading: bool) -> None:
        """
        Open the file, and create what is missing; with *reading*, change nothing.

        Raises:
            JournalError: It cannot be used, or its table is of another version.
        """
        name = f"outbox {self.path}"
        same = SameFile(self.path.absolute(), name, "all that use it")
        connect = partial(_connected, self.path, name, reading=reading)
        writer = Writer(name, connect, check=lambda _: same.check())
        try:
            await writer.start()
        except BaseException:  # also if it is cancelled: nobody else knows the thread
            writer.end()
            raise
        same.remember()
        self._writer = writer
        self.has_more = await writer.act(application_table.has_more)

    async def aclose(self) -> None:
        """Close the file, if it is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()

    @property
    def table(self) -> Writer:
        """The thread that has the application's file."""
        if self._writer is None:
            raise JournalError(
                f"outbox {self.path}: it is not open. Use it with `async with`."
            )
        return self._writer

    async def do(self, statement: Statement) -> list[Cell]:
        """Run *statement*, and return its rows."""
        return await self.table.act(
            lambda connection: connection.execute(
                *DIALECT.translated(*statement)
            ).fetchall()
        )

    async def rows(self, statement: Statement) -> list[Entry]:
        """Select rows as entries that are to do; ``seq`` is that of the row, without an intent if moved."""
        entries: list[Entry] = []
        if not self.has_more:
            statement = application_table.of_first(statement)
        for row in await self.do(statement):
            entry, common = application_table.entry_of_row(row)
            if entry.common is not None:
                self.commons.texts[entry.common] = common
            entries.append(entry)
        return entries

    def note_enqueued(self) -> None:
        """Note that this process has inserted a row: the table is looked at more often for a while."""
        self._fast_until = asyncio.get_running_loop().time() + _FAST_FOR
        self._enqueued.set()

    async def until_next_look(self) -> None:
        """Wait until it is time to look for new rows."""
        fast = asyncio.get_running_loop().time() < self._fast_until
        self._enqueued.clear()
        await set_within(self._enqueued, _FAST if fast else _SLOW)
        if not fast and self._enqueued.is_set():
            await asyncio.sleep(_FAST)


def _connected(
    path: Path,
    name: str,
    *,
    reading: bool,
) -> sqlite3.Connection:
    """Connect to *path*, and create the tables that are missing; with *reading*, change nothing."""
    with ExitStack() as opened:
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        opened.callback(connection.close)
        if reading:
            connection.execute("PRAGMA query_only = 1")
        else:
            application_table.create(connection)
            application_table.upgrade(connection)
        if not application_table.is_known(connection):
            raise JournalError(
                f"{name}: its table invsvc_outbox is of another version. Use the version of the package that "
                "created it, or a newer one."
            )
        opened.pop_all()
        return connection
