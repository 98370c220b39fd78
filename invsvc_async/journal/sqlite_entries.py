"""The entries of a journal in one SQLite file, which one process owns at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from invsvc_async.errors import JournalError
from invsvc_async.journal.entry import State, entry_of
from invsvc_async.journal.packed_intent import Commons
from invsvc_async.storage.address import check_path
from invsvc_async.storage.file_lock import FileLock, check_names
from invsvc_async.storage.same_file import SameFile
from invsvc_async.storage.slices import slices
from invsvc_async.storage.sqlite_check import check_file
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.sqlite_writer import Writer, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.journal.entry import Entry

__all__ = ["SCHEMA", "SqliteEntries"]

T = TypeVar("T")

SCHEMA = 1
_APPLICATION = 0x1A5C_BA7C  # marks the file as a journal of this package
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE commons (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, content BLOB NOT NULL, state INTEGER NOT NULL,
    run INTEGER NOT NULL, operation TEXT NOT NULL, verdict TEXT, common INTEGER, intent TEXT, outcome TEXT,
    claim TEXT, done_at INTEGER
);
CREATE INDEX not_done ON entries (seq) WHERE state < 2;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX claimed ON entries (seq) WHERE claim IS NOT NULL;
"""
# Added to the schema without a new version, because older packages ignore it.
_POSITIONS = """
ALTER TABLE entries ADD COLUMN position INTEGER;
CREATE INDEX finished ON entries (position) WHERE position IS NOT NULL;
"""
# What takes the place of the column for reading a file that an older package has made.
_NO_POSITIONS = "CREATE TEMP VIEW entries AS SELECT *, NULL AS position FROM main.entries"
_COLUMNS = (
    "key", "content", "state", "run", "operation", "verdict", "common", "intent", "outcome", "claim",
    "done_at", "position",
)  # fmt: skip
_ALL = f"seq, {', '.join(_COLUMNS)}"
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in {"key", "run"})
_CHANGES = f"{_REPLACED}, run = max(run, excluded.run)"  # the input may have contained it again meanwhile
# Adapting a value of another type than these (also None) is slow in sqlite3.
_NULLS = 7  # columns at the end that may be NULL, which is passed as an empty text
_MARKS = ", ".join(["?"] * (len(_COLUMNS) - _NULLS) + ["nullif(?, '')"] * _NULLS)
_UPSERT = f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608 - our own text
_CONFLICT = f" ON CONFLICT (key) DO UPDATE SET {_CHANGES}"
_STATE = _COLUMNS.index("state")
_WORDS = {"an outbox": "the journal of a client"}  # what files have called themselves since the first version
_CANNOT_WRITE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_PATIENCE = 5.0  # s to wait for a lock of another program
_LOOK_EVERY = (
    10_000  # steps of SQLite (about a millisecond) between two looks whether the opening was given up
)
_MOST_ROWS = 256  # in one statement
_STEP = 16  # statements have a multiple of this many rows: few enough to stay prepared


