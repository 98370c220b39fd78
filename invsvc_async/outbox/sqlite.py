"""
An outbox in SQLite, for one process that sends.

The application's transaction inserts a row in its own file.  The process moves it to a store in a file beside
that one.  A row that was moved but not marked so is recognised by its key.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.records import verdict_of_lost
from invsvc_async.durable.store.opening import file_at
from invsvc_async.durable.store.restored import mark_restored
from invsvc_async.durable.store.scripts import KNOWN, add, may_drop
from invsvc_async.durable.store.sqlite import DIALECT
from invsvc_async.errors import JournalError
from invsvc_async.outbox.caller_connections import Database, run
from invsvc_async.outbox.entries import OutboxEntries, Statement, columns_of, not_there
from invsvc_async.storage.sqlite_file import SameFile
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from invsvc_async.storage.dialect import Cell, Script
    from invsvc_async.transport.client_core import ClientCore


_AT_ONCE = 128
_SLOW = 0.5
_FAST = 0.01  # s between looks for new rows; fast for a while after an enqueue in this process
_FAST_FOR = 5.0  # s
_PATIENCE = 5.0  # s to wait for a lock of the application
_VERSION = 1
_TABLES = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, thing TEXT,
    digest TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, common TEXT NOT NULL,
    intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT {_VERSION},
    UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
_INSERT = """
INSERT INTO invsvc_outbox (base_url, key, thing, digest, operation, intent, number, common)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING seq
"""
_IS_SAME = "SELECT digest = $3 FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
_IS_THERE = "SELECT 1 FROM sqlite_master WHERE name = 'invsvc_outbox_journal'"
_EPOCH = "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = $1"
_USE = "INSERT OR REPLACE INTO invsvc_outbox_journal VALUES ($1, $2)"
_ROWS = """
SELECT common, seq, key, thing, digest, operation, CASE WHEN common <> '' THEN number END AS common,
    nullif(intent, '') AS intent FROM invsvc_outbox WHERE base_url = $1 AND
