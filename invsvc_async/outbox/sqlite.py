"""
An outbox in SQLite, for one process that sends.

The application's transaction inserts a row in its own file.  The dispatcher moves it to a journal beside that
file, whose entries are those of a batch.  A row that was moved but not marked so is recognised by its key.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.batch.batch import reopened
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.batch.restored import mark_all
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.intents import pack
from invsvc_async.durable.records import verdict_of_lost, verdict_of_unfit
from invsvc_async.durable.sqlite_entries import entries
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.outbox import caller_connections
from invsvc_async.outbox import sqlite_prune as prune
from invsvc_async.outbox import sqlite_rows as rows
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.intent import Intent
from invsvc_async.storage.same_file import SameFile
from invsvc_async.storage.sqlite_writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from invsvc_async.transport.session import ClientState

__all__ = ["SqliteStore"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_AT_ONCE = 128
_SLOW, _FAST = 0.5, 0.01  # s between looks for new rows; fast for a while after an enqueue in this process
_FAST_FOR = 5.0  # s
# The journal's column ``run`` is 1 once a verdict was acknowledged.
_WHICH = {
    None: "true", "open": "state < 2", "applied": "verdict = 'applied'", "untold": "state = 2 AND run = 0",
}  # fmt: skip
_UNHEARD = "CREATE INDEX IF NOT EXISTS unheard ON entries (seq) WHERE state = 2 AND run = 0"
_NOT_HEARD = "UPDATE entries SET run = 0 WHERE state < 2 AND run = 1"  # they were reopened


class _Journal(SqliteBatch):
    """The journal beside the application's file."""

    it: ClassVar[str | None] = "the outbox"

    in_use: ClassVar[str] = (
        "Call retry, drop or prune of the outbox in that process, or stop it first. The commands list and "
        "show, and Outbox.open(…, reading=True), work beside it."
    )

    def __init__(self, path: Path, *, reading: bool, restored: bool, moved: bool) -> None:
        super().__init__(path, reading=reading, restored=restored, moved=moved)
        self.kind: str = "the journal of an outbox"

    def _prepare(self, connection: sqlite3.Connection) -> None:
        super()._prepare(connection)
        if not self._reading:
            connection.execute(_UNHEARD)
            connection.execute(_NOT_HEARD)  # in case that a process was killed as it reopened them


