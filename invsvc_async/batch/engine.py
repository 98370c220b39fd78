"""
The engine of a batch: runs items concurrently, those of one thing in their order.

An item goes through these states; the code below is in their order:

- *waiting*: it is in ``RunItems.held``, and in the line of its thing behind other items, until
  ``RunItems.next_in_line``;
- *ready*: it is also in ``RunItems.ready``. It begins with ``_start_next``;
- *running*: a task runs its driver (``_run_item``). It has a slot, but not while it is settled. Its verdict
  is stored from ``_conclude`` on; or it is ready again (``RunItems.put_back``), or fails (``_fail_item``);
- *storing*: its verdict is on the way to the store, which ``OpenWork`` knows. It ends with ``_stored``;
- *ended*: the engine has nothing of it but its result, in ``RunItems.finished``, until ``next_finished``
  returns that. By ``_end_item``, the next item of its thing is ready, perhaps later.

What wakes the engine, and what keeps the order of items before they are added, is at the top of
``dispatcher.py``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.batch.circuit_breaker import CircuitBreaker
from invsvc_async.batch.feeding import Feeding
from invsvc_async.batch.full_list import FullListLook
from invsvc_async.batch.item_driver import driver_of
from invsvc_async.batch.open_work import OpenWork
from invsvc_async.batch.pacing import Slots
from invsvc_async.batch.room import Room, next_change
from invsvc_async.batch.run_end import RunEnd
from invsvc_async.batch.run_items import RunItems
from invsvc_async.batch.verdict_count import VerdictCount
from invsvc_async.durable.entry import LostEntryError
from invsvc_async.errors import ConfigurationError
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.item import Item
    from invsvc_async.batch.sending import Sending
    from invsvc_async.reconcile.outcome import AnyOutcome


class Engine:
    """
    The items under way in one run.

    ``add`` adds an item, and ``next_finished`` returns one that has its result. A write in doubt frees its
    slot while it is settled. *on_end* is called when an item has ended.

    The parts of an engine know, each for itself: how the run ends (``run_end``), which items there are
    (``items``), whether more are taken in (``room``), what has begun and not ended (``open_work``), whether a
    write may be sent (``slots``, ``breaker``), who adds items (``feeding``), and which verdicts came
    (``verdicts``).

    All ends of a run go through ``run_end``: ``fail`` ends it at once with an error, ``end_when_idle`` with
    an error once nothing is under way, and ``halt`` only lets no more items begin. What the event loop calls
    is called by ``run_end.guarded``, so that an error in it ends the run, too.
    """

    def __init__(
        self, sending: Sending, on_end: Callable[[Item], None] | None = None
    ) -> None:
        self.sending: Sending = sending
        self._on_end = on_end
        self._is_filling = False  # in the next round of the loop
        # Set when something that is waited for may have come.
        self._changed = asyncio.Event()
        self.run_end: RunEnd = RunEnd(self._changed)
        self.feeding: Feeding = Feeding(self.run_end, self._changed)
        self.items: RunItems = RunItems(sending.per_team)
        self.slots: Slots = Slots(sending.concurrency, sending.rate, self._fill_soon)
        self.breaker: CircuitBreaker = CircuitBreaker(
            sending.options,
            on_change=self._fill_soon,
            on_stop=self.run_end.end_when_idle,
        )
        self.room: Room = Room(
            sending.concurrency, self.items, self.slots, self.run_end, self._changed
        )
        self.open_work: OpenWork = OpenWork(self.run_end, self._changed)
        self.verdicts: VerdictCount = VerdictCount(sending.stop_after)
        self._list_look = FullListLook(sending)

    # --- in and out

    def add(self, item: Item) -> None:
        """Add *item*. It starts once there is a slot and all earlier items of its thing have ended."""
        self.items.add(item)
        self._fill()

    async def next_finished(self) -> Item | None:
        """Return the next item that ends, or ``None`` if there are no more."""
        items = self.items
        while True:
            if items.finished:
                self._changed.set()  # another item can be added
                return items.finished.popleft()
            is_over = self.run_end.is_halted or (
                self.feeding.is_complete and not items.held
            )
            if self.run_end.has_failed:
                return None
            if is_over and not self.open_work:
                return None
            await next_change(self._changed)

    async def stop(self, grace: float) -> None:
        """
        Start no more items, let those under way end within *grace* seconds, and shelve the rest.

        First what adds items and lets them begin is stopped; then what is under way has its time; the rest is
        cancelled, and what is stored by then is waited for.
        """
        self.run_end.halt()
        await self.feeding.stop()
        self.slots.close()
        await self.open_work.until_ended(grace)
        await self.breaker.close()
        await self.open_work.cancel()
        self._changed.set()

    # --- from ready to ended

    def _fill_soon(self) -> None:
        """Fill the slots in the next round of the loop, after tasks that end now have taken more."""
        if not self._is_filling:
            self._is_filling = True
            asyncio.get_running_loop().call_soon(self.run_end.guarded, self._fill)

    def _fill(self) -> None:
        """Start items while there are slots."""
        self._is_filling = False
        while (item := self._start_next()) is not None:
            self.open_work.start_task(self._run_items_in_turn(item))

    def _start_next(self) -> Item | None:
        """
        Return the first ready item, and take a slot for it.

        ``None`` if it has to wait for a slot. An item that is not sent at once needs none yet: one in doubt
        is settled first, and one to whose thing an earlier write may still land waits.
        """
        ready = self.items.ready
        if self.run_end.is_halted or not ready:
            return None
        if not self.breaker.allows(self.slots.in_use):
            return None
        item = ready.first()
        if item is None:
            return None
        needs_no_slot = (
            item.in_doubt or self.sending.core.writes.closed_for(item.entry.thing) > 0
        )
        item.in_slot = not needs_no_slot and self.slots.take(item)
        if not (item.in_slot or needs_no_slot):
            return None
        if self.room.is_low_awaited:
            self._changed.set()
        ready.take(item)
        return item

    async def _run_items_in_turn(self, item: Item) -> None:
        """Run *item*, and then others while there are slots: a task for each item would cost more."""
        following: Item | None = item
        while following is not None:
            await self._run_item(following)
            following = self._start_next()

    async def _run_item(self, item: Item) -> None:
        """Run the driver of *item* until its verdict, and begin to store that."""
        try:
            if self._list_look.is_due and item.kind.has_secret:
                await self._list_look.warn(item.intent)
            driver = driver_of(item, self.sending)
            await driver.drive()
            await self._conclude(item, driver.outcome())
        except asyncio.CancelledError:
            if not self.run_end.is_halted:
                # Not ``stop`` has cancelled it, but something that a callback of the user awaits. That is an
                # error of this item. It ends the run, so this task begins no other item, and ends, too.
                reason = "a callback was cancelled, but not by this run. Run again to settle it."
                self._fail_item(item, ConfigurationError(f"{item.entry.key}: {reason}"))
                return
            self._end_item(item, 0.0)
            raise
        except Exception as error:  # noqa: BLE001 - any error ends the run
            if (
                isinstance(error, ConfigurationError)
                and self.sending.core.under_way.closed
            ):
                self.breaker.stop_closed()
                self._end_item(item, 0.0)
                return
            self._fail_item(item, error)
        finally:
            # The specification refers to its item: without the cycle, both are freed at once.
            # An item that was put back is ready by now, and still has its slot. Nothing is awaited between
            # that and this, so no task begins the item before.
            item.spec = None
            item.leave()

    async def _conclude(self, item: Item, outcome: AnyOutcome) -> None:
        """Begin to store *outcome* as that of *item*; if *item* was put back, make it ready again."""
        # The driver tells the item its verdict, by ``settled``. But if the user has settled the write
        # meanwhile, the client has the verdict already, and the driver does not. ``settled`` only begins to
        # store the verdict: ``item.storing`` is done once it is stored, and ``_stored`` is called then.
        has_been_told = item.is_put_back or item.storing is not None
        if not has_been_told:
            await item.settled(outcome)
        if item.is_put_back:
            self._put_back(item)
            return
        failure = self.verdicts.add(outcome.verdict)
        if failure is not None:
            self.run_end.end_when_idle(failure)
        # How long the next item of the thing has to wait: as long as this write, or another one of the
        # client, may still land.
        wait = self.sending.core.writes.closed_for(item.entry.thing)
        if outcome.verdict is Verdict.UNKNOWN:
            wait = max(
                wait,
                (outcome.evidence.window_until or 0.0) - self.sending.core.clock.now(),
            )
        assert item.storing is not None
        self.open_work.follow(item.storing, partial(self._stored, item, wait))

    def _put_back(self, item: Item) -> None:
        """Run *item* next."""
        item.is_put_back = False
        # The client has noted the outcome of this run. The next run would take it for the verdict.
        self.sending.core.writes.ended.pop(item.intent.identity, None)
        self.items.put_back(item)

    def _stored(
        self,
        item: Item,
        wait: float,
        storing: asyncio.Future[None],
    ) -> None:
        """
        Make the result of *item* available, if it is stored now.

        The next item of its thing begins *wait* seconds later.
        """
        was_given_up = self.open_work.forget(storing)
        error = storing.exception()
        if error is None:
            self.items.finished.append(item)
            self._end_item(item, wait)
            return
        assert item.finished is not None
        _, _, outcome = item.finished
        self.sending.core.leave_unsettled(outcome.intent, item.entry.thing)
        if was_given_up:  # The next run settles it.
            self._end_item(item, 0.0)
        else:
            self._fail_item(item, error)

    def _fail_item(self, item: Item, error: BaseException) -> None:
        """End *item* without a verdict; *error* ends the run, unless another process has the lane by now."""
        if isinstance(error, LostEntryError):
            self.sending.core.writes.forget(item.identity)
        else:
            self.run_end.fail(error)
        self._end_item(item, 0.0)

    def _end_item(self, item: Item, wait: float) -> None:
        """Forget *item*, and make the next item of its thing ready after *wait* seconds."""
        self.items.end(item)
        if self.sending.per_team is not None:
            self._fill_soon()  # Its team may have another item under way now.
        self._changed.set()
        if self._on_end is not None:
            self._on_end(item)
        self._next_in_line(item.entry.thing, wait)

    def _next_in_line(self, thing: str | None, wait: float) -> None:
        """Start the next item of *thing* after *wait* seconds, when the one before can no longer land."""
        if thing is None:
            return
        if wait > 0 and not self.run_end.is_halted:
            loop = asyncio.get_running_loop()
            guarded = self.run_end.guarded
            loop.call_later(wait, guarded, self._next_in_line, thing, 0.0)
            return
        if self.items.next_in_line(thing):
            self._fill()