"""
_FIELDS = ("seq", "key", "thing", "digest", "operation", "common", "intent")
_NEW = "moved = 0 ORDER BY seq LIMIT $2"
_COUNT = "SELECT count(*) FROM invsvc_outbox WHERE base_url = $1 AND moved = 0"
_MARK = "UPDATE invsvc_outbox SET moved = 1, common = '', intent = '' WHERE seq {any 1 bigint}"
_DELETE = "DELETE FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
# Not a new write under the key of an entry whose row is gone, because its deletion was interrupted.
_DELETE_OLD = """
DELETE FROM invsvc_outbox WHERE seq IN (
    SELECT o.seq FROM {rows 2 key:text digest:text} JOIN invsvc_outbox AS o ON o.key = given.key
    WHERE o.base_url = $1 AND (o.moved = 1 OR o.digest = given.digest)
)
"""
_NOT_HEARD = "DELETE FROM {s}unheard WHERE seq IN (SELECT seq FROM {s}entries WHERE key {any 1 text})"
_END = """
UPDATE {s}entries SET state = $1, verdict = $2, outcome = $3, done_at = $4 WHERE key {any 5 text}
"""


class SqliteOutbox(OutboxEntries):
    """The writes of the outbox of *core* in the application's file at *path*."""

    database: ClassVar[Database] = "SQLite"

    def __init__(
        self,
        path: str | Path,
        core: ClientCore,
        *,
        same_mode: bool = False,
        **how: bool,
    ) -> None:
        self._path = Path(path)
        self._base_url = core.base_url
        part = blake2b(core.base_url.encode(), digest_size=4).hexdigest()
        self._beside = self._path.with_name(f"{self._path.name}-outbox-{part}")
        super().__init__(
            file_at(self._beside, "outbox", **how), core, same_mode=same_mode
        )
        self._writer: Writer | None = None  # the thread that has the application's file
        self._moving = asyncio.Lock()
        self._fast_until = 0.0  # loop time
        self._enqueued = asyncio.Event()

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
        ) and not self._path.exists():
            raise JournalError(
                f"outbox {self._path}: the file does not exist. Check the path."
            )
        if self.store.how.reading and not self._beside.exists():
            raise JournalError(
                f"outbox {self._path}: it has no writes for {self._base_url}. Check the path and the profile."
            )
        try:
            await super().open()
            assert self._core is not None
            await self.facts.check_client(
                self._core,
                "outbox",
                same_mode=self._same_mode,
                reading=self.store.how.reading,
            )
            name = f"outbox {self._path}"
            same = SameFile(self._path.resolve(), name, "all that use it")
            connect = partial(
                _connected, self._path, name, reading=self.store.how.reading
            )
            writer = Writer(name, connect, check=same.check)
            await writer.start()
            same.remember()
            self._writer = writer
            if not self.store.how.reading:
                await self._belongs_together()
        except BaseException:
            await self.aclose()
            raise

    async def _belongs_together(self) -> None:
        """Check that rows of this file were moved by the same journal."""
        epoch = await self.facts.get("epoch")
        known = await self._do(_EPOCH, self._base_url)
        if (
            known
            and known[0][0] != epoch
            and not (self.store.how.restored or self.store.how.moved)
        ):
            raise JournalError(
                f"outbox {self._path}: the file beside it, {self._path.name}-outbox-…, is not the one that "
                "was there, so writes may have been sent that it does not have. Nothing was sent. Put that "
                "file back, with its .epoch. If it is lost, run the outbox with --restored (restored=True), "
                "which settles what may have been sent before it sends."
            )
        await self._do(_USE, self._base_url, epoch)
        if self.store.how.restored:  # rows that were not moved yet are of the copy too
            while (await self.move())[1]:
                pass
            after = 0
            text = "moved = 1 AND seq > $2 ORDER BY seq LIMIT $3"
            while found := await self._rows(text, after, _AT_ONCE):
                await self.store.run(partial(_end_lost, found))
                after = found[-1].seq
            await self.store.run(mark_restored)

    async def aclose(self) -> None:
        """Store everything and close both files."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                await writer.stop()
        finally:
            await super().aclose()

    @property
    def table(self) -> Writer:
        """The thread that has the application's file."""
        if self._writer is None:
            raise JournalError(
                f"outbox {self._path}: it is not open. Use it with `async with`."
            )
        return self._writer

    async def _do(self, text: str, *values: Cell) -> list[Cell]:
        return await self.table.act(
            lambda connection: connection.execute(
                *DIALECT.translated(text, values)
            ).fetchall()
        )

    async def _rows(self, where: str, *values: Cell) -> list[Entry]:
        """Select rows as entries that are to do; ``seq`` is that of the row, without an intent if moved."""
        entries: list[Entry] = []
        for common, *row in await self._do(_ROWS + where, self._base_url, *values):
            entry = Entry(
                state=State.TO_DO, lane=1, **dict(zip(_FIELDS, row, strict=True))
            )
            if entry.common is not None:
                self.store.commons.texts[entry.common] = common
            entries.append(entry)
        return entries

    # --- in the transaction of the application

    async def insert(self, connection: object | None, new: Entry) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own."""
        script = partial(self.enqueue, self._base_url, new)
        if connection is None:
            is_new = await self.table.run(DIALECT, script)
        else:
            is_new = await run(connection, self.database, script())
        self._fast_until = asyncio.get_running_loop().time() + _FAST_FOR
        self._enqueued.set()
        return is_new

    def find(self, core: ClientCore, new: Entry) -> Script[str]:
        """Return the base URL of *core*, if the file has an outbox for it."""
        del new  # the row has its common part; who sends checks the credential
        if not (yield _IS_THERE, ()) or not (yield _EPOCH, (core.base_url,)):
            raise not_there(core)
        return core.base_url

    def _statements(self, place: str, new: Entry) -> tuple[Statement, Statement]:
        # SQLite has one writer at a time, so the numbers are in the order of the commits.
        insert = _INSERT, (place, *columns_of(new), new.common, self._common_of(new))
        return insert, (_IS_SAME, (place, new.key, new.digest))

    # --- sending

    async def hear(self, woken: Callable[..., None]) -> None:
        """Move rows, and call *woken* after that, or when entries were reopened."""
        reopened = asyncio.create_task(super().hear(woken))
        try:
            while True:
                before, more = await self.move()
                if before is not None:
                    woken("1", before)
                if more:
                    continue
                fast = asyncio.get_running_loop().time() < self._fast_until
                self._enqueued.clear()
                await set_within(self._enqueued, _FAST if fast else _SLOW)
                if not fast and self._enqueued.is_set():
                    await asyncio.sleep(_FAST)
        finally:
            reopened.cancel()
            await asyncio.wait([reopened])

    async def move(self) -> tuple[int | None, bool]:
        """Move new rows; return the number before those of new entries, and whether any were moved."""
        async with self._moving:
            if not (new := await self._rows(_NEW, _AT_ONCE)):
                return None, False
            count, before = await self.store.run(
                partial(_take_in, new, self.store.commons.texts)
            )
            await self._do(_MARK, [row.seq for row in new[:count]])
            return before, count > 0

    # --- for people

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*, which may not have been moved yet."""
        # first: it may be moved now
        new = await self._rows("moved = 0 AND key = $2", key)
        moved = await super().entry(key)
        if moved is not None and (not new or new[0].digest == moved.digest):
            return moved
        return new[0] if new else None  # of an older copy of the file

    async def waiting(self) -> int:
        """Count the rows that were not moved yet."""
        return int((await self._do(_COUNT, self._base_url))[0][0])

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries, all or of a *state*: ``"open"``, ``"untold"`` or a verdict."""
        # first: as in entry()
        new = await self._rows(_NEW, limit) if state in (None, "open") else []
        found = await super().first(limit, state)
        there = {entry.key for entry in found}
        return [*found, *(row for row in new if row.key not in there)][:limit]

    async def drop(self, key: str) -> bool:
        """Delete a row that was not moved yet, or an entry, unless it may have been sent and is not done."""
        async with self._moving:
            if not await self.store.entries("e.key = $1", key):
                text = f"{_DELETE} AND moved = 0 RETURNING seq"
                return bool(await self._do(text, self._base_url, key))
            if await self.store.run(partial(may_drop, key)) is None:
                return False
            await self._do(_DELETE, self._base_url, key)  # first, as in _forget
            return await super().drop(key)

    async def _forget(self, keys: Sequence[str]) -> None:
        """Delete the rows of *keys* first: without an entry, they would keep their keys from new writes."""
        known = await self.store.rows(KNOWN, list(keys))
        await self._do(
            _DELETE_OLD, self._base_url, [(key, digest) for key, _, digest, *_ in known]
        )


def _connected(path: Path, name: str, *, reading: bool) -> sqlite3.Connection:
    """Connect to *path*, and create the tables that are missing; with *reading*, change nothing."""
    with ExitStack() as opened:
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        opened.callback(connection.close)
        if reading:
            connection.execute("PRAGMA query_only = 1")
        else:
            connection.executescript(_TABLES)
        columns = connection.execute("PRAGMA table_info(invsvc_outbox)").fetchall()
        defaults = {column: default for _, column, _, _, default, _ in columns}
        # The default of this column is the version of the table.
        if "digest" not in defaults or defaults.get("version") != str(_VERSION):
            raise JournalError(
                f"{name}: its table invsvc_outbox is of another version. Use the version of the package that "
                "created it, or a newer one."
            )
        opened.pop_all()
        return connection


def _take_in(
    new: Sequence[Entry], commons: Mapping[int, str]
) -> Script[tuple[int, int | None]]:
    """
    Insert the entries of *new* rows; return how many were taken, and the number before those of new ones.

    One whose key has an entry with the same digest was moved before a kill.  Where the entry is another
    write, its deletion was interrupted, or the application's file is an older copy, which did not have it.
    It is deleted once it is done; until then, the rows from there on have to wait.
    """
    digests = {row.key: row.digest for row in new}
    there = yield KNOWN, ([*digests],)
    others = {
        key: state for key, _, digest, state, _ in there if digest != digests[key]
    }
    taken = [*takewhile(lambda row: others.get(row.key, State.DONE) == State.DONE, new)]
    if replaced := [row.key for row in taken if row.key in others]:
        yield _NOT_HEARD, (replaced,)
        yield "DELETE FROM {s}entries WHERE key {any 1 text}", (replaced,)
    numbers: set[int] = set()
    if taken:
        yield from add(taken, commons, ours=numbers)
    return len(taken), min(numbers) - 1 if numbers else None


def _end_lost(moved: Sequence[Entry]) -> Script[None]:
    """Insert entries with the verdict UNKNOWN for rows that were *moved* and have none."""
    known = {key for key, *_ in (yield KNOWN, ([row.key for row in moved],))}
    if lost := [row for row in moved if row.key not in known]:
        yield from add(lost, {}, ours=set())
        ended = verdict_of_lost(lost[0])
        values = int(State.DONE), ended.verdict, ended.outcome, ended.done_at
        yield _END, (*values, [row.key for row in lost])