class SqliteEntries:
    """
    The entries of one file.

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
        self.commons: Commons = Commons()
        self._same = SameFile(self.path, self._name, "all that use it")
        self._lock = FileLock(self.path, self._name, self.in_use)
        self._writer: Writer | None = None
        self._starting: Writer | None = None  # its connection is being opened
        self._given_up = threading.Event()  # the opening: the check of a large file takes a minute
        self._at_once = 0  # rows in one statement, at most
        self._commons_stored = 0  # how many are committed
        self._sends = 0  # rows that the current group has stored as about to be sent
        self._on_sends: Callable[[sqlite3.Connection, int | None], None] | None = None

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
                lambda connection, values: self._store(connection, dict(values)),
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
            try:
                await writer.stop()
            except asyncio.CancelledError:  # its thread still stores what was requested
                writer.when_ended(self._release)
                raise
            self._release()

    def _release(self) -> None:
        """Release the file, which nothing uses any more."""
        self._lock.release()

    def put(self, entry: Entry) -> asyncio.Future[None]:
        """Store *entry*, replacing any of its key; the future completes once it is on the disk."""
        return self._open_writer.store((entry.key, row_of(entry)))

    def shelve(self, entry: Entry) -> None:
        """Store *entry* without waiting; does nothing if the journal is closed."""
        if self._writer is not None:
            self.put(entry)

    def take_out(self, key: str) -> asyncio.Future[None]:
        """Delete the entry of *key*."""
        return self._open_writer.store((key, None))

    def ask(self, act: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """
        Run *act* on the writer's thread, in a transaction, after all earlier requests.

        The future has its result; *act* runs even if nothing awaits it.
        """
        return self._open_writer.act(act)

    async def next_run(self) -> int:
        """Start another run, and return its number."""
        return await self.ask(_next_run)

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
        if not empty and application != _APPLICATION:
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
            self.path.chmod(0o600)
        except OSError as error:
            raise in_words(self._name, error) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = self._check_application(connection)
        if not empty and version != SCHEMA:
            raise JournalError(
                f"{self._name}: it has version {version}, and this package reads version {SCHEMA}. "
                "Use the version of the package that created it, or a newer one."
            )
        if self._reading and empty:
            raise JournalError(f"{self._name}: the file has no journal yet. Check the path, or run it first.")
        columns = [row[1] for row in connection.execute("PRAGMA table_info (entries)")]
        if self._reading:
            if "position" not in columns:
                connection.execute(_NO_POSITIONS)
            connection.execute("PRAGMA query_only = 1")
        else:
            self._make_private()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if empty:
            self._create(connection)
        else:
            if not self._reading:
                self._lock.read_ahead()
            check_file(connection, self._name)  # a key that an index lost would be sent again as new
            if not (self._reading or "position" in columns):
                connection.executescript(f"BEGIN IMMEDIATE; {_POSITIONS} COMMIT;")
        self._load(connection)
        self._same.remember()
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)  # 999 in old builds
        self._at_once = min(_MOST_ROWS, most // len(_COLUMNS) // _STEP * _STEP)

    def _create(self, connection: sqlite3.Connection) -> None:
        marks = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {SCHEMA};"
        kind = f"INSERT INTO facts VALUES ('kind', '{self.kind}');"  # noqa: S608 - our own text
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {_POSITIONS} {marks} {kind} COMMIT;")

    def _load(self, connection: sqlite3.Connection) -> None:
        kind = fact(connection, "kind")
        if kind != self.kind:
            found, wanted = (_WORDS.get(each or "", each) for each in (kind, self.kind))
            raise JournalError(f"{self._name}: it is {found}, not {wanted}. Choose another path.")
        for number, text in connection.execute("SELECT number, text FROM commons"):
            self.commons.load(number, text)

    def _store(self, connection: sqlite3.Connection, rows: dict[str, tuple[Any, ...] | None]) -> None:
        """
        Write *rows* in the open transaction, or in one of their own.

        Usually they are one statement, which is its own transaction.  Each further statement releases the
        GIL several times, and getting it back from a busy event loop takes milliseconds.
        """
        kept = [row for row in rows.values() if row is not None]
        if connection.in_transaction or not self._is_one_statement(connection, kept, rows):
            with transaction(connection):
                self._store_commons(connection)
                for some in slices(kept, self._at_once):
                    self._sends += _upsert(connection, some)
                gone = [(key,) for key, row in rows.items() if row is None]
                connection.executemany("DELETE FROM entries WHERE key = ?", gone)
        else:
            self._sends += _upsert(connection, kept)

    def _group_ended(self, connection: sqlite3.Connection, is_clean: bool) -> None:  # noqa: FBT001 - of Writer
        """Report how many sends a group has stored, which is not known if a part of it failed."""
        sends, self._sends = self._sends, 0
        if self._on_sends is not None:
            self._on_sends(connection, sends if is_clean else None)

    def _is_one_statement(
        self, connection: sqlite3.Connection, kept: list[tuple[Any, ...]], rows: dict[str, Any]
    ) -> bool:
        if self._commons_stored < len(self.commons.texts):
            self._commons_stored = _commons_in(connection)
        whole = self._commons_stored == len(self.commons.texts)
        return whole and len(kept) == len(rows) <= self._at_once

    def _store_commons(self, connection: sqlite3.Connection) -> None:
        """Add those that the file lacks, as it says itself: a failed group was rolled back."""
        texts, stored = self.commons.texts, _commons_in(connection)
        fresh = [(number, texts[number]) for number in range(stored + 1, len(texts) + 1)]
        connection.executemany("INSERT INTO commons VALUES (?, ?)", fresh)


def row_of(entry: Entry) -> tuple[str | int | bytearray, ...]:
    """Return the columns of *entry* as they are stored."""
    return (
        entry.key, bytearray(entry.content), int(entry.state), entry.run, entry.operation,
        entry.verdict or "", entry.common or "", entry.intent or "", entry.outcome or "",
        entry.claim or "", entry.done_at or "", entry.position or "",
    )  # fmt: skip


def _commons_in(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT coalesce(max(number), 0) FROM commons").fetchone()[0]
    return found


def _upsert(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
    """
    Write *rows* with one statement; the last is repeated to fill it up, which changes nothing.

    Return how many, repetitions included, were stored as about to be sent.
    """
    if len(rows) > _STEP:
        rows = [*rows, *repeat(rows[-1], -len(rows) % _STEP)]
    connection.execute(_statement(len(rows)), tuple(chain.from_iterable(rows)))
    return [row[_STATE] for row in rows].count(State.SENDING)


@cache
def _statement(rows: int) -> str:
    return _UPSERT + ", ".join([f"({_MARKS})"] * rows) + _CONFLICT


def _next_run(connection: sqlite3.Connection) -> int:
    number = int(fact(connection, "runs") or 0) + 1
    connection.execute("INSERT OR REPLACE INTO facts VALUES ('runs', ?)", (str(number),))
    return number


def fact(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a fact about the whole journal."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def entries(connection: sqlite3.Connection, where: str, values: Sequence[object] = ()) -> list[Entry]:
    """Select entries; *where* is never user input."""
    found = connection.execute(f"SELECT {_ALL} FROM entries WHERE {where}", values)  # noqa: S608 - our own text
    names = ("seq", *_COLUMNS)
    return [entry_of(dict(zip(names, row, strict=True))) for row in found]
