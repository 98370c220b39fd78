"""
Feeds an engine with the writes of a store that this process may send.

Entries are divided into lanes by the thing that they write to.  Each lane has one dispatcher at a time, so
the writes of one thing are sent in their order.  A dispatcher that has nothing to send is *hungry*: those
that have more than they can send then release lanes for it.

Two tasks run.  One gives signs of life (``signs_of_life``), and after each divides the lanes among the
processes (``lane_share``).  The other reads what is open in the lanes of this process (``lane_reader``), each
from the place where it was read last (``read_places``), and adds it to the engine, unless it waits for a part
of the input that no store has (``awaited_input``).  What is new in a lane makes it be read again
(``lane_news``).  Before it is read, what waited for its time and is due comes back into the lanes
(``due_times``).

**Who wakes whom.**  Nothing that is set is lost: ``feed`` and ``repeat`` clear their events before they look
for what there is to do, and ``next_change`` clears its event after such a look, without an await between.

=======================  =================================  ===========================  =====================
event or flag            set by                             cleared by                   waited for by
=======================  =================================  ===========================  =====================
``LaneNews.woken``:      ``LaneNews``, for a notice or an   ``feed``, before it reads    ``feed``
there may be something   entry that is due, or
to send                  ``AwaitedInput``; ``_ended``
``LaneNews.caught_up``:  ``feed``                           ``LaneNews.read_again``      ``RunInput``, before
all lanes were read to                                                                   it reads more of the
their ends                                                                               input
``Engine._changed``:     an item that ends, or begins       ``next_change``, just        ``next_finished`` and
anything in the engine   while ``Room.is_low_awaited``;     before it waits              ``Room``: each looks
                         a result that is taken;                                         whether it was the
                         ``RunEnd``; the end of                                          change it waits for
                         ``Feeding``, or of a task in
                         ``OpenWork``
``RunEnd.is_halted``:    ``fail``, ``end_when_idle`` and    never                        nobody; it comes with
no more items begin      ``halt``                                                        ``Engine._changed``
``Engine._is_filling``:  ``_fill_soon``, for ``Slots``,     ``_fill``                    nobody: the loop
slots are filled in the  ``CircuitBreaker``, and an item                                 calls ``_fill``
loop's next round        that ends
``SignsOfLife._due``:    ``show_soon``: a lane is in        ``repeat``, before each      ``repeat``; that then
a sign of life now       doubt, or can be released; this    sign                         divides the lanes and
                         process became hungry; a notice                                 sets ``woken``
``TeamTurns.has_news``:  ``LaneNews``                       ``TeamTurns.read``           nobody; ``_fetch``
teams may have more                                                                      looks at it
=======================  =================================  ===========================  =====================

Between processes, notices do this (``notices``): ``RunInput``, ``SignsOfLife``, ``LaneShare`` and those that
change entries tell them by ``store.notify``, and ``Entries.hear`` calls ``LaneNews.heard`` with each.

**What keeps the order of a thing's writes.**  ``_fetch`` reads many entries, and adds their items as there is
room; meanwhile ``_take_turns`` reads and adds others.  The invariant: when an item is added, each earlier
open entry of its thing is in the engine, and no later one is.  Only an entry that people reopen meanwhile, or
whose transaction commits late, may come too late for that.

- One task, ``feed``, reads and adds; only ``_add`` adds to the engine.
- Lanes are read in the order of places, and a thing is in one lane.  ``in_turns`` keeps the order of a thing,
  and ``_fetch`` adds the items in that order.
- ``_take_turns`` adds only the first open entry of a thing (``durable/store/team_turns``), and none that is
  in the engine or that ``_fetch`` has *yet to add*.  These are open, so nothing behind them is the first.
- An entry that was reopened, and is earlier than one in the engine, is passed over by ``LaneReader.items_of``
  until no later one is there, or one has had an effect.  It is then overtaken: it is not sent any more, so it
  may come behind later ones.  It does not wait until all of them have ended, since others may follow without
  an end; but for those that are in its line, because only one item of a thing may be under way, or have a
  slot.
- What ``_add`` drops keeps later items of its thing out, too, until its lane is read from its beginning.  A
  ``Lane`` that is leaving, or was lost, stays so: all that was read of it is dropped, and if it is acquired
  anew, it is read from its beginning.  What waits for the input goes on waiting when the input has its
  write, since ``_fetch`` may have yet to add later items of the thing: ``AwaitedInput`` holds all of them
  back until that read.
- What is behind an entry that is not due is moved aside, and its lane read again from there
  (``LaneReader``): what could not be moved, because that entry was dropped, comes before what follows it.
- In the engine, a thing has one line (``RunItems``), in the order in which its items were added.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.batch.awaited_input import AwaitedInput
from invsvc_async.batch.due_times import DueTimes
from invsvc_async.batch.earlier_writes import EarlierWrites
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.item_maker import ItemMaker
from invsvc_async.batch.lane_news import LaneNews
from invsvc_async.batch.lane_reader import LaneReader
from invsvc_async.batch.lane_share import LaneShare
from invsvc_async.batch.read_places import ReadPlaces
from invsvc_async.batch.signs_of_life import SignsOfLife
from invsvc_async.batch.team_turns import TeamTurns, in_turns
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.leases import Leases, pause_of
from invsvc_async.durable.store.earlier_names import use_names_of_today

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from invsvc_async.batch.item import Item
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.entries import Entries


_JOINED = 2  # beats after which the others have noticed this process
_LOOK_FOR_TEAMS = 0.1  # s between looks for teams that have nothing under way
_LOOK = 0.2  # s between looks whether all is done, while others work


class Dispatcher:
    """
    The sender of a store's open entries, as far as their lanes belong to this process.

    *item_type* is made of the entries. *on_unfit* is called when an entry that does not fit got its verdict;
    without it, such an entry ends the run. While ``awaited_input`` is open, at first if the run *has_input*,
    entries that lack their readers, and later entries of their things, wait for it.
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
        self.earlier_writes: EarlierWrites = EarlierWrites(sending, entries.store)
        clock = sending.core.clock
        # The results of a batch are given by the process that sends. An outbox stores whole outcomes instead,
        # and whoever takes them from the store gives them.
        gives_results = not item_type.keeps_outcome
        self.leases: Leases = Leases(entries.store, clock, gives=gives_results)
        self._signs = SignsOfLife(self.leases, self.engine)
        self._places = ReadPlaces()
        self._share = LaneShare(
            self.leases,
            entries,
            self.engine,
            self._places,
            self._signs,
            self.earlier_writes,
        )
        self._turns = TeamTurns(
            entries.store, self.engine.items.ready, sending.concurrency
        )
        self._due = DueTimes(entries.store)
        self.news: LaneNews = LaneNews(
            self.leases, self._share, self._places, self._due, self._turns, self._signs
        )
        self.awaited_input: AwaitedInput = AwaitedInput(
            self.engine.feeding, self.leases, self.news, is_open=has_input
        )
        self._reader = LaneReader(
            entries.store,
            self.engine.items.held,
            self._places,
            self.awaited_input,
            ItemMaker(sending, entries.store, self.engine, item_type, on_unfit),
            self.earlier_writes,
        )
        self._beating: asyncio.Task[None] | None = None

    # --- beginning and end

    async def start_beating(self, kind: str) -> None:
        """Start to give signs of life, for a store of *kind*."""
        await use_names_of_today(self._entries.store, self._sending.core)
        await self.leases.forget_the_dead()
        await self._signs.show()
        self._beating = asyncio.create_task(
            self._until_error(partial(self._signs.repeat, self._divide))
        )
        self._sending.core.note_store(kind, self.leases)

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
        has_unread = not self._is_read
        has_more = has_unread and not self._signs.is_hungry
        await self._share.divide(has_more=has_more)
        # This is also the poll, in case no notification arrives.
        self._due.look_soon()
        self.news.read_again(self.leases.lanes)

    # --- feeding

    async def feed(self, is_over: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Add what is to be sent to the engine, until *is_over* while nothing is under way or to be read."""
        pause = pause_of(self._entries.store.silence)
        await self._join(pause)
        listening = asyncio.create_task(
            self._until_error(partial(self._entries.hear, self.news.heard))
        )
        try:
            while True:
                await self._wait_and_take_turns(self.engine.room.until_low)
                # Before anything is read: what is heard from here on sets the event again, and is read next.
                self.news.woken.clear()
                await self.news.bring_back_due()
                if not self._is_read and await self._fetch():
                    continue
                if self._is_read:
                    self.news.caught_up.set()
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
        longest = pause
        if is_shared and has_end:
            longest = _LOOK
        await set_within(self.news.woken, min(longest, self._due.next_in))

    @property
    def _is_idle(self) -> bool:
        return not self.engine.items.held and self._is_read

    @property
    def _is_read(self) -> bool:
        """Whether all lanes of this process were read to their ends."""
        return self._share.has_divided and self._places.are_at_ends(self.leases.lanes)

    # --- from an entry to the engine

    async def _fetch(self) -> bool:
        """
        Add the next entries that are open; return whether there were any.

        They are added in the order of places, but teams take turns. If there are more behind them, the next
        ones of teams that have few among them come first; and so do those of teams of which something is
        heard while these are added. A thing's entries keep their order: see the
        top of this file.
        """
        lanes = self._share.to_read()
        found = await self._reader.read(lanes)
        items = await self._reader.items_of(found, lanes)
        has_more = self._places.have_more(lanes)
        await self._reader.mark(items, is_part=has_more)
        items = in_turns(items)
        if has_more:
            await self._take_turns(items)
        for at, item in enumerate(items):
            if not self.engine.room.is_available:
                await self._wait_and_take_turns(
                    self.engine.room.until_available, items[at:]
                )
            if self._turns.has_news and self._turns.is_due:
                await self._take_turns(items[at:])
            self._add(item)
        return bool(found)

    async def _wait_and_take_turns(
        self, waiting: Callable[[], Awaitable[None]], yet_to_add: Sequence[Item] = ()
    ) -> None:
        """
        Wait as *waiting* does; now and then, add writes of teams that have nothing under way here.

        The caller has read the items *yet_to_add*, and adds them later.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_FOR_TEAMS):
                    await waiting()
                    return
            if not self.engine.run_end.is_halted:
                await self.news.bring_back_due()
                await self._take_turns(yet_to_add)

    async def _take_turns(self, yet_to_add: Sequence[Item]) -> None:
        """Add the next entries of teams with few items under way, ready, or read and *yet_to_add*."""
        lanes = self._share.to_read()
        if not lanes:
            return
        found = await self._turns.read(lanes, self.engine.items.held, yet_to_add)
        items = await self._reader.items_of(found, lanes)
        await self._reader.mark(items, is_part=True)
        for item in in_turns(items):
            self._add(item)

    def _add(self, item: Item) -> None:
        """Add *item* to the engine, unless another process has its lane by now, or it waits for the input."""
        if not self._share.may_begin(item.lane) or self.awaited_input.hold_back(item):
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
            self.news.woken.set()
        if lane.leaving:
            self._signs.show_soon()
