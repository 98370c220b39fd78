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
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from invsvc_async.batch.journals.chunk_queue import Handed
from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_writer import Writer
from tests.interleavings.loop import START
from tests.support.database import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from tests.exhaustive.batches.stage import BatchStage

__all__ = ["FileJournal", "ScriptedFile", "SharedJournal", "inline_writers"]

T = TypeVar("T")

COMMIT = 0.08  # s: longer than a request needs to arrive and take effect
SILENCE = 2.0  # s after which a worker counts as dead
SLOW = 1.2  # s that a transaction takes if the schedule says so


class InlineWriter(Writer):
    """The writer of a SQLite journal without its thread: a group is committed in one step of the loop."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # Any: those of Writer
        super().__init__(*arguments, **named)
        self.connection: sqlite3.Connection | None = None

    def start_thread(self) -> None:
        """Open the connection; there is no thread."""
        try:
            self.connection = self._connect()
        except JournalError as error:
            self._died(error)
        else:
            self._open_succeeded()

    async def stop(self) -> None:
        """Commit what was asked for, and close."""
        self._ended = JournalError(f"{self._name}: it is closed. Open it again.")
        connection, self.connection = self.connection, None
        for jobs in (self._under_way, self._waiting):
            if connection is not None and jobs:
                self._commit(connection, jobs)
            for job in jobs:
                job.resolve()
        if connection is not None:
            connection.close()

    def _hand_over(self) -> None:
        if self._waiting and self._ended is None:
            self._under_way, self._waiting = self._waiting, []
            self._loop.call_later(COMMIT, self._land)

    def _land(self) -> None:
        if self.connection is not None:
            jobs = self._under_way
            is_clean = self._commit(self.connection, jobs)
            self._committed(jobs)
            if self._ended_group is not None:
                self._ended_group(self.connection, is_clean)


@contextmanager
def inline_writers() -> Iterator[None]:
    """Make journals in files commit on the loop."""
    with patch("invsvc_async.durable.sqlite_file.Writer", InlineWriter):
        yield


class ScriptedFile(SqliteBatch):
    """The journal of one process in the file of a scene."""

    def drop(self) -> None:
        """Do what the end of a killed process does: undo what is not committed, and close all files."""
        writer, self._writer, self._starting = self._writer or self._starting, None, None
        if isinstance(writer, InlineWriter) and writer.connection is not None:
            writer.connection.close()
            writer.connection = None
        self._release()


class FileJournal:
    """One file, which one process at a time opens."""

    is_shared = False

    def __init__(self, stage: BatchStage) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="walk")
        self.path = Path(self._folder.name) / "run.db"
        self.input = self.path.with_name("input.jsonl")
        self._copy = self.path.with_name("copy.db")

    def entries(self, _run: str, *, restored: bool) -> ScriptedFile:
        """Return what a process opens."""
        return ScriptedFile(self.path, restored=restored)

    def copy(self) -> None:
        """Copy the journal, without the file beside it."""
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    def put_back(self) -> None:
        """Put the copy in the place of the journal, which no process has open."""
        for end in ("-wal", "-shm"):
            self.path.with_name(f"run.db{end}").unlink(missing_ok=True)
        self._copy.replace(self.path)

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


# The clock of the database is that of the scene: these functions stand before those of PostgreSQL.
_CLOCK = """
CREATE SCHEMA IF NOT EXISTS invsvc_walk;
CREATE SEQUENCE invsvc_walk.walk_clock;
CREATE FUNCTION invsvc_walk.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT to_timestamp(last_value / 1e6) FROM invsvc_walk.walk_clock';
CREATE FUNCTION invsvc_walk.now() RETURNS timestamptz LANGUAGE sql AS
    'SELECT to_timestamp(last_value / 1e6) FROM invsvc_walk.walk_clock';
