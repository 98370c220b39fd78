"""A consumer of the verdicts in a store: each is given at least once, until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from heapq import heappop, heappush
from secrets import token_hex
from typing import TYPE_CHECKING, Self

from invsvc_async.durable.leases import LEASE, pause_of
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from types import TracebackType

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry

__all__ = ["Consumer"]

_TICK = 0.2  # s between notes of which verdicts were acknowledged


class Consumer:
    """
    Takes the verdicts that nobody has acknowledged, for use with ``async with``.

    While it shows that it lives, nobody else gets those that it has taken. What it has not acknowledged in
    the end is free again at once. A kill may undo what it acknowledged within the last 0.2 seconds.
    """

    def __init__(self, entries: Entries, clock: Clock) -> None:
        self._entries, self._clock = entries, clock
        self._name = token_hex(16)
        self._living: asyncio.Task[None] | None = None
        self._until = 0.0  # local s; nobody else takes what it has until then
        self._pages = 0
        self._doubted = 0  # pages up to this one may belong to others
        self._heard: defaultdict[str, list[int]] = defaultdict(list)  # numbers to be stored, by taker
        self._noted = 0.0  # local s
        self._later: list[tuple[float, int]] = []  # a heap: when, and the number of an entry

    async def __aenter__(self) -> Self:
        self._noted = self._clock.now()
        self._until = self._noted + LEASE * self._entries.silence
        await self._entries.show_life(self._name)
        self._living = asyncio.create_task(self._live())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._living is not None:
            self._living.cancel()
        with suppress(JournalError):  # then they are given once more
            await self._save()
            await self._entries.leave(self._name)

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(pause_of(self._entries.silence))
            with suppress(JournalError):
                await self._entries.show_life(self._name)

    async def take(self, limit: int) -> list[Entry]:
        """
        Return up to *limit* verdicts, which this consumer holds from now on.

        Raises:
            JournalError: The database stayed away.

        """
        await self._save()
        due: list[int] = []
        while self._later and self._later[0][0] <= self._clock.now():
            due.append(heappop(self._later)[1])
        if due:
            await self._entries.release_verdicts(self._name, due)
        self._pages += 1
        taker = f"{self._name}.{self._pages}"
        found = await self._entries.take_verdicts(taker, limit)
        for entry in found:
            entry.taker = taker
        return found

    async def has(self, entry: Entry) -> bool:
        """Return whether *entry* is still its to give: others take it if this process was stopped."""
        if self._clock.now() > self._until:
            self._until = self._clock.now() + LEASE * self._entries.silence
            self._doubted = self._pages
        taker = entry.taker or ""
        if int(taker.rpartition(".")[2]) > self._doubted:
            return True
        return entry.seq in await self._entries.keep_verdicts(taker, [entry.seq])

    async def acknowledge(self, entry: Entry) -> None:
        """Note that *entry* need not be given again."""
        self._heard[entry.taker or ""].append(entry.seq)
        if self._clock.now() > self._noted + _TICK:
            await self._save()

    def give_back(self, entry: Entry, seconds: float) -> None:
        """Release *entry* for any consumer, after *seconds*."""
        heappush(self._later, (self._clock.now() + seconds, entry.seq))

    async def _save(self) -> None:
        self._noted = self._clock.now()
        while self._heard:
            taker, seqs = next(iter(self._heard.items()))
            await self._entries.acknowledge(taker, seqs)
            del self._heard[taker]
