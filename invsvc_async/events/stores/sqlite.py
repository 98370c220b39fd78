"""
An event store in one SQLite file, durable across kills and power cuts.

Several processes of one machine may share the file.  Its mode is 0600, because bodies contain personal data;
they are deleted once handled.

Leases are timed by the machine's monotonic clock, which all its processes share.  Setting the wall clock
neither ends nor prolongs a lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.concurrency.threads import joined
from invsvc_async.errors import JournalError
from invsvc_async.events.stores import Delivery, made_up_key, statements
from invsvc_async.events.stores.scripts import (
    How,
    ScriptedStore,
    create,
    in_slices,
    runs,
)
from invsvc_async.events.stores.statements import SCHEMA
from invsvc_async.storage.address import check_path
from invsvc_async.storage.dialect import MOST, Script, SqliteDialect, slices
from invsvc_async.storage.file_lock import FileLock, LockedConnection
from invsvc_async.storage.flush import flush_commits
from invsvc_async.storage.private_file import make_database_private
from invsvc_async.storage.sqlite_file import (
    DAMAGE,
    STEPS,
    SameFile,
    check_file,
    in_words,
    opened_as,
)
from invsvc_async.storage.sqlite_writer import Writer, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_log: Final = logging.getLogger("invsvc_async.events")
_APPLICATION: Final = 0x696E7665  # "inve": distinguishes this file from other databases
_FACTS: Final = (
    *statements.FACTS,
    f"PRAGMA application_id = {_APPLICATION}",
)
_creating = threading.Lock()  # so that no other thread has connected meanwhile
# bytes of a file that is checked before its first use: about 0.1 s
_SMALL: Final = 8 << 20
_AGAIN: Final = 60.0  # s until the next try, if one failed
# pages of the log, after which SQLite's own commits would copy it
_WANTED: Final = 1_000
# Changed rows between two copies: if each has a commit of its own, and if many share one.
_FEWEST: Final = 250
_MOST: Final = 4_000
# of the log, 32 MB; beyond, the thread is too slow, and commits do it
_PAGES: Final = 8_000
_PATIENCE: Final = 100  # ms that a transaction of prune waits until no delivery waits


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
        super().__init__(SqliteEvents(self._path, wait, steady, clock))

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
        await self._database.open()

    async def close(self) -> None:
        """Finish all requests of this event loop and close the file; the next use opens it again."""
        await self._database.close()

    async def prune(
        self,
        *,
        older_than: float,
        bodies: float | None = None,
        dead: float | None = None,
    ) -> int:
        """Delete what was handled longer ago, which would be handled again; the file then shrinks."""
        pruned = await super().prune(
            older_than=older_than,
            bodies=bodies,
            dead=dead,
        )
        await in_slices(self._shrink_some)
        return pruned

    @runs("aside")
    def _shrink_some(self, pages: int) -> Script[int]:
        ((free,),) = yield "PRAGMA freelist_count", ()
        freed: int = min(free, pages)
        for _ in range(freed):
            # Python's driver frees only one at a time
            yield "PRAGMA incremental_vacuum(1)", ()
        return freed


class SqliteEvents:
    """
    The file at *path*, as it is opened in each event loop that uses it, and what runs in it.

    The store has the same arguments.
    """

    def __init__(
        self,
        path: str,
        wait: float,
        steady: Callable[[], float],
        calendar: Callable[[], float],
    ) -> None:
        self._name = f"event store {path}"
        self._wait = wait
        self._made = partial(_File, path, self._name, wait, steady, calendar)
        self._files: dict[asyncio.AbstractEventLoop, _File] = {}

    async def open(self) -> None:
        """Open the file, or create it; does nothing if this event loop has it open."""
        await (await self.opened()).writer.act(lambda _: None)

    async def close(self) -> None:
        """Finish all requests of this event loop, and close the file."""
        await self._stop_left(asyncio.get_running_loop())

    def corrected(self, lease: float, names: Sequence[str] | None) -> Script[None]:
        """Correct nothing: nobody can set the clock of leases."""
        del lease, names
        yield from ()

    async def put(self, delivery: Delivery) -> bool:
        """Store a delivery together with those that wait meanwhile."""
        new: bool = await (await self.opened()).writer.store(delivery)
        return new

    async def run(self, script: Callable[[], Script[T]], how: How) -> T:
        """Run a new *script* among the writes, or on a connection of its own if it may be slow."""
        file = await self.opened()
        if how in {"each alone", "together"}:
            return await file.writer.run(file.dialect, script)
        await file.writer.act(lambda _: None)  # so that the file exists
        for _ in range(_PATIENCE if how == "aside" else 0):
            if file.writer.is_idle:
                break
            await asyncio.sleep(0.001)

        # on a connection of its own, because a reader holds no delivery up
        def run() -> T:
            try:
                with closing(connect_again(file.path, self._wait)) as db:
                    work = partial(file.dialect.run, db, script())
                    if how == "aside":
                        return file.write_aside(db, work)
                    return work()
            except sqlite3.Error as error:
                raise in_words(self._name, error) from error

        return await asyncio.to_thread(run)

    async def opened(self) -> _File:
        """
        Return the file of this event loop.

        Raises:
            JournalError: It was found to be damaged.
        """
        loop = asyncio.get_running_loop()
        file = self._files.get(loop)
        if file is None:
            await self._stop_left()
            file = self._files.get(loop)
        if file is None or file.writer.has_ended:
            if file is not None:
                file.upkeep.end()
            file = self._files[loop] = self._made()
        if file.upkeep.failure is not None:
            raise file.upkeep.failure
        return file

    async def _stop_left(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Finish the requests of closed event loops, and of this loop."""
        for loop in list(self._files):  # a copy: another loop may add its own
            if (loop is here or loop.is_closed()) and (
                file := self._files.pop(loop, None)
            ) is not None:
                await file.close()


