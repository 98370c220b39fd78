"""
Feeds an engine with the writes of a store that this process may send.

Entries are divided into lanes by the thing that they write to.  Each lane has one dispatcher at a time, so
the writes of one thing are sent in their order.  A dispatcher that has nothing to send is *hungry*: those
that have more than they can send then release lanes for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from invsvc_async.batch.earlier import Earlier
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.entries import summary_of
from invsvc_async.batch.item import Item, ItemOptions
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import Entry, LostLaneError
from invsvc_async.durable.leases import Lane, Leases, Sign, pause_of, status_of
from invsvc_async.durable.records import intent_of, verdict_of_unfit
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from invsvc_async.batch.intake import Asked
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.entries import Entries


log: logging.Logger = logging.getLogger("invsvc_async.batch")

_AT_ONCE = 200  # entries fetched together
_KEPT = 10_000  # writes of the input, at most: those of other processes are not needed
_JOINED = 2  # beats after which the others have noticed this process
_LOOK = 0.2  # s between looks whether all is done, while others work


class Dispatcher:
    """
    The lanes of this process, and the writes of these lanes that are under way.

    *item_type* is made of the entries. *on_unfit* is called when an entry that does not fit got its verdict;
    without it, such an entry ends the run. While it ``has_input``, entries that lack their readers, and later
    ones of their things, wait for ``keep``.
    """

    _began = 0.0  # monotonic, s
    _sends = False
    _is_hungry = False
    _has_divided = False
    _beating: asyncio.Task[None] | None = None

    def __init__(
        self,
        sending: Sending,
        entries: Entries,
        item_type: type[Item],
        on_unfit: Callable[[], None] | None = None,
        *,
        has_input: bool = False,
    ) -> None:
        self._sending = sending
        self._entries = entries
        self._item_type = item_type
        self._on_unfit = on_unfit
        self.has_input: bool = has_input
        self.engine: Engine = Engine(sending, self._ended)
        self.earlier: Earlier = Earlier(sending, entries.store)
        clock = sending.core.clock
        # What is stored with its whole outcome is given by those that take it from the store.
        self.leases: Leases = Leases(entries.store, clock, gives=not item_type.keeps_outcome)
        # By lane: after which place it is read next; None once it was read to its end.
        self._places: dict[int, int | None] = {}
        self._passed: set[str] = set()  # things with an entry that was passed over, because a newer one runs
        self._waiting: dict[str, str] = {}  # by thing, or key without one: the key that may not begin yet
        self._asked: OrderedDict[str, Asked] = OrderedDict()  # by key: what the store has not of the input
        self.woken: asyncio.Event = asyncio.Event()  # there may be something to send
        self.caught_up: asyncio.Event = asyncio.Event()  # all that was read is in the engine
        self._beat_now = asyncio.Event()
        self._shown = Sign(sends=False)  # what others know

    # --- signs of life

    async def begin(self, kind: str) -> None:
        """Begin to give signs of life, for a store of *kind*."""
        await self.leases.forget_the_dead()
        await self._show()
        self._beating = asyncio.create_task(self._guarded(self._beat))
        self._sending.core.opened(kind, self.leases)

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except Exception as error:  # noqa: BLE001 - any error ends the run, or the one that begins next
            self.engine.fail(error)

    async def feed(self, is_over: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Add what is to be sent to the engine, until *is_over* while nothing is under way or to be read."""
        pause = pause_of(self._entries.store.silence)
        await self._join(pause)
        listening = asyncio.create_task(self._guarded(partial(self._entries.hear, self._heard)))
        try:
            while True:
                await self.engine.hunger()
                self.woken.clear()
                if not self._is_read and await self._fetch():
                    continue
                if self._is_read:
                    self.caught_up.set()
                if self._is_idle and is_over is not None and await is_over():
                    return
                await self._wait_for_more(pause, has_end=is_over is not None)
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _join(self, pause: float) -> None:
        """Begin to send; with a rate, wait first for a few beats of others, of *pause* seconds each."""
        self._sends = True
        self._began = time.monotonic()
        await self._show()
        if self.leases.living > 1 and self._sending.rate is not None:
            await asyncio.sleep(_JOINED * pause)  # until the others have noticed, and leave a part of it
        self._beat_now.set()

    async def _wait_for_more(self, pause: float, *, has_end: bool) -> None:
        """
        Wait until there may be something to send, at most *pause* seconds.

        Others that send learn once that this process has nothing. If the run *has_end*, they may reach it.
        """
        is_shared = self.leases.living > 1
        if is_shared and not self._is_hungry and self._is_idle:
            self._is_hungry = True
            self._beat_now.set()
        await set_within(self.woken, _LOOK if is_shared and has_end else pause)

    @property
    def _is_idle(self) -> bool:
        return not self.engine.held and self._is_read

    @property
    def _is_read(self) -> bool:
        """Whether all lanes of this process were read to their ends."""
        return self._has_divided and all(self._places.get(lane, 0) is None for lane in self.leases.lanes)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and release the lanes."""
        await self.engine.stop(grace)
        self._sends = False
        if self.leases.lanes:
            await self.leases.leave()
            if self.leases.living > 1:
                with suppress(JournalError):
                    async with self._entries.store.hurried():
                        await self._entries.store.tell("beat")

    async def end(self) -> None:
        """Stop the signs of life, and end the lease of this process."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])
            await self.leases.end(self._sign().status)

    def _sign(self) -> Sign:
        done = self.engine.done
        rate = done / max(time.monotonic() - self._began, 1.0) if self._sends else 0.0
        status = status_of(done, rate, len(self.leases.lanes))
        return Sign(sends=self._sends, hungry=self._is_hungry, status=status)

    async def _show(self) -> None:
        """Store a sign of life; tell others at once if this process now sends, or has nothing to send."""
        sign = self._sign()
        before = self._shown
        await self.leases.beat(sign)
        self._shown = sign
        if self.leases.living > 1 and (sign.sends > before.sends or sign.hungry > before.hungry):
            await self._entries.store.tell("beat")

    async def _beat(self) -> None:
        """
        Store signs of life until stopped.

        Without them nothing may be sent. So an error ends the run, unless the database is away.
        """
        while True:
            self._beat_now.clear()
            try:
                await self._show()
                if self._sends:
                    await self._divide()
                    self.read_again(self.leases.lanes)  # also the poll, in case no notification arrives
            except JournalError as error:
                raise_if_cancelled()
                if not self._entries.store.is_away(error):  # it would be refused again
                    raise
                log.warning("%s Nothing is sent until it is back.", error)
            raise_if_cancelled()
            await set_within(self._beat_now, pause_of(self._entries.store.silence))

    # --- which lanes

    async def _divide(self) -> None:
        """
        Acquire lanes, or release some.

        Each process has its share. If others are hungry, one that has more to send than it can releases half
        of its lanes, and the hungry ones take more than their share.
        """
        self.engine.slots.share(self.leases.living)
        share = ceil(self._entries.lanes / self.leases.living)
        busy = Counter(item.lane for item in self.engine.held.values())
        if self.leases.hungry:
            self._mark_leaving(share, busy)
        has_released = await self._release_leaving(busy)
        await self._acquire(share)
        self._has_divided = True
        if has_released and self.leases.living > 1:
            await self._entries.store.tell("beat")

    def _mark_leaving(self, share: int, busy: Counter[Lane]) -> None:
        """Mark the least *busy* lanes as leaving: beyond *share*, or half if there is more here to send."""
        staying = [lane for lane in self.leases.lanes.values() if not lane.leaving]
        staying.sort(key=lambda lane: -busy[lane])
        has_more = not (self._is_hungry or self._is_read)
        kept = min(share, ceil(len(staying) / 2)) if has_more else share
        for lane in staying[max(kept, 1) :]:
            lane.leaving = True

    async def _release_leaving(self, busy: Iterable[Lane]) -> bool:
        """Release the marked lanes that are not *busy*; return whether there were any."""
        under_way = {lane.number for lane in busy}
        lanes = self.leases.lanes.values()
        free = [lane for lane in lanes if lane.leaving and lane.number not in under_way]
        await self.leases.give_up(free)
        for lane in free:
            self._places.pop(lane.number, None)
        return bool(free)

    async def _acquire(self, share: int) -> None:
        """Acquire lanes up to the *share* of this process, or all free lanes if this process is hungry."""
        owned = len(self.leases.lanes)
        wanted = self._entries.lanes if self._is_hungry and owned >= share else share - owned
        if wanted <= 0:
            return
        taken = await self.leases.take(wanted)
        for lane in taken:
            lane.on_doubt = self._beat_now.set
            self._places.pop(lane.number, None)
        if taken and await self._may_follow_others(taken):
            self.earlier.forget()

    async def _may_follow_others(self, taken: Sequence[Lane]) -> bool:
        """Return whether another process may have written to the things in the lanes *taken*."""
        if self.leases.living > 1 or not all(lane.was_free for lane in taken):
            return True
        # One that is gone since this run began may have had them.
        return not self.earlier.any and (await summary_of(self._entries)).done > 0

    def _lanes_to_read(self) -> dict[int, Lane]:
        """
        Return the lanes whose entries may be added, by number.

        Not one that was lost and acquired again, as long as something is under way that was added before: it
        ends without a verdict, so what is newer would be sent before it.
        """
        lanes = self.leases.lanes
        under_way = {item.lane for item in self.engine.held.values()}
        lost = {lane.number for lane in under_way if lanes.get(lane.number) is not lane}
        return {
            number: lane
            for number, lane in lanes.items()
            if not (lane.leaving or lane.doubtful or number in lost)
        }

    # --- feeding

    def _heard(self, what: str, after: int = 0) -> None:
        if what == "beat":
            self._beat_now.set()
        elif what.isdecimal():
            self.read_again([int(what)], after)
        elif not what:
            self.read_again(self.leases.lanes)

    def read_again(self, lanes: Iterable[int], after: int = 0) -> None:
        """Read this process's lanes among *lanes* once more, *after* a place at the latest."""
        for lane in lanes:
            if lane in self.leases.lanes:
                place = self._places.get(lane, 0)
                self._places[lane] = after if place is None else min(place, after)
        self.caught_up.clear()
        self.woken.set()

    def keep(self, asked: Asked) -> None:
        """Keep the parts of a write of the input that no store has: the readers, and the unpacked intent."""
        is_new = asked.entry is not None and asked.entry.lane in self.leases.lanes
        has_reader = asked.spec.reader is not None or callable(asked.spec.policy.journey_reader)
        if self._meet(asked.key) or is_new or has_reader:
            self._asked[asked.key] = asked
            if len(self._asked) > _KEPT:
                self._asked.popitem(last=False)

    def end_input(self) -> None:
        """Wait for no readers any more."""
        self.has_input = False
        self._meet(None)
        self.woken.set()

    async def _fetch(self) -> bool:
        """Add the next entries that are open; return whether there were any."""
        lanes = self._lanes_to_read()
        found = await self._read(lanes)
        items = await self._items_of(found, lanes)
        if self.earlier.any or any(item.spec is None for item in items):
            is_part = any(self._places.get(lane) is not None for lane in lanes)  # behind what was read
            await self.earlier.mark(items, is_part=is_part)
        for item in items:
            await self.engine.room()
            self._add(item)
        return bool(found)

    async def _items_of(self, found: Iterable[Entry], lanes: Mapping[int, Lane]) -> list[Item]:
        """Return the items of the entries *found* that can be sent, in their order, each with its lane."""
        newest = {item.entry.thing: item.entry.place for item in self.engine.held.values()}
        items: list[Item] = []
        for entry in found:
            item = await self._item(entry, lanes[entry.lane])
            if item is None:
                continue
            # One that was reopened comes after what is under way: it is then seen to be overtaken.
            if entry.thing is not None and entry.place < newest.get(entry.thing, 0):
                self._passed.add(entry.thing)
            else:
                items.append(item)
        return items

    def _add(self, item: Item) -> None:
        """Add *item* to the engine, unless another process has its lane by now, or it waits for the input."""
        name = item.entry.thing or item.entry.key
        if item.lane.leaving or self.leases.lanes.get(item.lane.number) is not item.lane:
            item.spec = None  # the next owner sends it
        elif name in self._waiting or not self._may_begin(item):
            self._waiting.setdefault(name, item.entry.key)
            item.spec = None
        else:
            self._is_hungry = False
            self.engine.add(item)

    def _may_begin(self, item: Item) -> bool:
        """Pass the readers of the input to *item*; return whether it need not wait for any."""
        asked = self._asked.pop(item.entry.key, None)
        if asked is not None and item.spec is None:
            item.take_readers(asked.spec)
        return asked is not None or not (self.has_input and item.names_reader)

    def _meet(self, key: str | None) -> bool:
        """Allow the write of *key* (None: any) to begin; return whether any write waited."""
        names = [name for name, waits in self._waiting.items() if key in (None, waits)]
        for name in names:
            del self._waiting[name]
        if names:
            self.read_again(self.leases.lanes)
        return bool(names)

    async def _read(self, lanes: Iterable[int]) -> list[Entry]:
        """Return the next entries of *lanes* that are open, and not under way here."""
        places = {lane: place for lane in lanes if (place := self._places.get(lane, 0)) is not None}
        if not places:
            return []
        self._places.update(dict.fromkeys(places))
        each = ceil(_AT_ONCE / len(places))
        found = await self._entries.store.open_in(places, list(self.engine.held), each)
        counts = Counter(entry.lane for entry in found)
        last = {entry.lane: entry.place for entry in found}
        for lane in places:
            if counts[lane] == each:
                since = self._places.get(lane)  # it may be to be read again since
                self._places[lane] = last[lane] if since is None else min(since, last[lane])
        return found

    async def _item(self, entry: Entry, lane: Lane) -> Item | None:
        """Return the item of *entry*; of an entry that this version cannot send, store the verdict."""
        sending = self._sending
        asked = self._asked.get(entry.key)
        view = self._sending.options
        restored = sending.restored
        try:
            known = None if asked is None else asked.intent_of(entry)
            intent = known or intent_of(entry, self._entries.store.commons)
            if restored is not None:
                intent = restored.of_entry(entry.seq, intent)
            item = self._item_type(
                entry=entry, lane=lane, engine=self.engine, intent=intent, restored=restored
            )
            if asked is not None and intent is known and not intent.sent:  # it is new
                item.spec = replace(asked.spec, options=ItemOptions.of(item, asked.spec.options))
            else:
                check_scope(view.without_team(), intent, same_mode=sending.same_mode, in_doubt=item.in_doubt)
        except (JournalError, InvalidRequestError) as error:
            if self._on_unfit is None:
                raise
            is_of_copy = restored is not None and entry.seq <= restored.through
            with suppress(LostLaneError):
                await lane.put(verdict_of_unfit(entry, error, is_of_copy=is_of_copy))
            self._on_unfit()
            return None
        return item

    def _ended(self, item: Item) -> None:
        lane = item.lane
        thing = item.entry.thing
        if thing in self._passed:
            self._passed.discard(thing)
            self._places[lane.number] = 0
        if not self.engine.held or self._places.get(lane.number, 0) is not None:
            self.woken.set()
        if lane.leaving:
            self._beat_now.set()
