"""
An outbox in SQLite, for one process that sends.

The application's transaction inserts a row in its own file.  The process moves it to a store in a file beside
that one.  A row that was moved but not marked so is recognised by its key.
"""

from __future__ import annotations

import asyncio
from functools import partial
from glob import escape
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, TypeVar

from invsvc_async.durable.entries import NOT_APPLIED
from invsvc_async.durable.entry import Entry
from invsvc_async.durable.store import application_table
from invsvc_async.durable.store.conditions import aside_of
from invsvc_async.durable.store.enqueued import (
    NOTHING_TAKEN,
    end_lost,
    later_columns_of,
    take_in,
)
from invsvc_async.durable.store.findings import entry_of
from invsvc_async.durable.store.noted import ALL, has_all, wanted_by
from invsvc_async.durable.store.opening import file_at
from invsvc_async.durable.store.restored import UP_TO_ALL, mark_restored, marked
from invsvc_async.durable.store.sqlite import DIALECT
from invsvc_async.errors import JournalError
from invsvc_async.outbox.application_file import ApplicationFile
from invsvc_async.outbox.caller_connections import Database, run
from invsvc_async.outbox.enqueuing import Enqueuing, not_there, too_old_for
from invsvc_async.outbox.entries import OutboxEntries
from invsvc_async.outbox.file_deletions import FileDeletions
from invsvc_async.writes.line_names import earlier_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.enqueued import Statement, TakenIn
    from invsvc_async.durable.store.noted import Chosen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore


T = TypeVar("T")

_LANE = 1  # the only one of a file
_AT_ONCE = 128
_MOST_LISTED = 100_000  # rows among which those with something noted are listed
_PART = "[0-9a-f]" * 8  # which a base URL has in the name of its file, as a pattern