"""


class _FirstJournal(PostgresBatch):
    """The journal that makes the tables, and whose connections all others use."""

    async def connect(self, prepare: Callable[[Any], Awaitable[None]], **settings: str) -> None:
        """Connect with the functions of the schema before those of PostgreSQL."""
        settings["search_path"] += ", pg_catalog"

        async def prepared(connection: Any) -> None:
            await connection.execute(_CLOCK)
            await prepare(connection)

        await super().connect(prepared, **settings)

    async def connected(self, _connection: Any) -> None:
        """Accept that search path."""


class _Server:
    """The database of all scenes: one schema, emptied before each execution."""

    def __init__(self) -> None:
        self.bridge = _Bridge()
        self.address = database().journal("walk", silence=SILENCE)
        self._first = _FirstJournal(self.address)
        self.bridge.run(self._first.open())
        self.pool = _Pool(self._first._pool)
        self._facts = self.bridge.run(self._first.fetch("SELECT name, value FROM facts"))
        rows = self.bridge.run(self._first.fetch(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() "
            "AND table_type = 'BASE TABLE'"
        ))  # fmt: skip
        self._tables = [row[0] for row in rows]

    def empty(self) -> None:
        """Delete all rows."""

        async def empty(connection: Any) -> None:
            await connection.execute("; ".join(f"DELETE FROM {name}" for name in self._tables))  # noqa: S608 - its own tables
            await connection.executemany(
                "INSERT INTO facts VALUES ($1, $2)", [tuple(row) for row in self._facts]
            )

        self.bridge.run(self._first.ask(empty))

    def step(self, act: Callable[[], Coroutine[Any, Any, T]], now: float) -> T:
        """Run *act*, while the clock of the database shows *now*."""

        async def at_that_time() -> T:
            async with self._first.lent() as connection:
                await connection.execute(f"SELECT setval('walk_clock', {round(now * 1e6)})")
            return await act()

        return self.bridge.run(at_that_time())

    def fetch(self, text: str) -> list[Any]:
        """Return rows."""
        return self.bridge.run(self._first.fetch(text))


server = cache(_Server)


class Queue:
    """
    The queue of chunks as a model: it may assign a chunk again once its worker was silent for too long.

    It stands for pgqueuer, whose clock is that of the database. Like that one, it decides nothing: the
    journal does.
    """

    def __init__(self, stage: BatchStage) -> None:
        self._stage = stage
        self.waiting: list[int] = []
        self.taken: dict[int, tuple[str, float]] = {}  # by chunk: the worker, and its last sign of life
        self.owners: list[tuple[float, int, str]] = []

    def now(self) -> float:
        """Return the virtual time."""
        return self._stage.loop.now


class WorkerQueue:
    """The queue as one worker uses it, in place of ``Chunks``."""

    def __init__(self, queue: Queue, run: str) -> None:
        self._queue, self._run = queue, run

    async def give(self, _connection: Any, chunk: int) -> None:
        """Add *chunk*."""
        self._queue.waiting.append(chunk)

    async def take(self, *_: Any) -> Handed | None:
        """Return the next chunk that is free, or whose worker is silent."""
        queue = self._queue
        silent = [chunk for chunk, (_, beat) in queue.taken.items() if queue.now() > beat + SILENCE]
        chunk = queue.waiting.pop(0) if queue.waiting else silent[0] if silent else None
        if chunk is None:
            return None
        queue.taken[chunk] = self._run, queue.now()
        queue.owners.append((queue.now() - START, chunk, self._run))
        return Handed(chunk, None)

    async def beat(self, handed: Sequence[Handed]) -> None:
        """Record a sign of life, as pgqueuer does, without a look at who owns the chunk by now."""
        for each in handed:
            if each.chunk in self._queue.taken:
                self._queue.taken[each.chunk] = self._queue.taken[each.chunk][0], self._queue.now()

    async def end(self, handed: Handed) -> None:
        """Remove a chunk."""
        self._queue.taken.pop(handed.chunk, None)

    async def give_back(self, handed: Handed) -> None:
        """Return a chunk."""
        self._queue.taken.pop(handed.chunk, None)
        self._queue.waiting.append(handed.chunk)


class ScriptedPostgres(PostgresBatch):
    """The journal of one worker: each transaction is a step, whose reply may be slow."""

    def __init__(self, stage: BatchStage, queue: Queue, run: str) -> None:
        super().__init__(server().address)
        self._stage, self._run = stage, run
        self._queue: Any = WorkerQueue(queue, run)

    async def open(self) -> None:
        """Use the pool of all scenes."""
        self._pool, self.chunks = server().pool, self._queue

    async def listen(self, *_: Any) -> None:
        """Hear no signals: workers have to look for work themselves."""
        await asyncio.Event().wait()

    async def steadily(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run *act* in one step, after a while; its reply takes another while."""
        before, after = self._stage.transaction_times(self._run)
        await asyncio.sleep(before)
        result = server().step(partial(super().steadily, act), self._stage.loop.now)
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
        server().empty()
        self.queue = Queue(stage)

    def entries(self, run: str, *, restored: bool) -> ScriptedPostgres:
        """Return what a process opens."""
        return ScriptedPostgres(self._stage, self.queue, run)

    def close(self) -> None:
        """Do nothing."""
