"""The journals of the walk: those of ``tests.exhaustive.batches``, for each use, with replies that are lost."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from invsvc_async.durable.store import sqlite as sqlite_store
from invsvc_async.durable.store.opening import file_at
from invsvc_async.durable.store.sqlite import DIALECT
from invsvc_async.durable.store.tables import Opening, create
from invsvc_async.storage.file_lock import LockedConnection
from tests.exhaustive.batches.journals import (
    ScriptedFile,
    ScriptedPostgres,
    ScriptedWriter,
    server,
)
from tests.interleavings.loop import RUN
from tests.walk.signals import no_signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.walk.stage import WalkStage

T = TypeVar("T")


class WalkWriter(ScriptedWriter):
    """A writer that no signal interrupts as it opens, commits or closes: its thread does that."""

    stage: ClassVar[WalkStage]

    def start_thread(self) -> None:
        with no_signal():
            super().start_thread()

    def _commit(self, connection: sqlite3.Connection, jobs: list[Any]) -> bool:
        with no_signal():
            self.stage.before_commit(RUN.get())
            return super()._commit(connection, jobs)

    def _close(self, connection: sqlite3.Connection) -> None:
        with no_signal():
            super()._close(connection)


class WalkConnection(LockedConnection):
    """A connection to a file, whose statements have the time of day of the process that runs them."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.create_function("julianday", 1, _julian_day)


def _julian_day(_now: str) -> float:
    return time.time() / 86_400.0 + 2_440_587.5


class WalkPostgres(ScriptedPostgres):
    """The store of one process in PostgreSQL."""

    _stage: WalkStage  # type: ignore[assignment]

    async def steadily(  # Any: asyncpg's connection
        self, act: Callable[[Any], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """
        Run *act* in one step; if the program says so, its reply is lost, and the pool tries again.

        Meanwhile others go on: until the loss is noticed, as long as a reply takes.
        """
        stage = self._stage
        before, after, is_lost = stage.transaction(self._run)
        await asyncio.sleep(before)
        if is_lost:
            self._step(act, is_first=is_first)
            await asyncio.sleep(after)
        result = self._step(act, is_first=is_first)
        await asyncio.sleep(after)
        return result

    def _step(self, act: Callable[[Any], Awaitable[T]], *, is_first: bool) -> T:
        steadily = super(ScriptedPostgres, self).steadily
        with no_signal():
            return self._server.step(
                partial(steadily, act, is_first=is_first), self._stage.database_time()
            )


@cache
def _new_file(kind: str) -> bytes:
    """Return a file with the tables of a store of *kind*, which no process has opened yet: to make it takes long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            DIALECT.run(connection, create(opening_of(kind)))
            connection.execute(f"PRAGMA application_id = {sqlite_store._APPLICATION}")
        return path.read_bytes()


def opening_of(kind: str) -> Opening:
    """Return how a file of *kind* is opened."""
    return file_at("run.db", kind).how


class WalkFile:
    """A file, which one process at a time opens."""

    is_shared = False

    def __init__(self, kind: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="walk")
        self.path = Path(self._folder.name) / "run.db"
        self.beside = self.path  # the file with the entries
        if kind != "outbox":
            self.path.write_bytes(_new_file(kind))

    def store(self, _run: str, kind: str) -> ScriptedFile:
        """Return the store of *kind* that a process opens."""
        return self.store_at(self.path, kind)

    def store_at(self, path: Path, kind: str, **_: bool) -> ScriptedFile:
        """Return the store of *kind* in the file at *path*."""
        self.beside = path
        return ScriptedFile(path, opening_of(kind))

    def fetch(self, text: str) -> list[Any]:
        """Return the rows of a statement; none if there are no tables yet."""
        with closing(sqlite3.connect(self.beside)) as connection:
            if not connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'entries'"
            ).fetchone():
                return []
            return connection.execute(text.format(s="")).fetchall()

    def close(self) -> None:
        self._folder.cleanup()


class WalkDatabase:
    """A schema, which any number of processes open."""

    is_shared = True

    def __init__(self, stage: WalkStage, kind: str) -> None:
        self._stage = stage
        self.ears: list[Callable[[str], None]] = []
        self.server = server(kind)
        self.server.empty()

    def store(self, run: str, _kind: str) -> WalkPostgres:
        return WalkPostgres(self._stage, self.ears, run, self.server)

    def fetch(self, text: str) -> list[Any]:
        return self.server.fetch(text)

    def close(self) -> None:
        """Do nothing."""
