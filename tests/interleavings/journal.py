"""
A journal in memory, with what it stores in a place that outlives the process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from invsvc_async.errors import JournalError
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

FLUSH = 0.003  # s


@attrs.define
class Stored:
    """What is in the file: by key, the run of the process that stored it, and its intent or verdict."""

    runs: int = 0
    open: dict[str, tuple[int, Intent]] = attrs.field(factory=dict)
    done: dict[str, tuple[int, Outcome[object]]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class MemoryJournal:
    """The journal of one process."""

    stored: Stored
    run: int = 0
    alive: bool = True  # a process that was killed stores nothing more
    has_failed: bool = False
    _failing: str | None = None  # whose next store of a send fails
    _left: set[str] = attrs.field(factory=set)

    def fail(self, key: str) -> None:
        """Let the next store of a send of *key* fail."""
        self._failing = key

    async def open(self) -> None:
        """Acquire it."""
        if not self.run:
            self.stored.runs += 1
            self.run = self.stored.runs
            self._left = set(self.stored.open)

    async def sending(self, intent: Intent) -> None:
        """Store *intent* before a send."""
        await self._flush()
        if self._failing == intent.key:
            self._failing = None
            self.has_failed = True
            raise JournalError("as the schedule has it")
        self._left.discard(intent.key)
        self._put(intent)

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Note how far a cancelled write got."""
        if not self.alive or intent.key in self.stored.done:
            return
        if sent:
            self._put(intent)
        else:
            self.stored.open.pop(intent.key, None)

    async def settled(self, outcome: Outcome[object]) -> None:
        """Store the verdict."""
        await self._flush()
        key = outcome.started_as.key
        if outcome.verdict is Verdict.UNKNOWN:
            self._put(outcome.intent)
        else:
            self.stored.open.pop(key, None)
            self.stored.done[key] = self.run, outcome

    def heard(self, key: str) -> None:
        """Remove the verdict of *key*."""
        if self.alive:
            self.stored.done.pop(key, None)

    async def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over what processes before this one left."""
        await self.open()
        for run, intent in [*self.stored.open.values()]:
            await asyncio.sleep(0)
            if run < self.run and intent.key in self.stored.open:
                yield self.stored.open[intent.key][1]

    async def unheard(self) -> AsyncIterator[Outcome[object]]:
        """Iterate over the verdicts that nobody has heard."""
        for run, outcome in [*self.stored.done.values()]:
            if run < self.run:
                yield outcome

    async def aclose(self) -> None:
        """Release it."""
        self.alive = False

    async def _flush(self) -> None:
        if not self.alive:
            raise JournalError("the journal is closed")
        await asyncio.sleep(FLUSH)
        if not self.alive:
            raise JournalError("the journal is closed")

    def _put(self, intent: Intent) -> None:
        run = self.run - (intent.key in self._left)
        self.stored.open[intent.key] = run, intent
        self.stored.done.pop(intent.key, None)
