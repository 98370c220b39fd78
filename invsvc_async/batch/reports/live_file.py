"""A batch's file, read while another process writes it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.durable.sqlite_file import fact
from invsvc_async.durable.sqlite_store import DIALECT
from invsvc_async.durable.store import ENTRY, entry_in
from invsvc_async.errors import JournalError
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.table_version import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.transport.session import ClientState

__all__ = ["LiveFile"]

T = TypeVar("T")
_PATIENCE = 2.0  # s to wait for a lock


class LiveFile:
    """
    The part of a store that reads, without owning or checking the file.

    Each statement has a connection of its own: one that stays open would keep the batch from merging the
    file's log into the file at its end.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).resolve()
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self._name = f"journal {self._path}"

    async def open_for(self, session: ClientState | None, *, same_mode: bool) -> None:
        """
        Check that it is the journal of a batch.

        Raises:
            JournalError: It is not, or it is of another version, or cannot be read.

        """
        del session, same_mode
        await self._ask(lambda _connection: None)

    async def aclose(self) -> None:
        """Do nothing: the file is open only while it is read."""

    async def rows(self, text: str, *values: Any) -> Sequence[Any]:  # Any: as the columns
        """Run one statement, and return its rows."""
        return await self._ask(
            lambda connection: connection.execute(*DIALECT.translated(text, values)).fetchall()
        )

    async def entries(self, where: str, *values: Any) -> list[Entry]:  # Any: as the columns
        """Select entries; *where* is our own text, and calls the table *e*."""
        text = f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE {where}"  # noqa: S608 - our own text
        return [entry_in(row) for row in await self.rows(text, *values)]

    def changed(self) -> int | None:
        """Return when the file was changed last, in epoch ms."""
        found: list[float] = []
        for path in (self._path, self._log):
            with suppress(OSError):
                found.append(path.stat().st_mtime)
        return round(max(found) * 1000) if found else None

    async def _ask(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run *act* on a thread."""

        def ask() -> T:
            with closing(self._connect()) as connection:
                self._check(connection)
                return act(connection)

        try:
            return await asyncio.to_thread(ask)
        except (sqlite3.Error, ValueError) as error:  # ValueError: no such verdict
            raise in_words(self._name, error) from error

    def _connect(self) -> sqlite3.Connection:
        # Without a log no process uses the file, and opening it otherwise would leave an empty log.
        is_used = self._log.exists()
        place = f"{self._path.as_uri()}?mode=ro{'' if is_used else '&immutable=1'}"
        return sqlite3.connect(place, uri=True, timeout=_PATIENCE, isolation_level=None)

    def _check(self, connection: sqlite3.Connection) -> None:
        has_facts = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone()
        if not has_facts or fact(connection, "kind") != "a batch":
            raise JournalError(f"{self._name}: it is not the journal of a batch. Check the path.")
        check_version(self._name, fact(connection, "schema"))
