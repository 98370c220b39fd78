"""
The journal of a client's single writes in one SQLite file.

An intent is stored before the first byte of its write.  Its verdict is stored before the application gets
it, and removed once the application has it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.journal.doubt import in_doubt
from invsvc_async.journal.entry import Entry, State
from invsvc_async.journal.epoch import CountedEntries
from invsvc_async.journal.full_outcome_record import (
    intent_of,
    is_answered,
    outcome_of,
    store_or_log,
    verdict_record,
)
from invsvc_async.journal.packed_intent import Packed, pack
from invsvc_async.journal.sqlite_entries import entries
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["SqliteJournal"]

_PAGE = 256  # entries read at once
# A verdict that the application has had is removed between one and two of these periods later.  That leaves
# tasks time to pass it on, and groups removals in few commits.
_HEARD_AFTER = 0.05  # s
_OPEN, _DONE = f"state < {State.DONE:d}", f"state = {State.DONE:d}"


class _Entries(CountedEntries):
    """The entries of the journal. What an older copy has as open may have been sent since."""

    it: ClassVar[str | None] = None

    def _mark_restored(self, connection: sqlite3.Connection) -> None:
        for entry in entries(connection, _OPEN):
            with suppress(JournalError):  # it cannot be read, and recovering says so
                intent = in_doubt(intent_of(entry, self.commons))
                values = pack(intent, self.commons).text, entry.seq
                connection.execute("UPDATE entries SET intent = ? WHERE seq = ?", values)


class SqliteJournal:
    """
    The journal of ``Client(journal="journal.db")``: one SQLite file, one process at a time.

    The file contains the open writes, and the verdicts that no application has had yet.  Bodies are stored in
    plain text, because they may be sent again; the file's mode is 0600.

    A file that was put back from an older copy is recognised by the file ``.epoch`` beside it. That is logged
    as an error, and its open writes are settled as if they had been sent since.
    """

    def __init__(self, path: str | Path) -> None:
        self._entries = _Entries(path, "an outbox")
        self._opened = False
        self._closed = False
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the first opening
        self._run = 0  # counts the openings: an entry with a smaller number is from an earlier process
        # All that follow are by the identity of intents, which is the key of their entries.
        self._left: set[str] = set()  # entries of earlier processes
        self._open: set[str] = set()  # entries without a verdict
        self._done: set[str] = set()  # entries with a verdict
        self._sent: dict[str, Packed] = {}  # what was stored before the last send, until the verdict
        self._heard: dict[str, None] = {}  # entries to be removed after the next period, in order
        self._next: dict[str, None] = {}  # entries to be removed after this period
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """
        Acquire the file; does nothing if it is open.

        Raises:
            JournalError: Another process owns it; it is damaged, of a newer version, or not the journal
                of a client; the folder is not writable.
            ConfigurationError: It belongs to another event loop.

        """
        if self._closed:
            raise JournalError(
                f"journal {self._entries.path}: the client is closed, so nothing was sent. Open a new client."
            )
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise ConfigurationError(
                f"journal {self._entries.path}: its client belongs to the event loop that used it first. "
                "Make one client for each loop."
            )
        async with self._opening:
            if not self._opened:
                await self._entries.open()
                try:
                    await self._take_over()
                except BaseException:
                    await self._entries.aclose()
                    raise
                self._opened = True

    async def _take_over(self) -> None:
        """Start another run, and note what earlier ones have left."""
        self._run = await self._entries.next_run()
        found = await self._entries.ask(_keys)
        self._left = {key for key, _ in found}
        self._done = {key for key, state in found if state == State.DONE}
        self._open = self._left - self._done

    async def sending(self, intent: Intent) -> None:
        """
        Store *intent*, durably, before a send of it.

        Raises:
            JournalError: It cannot be stored; the send must not happen.

        """
        await self.open()
        self._reopen(intent.identity)
        self._left.discard(intent.identity)
        self._open.add(intent.identity)
        packed = self._sent[intent.identity] = pack(intent, self._entries.commons)
        await self._entries.put(self._entry(State.SENDING, intent, packed))

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Store the progress of a cancelled write, without waiting.

        If provably no byte of it left, it is removed.  A verdict that is already stored stays, because the
        application has not had it.  What was never sent under this journal is not stored.
        """
        if not self._opened or intent.identity not in self._open:
            return
        self._reopen(intent.identity)
        self._sent.pop(intent.identity, None)
        if sent:
            self._entries.put(self._entry(State.SENDING, intent))
        else:
            self._left.discard(intent.identity)
            self._open.discard(intent.identity)
            self._entries.take_out(intent.identity)

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict of a write; with UNKNOWN it stays open, unless it was never sent under this journal.

        A verdict that cannot be stored is logged, and the write stays open in the file.
        """
        identity = outcome.started_as.identity
        if not self._opened or (outcome.verdict is Verdict.UNKNOWN and identity not in self._open):
            return
        self._reopen(identity)
        packed = self._sent.pop(identity, None)
        if outcome.verdict is Verdict.UNKNOWN:
            self._left.discard(identity)  # this process does not recover it again
            entry = self._entry(State.SENDING, outcome.intent)
        else:
            self._open.discard(identity)
            self._done.add(identity)
            as_sent = packed is not None and is_answered(outcome)
            entry = self._entry(
                State.DONE,
                outcome.started_as if as_sent else outcome.intent,
                packed if as_sent else None,
                verdict=outcome.verdict.value,
                outcome=verdict_record(outcome),
            )
        await store_or_log(self._entries.put(entry), outcome)

    def heard(self, identity: str) -> None:
        """
        Remove the verdict of *identity*, which the application has had, together with others, soon.

        An open intent stays.
        """
        if self._opened and identity in self._done:
            self._heard[identity] = None
            if self._timer is None:
                self._wait()

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the open intents of earlier processes, oldest first."""
        async for entry in self._walk(_OPEN):
            yield intent_of(entry, self._entries.commons)

    async def unheard(self) -> AsyncIterator[Outcome[Any]]:  # Any: the operation says what its value is
        """
        Iterate over the verdicts of earlier processes that no application has had, oldest first.

        Those that this process found while recovering are included, until the application has them.
        """
        async for entry in self._walk(_DONE):
            yield outcome_of(entry, self._entries.commons)

    async def aclose(self) -> None:
        """Release the file, with everything stored, even if it is cancelled."""
        try:
            await asyncio.sleep(0)  # the application is about to get what was just returned
        finally:
            if self._opened:
                self._remove({**self._next, **self._heard})
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._opened, self._closed = False, True
            await self._entries.aclose()

    # --- entries

    def _reopen(self, identity: str) -> None:
        """Cancel the removal of *identity*: something else is about to be stored under it."""
        self._done.discard(identity)
        self._heard.pop(identity, None)
        self._next.pop(identity, None)

    async def _walk(self, which: str) -> AsyncIterator[Entry]:
        await self.open()
        seq = 0
        while found := await self._entries.ask(partial(self._page, which, seq)):
            for entry in found:
                if self._is_left(entry.key):
                    yield entry
            seq = found[-1].seq

    def _is_left(self, identity: str) -> bool:
        """Return whether *identity* is as an earlier process left it."""
        return identity in self._left and identity not in self._heard and identity not in self._next

    def _page(self, which: str, after: int, connection: sqlite3.Connection) -> list[Entry]:
        where = f"seq > ? AND run < ? AND {which} ORDER BY seq LIMIT ?"
        return entries(connection, where, (after, self._run, _PAGE))

    def _entry(
        self, state: State, intent: Intent, packed: Packed | None = None, **done: Any
    ) -> Entry:  # Any: fields of Entry
        """Return the entry of *intent*, whose packed form may be known, with more fields in *done*."""
        packed = packed or pack(intent, self._entries.commons)
        return Entry(
            key=intent.identity,
            state=state,
            # The number of an earlier run, until it is sent again or the application has its verdict.
            run=self._run - (intent.identity in self._left),
            operation=intent.operation,
            common=packed.common,
            intent=packed.text,
            **done,
        )

    # --- removing verdicts that the application has had

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_HEARD_AFTER, self._on_time)

    def _on_time(self) -> None:
        """Remove those that have waited long enough, and wait again if there are more."""
        self._timer = None
        self._remove(self._next)
        self._next, self._heard = self._heard, {}
        if self._next:
            self._wait()

    def _remove(self, heard: dict[str, None]) -> None:
        done = [identity for identity in heard if identity in self._done]
        self._done.difference_update(done)
        self._left.difference_update(done)
        if done:
            self._entries.ask(partial(_delete, done))


def _keys(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    return connection.execute("SELECT key, state FROM entries").fetchall()


def _delete(keys: list[str], connection: sqlite3.Connection) -> None:
    for some in slices(keys, _PAGE):
        marks = ", ".join("?" * len(some))
        connection.execute(f"DELETE FROM entries WHERE key IN ({marks})", some)  # noqa: S608 - our own text
