"""
Own a SQLite connection on one thread and commit what is asked of it in groups; never on the event loop's
thread.

One commit serves everybody who asked while the one before it was under way: a commit that is on the disk
costs milliseconds, however much is in it.
"""

from __future__ import annotations

import asyncio
import sqlite3  # noqa: TC003 - typer reads the types
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from invsvc_async.batch.words import in_words
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Writer"]

T = TypeVar("T")

_AT_ONCE = 4096  # jobs in one commit, at most


@attrs.define(eq=False)
class _Job:
    """One thing asked for: *act* runs in the transaction, *row* is stored with the others of its group."""

    done: asyncio.Future[Any]  # Any: what *act* gives
    key: str = ""
    row: tuple[Any, ...] | None = None  # Any: a row of the table; with a key and none, the row is taken out
    act: Callable[[sqlite3.Connection], Any] | None = None
    result: Any = None
    error: Exception | None = None


class Writer:
    """
    The thread.  It belongs to the event loop that started it.

    *connect* opens the connection, *store* writes ``{key: row or None}`` (``None``: take it out); both run
    on the thread.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        store: Callable[[sqlite3.Connection, dict[str, tuple[Any, ...] | None]], None],
    ) -> None:
        self._name = name
        self._connect = connect
        self._store = store
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, name=f"journal {name}", daemon=True)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: JournalError | None = None
        self._lock = threading.Lock()  # between putting a job in and finding the thread dead

    async def start(self) -> None:
        """
        Open the connection.

        Raises:
            JournalError: It cannot be opened.

        """
        self._thread.start()
        await asyncio.shield(self._opened)

    async def stop(self) -> None:
        """Commit what was asked for, and close."""
        self._jobs.put(None)
        while self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def store(self, key: str, row: tuple[Any, ...] | None) -> asyncio.Future[None]:
        """Store *row* under *key*, or take out what is there; the future is done once that is on the disk."""
        return self._put(_Job(self._loop.create_future(), key=key, row=row))

    def act(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run *act* in a transaction, after all that was asked for before; the future has what it gives."""
        return self._put(_Job(self._loop.create_future(), act=act))

    def _put(self, job: _Job) -> asyncio.Future[Any]:  # Any: as the job
        with self._lock:
            if self._ended is None:
                self._jobs.put(job)
            else:
                job.done.set_exception(self._ended)
        return job.done

    # --- on the thread

    def _live(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._end(error)
            self._tell(self._open_failed)
            return
        self._tell(self._open_succeeded)
        try:
            while jobs := self._gather():
                self._commit(connection, jobs)
            self._end(None)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._end(error)
        finally:
            connection.close()

    def _gather(self) -> list[_Job]:
        """Wait for a job and take all that are there; nothing: the end."""
        job = self._jobs.get()
        jobs: list[_Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) >= _AT_ONCE or self._jobs.empty():
                return jobs
            job = self._jobs.get()
        if jobs:
            self._jobs.put(None)  # the end comes round again
        return jobs

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Commit *jobs* together; if that fails, each by itself, so that none fails for another's sake."""
        try:
            connection.execute("BEGIN")
            self._run(connection, jobs)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, Exception) and len(jobs) > 1:
                for job in jobs:
                    self._commit(connection, [job])
                return
            failure = in_words(self._name, error)
            for job in jobs:
                job.error = failure
            if not isinstance(error, Exception):
                self._tell(_resolve, jobs)
                raise
        self._tell(_resolve, jobs)

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        rows: dict[str, tuple[Any, ...] | None] = {}
        for job in jobs:
            if job.act is None:
                rows[job.key] = job.row
                continue
            self._store(connection, rows)
            rows = {}
            job.result = job.act(connection)
        self._store(connection, rows)

    def _end(self, error: BaseException | None) -> None:
        """Fail whoever waits, and whoever asks from now on."""
        with self._lock:
            self._ended = in_words(self._name, error or JournalError(f"journal {self._name}: it is closed"))
        left: list[_Job] = []
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job.error = self._ended
                left.append(job)
        self._tell(_resolve, left)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what, *arguments)

    # --- on the loop

    def _open_succeeded(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _open_failed(self) -> None:
        if not self._opened.done() and self._ended is not None:
            self._opened.set_exception(self._ended)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.done.done():
            continue
        if job.error is None:
            job.done.set_result(job.result)
        else:
            job.done.set_exception(job.error)
            job.done.exception()  # seen: who waits for it may have been cancelled
