"""A store of writes in an SQLite file, which one process uses at a time."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from invsvc_async.concurrency.cancellation import finished
from invsvc_async.durable.entry import LostEntryError, State, entry_in
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.store.puts import Put, last_puts, put_in_file, put_unkeyed
from invsvc_async.durable.store.restored import Epoch, fact
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.durable.store.tables import Opening, check, create, is_old, upgrade
from invsvc_async.errors import JournalError
from invsvc_async.storage.address import check_path
from invsvc_async.storage.dialect import MOST, Cell, Script, SqliteDialect, slices
from invsvc_async.storage.file_lock import FileLock, LockedConnection, check_names
from invsvc_async.storage.flush import flush_commits
from invsvc_async.storage.private_file import make_database_private
from invsvc_async.storage.sqlite_file import STEPS, SameFile, check_file, opened_as
from invsvc_async.storage.sqlite_writer import Writer, transaction, wait_for_ending

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.states import Left
    from invsvc_async.transport.client_core import ClientCore


T = TypeVar("T")
log: logging.Logger = logging.getLogger("invsvc_async.writes")

DIALECT = SqliteDialect(
    s="",
    serial="INTEGER PRIMARY KEY AUTOINCREMENT",  # the number of a deleted entry is not given again
    filled="",
    small="WITHOUT ROWID",  # one tree instead of the table and the index of its key
    ms="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    durably="1",
    at="instr",
    now="((julianday('now') - 2440587.5) * 86400.0)",
)
_APPLICATION = 0x1A5C_BA7C  # marks the file as one of this package
_CANNOT_WRITE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_PATIENCE = 5.0  # s to wait for a lock of another program
_IN_USE = {
    "outbox": "Send, retry, drop or prune by the methods of the outbox in that process, or stop it first. "
    "The commands list and show, and Outbox.open(…, reading=True), work beside it. Several processes can "
    "share an outbox in PostgreSQL (postgresql://…)."
}
_IN_USE_OTHERWISE = (
    "Wait for that process, stop it, or use another path. Several processes can share a journal in "
    "PostgreSQL (postgresql://…)."
)
_WAS_DROPPED = "was dropped, or is done. Nothing is sent for it."

# Without an adapter for this type, sqlite3 looks through all that it knows for each value: 3,000
# instructions.
sqlite3.register_adapter(State, int)


class SqliteStore:
    """
    The store in the file at *path*.

    A file that was put back from an older copy is recognised by the file ``.epoch`` beside it.
    """

    # What a store in a database has, too (``PostgresStore``); here it is constant.
    # One process has the file at a time, and the store goes by the clock of that process.
    is_shared: bool = False
    silence: float = inf  # The lock of the file shows who lives.
    starts_away: bool = False  # A file is there, or cannot be used.
    marks: int = 0  # That the file was restored is only found at its opening.
    hurried = nullcontext  # A file answers soon, so nothing has to be given up early.
    patience: float = inf  # A file is not away: nothing waits for it.

    def __init__(self, path: str | Path, how: Opening) -> None:
        # The file has one owner, also if it is opened through links.
        self.path: Path = Path(path).resolve()
        check_path(str(path), "journal")
        self._name = f"journal {self.path}"
        self.how: Opening = how
        # at the path as it was given: a link in it may be changed
        here = Path(path).absolute()
        self._same = SameFile(here, self._name, "all that use it")
        self._writer: Writer | None = None
        # The writer before, whose thread may still have the file.
        self._ending: Writer | None = None
        # Ends an opening early: the check of a large file takes a minute.
        self._given_up = threading.Event()
        self.version: int = 0  # of its tables, once it is open
        self._told = asyncio.Event()  # something was changed for whoever sends
        self.commons: Commons = Commons()
        # Ends of processes that could not be noted: by name, their last status.
        self.ends_to_note: dict[str, str | None] = {}
        self._storing: list[int] = []  # common parts that the current group stores
        self._sends = 0  # entries that the current group has stored as about to be sent
        # Something else than puts has changed the file, such as a claim of a key, which may store an entry as
        # about to be sent: so ``_sends`` may be too low, and the file's own count is read.
        self._recount = False
        beside = self.path.with_name(f"{self.path.name}.epoch")
        self._epoch = Epoch(beside, self._name, DIALECT, how)

    async def open_for(self, core: ClientCore | None, *, same_mode: bool) -> None:
        """
        Acquire the file; create it with mode 0600 if it does not exist.

        If the call is cancelled, the store has to be closed.

        Raises:
            JournalError: Another process owns the file; the file is damaged, not of this kind, or of another
                version; the folder is not writable.
        """
        # Those of batches and outboxes check base URL and credential themselves: ``Facts.check_client``.
        del core, same_mode
        if self._writer is None:
            if self._ending is not None:
                await self._ending.stop()
            self._given_up = threading.Event()
            self._writer = Writer(
                self._name,
                self._connect,
                self._store_group,
                check=self._check,
                ended=self._group_ended,
            )
            self._writer.start_thread()
        try:
            await self._writer.opened()
        except JournalError:
            # After a cancellation the writer stays: the next opening waits for it, or the closing ends it.
            self._writer = None
            raise

    async def aclose(self) -> None:
        """
        Store everything and release the file. An opening that is under way ends soon.

        If this is cancelled, the file is released all the same before ``CancelledError`` is raised, unless
        the disk hangs.
        """
        self._given_up.set()
        if (writer := self._writer) is not None:
            self._ending = writer
            if not self.how.reading:
                writer.act(lambda connection: connection.execute(store_sql.NOTE_CLOSED))
            writer.end()
            self._writer = None
        if self._ending is not None:
            await finished(asyncio.ensure_future(self._ending.stop()))
            self._ending = None

    def abandon(self) -> None:
        """Release the file soon, without waiting, from any thread: nobody will close this."""
        self._given_up.set()
        for writer in (self._writer, self._ending):
            if writer is not None:
                writer.end()

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Run a new *script* in a transaction, after all earlier requests."""
        return await self.ask(lambda connection: DIALECT.run(connection, script()))

    async def rows(self, text: str, *values: Cell) -> Sequence[Cell]:
        """Run one statement, and return its rows."""
        return await self.ask(
            lambda connection: connection.execute(
                *DIALECT.translated(text, values)
            ).fetchall()
        )

    async def entries(self, where: str, *values: Cell) -> list[Entry]:
        """Select entries; *where* is our own text, and calls the table *e*."""
        text = entry_sql.in_file(where)
        return await self._with_commons(
            [entry_in(row) for row in await self.rows(text, *values)]
        )

    async def _with_commons(self, found: list[Entry]) -> list[Entry]:
        """Return *found* once the common parts of their intents are known."""
        # Only a store that is read while another process has the file lacks some.
        if self.commons.lack(found):
            await self.ask(self._load_commons)
        return found

    def put(
        self,
        entry: Entry,
        lane: OwnedLane,
        left: Left | None = None,
    ) -> asyncio.Future[None]:
        """Store *entry* together with others (``puts``); the future completes once it is on the disk."""
        return self._open_writer.store(Put(entry, lane, left))

    def forget(self, keys: Sequence[str]) -> None:
        """Delete the entries of *keys*, without waiting: the event loop may be closed."""
        values = [(key,) for key in keys]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany(entry_sql.REMOVE_KEY_IN_FILE, values)

        self.ask(delete)

    async def idle(self) -> None:
        """Do nothing: what is pending is stored before what is requested next."""

    async def open_in(
        self,
        places: Mapping[int, int],
        known: Sequence[int],
        each: int,
    ) -> list[Entry]:
        """
        Return up to *each* open entries, in their order, without those *known* already.

        *places* has the place after which to begin, of the only lane of a file.
        """
        [after] = places.values()
        found = await self._next_open(after, each + len(known))
        left_out = {*known}
        return [entry for entry in found if entry.seq not in left_out][:each]

    async def _next_open(self, after: int, most: int) -> list[Entry]:
        if self.how.kind != "outbox":  # In others, nothing waits for its time.
            return await self.entries(entry_sql.NEXT_OPEN_IN_FILE, after, most)
        rows = await self.rows(entry_sql.NEXT_OPEN_AND_BEHIND_IN_FILE, after, most)
        found = await self._with_commons([entry_in(row[:-1]) for row in rows])
        for entry, row in zip(found, rows, strict=True):
            entry.is_behind = bool(row[-1])
        return found

    async def listen(self, woken: Callable[[str], None]) -> None:
        """
        Call *woken* with ``""`` after each change that this process tells, until cancelled.

        What has changed is not kept, so who listens has to look at everything.
        """
        while True:
            await self._told.wait()
            self._told.clear()
            woken("")

    async def notify(self, *what: str) -> None:
        """Wake those that listen."""
        if what:
            self._told.set()

    async def check_place(self) -> None:
        """Do nothing: the opening has checked it."""

    @asynccontextmanager
    async def in_place(self) -> AsyncGenerator[None]:
        """Do nothing: the same."""
        yield

    def is_away(self, error: JournalError) -> bool:
        """Return False: a file is there or cannot be used."""
        del error
        return False

    def ask(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """
        Run *act* on the writer's thread, in a transaction, after all earlier requests.

        The future has its result; *act* runs even if nothing awaits it.
        """

        def noted(connection: sqlite3.Connection) -> T:
            before = connection.total_changes
            result = act(connection)
            self._recount |= connection.total_changes != before
            return result

        return self._open_writer.act(noted)

    @property
    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise JournalError(f"{self._name}: it is not open. Open it first.")
        return self._writer

    def _check_program(self) -> None:
        """
        Check that the file belongs to no foreign program, before the lock of the file opens it.

        Once anything closes a file in a process, all locks end that SQLite has on the file in that process.
        The lock of the file opens and closes it itself, which would end the locks of the application's
        connections, if it is their database.  A connection of SQLite, as here, ends no other's locks.
        """
        with suppress(OSError, sqlite3.Error):  # the next opening says what is wrong
            if not self.path.is_file():
                return
            wal = self.path.with_name(f"{self.path.name}-wal")
            place = f"{self.path.as_uri()}?mode=ro"
            if not wal.exists():  # It would be created.
                place += "&immutable=1"
            with closing(sqlite3.connect(place, uri=True, timeout=0)) as connection:
                self._check_application(connection)

    def _check_application(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has no tables; raise if they are another program's."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = not connection.execute(store_sql.HAS_TABLES_IN_FILE).fetchone()
        if not empty and application != _APPLICATION:
            raise JournalError(
                f"{self._name}: the file is another program's database. Choose another path."
            )
        return empty

    # --- on the writer's thread

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raise JournalError if the file is another one than was opened, or has an older state."""
        self._same.check()
        if not self.how.reading:
            self._epoch.check(connection)

    def _connect(self) -> sqlite3.Connection:
        if not self.how.reading:
            self._check_program()
        # One for each connection: the thread of an earlier one may not have ended yet.
        lock = FileLock(
            self.path, self._name, _IN_USE.get(self.how.kind, _IN_USE_OTHERWISE)
        )
        try:
            if self.how.reading:
                lock.share()
            else:
                self._acquire(lock)
            check_names(self.path, self._name)
            connection = sqlite3.connect(
                self.path,
                timeout=_PATIENCE,
                isolation_level=None,
                factory=LockedConnection,
            )
        except BaseException:
            self._release(lock)
            raise
        connection.release = partial(self._release, lock)
        try:
            connection.set_progress_handler(self._given_up.is_set, STEPS)
            self._prepare(connection)
            connection.set_progress_handler(None, 0)
        except BaseException as error:
            connection.close()
            if (
                self.how.reading
                and getattr(error, "sqlite_errorcode", 0) & 0xFF in _CANNOT_WRITE
            ):
                raise JournalError(
                    f"{self._name}: SQLite reads a journal that is not in use by files beside it, and cannot "
                    f"write there ({error}). Copy it, with its -wal if there is one, and read the copy."
                ) from error
            raise
        return connection

    def _acquire(self, lock: FileLock) -> None:
        """Acquire the file; wait if a store of this process is releasing it, or was dropped unclosed."""
        try:
            lock.acquire()
        except JournalError:
            if not lock.is_ours():
                raise
            gc.collect()  # what was dropped without being closed releases it then
            wait_for_ending(self._name, _PATIENCE)
            lock.acquire()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        empty = self._check_application(connection)
        if not empty:
            self.version = DIALECT.run(connection, check(self._name, self.how))
        if self.how.reading and empty:
            raise JournalError(
                f"{self._name}: the file has no journal yet. Check the path, or run it first."
            )
        if self.how.reading:
            connection.execute("PRAGMA query_only = 1")
        else:
            # The file is known to be a store by now, and its log gets the same mode.
            make_database_private(self.path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            flush_commits(connection)
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if empty:
            with transaction(connection, "BEGIN IMMEDIATE"):
                DIALECT.run(connection, create(self.how))
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            self.version = DIALECT.run(connection, check(self._name, self.how))
        elif fact(connection, "open") not in {None, opened_as(self.path)}:
            # It was not closed, and the machine was started since, or it is a copy.  A key that an index
            # had lost would be sent again as new.
            check_file(connection, self._name, self._given_up.is_set)
        # The file may be an older copy of the one that was open before.
        self.commons.stored.clear()
        self._load_commons(connection)
        if not self.how.reading:
            connection.execute(store_sql.NOTE_OPENED, (opened_as(self.path),))
            self._epoch.begin(connection)
            self._upgrade(connection)
            connection.execute(store_sql.FREE_ALL_LANES_OF_FILE)
            connection.execute(store_sql.DELETE_MEMBERS_OF_FILE)
        self._same.remember()

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Bring the tables of an earlier version up to date; the lock of the file keeps others out."""
        if not is_old(self.how, self.version):
            return
        log.warning(
            "%s: its tables have version %d. They are brought up to date.",
            self._name,
            self.version,
        )
        with transaction(connection, "BEGIN IMMEDIATE"):
            DIALECT.run(connection, upgrade(self.how, self.version))
        self.version = DIALECT.run(connection, check(self._name, self.how))

    def _load_commons(self, connection: sqlite3.Connection) -> None:
        self.commons.load(connection.execute(entry_sql.SELECT_COMMONS_IN_FILE))

    def _release(self, lock: FileLock) -> None:
        """Release the file, which nothing uses any more."""
        self._epoch.close()
        lock.release()

    def _store_group(
        self, connection: sqlite3.Connection, values: list[Put]
    ) -> list[JournalError | None]:
        """Store a group of puts; return for each its error or ``None``, or nothing if all were stored."""
        unkeyed, by_number, lefts, changed = last_puts(values)
        self._sends += [entry.state for entry, _, _ in (*unkeyed, *by_number)].count(
            State.SENDING
        )
        fresh = self.commons.fresh()
        lost = set[int | str]()
        # Usually it is one statement, which is its own transaction.
        is_one_statement = not (unkeyed or lefts or fresh or len(by_number) > MOST)
        with nullcontext() if is_one_statement else transaction(connection):
            if fresh:
                connection.executemany(entry_sql.INSERT_COMMON_IN_FILE, fresh)
                self._storing = [number for number, _ in fresh]
            for some in slices(unkeyed, MOST):
                kept = {
                    key
                    for (key,) in connection.execute(
                        *DIALECT.translated(*put_unkeyed(some))
                    )
                }
                lost.update(entry.key for entry, _, _ in some if entry.key not in kept)
            for part in slices(changed, MOST):
                connection.execute(
                    *DIALECT.translated(entry_sql.NOTE_CHANGED_IN_FILE, (part,))
                )
            lost |= DIALECT.run(
                connection, put_in_file([entry for entry, _, _ in by_number], lefts)
            )
        if not lost:
            return []
        self._recount = True  # Fewer were stored than ``_sends`` has.
        errors: list[JournalError | None] = []
        for entry, *_ in values:
            if (entry.seq or entry.key) in lost:
                error = LostEntryError(f"entry {entry.key!r} {_WAS_DROPPED}")
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def _group_ended(self, connection: sqlite3.Connection, is_clean: bool) -> None:  # noqa: FBT001 - of Writer
        """Repeat beside the file how many sends a group has stored; *is_clean* is whether all of it was."""
        sends = self._sends if is_clean and not self._recount else None
        self._sends = 0
        self._recount = False
        stored, self._storing = self._storing, []
        if is_clean:
            self.commons.stored.update(stored)
        self._epoch.note_sends(connection, sends)
