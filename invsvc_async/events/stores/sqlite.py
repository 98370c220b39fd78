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
import secrets
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import attrs

from invsvc_async.events.stores import (
    Backlog,
    Delivery,
    Entry,
    Standing,
    State,
    StateStats,
    StoredEvent,
    sqlite_handlers,
)
from invsvc_async.events.stores import sqlite_upkeep as upkeep
from invsvc_async.events.stores.short_transactions import in_slices
from invsvc_async.events.stores.sqlite_check import FileCheck
from invsvc_async.events.stores.sqlite_checkpoints import Checkpoints
from invsvc_async.events.stores.sqlite_handlers import insert, insert_copy
from invsvc_async.events.stores.sqlite_puts import put_all
from invsvc_async.events.stores.sqlite_schema import begin, connect, connect_again
from invsvc_async.storage.address import check_path
from invsvc_async.storage.same_file import SameFile
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.sqlite_writer import Writer, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["SqliteStore"]

T = TypeVar("T")

_SLICE: Final = 0.02  # s that one transaction of prune is to take, until it is in the file
_PATIENCE: Final = 100  # ms that such a transaction waits until no delivery waits
_OURS: Final = "WHERE id = ? AND token = ? AND state = 'open'"
_FORGET: Final = f"DELETE FROM delivery {_OURS} AND body IS NULL"  # noqa: S608 - our own text


