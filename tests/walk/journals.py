"""The journals of the walk: those of ``tests.exhaustive.batches``, for each use, with replies that are lost."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

import asyncpg

from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.tables import Opening
from tests.exhaustive.batches.journals import ScriptedFile, ScriptedPostgres, ScriptedWriter, Server
from tests.walk.signals import no_signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.walk.stage import WalkStage

T = TypeVar("T")
server = cache(partial(Server))  # by kind


class WalkWriter(ScriptedWriter):
    """A writer whose commits no signal interrupts: they run on a thread of their own."""

    def start_thread(self) -> None:
        with no_signal():
            super().start_thread()

    def _commit(self, connection: sqlite3.Connection, jobs: list[Any]) -> bool:
        with no_signal():
            return super()._commit(connection, jobs)


class WalkPostgres(ScriptedPostgres):
    """The store of one process in PostgreSQL."""

    _stage: WalkStage  # type: ignore[assignment]

    async def steadily(  # Any: asyncpg's connection
        self, act: Callable[[Any], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """Run *act* in one step; if the program says so, its reply is lost, and the pool tries again."""
        stage = self._stage
        before, after, is_lost = stage.transaction(self._run)
        await asyncio.sleep(before)
        if is_lost:
            act = with_lost_reply(act)
        steadily = super(ScriptedPostgres, self).steadily
        with no_signal():
            result = self._server.step(partial(steadily, act, is_first=is_first), stage.database_time())
        await asyncio.sleep(after)
        return result


def with_lost_reply(act: Callable[[Any], Awaitable[T]]) -> Callable[[Any], Awaitable[T]]:
    """Return *act*, whose first reply is lost."""
    tries: list[None] = []

    async def lost(connection: Any) -> T:
        result = await act(connection)
        tries.append(None)
        if len(tries) == 1:
            raise asyncpg.ConnectionDoesNotExistError("the reply was lost")
        return result

    return lost


class WalkFile:
    """A file, which one process at a time opens."""

    is_shared = False

    def __init__(self, stage: WalkStage) -> None:
        self.stage = stage
        self._folder = tempfile.TemporaryDirectory(prefix="walk")
        self.path = Path(self._folder.name) / "run.db"

    def store(self, _run: str, how: Opening) -> ScriptedFile:
        return ScriptedFile(self.path, how)

    def fetch(self, text: str) -> list[Any]:
        """Return the rows of a statement; none if there are no tables yet."""
        with closing(sqlite3.connect(self.path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone():
                return []
            return connection.execute(text.format(s="")).fetchall()

    def close(self) -> None:
        self._folder.cleanup()


class WalkDatabase:
    """A schema, which any number of processes open."""

    is_shared = True

    def __init__(self, stage: WalkStage, kind: str) -> None:
        self.stage = stage
        self.ears: list[Callable[[str], None]] = []
        self.server = server(kind)
        self.server.empty()

    def store(self, run: str, _how: Opening) -> WalkPostgres:
        return WalkPostgres(self.stage, self.ears, run, self.server)

    def fetch(self, text: str) -> list[Any]:
        return self.server.fetch(text)

    def close(self) -> None:
        """Do nothing."""


def client_journal(store: Any) -> ClientJournal:
    """Return the journal of a client, in *store*."""
    with patch("invsvc_async.durable.journal.store_at", lambda *_: store):
        return ClientJournal("postgresql://walk?namespace=walk")
