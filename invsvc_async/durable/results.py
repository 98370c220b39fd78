"""The verdicts in a store, each of which is given at least once, until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from invsvc_async.durable.store.verdicts import acknowledge, free, keeps, take
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Leases


_TICK = 0.2  # s between notes of which verdicts were acknowledged
_TO_STORE = 1.0  # s that the store has for the last of them


class Consumer:
    """
    Gives verdicts in the process of *leases*: of its own writes, and verdicts that nobody has acknowledged.

    While the process shows that it lives, nobody else gets the verdicts that it has taken. If the process was
    silent for too long, other processes may have them: it asks before it gives one. Verdicts that it has not
    acknowledged in the end are free again. A kill may undo what it acknowledged within the last 0.2 seconds.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        # The taker of the page that was taken last, and that of the process then.
        self._page: tuple[str, str | None] = "", None
        self._taken: list[Entry] = []  # and not given yet, the next one last
        # numbers to be stored, by taker
        self._heard: defaultdict[str, list[int]] = defaultdict(list)
        self._timer: asyncio.TimerHandle | None = None
        self._saving: set[asyncio.Task[None]] = set()
        # a heap: when, and the number of an entry
        self._later: list[tuple[float, int]] = []

    async def take(self, limit: int) -> list[Entry]:
        """Return up to *limit* verdicts that nobody has acknowledged, and no living process has."""
        await self.save()
        leases = self._leases
        due = list[int]()
        while self._later and self._later[0][0] <= leases.clock.now():
            due.append(heappop(self._later)[1])
        await free(leases.store, due, leases.name)
        taker = leases.token()
        self._page = taker, leases.taker
        return await take(leases.store, taker, limit)

    async def next(self, at_once: int) -> Entry | None:
        """Return the next of these verdicts, of which it takes so many *at_once*; ``None``: there is none."""
        while True:
            if not self._taken:
                # another task may do so meanwhile
                self._taken[:0] = reversed(await self.take(at_once))
            if not self._taken:
                return None
            if await self.has(entry := self._taken.pop()):
                return entry

    async def has(self, entry: Entry) -> bool:
        """
        Return whether this process may still give the verdict of *entry*.

        The process has taken the verdict, or finished the write.
        """
        leases = self._leases
        taker = entry.taker or ""
        since = self._page[1] if taker == self._page[0] else taker
        if since == leases.taker and leases.clock.now() <= leases.until:
            return True
        return await keeps(leases.store, taker, entry.seq)

    def acknowledge(self, entry: Entry) -> None:
        """Note that *entry* need not be given again."""
        self._heard[entry.taker or ""].append(entry.seq)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._save_soon)

    def give_back(self, entry: Entry, seconds: float) -> None:
        """Release *entry* for any consumer, after *seconds*."""
        heappush(self._later, (self._leases.clock.now() + seconds, entry.seq))

    def _save_soon(self) -> None:
        self._timer = None
        saving = asyncio.create_task(self._save())
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)

    async def _save(self) -> None:
        heard, self._heard = self._heard, defaultdict(list)
        try:
            for taker, seqs in heard.items():
                await acknowledge(self._leases.store, seqs, taker)
        except JournalError:  # they are noted with the next, or given once more
            for taker, seqs in heard.items():
                self._heard[taker] += seqs

    async def save(self) -> None:
        """Store which verdicts were acknowledged, if the store answers soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._save_soon()
        if self._saving:
            await asyncio.wait([*self._saving], timeout=_TO_STORE)
