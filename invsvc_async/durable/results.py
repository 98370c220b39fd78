"""The verdicts in a store, each of which is given at least once, until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.entry import VerdictAt
from invsvc_async.durable.store.unheard import acknowledge, free, kept, take
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Leases


_TICK = 0.2  # s between notes of which verdicts were acknowledged
_TO_STORE = 1.0  # s that the store has for the last of them
_SURE = 0.2  # s for which an answer of the store counts: that this process has some verdicts


class _Page(NamedTuple):
    """
    The verdicts that were taken last, with the token ``taker``.

    The store was asked about them last at ``asked`` (local s).  ``since`` was the taker of the process then.
    """

    taker: str
    since: str | None
    asked: float


class Consumer:
    """
    Gives verdicts in the process of *leases*: of its own writes, and verdicts that nobody has acknowledged.

    While the process shows that it lives, nobody else gets the verdicts that it has taken. If the process was
    silent for too long, other processes may have them: it asks before it gives one. Verdicts that it has not
    acknowledged in the end are free again. A kill may undo what it acknowledged within the last 0.2 seconds.

    A verdict is forgotten if its write is reopened, dropped or resolved. If verdicts were taken more than
    0.2 seconds ago, it asks which are still there before it gives the next one. So a slow consumer gives
    none that was forgotten longer ago. One that was forgotten just now may still be given, even after a
    newer one of its write, which another consumer has. What this process has finished itself, in a batch, is
    given without that question.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._page = _Page("", None, 0.0)
        self._taken: list[Entry] = []  # and not given yet, the next one last
        # to be stored, by taker
        self._heard: defaultdict[str, list[VerdictAt]] = defaultdict(list)
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
        self._page = _Page(taker, leases.taker, leases.clock.now())
        return await take(leases.store, taker, limit)

    async def next(self, at_once: int) -> Entry | None:
        """Return the next of these verdicts, of which it takes so many *at_once*; ``None``: there is none."""
        while True:
            if not self._taken:
                # another task may do so meanwhile
                self._taken[:0] = reversed(await self.take(at_once))
            if not self._taken:
                return None
            entry = self._taken.pop()
            if self._is_sure(entry) or await self._has_kept(entry):
                return entry

    def _is_sure(self, entry: Entry) -> bool:
        """Return whether this process surely has the verdict of *entry*, by what the store said just now."""
        page = self._page
        if entry.taker != page.taker:
            return False
        is_recent = self._leases.clock.now() <= page.asked + _SURE
        return is_recent and self._has_lived_since(page.since)

    def _has_lived_since(self, taker: str | None) -> bool:
        """Return whether nobody can have taken the process for dead since its taker was *taker*."""
        leases = self._leases
        return taker == leases.taker and leases.clock.now() <= leases.until

    async def _has_kept(self, entry: Entry) -> bool:
        """Ask the store about the page of *entry*; forget verdicts that are gone, or taken by others."""
        leases = self._leases
        taker = entry.taker or ""
        page = _Page(taker, leases.taker, leases.clock.now())
        seqs = {each.seq for each in self._taken if each.taker == taker}
        found = await kept(leases.store, taker, [entry.seq, *seqs])
        gone = seqs - found
        # Another task may have taken more meanwhile.
        self._taken[:] = [
            each for each in self._taken if each.taker != taker or each.seq not in gone
        ]
        if self._page.taker == taker:
            self._page = page
        return entry.seq in found

    async def has(self, entry: Entry) -> bool:
        """Return whether this process may still give the verdict of *entry*, a write of its own."""
        taker = entry.taker or ""
        if self._has_lived_since(taker):
            return True
        return entry.seq in await kept(self._leases.store, taker, [entry.seq])

    def acknowledge(self, entry: Entry) -> None:
        """Note that the verdict of *entry* need not be given again."""
        self._heard[entry.taker or ""].append(VerdictAt(entry.seq, entry.done_at))
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
            for taker, verdicts in heard.items():
                await acknowledge(self._leases.store, verdicts, taker)
        except JournalError:  # they are noted with the next, or given once more
            for taker, verdicts in heard.items():
                self._heard[taker] += verdicts

    async def save(self) -> None:
        """Store which verdicts were acknowledged, if the store answers soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._save_soon()
        if self._saving:
            await asyncio.wait([*self._saving], timeout=_TO_STORE)