class SqliteEnqueuing(Enqueuing):
    """The enqueueing of writes in SQLite: transactions of the application insert rows in its *file*."""

    database: ClassVar[Database] = "SQLite"

    def __init__(self, store: Store, file: ApplicationFile) -> None:
        super().__init__(store)
        self._file = file

    async def insert(self, connection: object | None, new: Entry) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own."""
        script = partial(self.enqueue, self._file.base_url, new)
        if connection is None:
            is_new = await self._file.table.run(DIALECT, script)
        else:
            is_new = await run(connection, self.database, script())
        self._file.note_enqueued()
        return is_new

    def find(self, core: ClientCore, new: Entry) -> Script[str]:
        """Return the base URL of *core*, if the file has an outbox for it."""
        # the row has its common part; who sends checks the credential
        if not (yield application_table.is_there()):
            raise not_there(core)
        if not (yield application_table.epoch_of(core.base_url)):
            raise not_there(core)
        later = later_columns_of(new)
        if later and not (yield application_table.can_have_more()):
            raise too_old_for(later)
        return core.base_url

    def statements(self, place: str, new: Entry) -> tuple[Statement, Statement]:
        """Return statements that insert *new* at *place*, or compare *new* with the entry there."""
        # SQLite has one writer at a time, so the numbers are in the order of the commits.
        insert = application_table.insert(place, new, self.common_of(new))
        return insert, application_table.compared(place, new)


class SqliteOutbox(OutboxEntries):
    """The writes of the outbox of *core* in the application's file at *path*."""

    def __init__(
        self,
        path: str | Path,
        core: ClientCore,
        *,
        same_mode: bool = False,
        **how: bool,
    ) -> None:
        file = ApplicationFile(path, core.base_url)
        store = file_at(_beside(file), "outbox", **how)
        file.commons = store.commons
        super().__init__(store, core, SqliteEnqueuing(store, file), same_mode=same_mode)
        self.file: ApplicationFile = file
        self._moving = asyncio.Lock()
        self._deletions = FileDeletions(store, file)

    async def open(self) -> None:
        """
        Open both files, and create what is missing; with *reading*, change nothing.

        Raises:
            JournalError: Another process has it, one of the files cannot be used, or the table is of another
                version.
            InvalidRequestError: It was begun with another credential, and *same_mode* is false.
        """
        if (
            self.store.how.reading or not self.store.how.create
        ) and not self.file.path.exists():
            raise JournalError(
                f"outbox {self.file.path}: the file does not exist. Check the path."
            )
        if self.store.how.reading and not _beside(self.file).exists():
            raise _of_another_address(self.file)
        try:
            await super().open()
            assert self._core is not None
            await self.facts.check_client(
                self._core,
                "outbox",
                same_mode=self._same_mode,
                reading=self.store.how.reading,
            )
            await self.file.open(reading=self.store.how.reading)
            if not self.store.how.reading:
                await self._belongs_together()
        except BaseException:
            await self.aclose()
            raise

    async def _belongs_together(self) -> None:
        """Check that rows of this file were moved by the same journal."""
        epoch = await self.facts.get("epoch")
        known = await self.file.do(application_table.epoch_of(self.file.base_url))
        if (
            known
            and known[0][0] != epoch
            and not (self.store.how.restored or self.store.how.moved)
        ):
            path = self.file.path
            raise JournalError(
                f"outbox {path}: the file beside it, {path.name}-outbox-…, is not the one that was there, so "
                "writes may have been sent that it does not have. Nothing was sent. Put that file back, with "
                "its .epoch. If it is lost, run the outbox with --restored (restored=True), which settles "
                "what may have been sent before it sends."
            )
        await self.file.do(application_table.use_epoch(self.file.base_url, epoch))
        # Also if an earlier start was told, and ended before it had moved all rows.
        is_copy = (await self.store.run(marked)).through == UP_TO_ALL
        self._deletions.is_of_copy = is_copy
        async with self._moving:
            await self._deletions.settle()
        if is_copy:
            await _take_in_copy(self)

    async def aclose(self) -> None:
        """Store everything and close both files."""
        try:
            await self.file.aclose()
        finally:
            await super().aclose()

    # --- sending

    async def hear(self, woken: Callable[..., None]) -> None:
        """Move rows, and call *woken* after that, or when entries were reopened."""
        # Whoever sends has the client of the writes.
        names = earlier_names(self._core)
        reopened = asyncio.create_task(super().hear(woken))
        try:
            while True:
                moved = await self.move(names)
                if moved.before is not None:
                    woken(str(_LANE), moved.before)
                if moved.has_times:
                    woken(str(aside_of(_LANE)))
                if moved.many:
                    continue
                await self.file.until_next_look()
        finally:
            reopened.cancel()
            await asyncio.wait([reopened])

    async def move(self, names: Mapping[str, str] | None = None) -> TakenIn:
        """
        Move the first new rows that need not wait, and return what was moved.

        Things that have an earlier name in *names* get that of today, as in ``use_names_of_today``.
        """
        async with self._moving:
            await self._deletions.settle()
            waiting: set[str] = set()
            after = 0
            while new := await self.file.rows(
                application_table.new_rows(self.file.base_url, after, _AT_ONCE)
            ):
                for row in new:
                    row.thing = (names or {}).get(row.thing or "", row.thing)
                taken = await take_in(self.store, new, waiting)
                if taken.rows:
                    await self.file.do(application_table.mark_moved(taken.rows))
                    return taken
                after = new[-1].seq
            return NOTHING_TAKEN

    # --- for people

    async def do_again(
        self,
        keys: Iterable[str],
        *,
        verdicts: Collection[str] = NOT_APPLIED,
        at_end: bool = False,
    ) -> list[str]:
        """Reopen entries as of any store; as the at_end, after all that transactions have committed."""
        while at_end and (await self.move()).many:
            # ``hear`` tells only of what it has moved itself.
            await self.store.notify(str(_LANE), str(aside_of(_LANE)))
        return await super().do_again(keys, verdicts=verdicts, at_end=at_end)

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*, which may not have been moved yet."""
        # first: it may be moved now
        new = await self.file.rows(application_table.new_row(self.file.base_url, key))
        moved = await super().entry(key)
        if not new:
            return moved
        if moved is not None and new[0].digest == moved.digest:
            return moved
        return new[0]  # of an older copy of the file

    async def waiting(self, chosen: Chosen = ALL) -> int:
        """Count the *chosen* rows that were not moved yet."""
        if not chosen.includes_open:
            return 0
        wanted = wanted_by(chosen)
        if not wanted:
            counting = application_table.count_new(self.file.base_url)
            return int((await self.file.do(counting))[0][0])
        if not self.file.has_more:
            return 0
        found = await self.file.do(application_table.more_of_new(self.file.base_url))
        noted = (application_table.noted_in_more(more) for (more,) in found)
        return sum(has_all(each, wanted) for each in noted)

    async def first(self, limit: int, chosen: Chosen = ALL) -> list[Entry]:
        """Return the first of the *chosen* entries, as of any store; also rows."""
        # first: as in entry()
        wanted = wanted_by(chosen)
        # what is wanted may be noted of any of them
        most = _MOST_LISTED if wanted else limit
        new: list[Entry] = []
        if chosen.includes_open:
            rows = await self.file.rows(
                application_table.new_rows(self.file.base_url, 0, most)
            )
            new = [row for row in rows if has_all(row.noted, wanted)]
        found = await super().first(limit, chosen)
        there = {entry.key for entry in found}
        return [*found, *(row for row in new if row.key not in there)][:limit]

    async def drop(self, key: str, *, seen: Entry | None = None) -> bool:
        """Delete a row that was not moved yet, or an entry, unless it may have been sent and is not done."""
        async with self._moving:
            if await entry_of(self.store, key) is None:
                await self._deletions.settle()  # The entry may come back.
            if await entry_of(self.store, key) is None:
                delete = application_table.delete_new(self.file.base_url, key)
                return bool(await self.file.do(delete))
            return await super().drop(key, seen=seen)

    async def _delete(
        self,
        keys: Sequence[str],
        deletion: Callable[[], Script[T]],
    ) -> T:
        """Delete entries of *keys* as of any store, and the rows of those that are gone."""
        return await self._deletions.delete(keys, deletion)


def _beside(file: ApplicationFile) -> Path:
    """Return where the store of the outbox is: in a file beside that of the application."""
    part = blake2b(file.base_url.encode(), digest_size=4).hexdigest()
    return file.path.with_name(f"{file.path.name}-outbox-{part}")


def _of_another_address(file: ApplicationFile) -> JournalError:
    """Return the error for a file without an outbox for the base URL of the client."""
    beside = f"{escape(file.path.name)}-outbox-{_PART}"
    has_others = any(True for _ in file.path.parent.glob(beside))
    what = f"outbox {file.path}: it has no writes for {file.base_url}"
    if has_others:
        return JournalError(
            f"{what}, but for another address. Set INVSVC_BASE_URL to that of the application."
        )
    return JournalError(f"{what}. Check the path and the profile.")


async def _take_in_copy(outbox: SqliteOutbox) -> None:
    """Move all rows: rows that were not moved yet are of the copy, too."""
    while (await outbox.move()).many:
        pass
    after = 0
    while found := await outbox.file.rows(
        application_table.moved_rows(outbox.file.base_url, after, _AT_ONCE)
    ):
        await end_lost(outbox.store, found)
        after = found[-1].seq
    await outbox.store.run(mark_restored)
