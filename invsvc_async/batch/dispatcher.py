"""
Feeds an engine with the writes of a store that this process may send.

Entries are divided into lanes by the thing that they write to.  Each lane has one dispatcher at a time, so
the writes of one thing are sent in their order.  A dispatcher that has nothing to send is *hungry*: those
that have more than they can send then release lanes for it.

Two tasks run.  One gives signs of life (``signs_of_life``), and after each divides the lanes among the
processes (``lane_share``).  The other reads what is open in the lanes of this process, each from the place
where it was read last (``read_places``), and adds it to the engine, unless it waits for a part of the input
that no store has (``awaited_input``).  Before it reads, what waited for its time and is due comes back into
the lanes (``due_times``).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from invsvc_async.batch.awaited_input import AwaitedInput
from invsvc_async.batch.due_times import DueTimes
from invsvc_async.batch.earlier import Earlier
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.item_maker import ItemMaker
from invsvc_async.batch.lane_share import LaneShare
from invsvc_async.batch.late_places import LatePlaces
from invsvc_async.batch.notices import Beat, Missed, NewAside, NewIn, notice_in
from invsvc_async.batch.read_places import ReadPlaces
from invsvc_async.batch.signs_of_life import SignsOfLife
from invsvc_async.batch.team_turns import TeamTurns, in_turns
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.leases import Lane, Leases, pause_of
from invsvc_async.durable.store.due import move_aside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from invsvc_async.batch.intake import Asked
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry


_AT_ONCE = 200  # entries fetched together
_JOINED = 2  # beats after which the others have noticed this process
_LOOK_FOR_TEAMS = 0.1  # s between looks for teams that have nothing under way
_LOOK = 0.2  # s between looks whether all is done, while others work


class Dispatcher:
    """
    The sender of a store's open entries, as far as their lanes belong to this process.

    *item_type* is made of the entries. *on_unfit* is called when an entry that does not fit got its verdict;
    without it, such an entry ends the run. While the dispatcher ``has_input``, entries that lack their
    readers, and later entries of their things, wait for ``keep``.

    Who wakes whom: what is heard of other processes, what becomes due, and an item that has ended, set
    ``woken``, on which ``feed`` waits. A lane that is in doubt, or that can be released now, asks for a sign
    of life, after which the lanes are divided.
    """

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
        self.engine: Engine = Engine(sending, self._ended)
        self.earlier: Earlier = Earlier(sending, entries.store)
        clock = sending.core.clock
        # The results of a batch are given by the process that sends. An outbox stores whole outcomes instead,
        # and whoever takes them from the store gives them.
        gives_results = not item_type.keeps_outcome
        self.leases: Leases = Leases(entries.store, clock, gives=gives_results)
        self._signs = SignsOfLife(self.leases, self.engine)
        self._places = ReadPlaces()
        self._share = LaneShare(
            self.leases, entries, self.engine, self._places, self._signs, self.earlier
        )
        self._input = AwaitedInput(is_open=has_input)
        self._turns = TeamTurns(
            entries.store, self.engine.items.ready, sending.concurrency
        )
        self._maker = ItemMaker(
            sending, entries.store, self.engine, item_type, on_unfit
        )
        self._due = DueTimes(entries.store)
        self._beating: asyncio.Task[None] | None = None
        self.woken: asyncio.Event = asyncio.Event()  # there may be something to send
        # All lanes were read to their ends, and what was read is in the engine.
        self.caught_up: asyncio.Event = asyncio.Event()

    # --- beginning and end

    async def begin(self, kind: str) -> None:
        """Begin to give signs of life, for a store of *kind*."""
        await self.leases.forget_the_dead()
        await self._signs.show()
        self._beating = asyncio.create_task(
            self._until_error(partial(self._signs.repeat, self._divide))
        )
        self._sending.core.opened(kind, self.leases)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and release the lanes."""
        await self.engine.stop(grace)
        self._signs.stop_sending()
        await self._share.release_all()

    async def end(self) -> None:
        """Stop the signs of life, and end the lease of this process."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])
            await self._signs.end()

    async def _until_error(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run *act*; an error of it ends the run, or the next one, if none has begun yet."""
        try:
            await act()
        except Exception as error:  # noqa: BLE001 - see above
            self.engine.run_end.fail(error)

    async def _divide(self) -> None:
        """Divide the lanes anew, after a sign of life, and read those of this process again."""
        has_more = not (self._signs.is_hungry or self._is_read)
        await self._share.divide(has_more=has_more)
        # This is also the poll, in case no notification arrives.
        self._due.look_soon()
        self.read_again(self.leases.lanes)

    # --- feeding

    async def feed(self, is_over: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Add what is to be sent to the engine, until *is_over* while nothing is under way or to be read."""
        pause = pause_of(self._entries.store.silence)
        await self._join(pause)
        listening = asyncio.create_task(
            self._until_error(partial(self._entries.hear, self._heard))
        )
        try:
            while True:
                await self._wait_and_take_turns(self.engine.room.until_hungry)
                # Before anything is read: what is heard from here on sets the event again, and is read next.
                self.woken.clear()
                await self._bring_back_due()
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
        self._signs.begin_to_send()
        await self._signs.show()
        if self.leases.living > 1 and self._sending.rate is not None:
            # The others notice this process first, and leave it a part of the rate.
            await asyncio.sleep(_JOINED * pause)
        self._signs.show_soon()

    async def _wait_for_more(self, pause: float, *, has_end: bool) -> None:
        """
        Wait until there may be something to send, at most *pause* seconds.

        If this process has nothing to send, the others learn that, once, so that they release lanes. If the
        run *has_end*, it is looked for more often: it is also reached by what others finish.
        """
        is_shared = self.leases.living > 1
        if is_shared and self._is_idle:
            self._signs.grow_hungry()
        longest = _LOOK if is_shared and has_end else pause
        await set_within(self.woken, min(longest, self._due.next_in))

    @property
    def _is_idle(self) -> bool:
        return not self.engine.items.held and self._is_read

    @property
    def _is_read(self) -> bool:
        """Whether all lanes of this process were read to their ends."""
        return self._share.has_divided and self._places.are_at_ends(self.leases.lanes)

    def _heard(self, what: str, after: int = 0) -> None:
        """
        Look at what the notice *what* is about.

        What is new in a lane comes *after* a place, if that is known.
        """
        match notice_in(what):
            case Missed():
                self._signs.show_soon()
                self._due.look_soon()
                self.read_again(self.leases.lanes)
            case Beat():
                self._signs.show_soon()
            case NewIn(lane):
                self._turns.has_news = True
                self.read_again([lane], after)
            case NewAside(lane) if lane in self.leases.lanes:
                self._due.look_soon()
                self.woken.set()
            case _:
                pass  # It is about a lane of another process, or for other readers.

    def read_again(self, lanes: Iterable[int], after: int = 0) -> None:
        """Read this process's lanes among *lanes* once more, *after* a place at the latest."""
        for lane in lanes:
            if lane in self.leases.lanes:
                self._places.read_again(lane, after)
        self.caught_up.clear()
        self.woken.set()

    # --- the input

    @property
    def has_input(self) -> bool:
        """Whether the input has not ended, so that entries may wait for it."""
        return self._input.is_open

    def keep(self, asked: Asked) -> None:
        """Keep the parts of a write of the input that no store has: the readers, and the unpacked intent."""
        is_new_here = asked.entry is not None and asked.entry.lane in self.leases.lanes
        if self._input.keep(asked, is_new_here=is_new_here):
            self.read_again(self.leases.lanes)

    def end_input(self) -> None:
        """Wait for no readers any more."""
        self.engine.feeding.input_ended = True
        if self._input.close():
            self.read_again(self.leases.lanes)
        self.woken.set()

    # --- from an entry to the engine

    async def _fetch(self) -> bool:
        """
        Add the next entries that are open; return whether there were any.

        They are added in the order of places, but teams take turns. If there are more behind them, the next
        ones of teams that have few among them come first; and so do those of teams of which something is
        heard while these are added. A thing's entries keep their order (``team_turns``).
        """
        lanes = self._share.to_read()
        found = await self._read(lanes)
        items = await self._items_of(found, lanes)
        has_more = self._places.have_more(lanes)
        await self._mark(items, is_part=has_more)
        items = in_turns(items)
        if has_more:
            await self._take_turns(items)
        for at, item in enumerate(items):
            if not self.engine.room.is_left:
                await self._wait_and_take_turns(self.engine.room.until_left, items[at:])
            if self._turns.has_news and self._turns.is_due:
                await self._take_turns(items[at:])
            self._add(item)
        return bool(found)

    async def _wait_and_take_turns(
        self, waiting: Callable[[], Awaitable[None]], read: Sequence[Item] = ()
    ) -> None:
        """
        Wait as *waiting* does; now and then, add writes of teams that have nothing under way here.

        *read* are items that the caller has read, and adds later.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_FOR_TEAMS):
                    await waiting()
                    return
            if not self.engine.run_end.is_halted:
                await self._bring_back_due()
                await self._take_turns(read)

    async def _take_turns(self, read: Sequence[Item]) -> None:
        """Add the next entries of teams with few items under way, ready, or *read*."""
        lanes = self._share.to_read()
        if not lanes:
            return
        found = await self._turns.read(lanes, self.engine.items.held, read)
        items = await self._items_of(found, lanes)
        await self._mark(items, is_part=True)
        for item in in_turns(items):
            self._add(item)

    async def _mark(self, items: Sequence[Item], *, is_part: bool) -> None:
        """Mark the overtaken *items*; *is_part* is whether more may follow them."""
        if self.earlier.has_any or any(item.spec is None for item in items):
            await self.earlier.mark(items, is_part=is_part)

    async def _read(self, lanes: Mapping[int, Lane]) -> list[Entry]:
        """Return the next entries of *lanes* that may be sent by now, and are not under way here."""
        store = self._entries.store
        # Again if all that was found waits behind entries that are not due.
        while places := self._places.begin_fetch(lanes):
            each = ceil(_AT_ONCE / len(places))
            found = await store.open_in(places, list(self.engine.items.held), each)
            self._places.end_fetch(places, found, each)
            ready = await self._without_behind(found, lanes)
            if ready or not found:
                return ready
        return []

    async def _without_behind(
        self, found: list[Entry], lanes: Mapping[int, Lane]
    ) -> list[Entry]:
        """Return the entries *found* but for those behind entries that are not due, which are moved aside."""
        behind = [entry for entry in found if entry.is_behind]
        if not behind:
            return found
        owned = [lanes[number] for number in {entry.lane for entry in behind}]
        seqs = [entry.seq for entry in behind]
        await move_aside(self._entries.store, seqs, owned)
        return [entry for entry in found if not entry.is_behind]

    async def _bring_back_due(self) -> None:
        """Bring entries that are due by now back into the lanes of this process."""
        if not self._due.is_up:
            return
        found = await self._due.bring_back(self._share.to_read().values())
        for lane, after in found.items():
            self._turns.has_news = True
            self.read_again([lane], after)

    async def _items_of(
        self, found: Iterable[Entry], lanes: Mapping[int, Lane]
    ) -> list[Item]:
        """Return the items of the entries *found* that can be sent, in their order, each with its lane."""
        under_way = LatePlaces()
        for each in self.engine.items.held.values():
            under_way.note(each.entry.thing, each.entry.place)
        items: list[Item] = []
        for entry in found:
            item = await self._maker.item_of(
                entry, lanes[entry.lane], self._input.get(entry.key)
            )
            if item is None:
                continue
            # An entry that was reopened may have an earlier place than what is under way for its thing. It is
            # read again once that has ended, and is then seen to be overtaken.
            thing = entry.thing
            if thing is not None and under_way.has_later(thing, entry.place):
                self._places.pass_over(thing)
            else:
                items.append(item)
        return items

    def _add(self, item: Item) -> None:
        """Add *item* to the engine, unless another process has its lane by now, or it waits for the input."""
        if not self._share.may_begin(item.lane) or self._input.hold_back(item):
            # The item is dropped: its entry is read again, here or by the next owner of its lane. Its
            # specification refers to it, so this breaks the cycle.
            item.spec = None
        else:
            self._signs.be_fed()
            self.engine.add(item)

    def _ended(self, item: Item) -> None:
        """Note that *item* has ended in the engine."""
        lane = item.lane
        self._places.note_ended(item.entry.thing, lane.number)
        if not self.engine.items.held or not self._places.is_at_end(lane.number):
            self.woken.set()
        if lane.leaving:
            self._signs.show_soon()
