"""
The dispatcher of an outbox: one of the processes that send what transactions have committed.

Entries are divided into lanes by the thing that they write to.  Each lane has one dispatcher at a time, so
the writes of one thing are sent in their order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.batch.restored import restored_of
from invsvc_async.batch.run import Run, note_in_flight
from invsvc_async.client import options_of
from invsvc_async.concurrency.cancellation import raise_if_cancelled, until_ended
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.entry import LostChunkError
from invsvc_async.durable.last_writes import take_claims
from invsvc_async.durable.leases import Leases, pause_of
from invsvc_async.durable.records import verdict_of_unfit
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.outbox.item import OutboxItem
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from invsvc_async.batch.batch import Batch
    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.item import Item
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.leases import Lane
    from invsvc_async.outbox.entries import OutboxEntries
    from invsvc_async.reconcile.intent import Intent

__all__ = ["Dispatcher"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_AT_ONCE = 200  # entries fetched together
_THINGS_KNOWN = 10_000  # things whose older writes were looked up once


class Dispatcher(Run):
    """
    A run of a batch that lasts until it is stopped, and whose input are the writes of an outbox.

    In the end, what is under way has *grace* seconds. *on_verdict* is called when verdicts were stored.
    """

    item_type: ClassVar[type[Item]] = OutboxItem

    def __init__(
        self, batch: Batch, entries: OutboxEntries, grace: float, on_verdict: Callable[[], None]
    ) -> None:
        super().__init__(batch, ())
        self._grace = grace
        self._on_verdict = on_verdict
        self._wake = asyncio.Event()  # there may be something to send
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

    async def dispatch(self) -> None:
        """
        Send what is committed, until cancelled.

        Raises:
            JournalError: The database stayed away.
            BatchStoppedError: The service refuses the credential.
            TransportError: The outbox was restored from a copy, and the service cannot be reached.

        """
        await self._recall_restore()
        engine = self._start()
        try:
            while await engine.next_result() is not None:
                self._on_verdict()
        finally:
            leaving = asyncio.create_task(self._leave())
            ending = [leaving]
            await until_ended(ending, lambda: ending.append(asyncio.create_task(self.stop(0.0))))
            leaving.result()
        if (failure := engine.take_failure()) is not None:
            raise failure

    async def _leave(self) -> None:
        """End what is under way, and release the rest."""
        self._is_leaving = True
        await self.stop(self._grace)
        self._on_verdict()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        await self._leases.leave()

    # --- feeding

    async def _feed_all(self, engine: Engine) -> None:
        self._beating = asyncio.create_task(self._beat(engine))
        await self._leases.forget_the_dead()
        listening = asyncio.create_task(self._listen(engine))
        try:
            while True:
                await engine.hunger()
                self._wake.clear()
                if not await self._fetch(engine):
                    await self._wake.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, engine: Engine) -> None:
        try:
            await self._entries.hear(self._read_again)
        except Exception as error:  # noqa: BLE001 - any error ends the run
            engine.fail(error)

    def _read_again(self, lanes: Iterable[int], after: int = 0) -> None:
        """Read those of *lanes* that this process has once more, *after* a number at the latest."""
        for lane in lanes:
            if lane in self._leases.lanes:
                place = self._places.get(lane, 0)
                self._places[lane] = after if place is None else min(place, after)
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
        self._places.update(dict.fromkeys(places))
        each = ceil(_AT_ONCE / len(places))
        found = await self._entries.open_in(places, list(self._held), each)
        counts, last = Counter(entry.lane for entry in found), {entry.lane: entry.seq for entry in found}
        for lane in places:
            if counts[lane] == each:
                since = self._places[lane]  # it may be to be read again since
                self._places[lane] = last[lane] if since is None else min(since, last[lane])
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
                    if not self._entries.is_away(error):  # it would be refused again
                        raise
                    log.warning("outbox: %s Nothing is sent until it is back.", error)
                raise_if_cancelled()
                await set_within(self._beat_now, pause_of(self._entries.silence))
        except Exception as error:  # noqa: BLE001 - any error ends the run
            engine.fail(error)

    async def _divide(self, living: int) -> None:
        """Acquire lanes, or release some, so that each of *living* processes has its share."""
        if self._is_leaving:
            return
        lanes, share = self._leases.lanes, ceil(self._entries.lanes / living)
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

    # --- what a copy lacks, and what does not fit

    async def _recall_restore(self) -> None:
        """Learn which entries may have been sent after the copy from which the outbox was restored."""
        batch, entries = self._batch, self._entries
        batch.restored = await restored_of(entries.fact, batch.client)
        if batch.restored is not None:
            left = await entries.not_done(0, 1)
            if not left or left[0].seq > batch.restored.through:
                await entries.close_restored()

    async def _close_lines(self, unknown: list[Entry]) -> None:
        """As the base class. Those that this version cannot read are waited for, together."""
        last = 0  # when the last of those got its verdict, epoch ms: their things are not known
        for entry in unknown:
            try:
                await super()._close_lines([entry])
            except JournalError:
                last = max(last, entry.done_at or 0)
        if last:
            await self._outlast(last)

    async def _outlast(self, done_at: int) -> None:
        """Wait until what got its verdict at *done_at* can no longer take effect."""
        options = options_of(self._batch.client)
        policy = options.reconcile
        longest = options.timeouts.attempt + policy.settle_after_loss
        longest += 2 * policy.clock_slack + policy.clock_band
        since = time.time() - done_at / 1000
        if since < longest:
            await options.session.clock.sleep(min(longest - since, longest))

    def _is_of_copy(self, entry: Entry) -> bool:
        """Return whether *entry* may have been sent after the copy from which the outbox was restored."""
        restored = self._batch.restored
        return restored is not None and entry.seq <= restored.through

    def _check(self, intent: Intent, *, in_doubt: bool) -> None:
        """
        Check that this client may send or settle *intent*.

        Raises:
            InvalidRequestError: It belongs to another base URL, data mode or credential.

        """
        view = options_of(self._batch.client).without_team()
        check_scope(view, intent, same_mode=self._batch.same_mode, in_doubt=in_doubt)
