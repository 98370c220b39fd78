"""
An outbox in SQLite, for one process that sends.

The application's transaction inserts a row in its own file.  The dispatcher moves it to a journal beside that
file, whose entries are those of a batch.  A row that was moved but not marked so is recognised by its key.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.batch.batch import reopened
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.batch.restored import mark_all
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.journal.entry import Entry, State
from invsvc_async.journal.packed_intent import pack
from invsvc_async.journal.sqlite_entries import entries
from invsvc_async.outbox import caller_connections
from invsvc_async.outbox.run import OutboxRun
from invsvc_async.outbox.sqlite_prune import delete, empty_states, follow_deleted, old_in
from invsvc_async.outbox.unsendable import verdict_of_lost, verdict_of_unfit
from invsvc_async.reconcile.intent import Intent
from invsvc_async.storage.sqlite_errors import in_words
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.engine import Engine
    from invsvc_async.transport.session import ClientState

__all__ = ["SqliteOutbox"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_VERSION = 1
_TABLE = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, content BLOB NOT NULL,
    operation TEXT NOT NULL, intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT {_VERSION}, UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
_INSERT = """
INSERT INTO invsvc_outbox (base_url, key, content, operation, intent)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING seq
"""
_NEW = """
SELECT seq, key, content, operation, intent FROM invsvc_outbox WHERE base_url = ? AND moved = 0
    ORDER BY seq LIMIT ?
"""
_NEW_OF_KEY = """
SELECT seq, key, content, operation, intent FROM invsvc_outbox WHERE base_url = ? AND key = ? AND moved = 0
"""
_AT_ONCE = 128
_PATIENCE = 5.0  # s to wait for a lock of the application
_SLOW, _FAST = 0.5, 0.01  # s between looks for new rows; fast for a while after an enqueue in this process
_FAST_FOR = 5.0  # s
_WHICH = {None: "true", "open": "state < 2", "applied": "verdict = 'applied'"}
# The journal's column ``run`` is 1 once a verdict was acknowledged.
_UNHEARD = "CREATE INDEX IF NOT EXISTS unheard ON entries (seq) WHERE state = 2 AND run = 0"


class _Journal(SqliteBatch):
    """The journal beside the application's file."""

    it: ClassVar[str | None] = "the outbox"

    def __init__(self, path: Path, *, restored: bool, moved: bool) -> None:
        super().__init__(path, restored=restored, moved=moved)
        self.kind: str = "the journal of an outbox"

    def _prepare(self, connection: sqlite3.Connection) -> None:
        super()._prepare(connection)
        connection.execute(_UNHEARD)


