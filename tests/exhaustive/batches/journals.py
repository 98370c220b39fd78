"""
The journals of the walk: the classes that ship, with their I/O as steps of the scripted loop.

A commit of SQLite, or a transaction of PostgreSQL, is one step: it happens as a whole, or its process was
killed before it. A reply can be late, or be lost with its process.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from asyncio import events
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from invsvc_async import ApiKey, Client
from invsvc_async.batch.entries import BatchEntries
from invsvc_async.client import options_of
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.tables import Opening
from tests.interleavings.execution import BASE
from tests.support.database import database
from tests.support.inline_writer import InlineWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from tests.exhaustive.batches.stage import BatchStage

__all__ = [
    "FileJournal",
    "ScriptedFile",
    "ScriptedPostgres",
    "Server",
    "SharedJournal",
    "inline_writers",
]

T = TypeVar("T")

# s to store an entry: longer than a request needs to arrive and take effect
COMMIT = 0.08
SCRIPT = 0.03  # s of any other group
SILENCE = 2.0  # s after which a worker counts as dead
SLOW = 1.2  # s that a transaction takes if the schedule says so
TOLD = 0.001  # s that a notification takes
# in the database: of the webhook, of the journey and, by its key, of a create
LANES = 3


class ScriptedWriter(InlineWriter):
    """Commits entries slowly, and anything else quickly."""

    def delay(self) -> float:
        return COMMIT if any(job.act is None for job in self._under_way) else SCRIPT


@contextmanager
def inline_writers() -> Iterator[None]:
    """Make journals in files commit on the loop."""
    with patch("invsvc_async.durable.store.sqlite.Writer", ScriptedWriter):
        yield


class ScriptedFile(SqliteStore):
    """The journal of one process in the file of a scene."""

    def drop(self) -> None:
        """Do what the end of a killed process does: undo what is not committed, and close all files."""
        writers = self._writer, self._ending
        self._writer = self._ending = None
        for writer in writers:
            if isinstance(writer, InlineWriter) and writer.connection is not None:
                writer.connection.close()
                writer.connection = None


class FileJournal:
    """One file, which one process at a time opens."""

    is_shared = False

    def __init__(self, stage: BatchStage) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="walk")
        self.path = Path(self._folder.name) / "run.db"
        self.input = self.path.with_name("input.jsonl")
        self._copy = self.path.with_name("copy.db")

    def entries(self, _run: str, *, restored: bool) -> BatchEntries:
        """Return what a process opens."""
        how = Opening("batch", 1, counted=True, run_by="the batch", restored=restored)
        return BatchEntries(ScriptedFile(self.path, how))

    def copy(self) -> None:
        """Copy the journal, without the file beside it."""
        with (
            closing(sqlite3.connect(self.path)) as source,
            closing(sqlite3.connect(self._copy)) as target,
        ):
            source.backup(target)

    def put_back(self) -> None:
        """Put the copy in the place of the journal, which no process has open."""
        for end in ("-wal", "-shm"):
            self.path.with_name(f"run.db{end}").unlink(missing_ok=True)
        self._copy.replace(self.path)

    def fetch(self, text: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []
            return connection.execute(text.format(s="")).fetchall()

    def close(self) -> None:
        """Delete the file."""
        self._folder.cleanup()


# --- PostgreSQL


class _Bridge:
    """An event loop on which transactions run while the scripted loop waits."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        scripted = events._get_running_loop()
        events._set_running_loop(None)
        try:
            return self.loop.run_until_complete(work)
        finally:
            events._set_running_loop(scripted)


class _Pool:
    """A pool that many journals use in turn, and none of them closes."""

    def __init__(self, pool: Any) -> None:  # Any: asyncpg has no types
        self.acquire, self.release = pool.acquire, pool.release

    def close(self) -> _Nothing:
        """Do nothing."""
        return _Nothing()


class _Nothing:
    """An awaitable that is done, and that need not be awaited."""

    def __await__(self) -> Iterator[None]:
        return iter(())


