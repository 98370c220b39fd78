"""
A thread that owns a SQLite connection and commits in groups.

All work that is requested while one commit runs shares the next one.  A durable commit costs milliseconds,
however much is in it.

A signal handler may raise an exception in any function of the loop's thread, also where that begins: then the
call is lost.  Whoever waits for a request would wait for ever.  So what the loop calls is called twice; each
of these functions does what is left of its work, and nothing twice.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3  # noqa: TC003 - msgspec reads the types of _Job
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from itertools import groupby
from operator import attrgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import msgspec

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.concurrency.threads import joined
from invsvc_async.errors import InvsvcError, JournalError
from invsvc_async.storage.sqlite_file import in_words, is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from invsvc_async.storage.dialect import Script, SqliteDialect


T = TypeVar("T")

# of those whose threads live, and so may have a connection
_names: dict[Writer, str] = {}
# names of the files that the parent of this process had open when it forked
_of_parent: set[str] = set()


@contextmanager
def transaction(
    connection: sqlite3.Connection,
    begin: str | Callable[[sqlite3.Connection], object] = "BEGIN",
) -> Generator[None]:
    """Run the block in the open transaction, or in a new one; the caller rolls back if it fails."""
    if connection.in_transaction:
        yield
        return
    if isinstance(begin, str):
        connection.execute(begin)
    else:
        begin(connection)
    yield
    connection.execute("COMMIT")


# gc=False: a quarter of the collections (measured)
class _Job(msgspec.Struct, eq=False, gc=False):
    """A request: *act* runs in the transaction, *value* is stored with the other values of its group."""

    # Any: the result of *act*, or of storing *value*; None: it was told
    done: asyncio.Future[Any] | None
    value: Any = None  # Any: as the writer's owner has it
    act: Callable[[sqlite3.Connection], Any] | None = None
    result: Any = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Complete the future, on the loop's thread, unless it is complete."""
        done = self.done
        if done is None:
            return
        if self.error is None:
            if not done.done():
                done.set_result(self.result)
            return
        settle(done, None, self.error)
        # The traceback of an error refers to this object, and the collector would not see a cycle through it.
        self.act = None
        self.error = None
        self.done = None


_act_of: attrgetter[Callable[[sqlite3.Connection], Any] | None] = attrgetter("act")


@attrs.frozen(eq=False)
class _Committer:
    """
    What the thread of a :class:`Writer`, which has the same arguments, does with its connection.

    It keeps nothing from one group to the next.  When ``commit`` returns, each request of the group has its
    result or its error, and no transaction is open.
    """

    name: str
    connect: Callable[[], sqlite3.Connection]
    # Any: as the writer's owner has it
    store: Callable[[sqlite3.Connection, list[Any]], Sequence[Any] | None] | None
    begin: str | Callable[[sqlite3.Connection], object]
    check: Callable[[sqlite3.Connection], None] | None
    ended: Callable[[sqlite3.Connection, bool], None] | None

    def open(self) -> sqlite3.Connection:
        """Open the connection, unless the parent process had the file open."""
        _check_process(self.name)
        return self.connect()

    def commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """
        Commit *jobs* together, and return whether that succeeded.

        If not, commit them one by one, so that each fails only for its own error. Where another program has
        the file locked, all fail: each would wait for it anew.
        """
        try:
            self._run(connection, jobs)
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            may_be_of_one = isinstance(error, Exception) and not is_locked(error)
            if may_be_of_one and len(jobs) > 1:
                for job in jobs:
                    self.commit(connection, [job])
                return False
            if isinstance(error, InvsvcError):
                failure = error
            else:
                failure = in_words(self.name, error)
            for job in jobs:
                job.error = failure
            if not isinstance(error, Exception):
                raise
            return False
        return True

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if self.check is not None:
            self.check(connection)
        # Without functions, what is stored may be one statement, which is its own transaction.
        around: AbstractContextManager[None] = nullcontext()
        if any(map(_act_of, jobs)):
            around = transaction(connection, self.begin)
        with around:
            for act, some in groupby(jobs, _act_of):
                if act is not None:
                    for job in some:
                        job.result = act(connection)
                    continue
                self._store_values(connection, [*some])

    def _store_values(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        assert self.store is not None
        results = self.store(connection, [job.value for job in jobs])
        if not results:
            return
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, Exception):
                job.error = result
            else:
                job.result = result

    def end_group(self, connection: sqlite3.Connection, *, is_clean: bool) -> None:
        """Call ``ended``, if it is given, after a group; *is_clean*: all of the group succeeded."""
        if self.ended is not None:
            self.ended(connection, is_clean)