class SqliteOutbox:
    """The outbox in the application's file at *path*."""

    database: caller_connections.Database = "SQLite"
    silence: float = 10.0  # s; of one process, nothing depends on it

    def __init__(
        self, path: str | Path, *, create: bool = True, restored: bool = False, moved: bool = False
    ) -> None:
        self._path = Path(path)
        self._create = create
        self._restored, self._moved = restored, moved
        self._base_url = ""
        self._journal: _Journal | None = None
        self._writer: Writer | None = None
        self._given: dict[int, str] = {}  # who has which verdicts, and has not acknowledged them
        self._moving = asyncio.Lock()
        self._fast_until = 0.0  # loop time
        self._enqueued = asyncio.Event()
        self._again: list[str] = []  # keys of reopened entries, which the dispatcher takes up

    @property
    def entries(self) -> SqliteBatch:
        """The journal of the batch that sends them."""
        if self._journal is None:
            raise JournalError("outbox: it is not open. Use it with `async with`.")
        return self._journal

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """
        Open both files, and create what is missing.

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
        journal = self._journal = _Journal(place, restored=self._restored, moved=self._moved)
        try:
            await journal.open()
            mine = session.credential.fingerprint(session.base_url)
            theirs = await journal.fact("credential", mine)
            _check_credential(mine, theirs, same_mode=same_mode)
            self._writer = await self._started()
            await self._belongs_together(journal)
        except BaseException:
            await self.aclose()
            self._journal = None
            raise

    async def _belongs_together(self, journal: _Journal) -> None:
        """
        Check that the journal is the one that has moved rows of this file.

        Raises:
            JournalError: It is another one, or new.

        """
        epoch = await journal.fact("epoch")
        known = await self._app.act(partial(_journal_of, self._base_url, epoch))
        if known != epoch and not (self._restored or self._moved):
            raise JournalError(
                f"outbox {self._path}: the file {journal.path.name} is not the one that was beside it, so "
                "writes may have been sent that it does not have. Nothing was sent. Put that file back, "
                "with its .epoch. If it is lost, run the outbox with --restored (restored=True), which "
                "settles what may have been sent before it sends."
            )
        await self._app.act(partial(_use_journal, self._base_url, epoch))
        if self._restored:  # rows that were not moved yet are of the copy too
            while (await self.move(lambda _: None))[1]:
                pass
            await self._name_lost(journal)
            await journal.ask(mark_all)

    async def _name_lost(self, journal: _Journal) -> None:
        """Store UNKNOWN for rows that were moved to a journal that is lost: nothing can settle them."""
        after: int | None = 0
        while after is not None:
            values = self._base_url, after, _AT_ONCE
            rows = await self._app.act(partial(_moved_rows, values))
            stored = await journal.marks([key for _, key, _, _ in rows], 0)
            for _, key, content, operation in rows:
                if key not in stored:
                    entry = Entry(key=key, content=content, state=State.SENDING, operation=operation)
                    await journal.put(verdict_of_lost(entry))
            after = rows[-1][0] if rows else None

    async def _started(self) -> Writer:
        writer = Writer(f"outbox {self._path}", self._connect)
        await writer.start()
        return writer

    def _connect(self) -> sqlite3.Connection:
        name = f"outbox {self._path}"
        try:
            connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            try:
                connection.executescript(_TABLE)
                names = [row[1] for row in connection.execute("PRAGMA table_info(invsvc_outbox)")]
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise in_words(name, error) from error
        if "version" not in names:
            connection.close()
            raise JournalError(
                f"{name}: its table invsvc_outbox is of another version. Use the version of the package that "
                "created it, or a newer one."
            )
        return connection

    async def aclose(self) -> None:
        """Store everything and close both files."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()
        if self._journal is not None:
            await self._journal.aclose()

    @property
    def _app(self) -> Writer:
        if self._writer is None:
            raise JournalError(f"outbox {self._path}: it is not open. Use it with `async with`.")
        return self._writer

    # --- in the transaction of the application

    async def insert(
        self,
        connection: object,
        intent: Intent,
        content: bytes,
        thing: str | None,  # noqa: ARG002 - as others
    ) -> bool:
        """
        Insert a write in the transaction of *connection*; return whether its key was new.

        SQLite has one writer at a time, so the numbers are in the order of the commits.
        """
        values = self._base_url, intent.key, content, intent.operation, intent.to_json()
        row = await caller_connections.first_row(connection, _INSERT, values)
        self._fast_until = asyncio.get_running_loop().time() + _FAST_FOR
        self._enqueued.set()
        return row is not None

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the write of *key*, as the transaction of *connection* sees it."""
        text = "SELECT content FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
        row = await caller_connections.first_row(connection, text, (self._base_url, key))
        return None if row is None else bytes(row[0])

    # --- sending

    async def dispatch(self, batch: Batch, grace: float, on_verdict: Callable[[], None]) -> None:
        """Send what is committed, until cancelled. *on_verdict* is called when verdicts were stored."""
        await _SqliteDispatcher(batch, self, grace, on_verdict).dispatch()

    async def changed(self) -> None:
        """Wait until it is time to look for new rows."""
        fast = asyncio.get_running_loop().time() < self._fast_until
        self._enqueued.clear()
        await set_within(self._enqueued, _FAST if fast else _SLOW)
        if not fast and self._enqueued.is_set():
            await asyncio.sleep(_FAST)

    async def move(self, unfit: Callable[[Intent], None]) -> tuple[list[Entry], bool]:
        """
        Move new rows to the journal; return their entries, in order, and whether there were any.

        *unfit* raises an error for an intent that cannot be sent. Such a row gets a verdict, and is kept.
        """
        async with self._moving:
            text, values = _NEW, (self._base_url, _AT_ONCE)
            rows = await self._app.act(lambda connection: connection.execute(text, values).fetchall())
            if not rows:
                return [], False
            journal = self.entries
            stored = await journal.marks([row[1] for row in rows], 0)
            kept: list[int] = []
            fresh: list[str] = []
            puts = []
            for seq, key, content, operation, written in rows:
                if key in stored:  # it was moved, and then the process was killed
                    continue
                entry = Entry(key=key, content=bytes(content), state=State.TO_DO, operation=operation)
                try:
                    intent = Intent.from_json(written)
                    unfit(intent)
                    packed = pack(intent, journal.commons)
                    entry.common, entry.intent = packed.common, packed.text
                    fresh.append(key)
                except InvalidRequestError as error:
                    entry = verdict_of_unfit(entry, error)
                    kept.append(seq)
                puts.append(journal.put(entry))
            await asyncio.gather(*puts)
            done = [(row[0],) for row in rows]
            await self._app.act(partial(_mark, done, kept))
            return await self._of_keys(fresh), True

    async def _of_keys(self, keys: Sequence[str]) -> list[Entry]:
        marks = ", ".join("?" * len(keys))
        where = f"key IN ({marks}) ORDER BY seq"
        return await self.entries.ask(lambda connection: entries(connection, where, list(keys)))

    async def take_again(self, held: Mapping[str, object]) -> list[Entry]:
        """Return the entries that were reopened, and are not *held*."""
        again, self._again = self._again, []
        found = await self._of_keys(again) if again else []
        return [entry for entry in found if entry.state is not State.DONE and entry.key not in held]

    def put_off(self, key: str) -> None:
        """Return the entry of *key* from :meth:`take_again` later."""
        self._again.append(key)

    # --- verdicts

    async def show_life(self, name: str) -> None:
        """Do nothing: there is one process."""

    async def leave(self, name: str) -> None:
        """Release the verdicts that *name* was given and has not acknowledged."""
        self._given = {seq: taker for seq, taker in self._given.items() if not taker.startswith(name)}

    async def take_verdicts(self, taker: str, limit: int) -> list[Entry]:
        """Assign entries that are done, and that nobody has acknowledged or has, to *taker*."""
        where = "state = 2 AND run = 0 ORDER BY seq LIMIT ?"
        most = limit + len(self._given)
        found = await self.entries.ask(lambda connection: entries(connection, where, (most,)))
        taken = [entry for entry in found if entry.seq not in self._given][:limit]
        self._given.update((entry.seq, taker) for entry in taken)
        return taken

    async def acknowledge(self, seqs: Sequence[int]) -> None:
        """Note that the verdicts of these entries were acknowledged."""
        rows = [(seq,) for seq in seqs]
        text = "UPDATE entries SET run = 1 WHERE seq = ?"
        await self.entries.ask(lambda connection: connection.executemany(text, rows).rowcount)
        for seq in seqs:
            self._given.pop(seq, None)

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*, which may not have been moved yet."""
        found = await self._of_keys([key]) or await self._new(_NEW_OF_KEY, key)
        return found[0] if found else None

    async def _new(self, text: str, value: object) -> list[Entry]:
        """Return what was not moved yet."""
        values = self._base_url, value
        rows = await self._app.act(lambda connection: connection.execute(text, values).fetchall())
        return [Entry(key=row[1], content=bytes(row[2]), state=State.TO_DO, operation=row[3]) for row in rows]

    # --- for people

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries: with ``"open"`` those without a verdict, or those of a verdict."""
        which = _WHICH.get(state, "verdict = ? AND verdict <> 'applied'")  # as an index needs it
        values = (limit,) if state in _WHICH else (state, limit)
        where = f"{which} ORDER BY seq LIMIT ?"
        found = await self.entries.ask(lambda connection: entries(connection, where, values))
        if state in (None, "open"):
            found += await self._new(_NEW, limit - len(found))
        return found

    async def do_again(self, keys: Iterable[str]) -> list[str]:
        """Reopen entries that are done and not applied; return their keys."""
        async with self._moving:
            return await self._do_again(sorted(set(keys)))

    async def _do_again(self, wanted: Sequence[str]) -> list[str]:
        before = [entry for entry in await self._of_keys(wanted) if entry.state is State.DONE]
        unfit = [entry for entry in before if entry.intent is None and entry.verdict != "applied"]
        unmark = partial(_unmark, self._base_url)
        unfit = [entry for entry in unfit if await self._app.act(partial(unmark, entry.key))]
        for entry in unfit:  # its row is kept, and moved once more
            await self.entries.take_out(entry.key)
        kept = [entry.key for entry in before if entry.intent is not None]
        await reopened(keys=kept)(self.entries)
        found = await self._of_keys(kept)
        again = [entry.key for entry in found if entry.state is not State.DONE]
        reset = [(key,) for key in again]
        text = "UPDATE entries SET run = 0 WHERE key = ?"
        await self.entries.ask(lambda connection: connection.executemany(text, reset).rowcount)
        self._again += again
        self._enqueued.set()
        return sorted([*again, *(entry.key for entry in unfit)])

    async def drop(self, key: str) -> bool:
        """Delete a row that was not moved yet, or an entry that is done; return whether there was one."""
        async with self._moving:
            if await self._app.act(partial(_drop, self._base_url, key)):
                return True
            entry = await self.entry(key)
            if entry is None or entry.state is not State.DONE:
                return False
            await self._app.act(partial(_delete_rows, self._base_url, [key]))
            await self.entries.take_out(key)
            await self.entries.ask(follow_deleted)
            return True

    async def delete_done(self, before: int, *, unacknowledged: bool) -> int:
        """
        Delete entries done before *before* (epoch ms), in short transactions; return how many.

        UNKNOWN ones stay, and so do those whose verdict nobody has acknowledged, unless *unacknowledged*, and
        the last entry of all.
        """
        count = after = 0
        more = True
        while more:
            async with self._moving:
                look = partial(old_in, before, after, unacknowledged=unacknowledged)
                old, last = await self.entries.ask(look)
                if old:  # the row first: a row without an entry would keep its key from being sent again
                    await self._app.act(partial(_delete_rows, self._base_url, old))
                    await self.entries.ask(partial(delete, old))
            count, after, more = count + len(old), last or 0, last is not None
        thing: str | None = ""
        while thing is not None:
            thing = await self.entries.ask(partial(empty_states, thing))
        return count


def _journal_of(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> str | None:
    """Return the epoch of the journal that has moved rows of this file: *epoch* if there was none yet."""
    text = "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = ?"
    row = connection.execute(text, (base_url,)).fetchone()
    return epoch if row is None else row[0]


def _use_journal(base_url: str, epoch: str | None, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO invsvc_outbox_journal VALUES (?, ?)", (base_url, epoch))


def _check_credential(mine: str | None, theirs: str | None, *, same_mode: bool) -> None:
    if None not in (mine, theirs) and mine != theirs and not same_mode:
        raise InvalidRequestError(
            "client: this outbox was begun with another credential",
            hint="If this one has the same team and data mode, pass same_mode=True.",
        )


def _mark(done: list[tuple[int]], kept: list[int], connection: sqlite3.Connection) -> None:
    """Mark rows as moved, and delete the intents of those that are not to be *kept*."""
    connection.executemany("UPDATE invsvc_outbox SET moved = 1 WHERE seq = ?", done)
    rows = [(seq,) for (seq,) in done if seq not in kept]
    connection.executemany("UPDATE invsvc_outbox SET intent = '' WHERE seq = ?", rows)


def _unmark(base_url: str, key: str, connection: sqlite3.Connection) -> int:
    """Mark a row as to be moved again, if its intent was kept; return how many."""
    text = "UPDATE invsvc_outbox SET moved = 0 WHERE base_url = ? AND key = ? AND intent <> ''"
    return connection.execute(text, (base_url, key)).rowcount


def _moved_rows(values: tuple[object, ...], connection: sqlite3.Connection) -> list[Any]:  # Any: the columns
    text = """
        SELECT seq, key, content, operation FROM invsvc_outbox
        WHERE base_url = ? AND moved = 1 AND seq > ? ORDER BY seq LIMIT ?
    """
    return connection.execute(text, values).fetchall()


def _drop(base_url: str, key: str, connection: sqlite3.Connection) -> int:
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ? AND moved = 0"
    return connection.execute(text, (base_url, key)).rowcount


def _delete_rows(base_url: str, keys: Sequence[str], connection: sqlite3.Connection) -> None:
    text = "DELETE FROM invsvc_outbox WHERE base_url = ? AND key = ?"
    connection.executemany(text, [(base_url, key) for key in keys])


class _SqliteDispatcher(OutboxRun):
    """The run of the one process that sends."""

    def __init__(
        self, batch: Batch, store: SqliteOutbox, grace: float, on_verdict: Callable[[], None]
    ) -> None:
        super().__init__(batch, grace, on_verdict)
        self._store = store

    async def _feed_all(self, engine: Engine) -> None:
        store, journal = self._store, self._store.entries
        await self._end_unfit(journal)
        await self._feed_left(engine, journal, None)
        while True:
            await engine.room()
            again = await store.take_again(engine.held)
            new, more = await store.move(partial(self._check, in_doubt=False))
            if more:
                self._on_verdict()  # of rows that are unfit
            found = [*again, *new]
            items = [self._item(entry, journal) for entry in found]
            busy = {item.thing for item in engine.held.values() if item.thing is not None}
            await self._taken_up(found, items, {})
            for entry, item in zip(found, items, strict=True):
                if entry in again and item.thing in busy:  # what is under way is newer
                    store.put_off(entry.key)
                    continue
                await engine.room()
                engine.add(item)
            if not more:
                await store.changed()

    async def _end_unfit(self, journal: SqliteBatch) -> None:
        """Store a verdict for what an earlier process left, and this version cannot read."""
        after = 0
        while page := await journal.not_done(after, _AT_ONCE):
            for entry in page:
                try:
                    intent = self._intent(entry)
                    self._check(intent, in_doubt=bool(intent.sent))
                except (JournalError, InvalidRequestError) as error:
                    log.error("outbox: %s: %s", entry.key, error)  # noqa: TRY400 - the message is enough
                    await journal.put(verdict_of_unfit(entry, error))
            after = page[-1].seq
