"""A SQLite file of writes, which one process owns at a time: its lock, its checks and its thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from invsvc_async.errors import JournalError
from invsvc_async.storage.address import check_path
from invsvc_async.storage.file_lock import FileLock, check_names
from invsvc_async.storage.private_file import make_database_private
from invsvc_async.storage.same_file import SameFile
from invsvc_async.storage.sqlite_check import check_file, opened_as
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.sqlite_writer import Writer
from invsvc_async.storage.table_version import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["APPLICATION", "SqliteFile", "fact"]

T = TypeVar("T")

APPLICATION = 0x1A5C_BA7C  # marks the file as one of this package
_CANNOT_WRITE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_PATIENCE = 5.0  # s to wait for a lock of another program
_LOOK_EVERY = (
    10_000  # steps of SQLite (about a millisecond) between two looks whether the opening was given up
)


class SqliteFile:
    """
    One file of writes.

    With *reading*, nothing is changed, and another process may own the file.  *kind* distinguishes a batch's
    journal from a client's.
    """

    in_use: ClassVar[str] = "Wait for that process, stop it, or use another path."

    def __init__(self, path: str | Path, kind: str, *, reading: bool = False) -> None:
        self.path: Path = Path(path).resolve()  # the file has one owner, also through links
        check_path(str(path), "journal")
        self._name = f"journal {self.path}"
        self.kind: str = kind
        self._reading = reading
        self._same = SameFile(self.path, self._name, "all that use it")
        self._lock = FileLock(self.path, self._name, self.in_use)
        self._writer: Writer | None = None
        self._starting: Writer | None = None  # its connection is being opened
        self._given_up = threading.Event()  # the opening: the check of a large file takes a minute

    async def open(self) -> None:
        """
        Acquire the file; create it with mode 0600 if it does not exist. If cancelled, it has to be closed.

        Raises:
            JournalError: Another process owns it; it is damaged, not a journal, or of a newer version; the
                folder is not writable.

        """
        if self._starting is None:
            if self._reading:
                self._lock.share()
            else:
                self._check_program()
                self._lock.acquire()
            self._given_up = threading.Event()
            self._starting = Writer(
                self._name,
                self._connect,
                self._store_group,
                check=self._same.check,
                ended=self._group_ended,
            )
            self._starting.start_thread()
        try:
            await self._starting.opened()
        except asyncio.CancelledError:
            raise  # its thread still uses the file: opening again, or closing, takes it up
        except BaseException:
            self._starting = None
            self._release()
            raise
        self._writer, self._starting = self._starting, None

    async def aclose(self) -> None:
        """Store everything and release the file. An opening that is under way ends soon."""
        self._given_up.set()
        writer, self._writer, self._starting = self._writer or self._starting, None, None
        if writer is not None:
            if not self._reading:
                writer.act(_note_closed)
            try:
                await writer.stop()
            except asyncio.CancelledError:  # its thread still stores what was requested
                writer.when_ended(self._release)
                raise
            self._release()

    def _release(self) -> None:
        """Release the file, which nothing uses any more."""
        self._lock.release()

    def ask(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """
        Run *act* on the writer's thread, in a transaction, after all earlier requests.

        The future has its result; *act* runs even if nothing awaits it.
        """
        return self._open_writer.act(act)

    @property
    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise JournalError(f"{self._name}: it is not open. Open it first.")
        return self._writer

    def _check_program(self) -> None:
        """
        Check that the file is no other program's, before anything but SQLite opens it.

        To close it, as the lock then does, would end the locks that SQLite has on it in this process.
        """
        with suppress(OSError, sqlite3.Error):  # the next opening says what is wrong
            if not self.path.is_file():
                return
            log = self.path.with_name(f"{self.path.name}-wal")
            place = f"{self.path.as_uri()}?mode=ro"
            if not log.exists():  # it would be created
                place += "&immutable=1"
            with closing(sqlite3.connect(place, uri=True, timeout=0)) as connection:
                self._check_application(connection)

    def _check_application(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has no tables; raise if they are another program's."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not empty and application != APPLICATION:
            raise JournalError(f"{self._name}: the file is another program's database. Choose another path.")
        return empty

    # --- on the writer's thread

    def _connect(self) -> sqlite3.Connection:
        try:
            check_names(self.path, self._name)
            connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise in_words(self._name, error) from error
        try:
            connection.set_progress_handler(self._given_up.is_set, _LOOK_EVERY)
            self._prepare(connection)
            connection.set_progress_handler(None, 0)
        except BaseException as error:
            connection.close()
            if self._reading and getattr(error, "sqlite_errorcode", 0) & 0xFF in _CANNOT_WRITE:
                raise JournalError(
                    f"{self._name}: SQLite reads a journal that is not in use by files beside it, and cannot "
                    f"write there ({error}). Copy it, with its -wal if there is one, and read the copy."
                ) from error
            raise
        return connection

    def _make_private(self) -> None:
        """Set the file's mode to 0600, once it is known to be a journal: its log gets the same mode."""
        try:
            make_database_private(self.path)
        except OSError as error:
            raise in_words(self._name, error) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        empty = self._check_application(connection)
        if not empty:
            check_version(self._name, fact(connection, "schema"))
        if self._reading and empty:
            raise JournalError(f"{self._name}: the file has no journal yet. Check the path, or run it first.")
        if self._reading:
            connection.execute("PRAGMA query_only = 1")
        else:
            self._make_private()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if empty:
            self._create(connection)
        elif fact(connection, "open") not in {None, opened_as(self.path)}:
            check_file(connection, self._name)  # a key that an index lost would be sent again as new
        self._load(connection)
        if not self._reading:
            connection.execute("INSERT OR REPLACE INTO facts VALUES ('open', ?)", (opened_as(self.path),))
        self._same.remember()

    def _create(self, connection: sqlite3.Connection) -> None:
        """Create the tables."""
        raise NotImplementedError

    def _load(self, connection: sqlite3.Connection) -> None:
        kind = fact(connection, "kind")
        if kind != self.kind:
            raise JournalError(f"{self._name}: it is {kind}, not {self.kind}. Choose another path.")

    def _store_group(self, connection: sqlite3.Connection, values: list[Any]) -> Sequence[Any] | None:
        """Write *values* in the open transaction, or in one of their own. Any: as a subclass has them."""
        raise NotImplementedError

    def _group_ended(self, connection: sqlite3.Connection, is_clean: bool) -> None:  # noqa: FBT001 - of Writer
        """Do what follows a group of requests, which failed in part unless it *is_clean*."""


def _note_closed(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM facts WHERE name = 'open'")


def fact(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a fact about the whole file."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]
