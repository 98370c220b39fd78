"""
Run work on one SQLite connection in one thread, many pieces to a commit; never block the event loop.

A commit costs a disk flush.  Whatever was asked for while the last one ran shares the next: a burst of
deliveries costs few flushes, and each is answered only after its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from invsvc_async._errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Writer", "worded"]

T = TypeVar("T")
# Any: of each piece of work its own
Job: TypeAlias = "tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]"

_GROUP: Final = 256
_WORDS: Final = {
    "SQLITE_FULL": "the disk is full. Make room",
    "SQLITE_READONLY": "it cannot be written. Check the rights of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that the folder exists and may be written",
    "SQLITE_BUSY": "another process holds it. End that process, or give this one a file of its own",
    "SQLITE_LOCKED": "another process holds it. End that process, or give this one a file of its own",
    "SQLITE_CORRUPT": "it is damaged. Put it aside, and restore a copy",
    "SQLITE_NOTADB": "it is no SQLite database. Put it aside, or choose another path",
    "SQLITE_IOERR": "the disk fails. Look at the system's log",
}


def worded(error: sqlite3.Error, path: str) -> JournalError:
    """Say in words what ails the file at *path*."""
    name: str = getattr(error, "sqlite_errorname", "") or ""
    base = "_".join(name.split("_")[:2])
    return JournalError(f"{path}: {_WORDS.get(base, f'SQLite says: {error}. Look at the file')}.")


class Writer:
    """Own one connection, made by *connect* in the thread that uses it, to the file named *path*."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str) -> None:
        self._connect = connect
        self._path = path
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name=f"invsvc events {path}", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """
        Run *work* within a transaction, and return when that is on the disk.

        Raises:
            JournalError: The file cannot be used; nothing of *work* was kept.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return await future

    async def close(self) -> None:
        """Finish what was asked for, then close the connection."""
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _live(self) -> None:
        connection: sqlite3.Connection | None = None
        while (jobs := self._next()) is not None:
            try:
                connection = connection or self._connect()
                self._together(connection, jobs)
            except sqlite3.Error as error:
                _fail(jobs, worded(error, self._path))
            except Exception as error:  # noqa: BLE001 - whatever it is: a dead thread would leave its callers waiting
                _fail(jobs, error)
        if connection is not None:
            connection.close()

    def _next(self) -> list[Job] | None:
        first = self._jobs.get()
        if first is None:
            return None
        jobs = [first]
        while len(jobs) < _GROUP:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            jobs.append(job)
        return jobs

    def _together(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [work(connection) for work, _ in jobs]
            connection.execute("COMMIT")
        except Exception:
            if connection.in_transaction:  # SQLite itself rolls back when the disk is full
                connection.execute("ROLLBACK")
            if len(jobs) == 1:
                raise
        else:
            _settle([(future, result) for (_, future), result in zip(jobs, results, strict=True)])
            return
        for job in jobs:  # one of them is at fault: let it fail alone
            try:
                self._together(connection, [job])
            except sqlite3.Error as error:
                _fail([job], worded(error, self._path))


def _settle(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    def tell(future: asyncio.Future[Any], result: Any) -> None:  # Any: of each piece of work its own
        if not future.done():
            future.set_result(result)

    _in_their_loops(results, tell)


def _fail(jobs: Sequence[Job], error: Exception) -> None:
    def tell(future: asyncio.Future[Any], reason: Exception) -> None:  # Any: as above
        if not future.done():
            future.set_exception(reason)

    _in_their_loops([(future, error) for _, future in jobs], tell)


def _in_their_loops(
    told: Sequence[tuple[asyncio.Future[Any], T]], tell: Callable[[asyncio.Future[Any], T], None]
) -> None:
    """Tell each future in its own loop, with one visit to each: to wake a loop costs the most."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], T]]] = {}
    for future, what in told:
        by_loop.setdefault(future.get_loop(), []).append((future, what))
    for loop, ours in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_tell_all, ours, tell)


def _tell_all(
    told: Sequence[tuple[asyncio.Future[Any], T]], tell: Callable[[asyncio.Future[Any], T], None]
) -> None:
    for future, what in told:
        tell(future, what)