class SqliteStore:
    """The outbox in the application's file at *path*."""

    database: caller_connections.Database = "SQLite"
    silence: float = 10.0  # s; of one process, nothing depends on it

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        restored: bool = False,
        moved: bool = False,
        reading: bool = False,
    ) -> None:
        self._path = Path(path)
        self._reading = reading
        self._create = create
        self._restored, self._moved = restored, moved
        self._base_url = ""
        self._journal: _Journal | None = None
        self._writer: Writer | None = None
        # Who has which verdicts, at which positions, and has not acknowledged them.
        self._given: dict[int, tuple[str, int | None]] = {}
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
        journal = self._journal = _Journal(
            place, reading=self._reading, restored=self._restored, moved=self._moved
        )
        try:
            await journal.open()
            mine = session.credential.fingerprint(session.base_url)
            theirs = await journal.fact("credential", None if self._reading else mine)
            _check_credential(mine, theirs, same_mode=same_mode)
            self._writer = await self._started()
            if not self._reading:
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
        known = await self._app.act(partial(rows.journal_of, self._base_url, epoch))
        if known != epoch and not (self._restored or self._moved):
            raise JournalError(
                f"outbox {self._path}: the file {journal.path.name} is not the one that was beside it, so "
                "writes may have been sent that it does not have. Nothing was sent. Put that file back, "
                "with its .epoch. If it is lost, run the outbox with --restored (restored=True), which "
                "settles what may have been sent before it sends."
            )
        await self._app.act(partial(rows.use_journal, self._base_url, epoch))
        if self._restored:  # rows that were not moved yet are of the copy too
            while (await self.move(lambda _: None, are_of_copy=True))[1]:
                pass
            await self._name_lost(journal)
            await journal.ask(mark_all)

    async def _name_lost(self, journal: _Journal) -> None:
        """Store UNKNOWN for rows that were moved to a journal that is lost: nothing can settle them."""
        after: int | None = 0
        while after is not None:
            values = self._base_url, after, _AT_ONCE
            found = await self._app.act(partial(rows.moved_rows, values))
            stored = await journal.marks([key for _, key, _, _ in found], 0)
            for _, key, content, operation in found:
                if key not in stored:
                    entry = Entry(key=key, content=content, state=State.SENDING, operation=operation)
                    await journal.put(verdict_of_lost(entry))
            after = found[-1][0] if found else None

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
        row = await caller_connections.first_row(connection, rows.INSERT, values)
        self._fast_until = asyncio.get_running_loop().time() + _FAST_FOR
        self._enqueued.set()
        return row is not None

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the write of *key*, as the transaction of *connection* sees it."""
        text = "SELECT content FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
        row = await caller_connections.first_row(connection, text, (self._base_url, key))
        return None if row is None else bytes(row[0])

    # --- sending

    async def changed(self) -> None:
        """Wait until it is time to look for new rows."""
        fast = asyncio.get_running_loop().time() < self._fast_until
        self._enqueued.clear()
        await set_within(self._enqueued, _FAST if fast else _SLOW)
        if not fast and self._enqueued.is_set():
            await asyncio.sleep(_FAST)

    async def move(
        self, unfit: Callable[[Intent], None], *, are_of_copy: bool = False
    ) -> tuple[list[Entry], bool]:
        """
        Move new rows to the journal; return their entries, in order, and whether there were any.

        *unfit* raises an error for an intent that cannot be sent. Such a row gets a verdict, and is kept; if
        the rows *are_of_copy*, they may have been sent since.
        """
        async with self._moving:
            new = await self._app.act(partial(rows.new_rows, self._base_url, _AT_ONCE))
            if not new:
                return [], False
            journal = self.entries
            stored, in_use = await self._moved_before({row[1]: bytes(row[2]) for row in new})
            new = [*takewhile(lambda row: row[1] not in in_use, new)]  # also later ones: in order
            if not new:
                return [], False
            kept: list[int] = []
            fresh: list[str] = []
            puts = []
            for seq, key, content, operation, written in new:
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
                    entry = verdict_of_lost(entry) if are_of_copy else verdict_of_unfit(entry, error)
                    kept.append(seq)
                puts.append(journal.put(entry))
            await asyncio.gather(*puts)
            done = [(row[0],) for row in new]
            await self._app.act(partial(rows.mark, done, kept))
            return await self._of_keys(fresh), True

    async def _moved_before(self, contents: Mapping[str, bytes]) -> tuple[set[str], set[str]]:
        """
        Return which rows were moved before a kill, and which have to wait for another write under their key.

        Both by their keys; *contents* are the digests of rows by key. Unfit rows are to be moved once more.
        Where the entry is another write, its deletion was interrupted, or the application's file is an older
        copy, which did not have it. It is deleted once it is done.
        """
        moved: set[str] = set()
        in_use: set[str] = set()
        if not await self.entries.marks([*contents], 0):
            return moved, in_use
        for entry in await self._of_keys([*contents]):
            if entry.content != contents[entry.key]:
                if entry.state is not State.DONE:
                    in_use.add(entry.key)
                    continue
                await self.entries.ask(partial(prune.drop, entry.key))
                self._given.pop(entry.seq, None)
            elif not _is_unfit(entry):
                moved.add(entry.key)
        return moved, in_use

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
        self._given = {seq: each for seq, each in self._given.items() if not each[0].startswith(name)}

    async def take_verdicts(self, taker: str, limit: int) -> list[Entry]:
        """Assign entries that are done, and that nobody has acknowledged or has, to *taker*."""
        where = "state = 2 AND run = 0 ORDER BY seq LIMIT ?"
        most = limit + len(self._given)
        found = await self.entries.ask(lambda connection: entries(connection, where, (most,)))
        taken = [entry for entry in found if entry.seq not in self._given][:limit]
        self._given.update((entry.seq, (taker, entry.position)) for entry in taken)
        return taken

    async def keep_verdicts(self, taker: str, seqs: Sequence[int]) -> set[int]:  # noqa: ARG002 - as the protocol
        """Return *seqs*: there is one process, so nobody else takes them."""
        return {*seqs}

    async def release_verdicts(self, taker: str, seqs: Sequence[int]) -> None:  # noqa: ARG002 - as the protocol
        """Return the verdicts of these entries, so that anybody may take them."""
        for seq in seqs:
            self._given.pop(seq, None)

    async def acknowledge(self, taker: str, seqs: Sequence[int]) -> None:
        """Note that *taker* acknowledged the verdicts of these entries. Those reopened meanwhile stay."""
        given = {seq: self._given[seq] for seq in seqs if self._given.get(seq, ("", 0))[0] == taker}
        rows = [(seq, position) for seq, (_, position) in given.items()]
        text = "UPDATE entries SET run = 1 WHERE seq = ? AND state = 2 AND position IS ?"
        await self.entries.ask(lambda connection: connection.executemany(text, rows).rowcount)
        self._given = {seq: each for seq, each in self._given.items() if given.get(seq) is not each}

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*, which may not have been moved yet."""
        moved, new = await self._of_keys([key]), await self._new(rows.new_of_key, key)
        for entry in moved:
            entry.heard = bool(entry.run)
        if moved and new and moved[0].content != new[0].content:  # of an older copy of the file
            return new[0]
        return next(iter((*moved, *new)), None)

    async def _new(self, look: Callable[..., list[Any]], value: object) -> list[Entry]:  # Any: the columns
        """Return what was not moved yet."""
        found = await self._app.act(partial(look, self._base_url, value))
        return [
            Entry(key=row[1], content=bytes(row[2]), state=State.TO_DO, operation=row[3]) for row in found
        ]

    # --- for people

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries: ``"open"`` ones, ``"untold"`` ones, or those of a verdict."""
        which = _WHICH.get(state, "verdict = ? AND verdict <> 'applied'")  # as an index needs it
        values = (limit,) if state in _WHICH else (state, limit)
        where = f"{which} ORDER BY seq LIMIT ?"
        found = await self.entries.ask(lambda connection: entries(connection, where, values))
        for entry in found:
            entry.heard = bool(entry.run)
        if state in (None, "open"):
            found += await self._new(rows.new_rows, limit - len(found))
        return found

    async def do_again(self, keys: Iterable[str]) -> list[str]:
        """Reopen entries that are done and not applied; return their keys."""
        async with self._moving:
            return await self._do_again(sorted(set(keys)))

    async def _do_again(self, wanted: Sequence[str]) -> list[str]:
        before = [entry for entry in await self._of_keys(wanted) if entry.state is State.DONE]
        unfit = [entry for entry in before if _is_unfit(entry)]
        unmark = partial(rows.unmark, self._base_url)
        unfit = [entry for entry in unfit if await self._app.act(partial(unmark, entry.key))]
        for entry in unfit:  # its row is kept, and moved once more
            await self.entries.take_out(entry.key)
        kept = [entry.key for entry in before if entry.intent is not None]
        await reopened(keys=kept)(self.entries)
        again = [entry for entry in await self._of_keys(kept) if entry.state is not State.DONE]
        for entry in again:
            self._given.pop(entry.seq, None)
        await self.entries.ask(lambda connection: connection.execute(_NOT_HEARD).rowcount)
        self._again += [entry.key for entry in again]
        self._enqueued.set()
        return sorted(entry.key for entry in (*again, *unfit))

    async def drop(self, key: str) -> bool:
        """Delete a row that was not moved yet, or an entry that is done; return whether there was one."""
        async with self._moving:
            found = await self._of_keys([key])  # first: a kill may have left a moved row unmarked
            if not found:
                return bool(await self._app.act(partial(rows.drop, self._base_url, key)))
            (entry,) = found
            if entry.state is not State.DONE:
                return False
            await self._app.act(partial(rows.delete_rows, self._base_url, [key]))
            await self.entries.ask(partial(prune.drop, key))
            self._given.pop(entry.seq, None)  # another entry may get this number
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
                look = partial(prune.old_in, before, after, unacknowledged=unacknowledged)
                old, last = await self.entries.ask(look)
                if old:  # the row first: a row without an entry would keep its key from being sent again
                    await self._app.act(partial(rows.delete_rows, self._base_url, old))
                    await self.entries.ask(partial(prune.delete, old))
            count, after, more = count + len(old), last or 0, last is not None
        thing: str | None = ""
        while thing is not None:
            thing = await self.entries.ask(partial(prune.empty_states, thing))
        return count


def _is_unfit(entry: Entry) -> bool:
    """Return whether *entry* was not sent, because its intent could not be read; its row is kept."""
    return entry.state is State.DONE and entry.intent is None and entry.verdict == Verdict.NOT_APPLIED


def _check_credential(mine: str | None, theirs: str | None, *, same_mode: bool) -> None:
    if None not in (mine, theirs) and mine != theirs and not same_mode:
        raise InvalidRequestError(
            "client: this outbox was begun with another credential",
            hint="If this one has the same team and data mode, pass same_mode=True (invsvc: --same-mode).",
        )
