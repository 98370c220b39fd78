"""
An event store in one SQLite file, durable across kills and power cuts.

Several processes of one machine may share the file.  Its mode is 0600, because bodies contain personal data;
they are deleted once handled.

Leases are timed by the machine's monotonic clock, which all its processes share.  Setting the wall clock
neither ends nor prolongs a lease.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from invsvc_async.events.stores.scripts import PUT, How, ScriptedStore, in_slices
from invsvc_async.events.stores.sqlite_file import Clock, begin, connect, connect_again, dialect_of
from invsvc_async.events.stores.sqlite_upkeep import Upkeep, shrink_some, write_aside
from invsvc_async.storage.address import check_path
from invsvc_async.storage.dialect import MOST, SqliteDialect, slices
from invsvc_async.storage.sqlite_file import SameFile, in_words
from invsvc_async.storage.sqlite_writer import Writer, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.events.stores import Delivery
    from invsvc_async.storage.dialect import Script

__all__ = ["SqliteStore"]

T = TypeVar("T")

_SLICE: Final = 0.02  # s that one transaction of prune is to take, until it is in the file
_PATIENCE: Final = 100  # ms that such a transaction waits until no delivery waits


class SqliteStore(ScriptedStore):
    """
    Store deliveries in the file at *path*, which is created if it does not exist.

    A power cut loses nothing that was answered 2xx, because every commit is flushed.  *clock* returns seconds
    since the epoch, for display and for ``prune``.  *steady* times leases, in seconds of one clock for all
    processes that share the file.  *wait* is how many seconds another process may lock the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        wait: float = 5.0,
    ) -> None:
        self._path = os.fspath(path)
        check_path(self._path, "store")
        self._name = f"event store {self._path}"
        self._clock = clock
        self._steady = steady
        self._wait = wait
        self._files: dict[asyncio.AbstractEventLoop, _File] = {}

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    async def open(self) -> None:
        """
        Open the file, or create it; does nothing if it is open.

        The first time after a start of the machine, and if it is a copy, the file is searched for damage.  In
        more than 8 MiB it is found later; then every method raises.

        Raises:
            JournalError: It is foreign, damaged, of a newer version, locked, or not writable.
        """
        await self._run(lambda _: None)

    async def close(self) -> None:
        """Finish all requests of this event loop and close the file; the next use opens it again."""
        file = self._files.pop(asyncio.get_running_loop(), None)
        if file is not None:
            await file.close()
        await self._stop_left()

    async def prune(
        self, *, older_than: float, bodies: float | None = None, dead: float | None = None
    ) -> int:
        """
        Delete what was handled longer ago; such an event would be handled again if it came again.

        The file then shrinks.
        """
        pruned = await super().prune(older_than=older_than, bodies=bodies, dead=dead)
        await self._aside(lambda _, db, rows: shrink_some(db, rows))
        return pruned

    async def _put(self, delivery: Delivery) -> bool | None:
        new: bool | None = await (await self._opened()).writer.store(delivery)
        return new

    async def _ask(self, script: Callable[[], Script[T]], how: How) -> T:
        if how == "to read":
            return await self._elsewhere(lambda file, db: file.dialect.run(db, script()))
        file = await self._opened()
        return await file.writer.run(file.dialect, script)  # always together

    async def _in_slices(self, script: Callable[[int], Script[int]]) -> int:
        return await self._aside(lambda file, db, rows: file.dialect.run(db, script(rows)))

    async def _aside(self, work: Callable[[_File, sqlite3.Connection, int], int]) -> int:
        """Repeat *work* on so many rows while there are more; deliveries that wait go first."""

        async def run(rows: int) -> int:
            file = self._files.get(asyncio.get_running_loop())
            for _ in range(_PATIENCE):
                if file is None or file.writer.is_idle:
                    break
                await asyncio.sleep(0.001)
            return await self._elsewhere(
                lambda file, db: write_aside(db, lambda: work(file, db, rows), self._wait)
            )

        return await in_slices(run, seconds=_SLICE)

    async def _elsewhere(self, work: Callable[[_File, sqlite3.Connection], T]) -> T:
        """Run *work* on a connection of its own, because a reader holds no delivery up."""
        await self._run(lambda _: None)  # so that the file exists
        file = await self._opened()

        def run() -> T:
            try:
                with closing(connect_again(file.path, self._wait)) as db:
                    return work(file, db)
            except sqlite3.Error as error:
                raise in_words(self._name, error) from error

        return await asyncio.to_thread(run)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await (await self._opened()).writer.act(work)

    async def _opened(self) -> _File:
        loop = asyncio.get_running_loop()
        file = self._files.get(loop)
        if file is None:
            await self._stop_left()
            file = self._files.get(loop)
        if file is None or file.writer.has_ended:
            if file is not None:
                file.upkeep.end()
            file = self._files[loop] = self._new_file()
        if file.upkeep.failure is not None:
            raise file.upkeep.failure
        return file

    def _new_file(self) -> _File:
        path = os.path.abspath(self._path)  # noqa: PTH100 - the process may change its folder later
        upkeep, same = Upkeep(path, self._name), SameFile(Path(path), self._name, "all its receivers")
        clock = Clock(self._steady)

        def connecting() -> sqlite3.Connection:
            db = connect(path, self._name, self._wait, clock)
            try:
                same.remember()
                upkeep.start(db)
                db.execute("PRAGMA busy_timeout = 0").fetchall()  # from now on, ``begin`` waits
            except BaseException:
                db.close()
                raise
            return db

        # IMMEDIATE, because a transaction that starts as a reader fails if another process writes.
        beginning = partial(begin, wait=self._wait)

        def storing(db: sqlite3.Connection, deliveries: list[Delivery]) -> list[bool | None]:
            with transaction(db, beginning):
                return file.put_all(db, deliveries)

        writer = Writer(
            self._name, connecting, storing, begin=beginning, check=same.check, ended=upkeep.committed
        )
        file = _File(path, writer, upkeep, dialect_of(clock, self._clock))
        writer.start_thread()
        return file

    async def _stop_left(self) -> None:
        """Finish the requests of event loops that are closed by now."""
        for loop in list(self._files):  # a copy: another loop may add its own
            if loop.is_closed() and (file := self._files.pop(loop, None)) is not None:
                await file.close()


@attrs.frozen
class _File:
    """The file as one event loop uses it, at an absolute *path*."""

    path: str
    writer: Writer
    upkeep: Upkeep
    dialect: SqliteDialect

    def put_all(self, db: sqlite3.Connection, deliveries: Sequence[Delivery]) -> list[bool | None]:
        """Store deliveries by ``PUT``; return the result of each."""
        results: list[bool | None] = []
        for some in slices(deliveries, MOST):
            # sqlite3 looks for an adapter of each value of another type than these, also of bytes.
            rows = [
                (each.key, each.type, None if each.body is None else bytearray(each.body), each.handler, 0.0)
                for each in some
            ]
            new = dict(db.execute(*self.dialect.translated(PUT, (rows,))))
            # One without a key is new; of several with one key, the first is.
            results += (each.key is None or new.pop(each.key, False) for each in some)
        return results

    async def close(self) -> None:
        """End both threads, and wait until they have ended.  They also end if this is cancelled."""
        self.upkeep.end()
        await self.writer.stop()
        await self.upkeep.stop()
