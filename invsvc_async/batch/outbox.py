"""
Keep a client's single writes through a kill: stored before their first byte, gone once their fate is known.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.batch.entries import Entry, State
from invsvc_async.batch.pack import Packed, pack, unpack
from invsvc_async.batch.sqlite import SqliteEntries, entries
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.evidence import Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

    from invsvc_async.outcome import Outcome
    from invsvc_async.reconcile.intent import Intent

__all__ = ["Outbox"]

_PAGE = 256  # intents read at once


class Outbox:
    """
    The journal of ``Client(journal="outbox.db")``: one SQLite file, one process at a time.

    A write whose verdict is known is taken out, so the file holds what is open and no more.  It holds bodies
    in plain, for they are sent again: mode 0600.
    """

    def __init__(self, path: str | Path) -> None:
        self._entries = SqliteEntries(path, "an outbox")
        self._opened = False
        self._closed = False
        self._opening = asyncio.Lock()
        self._run = 0  # counts the openings: an entry of a smaller number is of a process before this one

    async def open(self) -> None:
        """
        Take hold of the file; once, however often it is asked for.

        Raises:
            JournalError: Another process has it; it is damaged, no outbox, or of a newer version; the
                folder cannot be written.

        """
        if self._closed:
            raise JournalError(f"journal {self._entries.path}: the client is closed, so nothing was sent")
        async with self._opening:
            if not self._opened:
                await self._entries.open()
                self._run = await self._entries.next_run()
                self._opened = True

    async def sending(self, intent: Intent) -> None:
        """
        Store *intent*, durably, before a send of it.

        Raises:
            JournalError: It cannot be stored; the send must not happen.

        """
        await self.open()
        await self._entries.put(self._entry(intent))

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Note how far a cancelled write got, without waiting; one that provably never left is taken out."""
        if self._opened:
            if sent:
                self._entries.put(self._entry(intent))
            else:
                self._entries.take_out(intent.key)

    async def settled(self, outcome: Outcome[object]) -> None:
        """Take the write out, or keep it where its fate is unknown; too late to store that, it stays open."""
        if not self._opened:
            return
        if outcome.verdict is Verdict.UNKNOWN:
            await self._entries.put(self._entry(outcome.intent))
        else:
            await self._entries.take_out(outcome.started_as.key)

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Walk what a process before this one left, oldest first."""
        await self.open()
        seq = 0
        while found := await self._entries.ask(partial(self._page, seq)):
            for entry in found:
                assert entry.common is not None
                assert entry.intent is not None
                yield unpack(entry.key, Packed(common=entry.common, text=entry.intent), self._entries.commons)
            seq = found[-1].seq

    async def aclose(self) -> None:
        """Let go of the file, with everything stored."""
        self._opened, self._closed = False, True
        await self._entries.aclose()

    def _page(self, after: int, connection: sqlite3.Connection) -> list[Entry]:
        return entries(connection, "seq > ? AND run < ? ORDER BY seq LIMIT ?", (after, self._run, _PAGE))

    def _entry(self, intent: Intent) -> Entry:
        packed = pack(intent, self._entries.commons)
        return Entry(
            key=intent.key,
            state=State.SENDING,
            run=self._run,
            operation=intent.operation,
            common=packed.common,
            intent=packed.text,
        )
