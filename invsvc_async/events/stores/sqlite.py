"""
Keep deliveries in one SQLite file, safe against a kill and a power cut; never hold the event loop up.

Several processes of one machine may share the file.  It is made for its owner's eyes only (0600), for bodies
hold personal data; they are dropped once handled.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.errors import JournalError
from invsvc_async.events.stores import DeadLetter, Delivery, Entry, Standing
from invsvc_async.events.stores.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SqliteStore"]

T = TypeVar("T")

_VERSION: Final = 1
_APPLICATION: Final = 0x696E7665  # "inve": tells this file from other databases
_SCHEMA: Final = (
    # due: while open, not to be taken before (the end of a lease or of a delay); else when it ended
    """
    CREATE TABLE delivery (
        id INTEGER PRIMARY KEY,
        key TEXT UNIQUE,
        type TEXT NOT NULL,
        body BLOB,
        state TEXT NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due REAL NOT NULL,
        token TEXT NOT NULL DEFAULT '',
        attempts INTEGER NOT NULL DEFAULT 0,
        reason TEXT NOT NULL,
        received REAL NOT NULL
    )
    """,
    "CREATE INDEX delivery_waiting ON delivery (due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX delivery_handled ON delivery (due) WHERE state = 'handled'",
    "CREATE INDEX delivery_dead ON delivery (id) WHERE state = 'dead'",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


class SqliteStore:
    """
    Keep deliveries in the file at *path*, which is made if there is none.

    A power cut loses nothing that was answered 2xx: every commit is flushed.  *clock* gives seconds since
    the epoch and must be about the same for all processes that share the file; *wait* is how many seconds
    another process may hold the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time, wait: float = 5.0
    ) -> None:
        self._path = os.fspath(path)
        self._clock = clock
        self._wait = wait
        self._writer: Writer | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    async def open(self) -> None:
        """
        Open or make the file; again is harmless.

        Raises:
            JournalError: It is foreign, damaged, of a newer version, held, or cannot be written.
        """
        await self._run(lambda _: None)

    async def close(self) -> None:
        """Finish what was asked for and close the file; the next use opens it again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def put(self, delivery: Delivery) -> bool:
        """Keep a delivery to be handled; ``False`` if its key is known."""

        def work(db: sqlite3.Connection) -> bool:
            if _insert(db, delivery, now=self._clock()):
                return True
            db.execute(
                "UPDATE delivery SET body = ? WHERE key = ? AND state = 'open' AND body IS NULL",
                (delivery.body, delivery.key),
            )
            return False

        return await self._run(work)

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Make a dead letter of what arrived, or of what we hold (``False`` if the lease was lost)."""

        def work(db: sqlite3.Connection) -> bool:
            if isinstance(found, Entry):
                return _end(db, found, "state = 'dead', due = ?, reason = ?", self._clock(), reason)
            return bool(_insert(db, found, now=self._clock(), state="dead", reason=reason))

        return await self._run(work)

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Keep a delivery and take it at once; take over one whose lease ran out."""

        def work(db: sqlite3.Connection) -> Entry | Standing:
            now = self._clock()
            number = _insert(db, delivery, now=now)
            if number is None:
                found = db.execute(
                    "SELECT id, state, due, body IS NOT NULL FROM delivery WHERE key = ?", (delivery.key,)
                )
                number, state, due, whole = found.fetchone()
                if state != "open":
                    return Standing.HANDLED
                if due > now:
                    return Standing.STORED if whole else Standing.BUSY
            return _lease(db, number, until=now + lease)

        return await self._run(work)

    async def take(self, *, limit: int, lease: float) -> list[Entry]:
        """Take waiting deliveries that are due and whole, oldest first."""

        def work(db: sqlite3.Connection) -> list[Entry]:
            now = self._clock()
            due = db.execute(
                "SELECT id FROM delivery WHERE state = 'open' AND body IS NOT NULL AND due <= ?"
                " ORDER BY due, id LIMIT ?",
                (now, limit),
            )
            return [_lease(db, number, until=now + lease) for (number,) in due.fetchall()]

        return await self._run(work)

    async def handled(self, entry: Entry) -> bool:
        """Record that it is handled and drop its body; ``False`` if the lease was lost."""
        return await self._run(
            lambda db: _end(db, entry, "state = 'handled', due = ?, body = NULL", self._clock())
        )

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """Give it back, to be taken again after *delay*; ``False`` if the lease was lost."""
        return await self._run(lambda db: _end(db, entry, "due = ?, token = ''", self._clock() + delay))

    async def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """List dead letters, oldest first."""

        def work(db: sqlite3.Connection) -> list[DeadLetter]:
            rows = db.execute(
                "SELECT id, key, type, body, reason, attempts, received FROM delivery WHERE state = 'dead'"
                " ORDER BY id LIMIT ?",
                (limit,),
            )
            return [_letter(*row) for row in rows]

        return await self._run(work)

    async def revive(self, letter: DeadLetter) -> bool:
        """Let a dead letter be handled again; ``False`` if it is none any more."""

        def work(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE delivery SET state = 'open', due = ?, attempts = 0 WHERE id = ? AND state = 'dead'",
                (self._clock(), letter.id),
            )
            return changed.rowcount == 1

        return await self._run(work)

    async def counts(self) -> dict[str, int]:
        """Count the deliveries by state: ``open``, ``handled``, ``dead``."""

        def work(db: sqlite3.Connection) -> dict[str, int]:
            found: dict[str, int] = dict(
                db.execute("SELECT state, count(*) FROM delivery GROUP BY state").fetchall()
            )
            return {state: found.get(state, 0) for state in ("open", "handled", "dead")}

        return await self._run(work)

    async def prune(self, *, older_than: float) -> int:
        """Forget what was handled longer ago; such an event would be handled anew if it came again."""

        def work(db: sqlite3.Connection) -> int:
            before = self._clock() - older_than
            return db.execute("DELETE FROM delivery WHERE state = 'handled' AND due < ?", (before,)).rowcount

        return await self._run(work)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._writer is None:
            self._writer = Writer(self._connect, self._path)
        return await self._writer.run(work)

    def _connect(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise JournalError(
                f"{self._path} cannot be opened: {error.strerror}. Check path and rights."
            ) from None
        db = sqlite3.connect(self._path, timeout=self._wait, isolation_level=None)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN")  # one look: another process may be making it at this moment
        self._is_new(db)  # before anything is changed: the file may be somebody else's
        db.execute("COMMIT")
        db.execute("PRAGMA synchronous = FULL")
        _to_wal(db, self._wait)
        db.execute("BEGIN IMMEDIATE")  # two processes may both have found it new
        if self._is_new(db):
            for statement in _SCHEMA:
                db.execute(statement)
        db.execute("COMMIT")

    def _is_new(self, db: sqlite3.Connection) -> bool:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return True
        if application != _APPLICATION:
            raise JournalError(f"{self._path} is another program's database. Choose another path.")
        if version != _VERSION:
            raise JournalError(f"{self._path} is of version {version}, not {_VERSION}. Update this package.")
        return False


def _to_wal(db: sqlite3.Connection, wait: float) -> None:
    """Switch to write-ahead logging; SQLite does not wait by itself while another process does the same."""
    until = time.monotonic() + wait
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)  # in the writer's thread
        else:
            return


def _insert(
    db: sqlite3.Connection, delivery: Delivery, *, now: float, state: str = "open", reason: str = ""
) -> int | None:
    """Add a delivery and give its number, or ``None`` if its key is known."""
    made = db.execute(
        "INSERT INTO delivery (key, type, body, state, due, reason, received) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (key) DO NOTHING",
        (delivery.key, delivery.type, delivery.body, state, now, reason, now),
    )
    return made.lastrowid if made.rowcount == 1 else None


def _lease(db: sqlite3.Connection, number: int, *, until: float) -> Entry:
    token = secrets.token_hex(8)
    db.execute(
        "UPDATE delivery SET due = ?, token = ?, attempts = attempts + 1 WHERE id = ?", (until, token, number)
    )
    row = db.execute("SELECT key, type, body, attempts FROM delivery WHERE id = ?", (number,)).fetchone()
    key, kind, body, attempts = row
    return Entry(id=number, token=token, key=key, type=kind, body=body, attempts=attempts)


def _end(db: sqlite3.Connection, entry: Entry, change: str, *values: object) -> bool:
    """Change the row of *entry* if its lease is still ours."""
    changed = db.execute(
        f"UPDATE delivery SET {change} WHERE id = ? AND token = ? AND state = 'open'",  # noqa: S608 - our own words
        (*values, entry.id, entry.token),
    )
    return changed.rowcount == 1


def _letter(number: int, key: str | None, kind: str, body: bytes | None, *rest: Any) -> DeadLetter:
    reason, attempts, received = rest
    return DeadLetter(
        id=number,
        key=key,
        type=kind,
        body=body or b"",
        reason=reason,
        attempts=attempts,
        received_at=received,
    )
