"""
Own a SQLite connection on one thread and commit what is asked of it in groups; never on the event loop's
thread.

One commit serves everybody who asked while the one before it was under way: a commit that is on the disk
costs milliseconds, however much is in it.
"""

from __future__ import annotations

import asyncio
import sqlite3  # noqa: TC003 - msgspec reads the types of _Job
import threading
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from invsvc_async._errors import JournalError
from invsvc_async.storage.sqlite_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Writer", "transaction"]

T = TypeVar("T")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Do what is done within together with the open transaction, or in one; who sees it fail undoes it."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


class _Job(msgspec.Struct, eq=False):
    """One thing asked for: *act* runs in the transaction, *row* is stored with the others of its group."""

    done: asyncio.Future[Any]  # Any: what *act* gives
    key: str = ""
    row: tuple[Any, ...] | None = None  # Any: a row of the table; with a key and none, the row is taken out
    act: Callable[[sqlite3.Connection], Any] | None = None
    result: Any = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Tell who waits, on the loop's thread."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.error)
            self.done.exception()  # seen: who waits for it may have been cancelled


class Writer:
    """
    The thread.  It belongs to the event loop that started it.

    *connect* opens the connection, *store* writes ``{key: row or None}`` (``None``: take it out), in the open
    transaction or in one of its own; both run on the thread.
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
        self._groups: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, name=f"journal {name}", daemon=True)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        # These three are the loop's: the thread is handed whole groups, for each hand-over costs a switch.
        self._waiting: list[_Job] = []
        self._under_way: list[_Job] = []
        self._ended: JournalError | None = None

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
        if self._ended is None:
            self._ended = JournalError(f"journal {self._name}: it is closed")
            if self._waiting:
                self._groups.put(self._waiting)
        self._groups.put(None)
        while self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def store(self, key: str, row: tuple[Any, ...] | None) -> asyncio.Future[None]:
        """Store *row* under *key*, or take out what is there; the future is done once that is on the disk."""
        return self._put(_Job(self._loop.create_future(), key=key, row=row))

    def act(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run *act* in a transaction, after all that was asked for before; the future has what it gives."""
        return self._put(_Job(self._loop.create_future(), act=act))

    def _put(self, job: _Job) -> asyncio.Future[Any]:  # Any: as the job
        if self._ended is not None:
            job.error = self._ended
            job.resolve()
            return job.done
        if not (self._waiting or self._under_way):
            self._loop.call_soon(self._hand_over)  # with all that is asked for until then
        self._waiting.append(job)
        return job.done

    def _hand_over(self) -> None:
        if self._waiting and self._ended is None:
            self._under_way, self._waiting = self._waiting, []
            self._groups.put(self._under_way)

    # --- on the thread

    def _live(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._tell(self._open_failed, in_words(self._name, error))
            return
        self._tell(self._open_succeeded)
        try:
            while jobs := self._groups.get():
                self._commit(connection, jobs)
                self._tell(self._committed, jobs)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._tell(self._died, in_words(self._name, error))
        finally:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Commit *jobs* together; if that fails, each by itself, so that none fails for another's sake."""
        try:
            self._run(connection, jobs)
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
                raise

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        rows: dict[str, tuple[Any, ...] | None] = {}
        if all(job.act is None for job in jobs):
            self._store(connection, {job.key: job.row for job in jobs})
            return
        with transaction(connection):
            for job in jobs:
                if job.act is None:
                    rows[job.key] = job.row
                    continue
                self._store(connection, rows)
                rows = {}
                job.result = job.act(connection)
            self._store(connection, rows)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what, *arguments)

    # --- on the loop, told by the thread

    def _open_succeeded(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _open_failed(self, error: JournalError) -> None:
        self._ended = error
        if not self._opened.done():
            self._opened.set_exception(error)

    def _committed(self, jobs: list[_Job]) -> None:
        """Hand over what came meanwhile, so that the disk need not wait; then tell who waited."""
        self._under_way = []
        self._hand_over()
        for job in jobs:
            job.resolve()

    def _died(self, error: JournalError) -> None:
        """Fail whoever waits, and whoever asks from now on."""
        self._ended = error
        jobs = [*self._under_way, *self._waiting]
        self._under_way, self._waiting = [], []
        for job in jobs:
            job.error = job.error or error
            job.resolve()
