"""
The dispatcher of an outbox in PostgreSQL: one of the processes that send what transactions have committed.

Entries are divided into lanes by the thing that they write to.  Each lane has one dispatcher at a time, so
the writes of one thing are sent in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, cast

from invsvc_async.batch.run import note_in_flight
from invsvc_async.client import options_of
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import LostChunkError
from invsvc_async.durable.last_writes import take_claims
from invsvc_async.durable.leases import BEATS, Leases
from invsvc_async.durable.records import verdict_of_unfit
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.outbox.item import OutboxItem
from invsvc_async.outbox.postgres import LANES, OutboxEntries
from invsvc_async.outbox.run import OutboxRun
from invsvc_async.storage.postgres_pool import AWAY, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.journals.protocol import Entries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Lane

__all__ = ["Dispatcher", "PostgresOutbox"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_AT_ONCE = 200  # entries fetched together
_THINGS_KNOWN = 10_000  # things whose older writes were looked up once


class Dispatcher(OutboxRun):
    """The run of one of the processes."""

    def __init__(
        self, batch: Batch, entries: OutboxEntries, grace: float, on_verdict: Callable[[], None]
    ) -> None:
        super().__init__(batch, grace, on_verdict)
        self._entries = entries
        self._leases = Leases(entries.store, options_of(batch.client).session.clock)
        self._held: dict[int, Lane] = {}  # by number: what is under way
        self._newest: dict[str, int] = {}  # by thing: the last number of those under way
        self._known: set[str] = set()  # things whose older writes were looked up
        # By lane: after which number it is read next; None once it was read to its end.
        self._places: dict[int, int | None] = {}
        self._passed: set[str] = set()  # things with an entry that was passed over, because a newer one runs
        self._beat_now = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._is_leaving = False

    async def _leave(self) -> None:
        self._is_leaving = True
        await super()._leave()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        await self._leases.leave()

    # --- feeding

    async def _feed_all(self, engine: Engine) -> None:
        self._entries.store.patience = PATIENCE
        self._beating = asyncio.create_task(self._beat(engine))
        await self._leases.forget_the_dead()
        listening = asyncio.create_task(self._entries.store.hear(self._heard))
        try:
            while True:
                await engine.hunger()
                self._wake.clear()
                if not await self._fetch(engine):
                    await self._wake.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    def _heard(self, lane: str) -> None:
        if not lane:
            self._read_again(self._leases.lanes)
        elif lane.isdecimal() and int(lane) in self._leases.lanes:
            self._read_again([int(lane)])

    def _read_again(self, lanes: Iterable[int]) -> None:
        """Read *lanes* from their beginning: a transaction may have committed numbers below those read."""
        self._places.update(dict.fromkeys(lanes, 0))
        self._wake.set()

    async def _fetch(self, engine: Engine) -> bool:
        """Add the next entries that are open; return whether there were any."""
        lanes = self._lanes_to_send()
        found = await self._read(lanes)
        items: list[Item] = []
        entries: list[Entry] = []
        for entry in found:
            lane = lanes[entry.lane]
            item = await self._checked(entry, lane)
            if item is None:
                continue
            # One that was reopened comes after what is under way: it is then seen to be overtaken.
            if item.thing is not None and entry.seq < self._newest.get(item.thing, 0):
                self._passed.add(item.thing)
                continue
            item.sender_gone = lane.was_free
            items.append(item)
            entries.append(entry)
        if not items:
            return bool(found)
        in_flight: dict[str, int] = {}
        note_in_flight(in_flight, entries, items)
        things = {item.thing for item in items if item.thing is not None}
        if any(self._places.get(lane) is not None for lane in lanes):  # others may be behind them
            in_flight |= await self._entries.in_flight_of(sorted(things))
        await self._look_up(things)
        await self._taken_up(entries, items, in_flight)
        for item, entry in zip(items, entries, strict=True):
            await engine.room()
            self._held[entry.seq] = lanes[entry.lane]
            if item.thing is not None:
                self._newest[item.thing] = max(entry.seq, self._newest.get(item.thing, 0))
            item.on_end = partial(self._ended, entry, item.thing)
            engine.add(item)
        return True

    async def _read(self, lanes: Iterable[int]) -> list[Entry]:
        """Return the next entries of *lanes* that are open, and not under way here."""
        places = {lane: place for lane in lanes if (place := self._places.get(lane, 0)) is not None}
        if not places:
            return []
        for lane in places:
            self._places.pop(lane, None)
        each = ceil(_AT_ONCE / len(places))
        found = await self._entries.open_in(places, list(self._held), each)
        counts, last = Counter(entry.lane for entry in found), {entry.lane: entry.seq for entry in found}
        for lane in places:  # unless it is to be read again since
            self._places.setdefault(lane, last[lane] if counts[lane] == each else None)
        return found

    def _lanes_to_send(self) -> dict[int, Lane]:
        """
        Return the lanes whose entries may be added, by number.

        Not those that were lost and acquired again, as long as something is under way that was added before:
        it ends without a verdict, so what is newer would be sent before it.
        """
        held = self._leases.lanes
        earlier = {lane.number for lane in self._held.values() if held.get(lane.number) is not lane}
        return {
            number: lane
            for number, lane in held.items()
            if not (lane.leaving or lane.doubtful or number in earlier)
        }

    async def _look_up(self, things: set[str]) -> None:
        """Learn which older writes to *things* may still land, and which webhooks they made."""
        fresh = sorted(things - self._known)
        if not fresh:
            return
        if len(self._known) > _THINGS_KNOWN:
            self._known.clear()
        self._known.update(fresh)
        await self._close_lines(await self._entries.unknown_of(fresh))
        urls = [thing for thing in fresh if thing.startswith("url ")]
        if urls:
            writes = options_of(self._batch.client).session.writes
            take_claims(writes, await self._entries.claims_of(urls))

    async def _checked(self, entry: Entry, lane: Lane) -> Item | None:
        """Return the item of *entry*; if this version cannot send it, store a verdict that says so."""
        try:
            item = self._item(entry, lane)
            assert item.intent is not None
            self._check(item.intent, in_doubt=item.in_doubt)
        except (JournalError, InvalidRequestError) as error:
            with suppress(LostChunkError):
                await lane.put(verdict_of_unfit(entry, error, is_of_copy=self._is_of_copy(entry)))
            self._on_verdict()
            return None
        assert isinstance(item, OutboxItem)
        item.lease, item.number = lane, entry.seq
        return item

    def _ended(self, entry: Entry, thing: str | None) -> None:
        lane = self._held.pop(entry.seq)
        if thing is not None and self._newest.get(thing) == entry.seq:
            del self._newest[thing]
            if thing in self._passed:
                self._passed.discard(thing)
                self._places[lane.number] = 0
        self._wake.set()

    # --- which lanes

    async def _beat(self, engine: Engine) -> None:
        """
        Store signs of life until stopped.

        Without them nothing may be sent. So an error ends the run, unless the database is away.
        """
        try:
            while True:
                self._beat_now.clear()
                try:
                    living = await self._leases.beat()
                    engine.share_pace(1 / living)
                    await self._divide(living)
                    self._read_again(self._leases.lanes)  # also the poll, in case no notification arrives
                except JournalError as error:
                    raise_if_cancelled()
                    if not isinstance(error.__cause__, AWAY):  # it would be refused again
                        raise
                    log.warning("outbox: %s Nothing is sent until it is back.", error)
                raise_if_cancelled()
                await set_within(self._beat_now, self._entries.silence / BEATS)
        except Exception as error:  # noqa: BLE001 - any error ends the run
            engine.fail(error)

    async def _divide(self, living: int) -> None:
        """Acquire lanes, or release some, so that each of *living* processes has its share."""
        if self._is_leaving:
            return
        lanes, share = self._leases.lanes, ceil(LANES / living)
        staying = [lane for lane in lanes.values() if not lane.leaving]
        for lane in staying[share:]:
            lane.leaving = True
        busy = {lane.number for lane in self._held.values()}
        await self._leases.give_up(
            [lane for lane in lanes.values() if lane.leaving and lane.number not in busy]
        )
        if len(lanes) < share:
            for lane in await self._leases.take(share - len(lanes)):
                lane.on_doubt = self._beat_now.set
                self._known.clear()  # others may have written to its things


class PostgresOutbox(OutboxEntries):
    """The outbox at *address*, in PostgreSQL."""

    @property
    def entries(self) -> Entries:
        """The journal of the batch that sends them."""
        return cast("Entries", self)  # its run uses no more than this has

    async def dispatch(self, batch: Batch, grace: float, on_verdict: Callable[[], None]) -> None:
        """Send what is committed, until cancelled. *on_verdict* is called when verdicts were stored."""
        await self.store.check_place()
        try:
            await Dispatcher(batch, self, grace, on_verdict).dispatch()
        finally:
            self.store.forget_place()
