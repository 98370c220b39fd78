"""
From what is open in the lanes of a process to items that may be sent.

The order of a thing's items is kept here and in other places: see the top of ``dispatcher.py``.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from invsvc_async.batch.late_places import LatePlaces
from invsvc_async.durable.store.due import move_aside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.batch.awaited_input import AwaitedInput
    from invsvc_async.batch.earlier_writes import EarlierWrites
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.item_maker import ItemMaker
    from invsvc_async.batch.read_places import ReadPlaces
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.opening import Store


_AT_ONCE = 200  # entries fetched together


class LaneReader:
    """
    Reads what is open in lanes, each from the place where it was read last, and makes items of it.

    *held* are the items under way in this process, by the numbers of their entries: these are not read again.
    """

    def __init__(
        self,
        store: Store,
        held: Mapping[int, Item],
        places: ReadPlaces,
        awaited_input: AwaitedInput,
        maker: ItemMaker,
        earlier_writes: EarlierWrites,
    ) -> None:
        self._store = store
        self._held = held
        self._places = places
        self._awaited_input = awaited_input
        self._maker = maker
        self._earlier_writes = earlier_writes

    async def read(self, lanes: Mapping[int, Lane]) -> list[Entry]:
        """Return the next entries of *lanes* that may be sent by now, and are not under way here."""
        moved: set[int] = set()
        # Again if all that was found waits behind entries that are not due.
        while places := self._places.begin_fetch(lanes):
            for lane, place in places.items():
                if place == 0:
                    self._awaited_input.read_anew(lane)
            each = ceil(_AT_ONCE / len(places))
            found = await self._store.open_in(places, list(self._held), each)
            self._places.end_fetch(places, found, each)
            ready = await self._without_behind(found, lanes, moved)
            if ready or not found:
                return ready
        return []

    async def _without_behind(
        self,
        found: list[Entry],
        lanes: Mapping[int, Lane],
        moved: set[int],
    ) -> list[Entry]:
        """
        Return the entries *found* but for those behind entries that are not due, which are moved aside.

        Their lanes are read again from there: if what was before them was dropped meanwhile, they stay, and
        come before what is behind them. An entry that was *moved*, and is found again, is not read once more:
        its lane is another process's by now, so that nothing can be moved.
        """
        behind = [entry for entry in found if entry.is_behind]
        if not behind:
            return found
        owned = [lanes[number] for number in {entry.lane for entry in behind}]
        seqs = [entry.seq for entry in behind]
        await move_aside(self._store, seqs, owned)
        for entry in behind:
            if entry.seq not in moved:
                self._places.read_again(entry.lane, entry.place - 1)
        moved.update(seqs)
        return [entry for entry in found if not entry.is_behind]

    async def items_of(
        self, found: Iterable[Entry], lanes: Mapping[int, Lane]
    ) -> list[Item]:
        """
        Return the items of the entries *found* that can be added now, in their order, each with its lane.

        An entry that was reopened may have an earlier place than what is under way for its thing. Then it is
        passed over, and read again once something of its thing has ended. But if it is overtaken by what is
        done, it is not sent any more, so its item may come behind those of later writes.
        """
        items: list[Item] = []
        for entry in found:
            given = self._awaited_input.get(entry.key)
            item = await self._maker.item_of(entry, lanes[entry.lane], given)
            if item is not None:
                items.append(item)
        late = self._pass_over(items)
        if not late:
            return items
        passed_over = {each.entry.seq for each in late}
        passed_over -= await self._earlier_writes.overtaken(late)
        return [item for item in items if item.entry.seq not in passed_over]

    def _pass_over(self, items: Iterable[Item]) -> list[Item]:
        """
        Pass over the *items* with earlier places than writes under way to their things; return them.

        Nothing is awaited in between: what they wait for may end meanwhile, and then they would not be read
        again.
        """
        under_way = LatePlaces()
        for each in self._held.values():
            under_way.note(each.entry.thing, each.entry.place)
        late: list[Item] = []
        for item in items:
            thing = item.entry.thing
            if thing is not None and under_way.has_later(thing, item.entry.place):
                self._places.pass_over(thing)
                late.append(item)
        return late

    async def mark(self, items: Sequence[Item], *, is_part: bool) -> None:
        """Mark the overtaken *items*; *is_part* is whether more may follow them."""
        if self._earlier_writes.has_any or any(item.spec is None for item in items):
            await self._earlier_writes.mark(items, is_part=is_part)