class _File:
    """
    The file at *path*, as used by an event loop; the store has the same arguments.

    Leases are timed by the *steady* clock, but a restart of the machine, where it begins anew, ends those of
    before.
    """

    def __init__(
        self,
        path: str,
        name: str,
        wait: float,
        steady: Callable[[], float],
        calendar: Callable[[], float],
    ) -> None:
        self.path: str = os.path.abspath(path)  # noqa: PTH100 - the process may change its folder later
        self._name = name
        self._wait = wait
        self._steady = steady
        self._ahead = 0.0
        clocks = {"now": self._now, "began": self._now, "calendar": calendar}
        self.dialect = SqliteDialect(
            clocks,
            t="delivery",
            id="INTEGER PRIMARY KEY",
            bytes="BLOB",
            picked=statements.PICKED_IN_FILE,
        )
        self.upkeep = Upkeep(self.path, name)
        self._same = SameFile(Path(self.path), name, "all its receivers")
        same = self._same
        ended = self.upkeep.committed
        self.writer = Writer(
            name,
            self._connect,
            self._put_all,
            begin=self._begin,
            check=lambda _: same.check(),
            ended=ended,
        )
        self.writer.start_thread()

    async def close(self) -> None:
        """End both threads, and wait for their end, which comes even if the wait is cancelled."""
        self.upkeep.end()
        await self.writer.stop()
        await self.upkeep.stop()

    def write_aside(self, db: sqlite3.Connection, work: Callable[[], T]) -> T:
        """
        Run *work* in a transaction that does not wait for the disk, so that deliveries wait only meanwhile.

        A power cut may undo it.  The commits of deliveries flush it with their own.
        """
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        with transaction(db, self._begin):
            result = work()
        # disk writes would else pile up until they hold the deliveries' commits up
        _checkpoint(db)
        return result

    def _now(self) -> float:
        return self._steady() + self._ahead

    def _put_all(
        self, db: sqlite3.Connection, deliveries: list[Delivery]
    ) -> list[bool]:
        """Store deliveries by ``PUT``; return the result of each."""
        results: list[bool] = []
        with transaction(db, self._begin):
            for some in slices(deliveries, MOST):
                # sqlite3 looks for an adapter of each value of another type than these, also of bytes.
                rows = [
                    (
                        one.key or made_up_key(),
                        one.type,
                        bytearray(one.body or b""),
                        one.handler,
                        0.0,
                        one.subject,
                        one.as_of,
                    )
                    for one in some
                ]
                new = dict(
                    db.execute(*self.dialect.translated(statements.PUT, (rows,)))
                )
                # of several with a key, the first
                results += (bool(new.pop(key, False)) for key, *_ in rows)
        return results

    def _begin(self, db: sqlite3.Connection) -> None:
        """
        Begin to write, waiting for other processes.

        SQLite's own waiting looks again ever more rarely, up to every 100 ms, and so misses the pauses of a
        process that prunes the file.  IMMEDIATE, because a transaction that starts as a reader fails if
        another process writes.
        """
        self._patiently(db, "BEGIN IMMEDIATE")

    def _patiently(self, db: sqlite3.Connection, statement: str) -> None:
        """Run *statement*, again every millisecond while another process has the lock."""
        until = time.monotonic() + self._wait
        while True:
            try:
                db.execute(statement)
            except sqlite3.OperationalError as error:
                # The lower byte: another process that recovers the log after a kill has a code of its own.
                if (
                    error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY
                    or time.monotonic() > until
                ):
                    raise
                time.sleep(0.001)
            else:
                return

    def _connect(self) -> sqlite3.Connection:
        """Open or create the file."""
        try:
            self._create()
        except OSError as error:
            wrong = f"the file cannot be opened ({error.strerror})"
            raise JournalError(
                f"{self._name}: {wrong}. Check the path and its permissions."
            ) from None
        db = connect_again(self.path, self._wait)
        try:
            self._prepare(db)
            self._start_clock(db)
            self._same.remember()
            self.upkeep.start(db)
            # from now on, ``_begin`` waits
            db.execute("PRAGMA busy_timeout = 0").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _create(self) -> None:
        """
        Create the file with mode 0600, unless it exists.

        An existing one is not opened: to close it would end the locks that SQLite has on it in this process.
        """
        with _creating:
            if not os.path.exists(self.path):  # noqa: PTH110 - as the path is given
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))

    def _prepare(self, db: sqlite3.Connection) -> None:
        # one snapshot: another process may be creating the tables at this moment
        with transaction(db):
            # before anything is changed: the file may belong to another program
            is_new = self._version_in(db) is None
        make_database_private(self.path)
        if is_new:
            # only a file without tables can be given it
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA synchronous = FULL")
        flush_commits(db)
        # SQLite does not wait for another that does it
        self._patiently(db, "PRAGMA journal_mode = WAL")
        if is_new:
            with transaction(db, "BEGIN IMMEDIATE"):
                if self._version_in(db) is None:  # two may both have found it new
                    self.dialect.run(db, create())
                    for statement in _FACTS:
                        db.execute(statement)
        else:
            self._upgrade(db)

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """
        Bring the tables of an earlier version up to date, unless another process has done it meanwhile.

        Processes of that version may use the file at the same time, and go on.
        """
        if self._version_in(db) == SCHEMA.version:
            return
        with transaction(db, self._begin):
            version = self._version_in(db)
            if version is not None:
                self.dialect.run(db, SCHEMA.upgrade(version))
                db.execute(statements.NOTE_FACT, ("schema", SCHEMA.version))

    def _version_in(self, db: sqlite3.Connection) -> int | None:
        """
        Return the version of the tables, or ``None`` if there are none.

        Raises:
            JournalError: They are another program's, or of a version that the package does not know.
        """
        (application,) = db.execute("PRAGMA application_id").fetchone()
        tables = {each for (each,) in db.execute(statements.TABLES_IN_FILE)}
        if not (application or tables):
            return None
        if application != _APPLICATION:
            raise JournalError(
                f"{self._name}: the file has other tables, perhaps those of the application. Give the "
                "events a file of their own."
            )
        version = (
            db.execute(statements.VERSION).fetchone()[0] if "facts" in tables else None
        )
        return SCHEMA.check(self._name, version)

    def _start_clock(self, db: sqlite3.Connection) -> None:
        """Note how far the clock of leases is ahead; the machine was started if the file has another note."""
        opened = opened_as(Path(self.path))
        with transaction(db, "BEGIN IMMEDIATE"):
            facts = dict(db.execute(statements.ALL_FACTS))
            self._ahead = facts["ahead"]
            if facts["opened"] != opened:
                last = [
                    end
                    for body in ("NOT NULL", "NULL")
                    for (end,) in db.execute(statements.LAST_END.format(body))
                ]
                self._ahead = (
                    max((end for end in last if end is not None), default=0.0)
                    - self._steady()
                )
                db.executemany(
                    statements.NOTE_FACT, [("ahead", self._ahead), ("opened", opened)]
                )


