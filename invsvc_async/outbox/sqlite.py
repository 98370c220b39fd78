"""
An outbox in SQLite, for one process that sends.

The application's transaction inserts a row in its own file.  The process moves it to a store in a file beside
that one.  A row that was moved but not marked so is recognised by its key.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.records import verdict_of_lost
from invsvc_async.durable.restored import mark_restored
from invsvc_async.durable.scripts import may_drop
from invsvc_async.durable.sqlite_store import DIALECT, SqliteStore
from invsvc_async.errors import InvalidRequestError, JournalError, KeyConflictError
from invsvc_async.outbox import sqlite_rows as rows
from invsvc_async.outbox.caller_connections import run
from invsvc_async.outbox.entries import OutboxEntries, not_there
from invsvc_async.storage.same_file import SameFile
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.durable.store import Store
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.outbox.entries import NewWrite
    from invsvc_async.outbox.sqlite_rows import Row
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState

__all__ = ["SqliteOutbox"]

_AT_ONCE = 128
_SLOW, _FAST = 0.5, 0.01  # s between looks for new rows; fast for a while after an enqueue in this process
_FAST_FOR = 5.0  # s
_THERE = "SELECT key, digest, state FROM {s}entries WHERE key {any 1 text}"
_NOT_HEARD = "DELETE FROM {s}unheard WHERE seq IN (SELECT seq FROM {s}entries WHERE key {any 1 text})"
_COMMONS = """
INSERT INTO {s}commons (number, text) SELECT * FROM {rows 1 number:bigint text:text} WHERE true
    ON CONFLICT DO NOTHING
"""
_NEW = """key:text thing:text digest:text operation:text state:smallint common:bigint intent:text verdict:text
    outcome:text done_at:bigint"""
_COLUMNS = "key, thing, digest, operation, state, common, intent, verdict, outcome, done_at"
_INSERT = f"INSERT INTO {{s}}entries (place, lane, {_COLUMNS}) SELECT 0, 1, {_COLUMNS} FROM {{rows 1 {_NEW}}}"  # noqa: S608 - our own text
_PLACE = "UPDATE {s}entries SET place = seq WHERE key {any 1 text} AND place = 0"
_FIRST = "SELECT min(seq) FROM {s}entries WHERE key {any 1 text}"
_TELL = """
INSERT INTO {s}unheard (seq) SELECT seq FROM {s}entries WHERE key {any 1 text} AND done_at IS NOT NULL
"""


class _Journal(SqliteStore):
    """The store beside the application's file."""

    in_use: ClassVar[str] = (
        "Call retry, drop or prune of the outbox in that process, or stop it first. The commands list and "
        "show, and Outbox.open(…, reading=True), work beside it."
    )