class Server:
    """The database of all scenes of a *kind*: one schema, emptied before each execution."""

    def __init__(self, kind: str) -> None:
        self.bridge = _Bridge()
        self.kind, self.address = (
            kind,
            database().at(**{kind: "walk", "silence": SILENCE}),
        )
        self.how = Opening(kind)
        if kind != "journal":
            self.how = Opening(
                kind, LANES, counted=kind == "batch", run_by=f"the {kind}"
            )
        first = self._first = PostgresStore(self.address, self.how)
        core = (
            None
            if kind == "batch"
            else options_of(Client(BASE, ApiKey("abcdefghij"))).core
        )
        self.bridge.run(first.open_for(core, same_mode=False))
        self.schema = first.schema
        self.version = first.version
        self.dialect = first._dialect
        self.pool = _Pool(first._pool)
        self.bridge.run(first.rows("CREATE SEQUENCE {s}walk_clock"))
        self._facts = [
            tuple(row) for row in self.fetch("SELECT name, value FROM {s}facts")
        ]
        names = self.fetch(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{first.schema}'"
        )
        # The clock of the database is that of the scene.
        self.dialect._known.clear()
        now = f"(SELECT last_value / 1e6 FROM {first.schema}.walk_clock)::float8"
        self.dialect._names["now"] = now
        self.dialect._names["ms"] = f"floor({now} * 1000)"
        self._tables = [
            name for (name,) in names if name != "lanes" or kind == "journal"
        ]

    def empty(self) -> None:
        """Delete all rows, and release all lanes."""

        async def empty(connection: Any) -> None:  # Any: asyncpg has no types
            texts = [f"DELETE FROM {self.schema}.{name}" for name in self._tables]
            await connection.execute(
                "; ".join([*texts, f"UPDATE {self.schema}.lanes SET owner = NULL"])
            )
            await connection.executemany(
                f"INSERT INTO {self.schema}.facts VALUES ($1, $2)", self._facts
            )

        self.bridge.run(self._first.ask(empty))

    def step(self, act: Callable[[], Coroutine[Any, Any, T]], now: float) -> T:
        """Run *act*, while the clock of the database shows *now*."""

        async def at_that_time() -> T:
            async with self._first.lent() as connection:
                await connection.execute(
                    f"SELECT setval('{self.schema}.walk_clock', {round(now * 1e6)})"
                )
            return await act()

        return self.bridge.run(at_that_time())

    def fetch(self, text: str) -> list[Any]:
        return [*self.bridge.run(self._first.rows(text))]


server = cache(Server)  # by kind: one database has one of each


class ScriptedPostgres(PostgresStore):
    """The journal of one worker: each transaction is a step, whose reply may be slow."""

    def __init__(
        self, stage: BatchStage, ears: list[Callable[[str], None]], run: str, at: Server
    ) -> None:
        super().__init__(at.address, at.how)
        self._stage, self._ears, self._run, self._server = stage, ears, run, at

    async def open_for(self, *_: Any, **__: Any) -> None:
        """Use the pool of all scenes."""
        self._pool: Any = self._server.pool
        self.schema, self._dialect = self._server.schema, self._server.dialect
        self.version = self._server.version
        await self.check_place()

    async def listen(self, woken: Callable[[str], None]) -> None:
        """Hear what others tell, a moment later."""
        context = copy_context()

        def told(what: str) -> None:
            self._stage.loop.call_later(TOLD, woken, what, context=context)

        self._ears.append(told)
        try:
            woken("")
            await asyncio.Event().wait()
        finally:
            self._ears.remove(told)

    async def notify(self, *what: str) -> None:
        """Store that, in a step of its own, and let others hear it."""
        await super().notify(*what)
        for told in [*self._ears]:
            for each in what:
                told(each)

    async def steadily(  # Any: asyncpg's connection
        self, act: Callable[[Any], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """Run *act* in one step, after a while; its reply takes another while."""
        before, after = self._stage.transaction_times(self._run)
        await asyncio.sleep(before)
        result = self._server.step(
            partial(super().steadily, act, is_first=is_first), self._stage.loop.now
        )
        await asyncio.sleep(after)
        return result

    def _check_loop(self) -> None:
        """Accept the loop of the server, in which transactions run."""

    def drop(self) -> None:
        """Do nothing: the server ends transactions of a dead process by itself."""


class SharedJournal:
    """One schema, which any number of workers open."""

    is_shared = True

    def __init__(self, stage: BatchStage) -> None:
        self._stage = stage
        self._ears: list[Callable[[str], None]] = []  # of those that listen
        server("batch").empty()

    def entries(self, run: str, *, restored: bool) -> BatchEntries:
        """Return what a process opens."""
        return BatchEntries(
            ScriptedPostgres(self._stage, self._ears, run, server("batch"))
        )

    def fetch(self, text: str) -> list[Any]:
        return server("batch").fetch(text)

    def close(self) -> None:
        """Do nothing."""
