"""The division of lanes among processes: acquiring, releasing, and reading only those owned for certain."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from invsvc_async.batch.entries import summary_of
from invsvc_async.batch.notices import BEAT
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.batch.earlier_writes import EarlierWrites
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.read_places import ReadPlaces
    from invsvc_async.batch.signs_of_life import SignsOfLife
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.leases import Lane, Leases


class LaneShare:
    """
    The share of this process in the lanes of a store.

    A lane of it, which is in ``leases.lanes``, is in one of these states:

    - *owned*: its entries are read and sent;
    - *doubtful*: something of it was not stored, so another process may have it. Nothing more of it is read
      until the next sign of life shows whose it is;
    - *leaving*: nothing more of it begins. It is released once nothing of it is under way.

    A lane that was *lost* to another process is not in ``leases.lanes`` any more. What was under way of it
    ends without a verdict, and only then may this process read the lane again, if it has acquired it anew.
    """

    def __init__(
        self,
        leases: Leases,
        entries: Entries,
        engine: Engine,
        places: ReadPlaces,
        signs: SignsOfLife,
        earlier_writes: EarlierWrites,
    ) -> None:
        self._leases = leases
        self._entries = entries
        self._engine = engine
        self._places = places
        self._signs = signs
        self._earlier_writes = earlier_writes
        self.has_divided: bool = False  # before that, having no lane proves nothing
        self._has_acquired = False
        self._has_released_all = False  # and none is acquired any more

    # --- what may be sent

    def to_read(self) -> dict[int, Lane]:
        """
        Return the lanes whose entries may be added, by number.

        A lane that was lost and acquired again is left out as long as an item of its earlier time is under
        way. Such an item ends without a verdict, so a newer write to its thing would be sent before it. The
        two times of a lane are two ``Lane`` objects with one number.
        """
        lanes = self._leases.lanes
        under_way = {item.lane for item in self._engine.items.held.values()}
        lost = {lane.number for lane in under_way if lanes.get(lane.number) is not lane}
        return {
            number: lane
            for number, lane in lanes.items()
            if not (lane.leaving or lane.doubtful or number in lost)
        }

    def may_begin(self, lane: Lane) -> bool:
        """Return whether a write of *lane* may begin. If not, the next owner of the lane sends the write."""
        return not lane.leaving and self._leases.lanes.get(lane.number) is lane

    # --- division among processes

    async def divide(self, *, has_more: bool) -> None:
        """
        Acquire lanes, or release some. *has_more* is whether this process has more to send than it can.

        Each process has its share. If others are hungry, one that has more to send than it can releases half
        of its lanes, and the hungry ones take more than their share. It acquires none while any is hungry.
        """
        if self._has_released_all:
            return
        self._engine.slots.share(self._leases.living)
        share = ceil(self._entries.lanes / self._leases.living)
        busy = Counter(item.lane for item in self._engine.items.held.values())
        if self._leases.hungry:
            self._mark_leaving(share, busy, has_more=has_more)
        has_released = await self._release_leaving(busy)
        leaves_them_to_others = self._leases.hungry and has_more and self._leases.lanes
        if not leaves_them_to_others:
            await self._acquire(share)
        self.has_divided = True
        if has_released and self._leases.living > 1:
            await self._entries.store.notify(BEAT)

    def _mark_leaving(
        self,
        share: int,
        busy: Counter[Lane],
        *,
        has_more: bool,
    ) -> None:
        """Mark the least *busy* lanes as leaving: beyond *share*, or half if this process *has_more*."""
        staying = [lane for lane in self._leases.lanes.values() if not lane.leaving]
        staying.sort(key=lambda lane: -busy[lane])
        kept = share
        if has_more:
            kept = min(share, ceil(len(staying) / 2))
        for lane in staying[max(kept, 1) :]:
            lane.leaving = True

    async def _release_leaving(self, busy: Iterable[Lane]) -> bool:
        """Release the marked lanes that are not *busy*; return whether there were any."""
        under_way = {lane.number for lane in busy}
        lanes = self._leases.lanes.values()
        free = [lane for lane in lanes if lane.leaving and lane.number not in under_way]
        await self._leases.give_up(free)
        for lane in free:
            self._places.forget(lane.number)
        return bool(free)

    async def _acquire(self, share: int) -> None:
        """Acquire lanes up to the *share* of this process, or all free lanes if this process is hungry."""
        owned = len(self._leases.lanes)
        wanted = share - owned
        if self._signs.is_hungry and owned >= share:
            wanted = self._entries.lanes
        if wanted <= 0:
            return
        taken = await self._leases.take(wanted)
        # All were released meanwhile: nobody would send what is in these lanes.
        if self._has_released_all:
            await self._leases.leave()
            return
        for lane in taken:
            lane.on_doubt = self._signs.show_soon
            self._places.forget(lane.number)
        if not taken:
            return
        if await self._may_follow_others(taken):
            # What this process has read of earlier writes to those things may be old.
            self._earlier_writes.forget()
        self._has_acquired = True

    async def _may_follow_others(self, taken: Sequence[Lane]) -> bool:
        """Return whether another process may have written to the things in the lanes *taken*."""
        if self._has_acquired:
            # This process may have had them before, and have read what was written to their things by then.
            return True
        if self._leases.living > 1:
            return True
        if not all(lane.has_ended for lane in taken):
            return True
        # A process that was there after this run began, and is gone, may have had the lanes and written. If
        # there were finished writes when the run began, they are looked up anyway.
        return (
            not self._earlier_writes.has_any
            and (await summary_of(self._entries)).done > 0
        )

    # --- the end

    async def release_all(self) -> None:
        """Release all lanes, nothing of which may be under way, and tell the others. No more are acquired."""
        self._has_released_all = True
        if not self._leases.lanes:
            return
        await self._leases.leave()
        if self._leases.living > 1:
            with suppress(JournalError):
                async with self._entries.store.hurried():
                    await self._entries.store.notify(BEAT)