def connect_again(path: str, wait: float = 5.0) -> sqlite3.Connection:
    """Connect to the file at *path*, which is not created if it was deleted meanwhile."""
    absolute = Path(path).absolute()
    advice = "Use one name for it everywhere, or mount its whole folder."
    lock = FileLock(absolute, f"event store {path}", advice)
    with suppress(OSError):  # SQLite says what is wrong
        lock.join()
    try:
        place = f"{absolute.as_uri()}?mode=rw"
        db = sqlite3.connect(
            place,
            timeout=wait,
            isolation_level=None,
            factory=LockedConnection,
            uri=True,
        )
    except BaseException:
        lock.release()
        raise
    db.release = lock.release
    return db


class Upkeep:
    """
    Copy the log of the file at *path* after every few hundred or thousand changes of one connection.

    A commit that does it, as SQLite's commits do by default, holds deliveries up by tens of milliseconds.

    The same thread first compares the tables of a large file with their indexes, if that is due: an event
    whose key is lost is handled again, but the check takes seconds, and the sender waits for only ten.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._opened = ""
        self._is_checked = True
        self._copied = 0
        self._changes = _FEWEST
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            name=f"invsvc upkeep of {name}",
            daemon=True,
        )
        self.failure: JournalError | None = None
        """What is wrong with the file, once that is known."""

    def start(self, db: sqlite3.Connection) -> None:
        """Start the thread, and leave the copying of *db* to it; check a small file now."""
        self._opened = opened_as(Path(self._path))
        (checked, size) = db.execute(statements.CHECKED).fetchone()
        self._is_checked = checked == self._opened
        if not self._is_checked and size <= _SMALL:
            self._check(db)
        db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES}").fetchall()
        self._thread.start()

    def committed(self, db: sqlite3.Connection, *_: object) -> None:
        """Wake the thread if *db* has changed enough."""
        if db.total_changes - self._copied >= self._changes:
            self._copied = db.total_changes
            self._due.set()

    def end(self) -> None:
        """Ask the thread to end soon, even if it is about to start."""
        self._stopping.set()
        self._due.set()

    async def stop(self) -> None:
        """End the thread, if it runs; it may take as long as a checkpoint."""
        self.end()
        await joined(self._thread)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(connect_again(self._path)) as db:
                    self._copy_when_due(db)
            except Exception as error:  # noqa: BLE001 - the thread must not end without a word
                if self._stopping.is_set():
                    return
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if not self._is_checked and (
                    isinstance(error, JournalError) or code in DAMAGE
                ):
                    self.failure = in_words(self._name, error)
                    _log.error("%s", self.failure)
                    return
                # Too many open files, for example; commits copy the log from some size on.
                _log.warning("%s", in_words(f"upkeep of {self._name}", error))
                self._stopping.wait(_AGAIN)

    def _copy_when_due(self, db: sqlite3.Connection) -> None:
        """Check the file, and then copy the log into it when due, until the thread is to end."""
        if not self._is_checked:
            db.set_progress_handler(self._stopping.is_set, STEPS)
            self._check(db, self._stopping.is_set)
            db.set_progress_handler(None, 0)
        while self._due.wait() and not self._stopping.is_set():
            self._due.clear()
            self._changes = changes_until_next(self._changes, _checkpoint(db))

    def _check(
        self, db: sqlite3.Connection, stops: Callable[[], bool] | None = None
    ) -> None:
        check_file(db, self._name, stops)
        db.execute(statements.NOTE_CHECKED, (self._opened,))
        self._is_checked = True


def changes_until_next(changes: int, pages: int) -> int:
    """Return after how many changes to copy the log next, if it had *pages* after so many."""
    wanted = changes * _WANTED // max(pages, _WANTED // 2)
    return max(_FEWEST, min(_MOST, wanted))


def _checkpoint(db: sqlite3.Connection) -> int:
    """
    Copy the log into the file; unlike a writer's own checkpoints, this one holds no writer up.

    Returns how many pages the log has.
    """
    pages: int
    [(_, pages, _)] = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return pages


def _renew_lock() -> None:
    """In a forked process, forget who has the lock: another thread of the parent may have it."""
    global _creating  # noqa: PLW0603 - of this module
    _creating = threading.Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_renew_lock)