class SqliteOutbox(OutboxEntries):
    """The writes of the outbox in the application's file at *path*."""

    database: ClassVar[Database] = "SQLite"

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        restored: bool = False,
        moved: bool = False,
        reading: bool = False,
    ) -> None:
        super().__init__(1)
        self._path = Path(path)
        self._reading = reading
        self._create = create
        self._restored, self._moved = restored, moved
        self._base_url = ""
        self._journal: _Journal | None = None
        self._writer: Writer | None = None
        self._moving = asyncio.Lock()
        self._fast_until = 0.0  # loop time
        self._enqueued = asyncio.Event()

    @property
    def store(self) -> Store:
        """What has its entries."""
        if self._journal is None:
            raise JournalError("outbox: it is not open. Use it with `async with`.")
        return self._journal

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """
        Open both files, and create what is missing; with *reading*, change nothing.

        Raises:
            JournalError: Another process has it, one of the files cannot be used, or the table is of another
                version.
            InvalidRequestError: It was begun with another credential, and *same_mode* is false.

        """
        self._base_url = session.base_url
        if not self._create and not self._path.exists():
            raise JournalError(f"outbox {self._path}: the file does not exist. Check the path.")
        part = blake2b(session.base_url.encode(), digest_size=4).hexdigest()
        place = self._path.with_name(f"{self._path.name}-outbox-{part}")
        if self._reading and not place.exists():
            raise JournalError(
                f"outbox {self._path}: it has no writes for {session.base_url}. "
                "Check the path and the profile."
            )
        self._journal = _Journal(
            place, "the journal of an outbox", it="the outbox", lanes=self.lanes, reading=self._reading,
            restored=self._restored, moved=self._moved,
        )  # fmt: skip
        try:
            await self._journal.open_for(session, same_mode=same_mode)
            await self._check_credential(
                session.credential.fingerprint(session.base_url), same_mode=same_mode
            )
            self._writer = await self._started()
            if not self._reading:
                await self._belongs_together()
        except BaseException:
            await self.aclose()
            self._journal = None
            raise

    async def _check_credential(self, mine: str | None, *, same_mode: bool) -> None:
        theirs = await self.fact("credential")
        if theirs is None and mine is not None and not self._reading:
            await self.put_fact("credential", mine)
        if None not in (mine, theirs) and mine != theirs and not same_mode:
            raise InvalidRequestError(
                "client: this outbox was begun with another credential",
                hint="If this one has the same team and data mode, pass same_mode=True "
                "(invsvc: --same-mode).",
            )

    async def _belongs_together(self) -> None:
        """
        Check that the journal is the one that has moved rows of this file.

        Raises:
            JournalError: It is another one, or new.

        """
        epoch = await self.fact("epoch")
        known = await self._app.act(partial(rows.journal_of, self._base_url, epoch))
        if known != epoch and not (self._restored or self._moved):
            raise JournalError(
                f"outbox {self._path}: the file beside it, {self._path.name}-outbox-…, is not the one that "
                "was there, so writes may have been sent that it does not have. Nothing was sent. Put that "
                "file back, with its .epoch. If it is lost, run the outbox with --restored (restored=True), "
                "which settles what may have been sent before it sends."
            )
        await self._app.act(partial(rows.use_journal, self._base_url, epoch))
        if self._restored:  # rows that were not moved yet are of the copy too
            while (await self.move())[1]:
                pass
            await self._name_lost()
            await self.store.run(mark_restored)

    async def _name_lost(self) -> None:
        """Store UNKNOWN for rows that were moved to a journal that is lost: nothing can settle them."""
        after = 0
        while found := await self._app.act(partial(rows.moved_rows, self._base_url, after, _AT_ONCE)):
            await self.store.run(partial(_end_lost, found))
            after = found[-1].seq

    async def _started(self) -> Writer:
        name = f"outbox {self._path}"
        same = SameFile(self._path.resolve(), name, "all that use it")
        connect = partial(rows.connected, self._path, reading=self._reading)
        writer = Writer(name, connect, check=same.check)
        await writer.start()
        same.remember()
        return writer

    async def aclose(self) -> None:
        """Store everything and close both files."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                await writer.stop()
        finally:
            if self._journal is not None:
                await self._journal.aclose()

    @property
    def _app(self) -> Writer:
        if self._writer is None:
            raise JournalError(f"outbox {self._path}: it is not open. Use it with `async with`.")
        return self._writer

    # --- in the transaction of the application

    async def insert(self, connection: object, new: NewWrite) -> None:
        """Enqueue *new* in the transaction of *connection*."""
        await run(connection, self.enqueue(self._base_url, new))
        self._look_now()

    async def insert_alone(self, new: NewWrite) -> bool:
        """Enqueue *new* in a transaction of its own; return whether its key was new."""
        try:
            is_new = await self._app.run(DIALECT, partial(self.enqueue, self._base_url, new))
        except JournalError as error:
            if isinstance(error.__cause__, KeyConflictError):
                raise error.__cause__ from None
            raise
        self._look_now()
        return is_new

    def _look_now(self) -> None:
        self._fast_until = asyncio.get_running_loop().time() + _FAST_FOR
        self._enqueued.set()

    def find(self, session: ClientState, new: NewWrite, *, same_mode: bool) -> Script[str]:
        """Return the base URL of *session*, if the file has an outbox for it."""
        del new, same_mode  # the row has its common part; the credential is checked by who sends
        there = yield rows.IS_THERE, ()
        if not there or not (yield rows.IS_USED, (session.base_url,)):
            raise not_there(session)
        return session.base_url

    def insertion(self, place: str, new: NewWrite) -> tuple[str, tuple[Any, ...]]:  # Any: as the columns
        """
        Return the statement that inserts *new* for the base URL *place*.

        SQLite has one writer at a time, so the numbers are in the order of the commits.
        """
        return rows.INSERT, (
            place, new.key, new.thing, new.digest, new.operation, new.packed.common, new.common,
            new.packed.text,
        )  # fmt: skip

    def digest_of(self, place: str, key: str) -> tuple[str, tuple[Any, ...]]:  # Any: as above
        """Return the statement that returns the digest of the write of *key*."""
        return "SELECT digest FROM invsvc_outbox WHERE base_url = $1 AND key = $2", (place, key)

    # --- sending

    async def hear(self, woken: Callable[[str, int], None]) -> None:
        """Move rows, and call *woken* after that, or when entries were reopened."""
        reopened = asyncio.create_task(super().hear(woken))
        try:
            await self._move_all(woken)
        finally:
            reopened.cancel()
            await asyncio.wait([reopened])

    async def _move_all(self, woken: Callable[[str, int], None]) -> None:
        while True:
            before, more = await self.move()
            if before is not None:
                woken("1", before)
            if not more:
                await self._changed()

    async def _changed(self) -> None:
        """Wait until it is time to look for new rows."""
        fast = asyncio.get_running_loop().time() < self._fast_until
        self._enqueued.clear()
        await set_within(self._enqueued, _FAST if fast else _SLOW)
        if not fast and self._enqueued.is_set():
            await asyncio.sleep(_FAST)

    async def move(self) -> tuple[int | None, bool]:
        """Move new rows; return the number before those of new entries, and whether any were moved."""
        async with self._moving:
            new = await self._app.act(partial(rows.new_rows, self._base_url, _AT_ONCE))
            if not new:
                return None, False
            count, before = await self.store.run(partial(_take_in, new))
            await self._app.act(partial(rows.mark, [row.seq for row in new[:count]]))
            return before, count > 0

    # --- for people

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*, which may not have been moved yet."""
        moved = await super().entry(key)
        new = await self._app.act(partial(rows.new_of_key, self._base_url, key))
        if moved is not None and (not new or new[0].digest == moved.digest):
            return moved
        return _entry(new[0]) if new else None  # of an older copy of the file

    async def waiting(self) -> int:
        """Count the rows that were not moved yet."""
        return await self._app.act(partial(rows.count_new, self._base_url))

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries: ``"open"`` ones, ``"untold"`` ones, or those of a verdict."""
        found = await super().first(limit, state)
        if state in (None, "open"):
            there = {entry.key for entry in found}
            new = await self._app.act(partial(rows.new_rows, self._base_url, limit))
            found += [_entry(row) for row in new if row.key not in there]
        return found[:limit]

    async def drop(self, key: str) -> bool:
        """Delete a row that was not moved yet, or an entry, unless it may have been sent and is not done."""
        async with self._moving:
            if not await self.store.entries("e.key = $1", key):
                return bool(await self._app.act(partial(rows.drop, self._base_url, key)))
            if await self.store.run(partial(may_drop, key)) is None:
                return False
            await self._forget([key])
            return await super().drop(key)

    async def _prune(self, before: int, after: int, last: int, *, unacknowledged: bool) -> int:
        async with self._moving:
            return await super()._prune(before, after, last, unacknowledged=unacknowledged)

    async def _forget(self, keys: Sequence[str]) -> None:
        """Delete the rows of *keys* first: without an entry, they would keep their keys from new writes."""
        await self._app.act(partial(rows.delete_rows, self._base_url, keys))


def _entry(row: Row) -> Entry:
    return Entry(
        key=row.key, thing=row.thing, digest=row.digest, operation=row.operation, state=State.TO_DO,
        common=row.number, intent=row.intent,
    )  # fmt: skip


def _take_in(new: Sequence[Row]) -> Script[tuple[int, int | None]]:
    """
    Insert the entries of *new* rows; return how many were taken, and the number before those of new ones.

    One whose key has an entry with the same digest was moved before a kill.  Where the entry is another
    write, its deletion was interrupted, or the application's file is an older copy, which did not have it.
    It is deleted once it is done; until then, the rows from there on have to wait.
    """
    digests = {row.key: row.digest for row in new}
    there = yield _THERE, ([*digests],)
    others = {key: state for key, digest, state in there if digest != digests[key]}
    known = {key for key, *_ in there} - {*others}
    taken = [*takewhile(lambda row: others.get(row.key, State.DONE) == State.DONE, new)]
    if replaced := [row.key for row in taken if row.key in others]:
        yield _NOT_HEARD, (replaced,)
        yield "DELETE FROM {s}entries WHERE key {any 1 text}", (replaced,)
    fresh = [row for row in taken if row.key not in known]
    if not fresh:
        return len(taken), None
    yield _COMMONS, ([*{row.number: (row.number, row.common) for row in fresh}.values()],)
    yield from _insert([_entry(row) for row in fresh])
    [(first,)] = yield _FIRST, ([row.key for row in fresh],)
    return len(taken), first - 1


def _end_lost(moved: Sequence[Row]) -> Script[None]:
    """Insert entries with the verdict UNKNOWN for rows that were *moved* and have none."""
    there = yield _THERE, ([row.key for row in moved],)
    known = {key for key, *_ in there}
    lost = [verdict_of_lost(_entry(row)) for row in moved if row.key not in known]
    if lost:
        for entry in lost:
            entry.common = entry.intent = None
        yield from _insert(lost)
        yield _TELL, ([entry.key for entry in lost],)


def _insert(entries: Sequence[Entry]) -> Script[None]:
    given = [
        (
            entry.key, entry.thing, entry.digest, entry.operation, int(entry.state), entry.common,
            entry.intent, entry.verdict, entry.outcome, entry.done_at,
        )
        for entry in entries
    ]  # fmt: skip
    yield _INSERT, (given,)
    yield _PLACE, ([entry.key for entry in entries],)