class SqliteStore:
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

        Damage to a file of more than 8 MiB is found later; then every method raises.

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

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        """Store a delivery to be handled, also for other handlers; ``False`` if its key is known."""
        if not further and delivery.ordering_key is None:
            file = self._files.get(asyncio.get_running_loop())
            if file is None or not file.is_usable:
                file = await self._opened()
            new: bool = await file.writer.store(delivery)
            return new
        return await self._put_for_handlers(delivery, further)

    async def _put_for_handlers(self, delivery: Delivery, further: Sequence[Delivery]) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            received, now = self._clock(), self._steady()
            number = insert(db, delivery, received=received, due=now)
            if number is not None:
                for each in further:
                    insert_copy(db, delivery.key, number, each, received=received, now=now)
                return True
            sqlite_handlers.complete(db, delivery, further, now=now)
            return False

        return await self._run(work)

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        """Store a delivery or a leased entry as a dead letter; ``False`` if the lease was lost."""

        def work(db: sqlite3.Connection) -> bool:
            if isinstance(found, Entry):
                ended = _end(db, found, "state = 'dead', due = ?, reason = ?", self._clock(), reason)
                if ended and found.ordering_key is not None:
                    sqlite_handlers.leave_order(db, found.id, self._steady())
                return ended
            now = self._clock()
            return bool(insert(db, found, received=now, due=now, state="dead", reason=reason))

        return await self._run(work)

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        """Store a delivery and lease it at once; also lease a known one whose lease ran out."""

        def work(db: sqlite3.Connection) -> Entry | Standing:
            now, number, found = self._steady(), None, delivery
            if not sqlite_handlers.has_copy(db, delivery):
                number = insert(db, delivery, received=self._clock(), due=now)
            if number is None:
                found = sqlite_handlers.claimable(db, delivery)
                if found is not delivery:
                    number = insert(db, found, received=self._clock(), due=now)
            if number is None:
                number, state, since, due, whole = db.execute(
                    "SELECT id, state, since, due, body IS NOT NULL FROM delivery WHERE key = ?",
                    (found.key,),
                ).fetchone()
                if state != "open":
                    return Standing.HANDLED
                if since <= now < due:
                    return Standing.STORED if whole else Standing.BUSY
            return _lease(db, number, now=now, seconds=lease)

        return await self._run(work)

    async def take(self, *, limit: int, lease: float, handlers: Collection[str] | None = None) -> list[Entry]:
        """Lease deliveries that are due and have a body, oldest first: all, or those for *handlers*."""

        def work(db: sqlite3.Connection) -> list[Entry]:
            now = self._steady()
            due = sqlite_handlers.due_for(db, handlers, now=now, limit=limit)
            return [_lease(db, number, now=now, seconds=lease) for number in due]

        return await self._run(work)

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        """Mark it as handled, and keep only *body* of it; ``False`` if the lease was lost."""

        def work(db: sqlite3.Connection) -> bool:
            ended = _end(db, entry, "state = 'handled', due = ?, body = NULL", self._clock())
            if ended and body is not None:
                upkeep.keep_body(db, entry.id, body)
            if ended and entry.ordering_key is not None:
                sqlite_handlers.leave_order(db, entry.id, self._steady())
            return ended

        return await self._run(work)

    async def release(self, entry: Entry, *, delay: float) -> bool:
        """End the lease, so that it is due after *delay*; ``False`` if the lease was lost."""

        def work(db: sqlite3.Connection) -> bool:
            now = self._steady()
            forgotten = db.execute(_FORGET, (entry.id, entry.token)).rowcount
            return bool(forgotten) or _end(db, entry, "due = ?, since = ?, token = ''", now + delay, now)

        return await self._run(work)

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        """End the lease and store the event for handlers; ``False`` if the lease was lost."""
        return await self._run(lambda db: sqlite_handlers.assign(db, entry, deliveries, self._steady()))

    async def give(self, event: StoredEvent, handler: str) -> bool:
        """Store a copy of *event* for one more handler; ``False`` if that one has had it, or it cannot be."""
        return await self._run(lambda db: sqlite_handlers.give(db, event, handler, self._steady()))

    async def events(
        self, *, state: State | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredEvent]:
        """Return events in one state, or in any, by ascending id, from beyond the id *after*."""
        return await self._read(lambda db: upkeep.events(db, state=state, after=after, limit=limit))

    async def dead_letters(self, *, limit: int = 100) -> list[StoredEvent]:
        """Return the first dead letters."""
        return await self.events(state="dead", limit=limit)

    async def revive(self, event: StoredEvent) -> bool:
        """Make a dead letter, or a handled event whose body was kept, due again."""
        return await self._run(lambda db: upkeep.revive(db, event, self._steady()))

    async def drop(self, event: StoredEvent) -> bool:
        """Delete the body of an event that nobody is to handle any more; its key stays."""
        return await self._run(
            lambda db: upkeep.drop(db, event, steady=self._steady(), calendar=self._clock())
        )

    async def counts(self) -> dict[str, int]:
        """Return the number of deliveries by state, as ``stats`` does: ``open``, ``handled``, ``dead``."""
        return {state: found.count for state, found in (await self.stats()).items()}

    async def stats(self) -> dict[State, StateStats]:
        """Return the number and the oldest of the events in each state; over 100,000, an estimate."""
        return await self._read(upkeep.stats)

    async def backlog(self) -> Backlog:
        """Return what waits now."""
        return await self._read(lambda db: upkeep.backlog(db, self._steady()))

    async def prune(
        self, *, older_than: float, bodies: float | None = None, dead: float | None = None
    ) -> int:
        """
        Delete what was handled longer ago; such an event would be handled again if it came again.

        The file then shrinks, unless it was made by an older version of this package.
        """
        await self._prune_all("claims", self._steady, older_than)
        await self._prune_all("bodies", self._clock, older_than if bodies is None else bodies)
        if dead is not None:
            await self._prune_dead(dead)
        pruned = await self._prune_all("handled", self._clock, older_than)
        await self._in_slices(upkeep.shrink_some)
        return pruned

    async def _prune_all(self, what: str, clock: Callable[[], float], age: float) -> int:
        return await self._in_slices(
            lambda db, rows: db.execute(upkeep.OLD[what], (clock() - age, rows)).rowcount
        )

    async def _prune_dead(self, age: float) -> None:
        after = 0

        def work(db: sqlite3.Connection, rows: int) -> int:
            nonlocal after
            seen, after = upkeep.prune_dead(db, self._clock() - age, after=after, limit=rows)
            return seen

        await self._in_slices(work)

    async def _in_slices(self, work: _Slice) -> int:
        """Repeat *work* on so many rows while there are more; deliveries that wait go first."""

        async def run(rows: int) -> int:
            file = self._files.get(asyncio.get_running_loop())
            for _ in range(_PATIENCE):
                if file is None or file.writer.is_idle:
                    break
                await asyncio.sleep(0.001)
            return await self._read(lambda db: upkeep.write_aside(db, partial(work, rows=rows), self._wait))

        return await in_slices(run, seconds=_SLICE)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run *work* on a connection of its own, because a reader holds no delivery up."""
        await self._run(lambda _: None)  # so that the file exists
        file = self._files.get(asyncio.get_running_loop())
        path = self._path if file is None else file.path

        def read() -> T:
            try:
                with closing(connect_again(path, self._wait)) as db:
                    return work(db)
            except sqlite3.Error as error:
                raise in_words(self._name, error) from error

        return await asyncio.to_thread(read)

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
                file.end_threads()
            file = self._files[loop] = self._new_file()
        if file.check.failure is not None:
            raise file.check.failure
        return file

    def _new_file(self) -> _File:
        path = os.path.abspath(self._path)  # noqa: PTH100 - the process may change its folder later
        check, same = FileCheck(path, self._name), SameFile(Path(path), self._name, "all its receivers")
        checkpoints = Checkpoints(path, self._name)

        def connecting() -> sqlite3.Connection:
            db = connect(path, self._name, self._wait, self._steady)
            try:
                same.remember()
                check.start(db)
                checkpoints.start(db)
            except BaseException:
                db.close()
                raise
            return db

        # IMMEDIATE, because a transaction that starts as a reader fails if another process writes.
        beginning = partial(begin, wait=self._wait)

        def storing(db: sqlite3.Connection, deliveries: list[Delivery]) -> list[bool]:
            with transaction(db, beginning):
                return put_all(db, deliveries, received=self._clock(), now=self._steady())

        writer = Writer(
            self._name, connecting, storing, begin=beginning, check=same.check, ended=checkpoints.committed
        )
        writer.start_thread()
        return _File(path, writer, check, checkpoints)

    async def _stop_left(self) -> None:
        """Finish the requests of event loops that are closed by now."""
        for loop in list(self._files):  # a copy: another loop may add its own
            if loop.is_closed() and (file := self._files.pop(loop, None)) is not None:
                await file.close()


class _Slice(Protocol):
    """A part of a long piece of work, in one transaction; returns how many of at most *rows* it changed."""

    def __call__(self, db: sqlite3.Connection, rows: int) -> int: ...


@attrs.frozen
class _File:
    """The file as one event loop uses it, at an absolute *path*."""

    path: str
    writer: Writer
    check: FileCheck
    checkpoints: Checkpoints

    @property
    def is_usable(self) -> bool:
        """Whether its thread runs, and no damage was found."""
        return not self.writer.has_ended and self.check.failure is None

    def end_threads(self) -> None:
        """Ask the threads beside the writer's to end soon, including those that are about to start."""
        self.check.end()
        self.checkpoints.end()

    async def close(self) -> None:
        """End all threads, and wait until they have ended.  They also end if this is cancelled."""
        self.end_threads()
        await self.writer.stop()
        await self.check.stop()
        await self.checkpoints.stop()


def _lease(db: sqlite3.Connection, number: int, *, now: float, seconds: float) -> Entry:
    token = secrets.token_hex(8)
    db.execute(
        "UPDATE delivery SET due = ?, since = ?, token = ?, attempts = attempts + 1 WHERE id = ?",
        (now + seconds, now, token, number),
    )
    key, kind, *rest = db.execute(
        "SELECT key, type, body, attempts, handler, ordering_key"
        " FROM delivery LEFT JOIN ordered USING (id) WHERE id = ?",
        (number,),
    ).fetchone()
    body, attempts, handler, ordering_key = rest
    return Entry(
        id=number,
        token=token,
        key=key,
        type=kind,
        body=body,
        attempts=attempts,
        handler=handler,
        ordering_key=ordering_key,
    )


def _end(db: sqlite3.Connection, entry: Entry, change: str, *values: object) -> bool:
    """Update the row of *entry*, if its lease is still valid."""
    changed = db.execute(f"UPDATE delivery SET {change} {_OURS}", (*values, entry.id, entry.token))  # noqa: S608 - our own text
    return changed.rowcount == 1