class Writer:
    """
    The thread, for one event loop and the file *name* (as errors show it).

    *connect* opens the connection.  *store* writes a list of values, in the open transaction or in one of its
    own, and returns the result or error of each, or nothing if they have none.  Both run on the thread.
    *begin* is the statement, or function, that starts the transaction of a group.  *check* is called there
    before each group, which fails if it raises; *ended* after each, once its requests are complete, with
    whether all succeeded.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        store: Callable[[sqlite3.Connection, list[Any]], Sequence[Any] | None]
        | None = None,
        *,
        begin: str | Callable[[sqlite3.Connection], object] = "BEGIN",
        check: Callable[[sqlite3.Connection], None] | None = None,
        ended: Callable[[sqlite3.Connection, bool], None] | None = None,
    ) -> None:
        self._name = name
        self._committer = _Committer(name, connect, store, begin, check, ended)
        self._groups: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._live,
            name=f"invsvc {name}",
            daemon=True,
        )
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.is_ending: bool = False  # its thread was told to end
        # These three belong to the loop: the thread receives whole groups, because each hand-over costs a
        # thread switch.
        self._waiting: list[_Job] = []
        self._under_way: list[_Job] = []
        self._ended: JournalError | None = None
        # the group that the thread was given last
        self._handed: list[_Job] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it was stopped, or could not open the connection, or its thread died."""
        return self._ended is not None

    @property
    def is_idle(self) -> bool:
        """Whether no request is open."""
        return not (self._waiting or self._under_way)

    def start_thread(self) -> None:
        """Start the thread; requests are accepted at once, and fail if the connection cannot be opened."""
        self._thread.start()

    async def start(self) -> None:
        """Start the thread, and wait until the connection is open."""
        self.start_thread()
        await self.opened()

    async def opened(self) -> None:
        """Wait until the connection is open."""
        await asyncio.shield(self._opened)

    async def stop(self) -> None:
        """Commit what was requested, and close; works from another loop once this writer's is closed."""
        self.end()
        await joined(self._thread)

    def end(self) -> None:
        """End the thread once all requests are committed and the file is closed. Any thread may call this."""
        if self._ended is None and self._waiting:
            # if this is called again, the thread ignores it
            self._groups.put(self._waiting)
        self._groups.put(None)
        self.is_ending = True
        self._ended = self._ended or JournalError(
            f"{self._name}: it is closed. Open it again."
        )

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most for *seconds*."""
        self._thread.join(seconds)

    def store(self, value: object) -> asyncio.Future[Any]:
        """Store *value* with others, in one commit; the future completes once the commit is on the disk."""
        return self._put(_Job(self._loop.create_future(), value))

    def act(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run *act* in a transaction, after all earlier requests; the future has its result."""
        return self._put(_Job(self._loop.create_future(), act=act))

    def run(
        self, dialect: SqliteDialect, script: Callable[[], Script[T]]
    ) -> asyncio.Future[T]:
        """Run a new *script* in a transaction, after all earlier requests; the future has its result."""
        return self.act(lambda connection: dialect.run(connection, script()))

    def _put(self, job: _Job) -> asyncio.Future[Any]:
        done = job.done
        assert done is not None
        if self._ended is not None:
            job.error = self._ended
            job.resolve()
            return done
        # if it is, `stop` hands over
        if not (self._waiting or self._under_way or self._loop.is_closed()):
            # together with all that is requested until then
            self._loop.call_soon(self._hand_over)
            self._loop.call_soon(self._hand_over)
        self._waiting.append(job)
        return done

    def _hand_over(self) -> None:
        """Pass the waiting jobs to the thread, unless the thread is at work."""
        if self._ended is not None:
            return
        if not self._under_way:
            self._under_way = self._waiting
        if self._waiting is self._under_way:
            self._waiting = []
        if self._under_way and self._handed is not self._under_way:
            # perhaps for the second time: the thread ignores that
            self._groups.put(self._under_way)
            self._handed = self._under_way

    # --- on the thread

    def _live(self) -> None:
        _names[self] = self._name
        try:
            self._serve()
        finally:
            _names.pop(self, None)

    def _serve(self) -> None:
        try:
            connection = self._committer.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers get it
            self._tell(self._died, in_words(self._name, error))
            return
        self._tell(settle, self._opened, None, None)
        last: list[_Job] | None = None
        try:
            while jobs := self._groups.get():
                if jobs is last:
                    continue
                last = jobs
                is_clean = self._committer.commit(connection, jobs)
                self._tell(self._committed, jobs)
                self._committer.end_group(connection, is_clean=is_clean)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the callers get it
            self._tell(self._died, in_words(self._name, error))
        else:
            self._tell(
                self._died, JournalError(f"{self._name}: it is closed. Open it again.")
            )
        finally:
            connection.close()

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            self._loop.call_soon_threadsafe(what, *arguments)
            self._loop.call_soon_threadsafe(what, *arguments)

    # --- on the loop, called by the thread

    def _committed(self, jobs: list[_Job]) -> None:
        """Hand over what was requested meanwhile, so that the disk need not wait; then complete *jobs*."""
        if self._under_way is jobs:
            self._under_way = []
        self._hand_over()
        for job in jobs:
            job.resolve()

    def _died(self, error: JournalError) -> None:
        """Fail all requests, pending and future."""
        self._ended = self._ended or error
        settle(self._opened, None, error)
        for job in (*self._under_way, *self._waiting):
            if job.done is not None:
                job.error = job.error or error
                job.resolve()
        self._under_way = []
        self._waiting = []


def wait_for_ending(name: str, seconds: float) -> None:
    """Wait, in a thread, until the writers of the file *name* have closed it that were told to end."""
    until = time.monotonic() + seconds
    for writer, its_name in [*_names.items()]:
        if its_name == name and writer.is_ending:
            writer.join(max(until - time.monotonic(), 0.0))


def _check_process(name: str) -> None:
    """Refuse a file that the parent process had open: SQLite would confuse the locks, and lose commits."""
    if name in _of_parent:
        raise JournalError(
            f"{name}: it was open when this process was forked, so this process cannot use it. Fork before "
            "it is opened, or start the process in another way (spawn)."
        )


def _note_parents_files() -> None:
    _of_parent.update(_names.values())
    _names.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_note_parents_files)
