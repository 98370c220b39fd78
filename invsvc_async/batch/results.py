"""Which results of a batch one process gives, and which of them were taken."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.result import Result
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Leases

__all__ = ["Results"]

_PAGE = 128  # results taken over at once
_TICK = 0.2  # s between notes of which results were taken
_TO_STORE = 1.0  # s that the journal of a stopped run has to store that


class Results:
    """
    The results that the process of *leases* gives: those of its own writes, and what dead ones have left.

    One is taken once the next one is asked for. Until that is stored, it is given again after a kill. If this
    process was silent for too long, others may give what it had: it asks before it gives one of those.
    """

    def __init__(self, entries: BatchEntries, leases: Leases, clock: Clock) -> None:
        self._entries, self._leases, self._clock = entries, leases, clock
        self._last: Entry | None = None  # the latest that was given, until the next one is asked for
        self._taken: defaultdict[str, list[int]] = defaultdict(list)  # by who gave them, to be stored
        self._timer: asyncio.TimerHandle | None = None
        self._saving: set[asyncio.Task[None]] = set()

    async def is_mine(self, entry: Entry, since: str | None) -> bool:
        """Return whether *entry*, which this process had as the taker *since*, is still its to give."""
        if since != self._leases.taker or self._clock.now() > self._leases.until:
            assert entry.taker is not None
            return entry.seq in await self._entries.keep_verdicts(entry.taker, [entry.seq])
        return True

    async def left(self) -> AsyncIterator[tuple[Entry, Result]]:
        """Yield the results that nobody has taken, and no living process gives."""
        while True:
            await self.save()
            since, taker = self._leases.taker, self._leases.token()
            page = await self._entries.take_verdicts(taker, _PAGE)
            for entry in page:
                entry.taker = taker
                if await self.is_mine(entry, since):
                    result = Result.of(entry)
                    if result.secret == "not stored":  # noqa: S105 - a state; a run that is over had it
                        result = attrs.evolve(result, secret="lost")  # noqa: S106 - the same
                    yield entry, result
            if not page:
                return

    def give(self, entry: Entry) -> None:
        """Note that the result of *entry* is being given."""
        self._last = entry

    def take_last(self) -> None:
        """Note that the latest result was taken, because the next one is asked for."""
        if self._last is None:
            return
        self._taken[self._last.taker or ""].append(self._last.seq)
        self._last = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._save_soon)

    def _save_soon(self) -> None:
        self._timer = None
        saving = asyncio.create_task(self._save())
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)

    async def _save(self) -> None:
        taken, self._taken = self._taken, defaultdict(list)
        with suppress(JournalError):  # then they are given once more
            for taker, seqs in taken.items():
                await self._entries.acknowledge(taker, seqs)

    async def save(self) -> None:
        """Store which results were taken, if the journal answers soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._save_soon()
        if self._saving:
            await asyncio.wait([*self._saving], timeout=_TO_STORE)
