"""
The engine of a batch: runs items concurrently, those of one thing in their order.

An item goes through these states; the code below is in their order:

=========  ================================================================
=================================== state      what has it
   next, and by which function =========  ================================================================
=================================== waiting    ``held``, and the line of its thing behind other items
  ready:  ``_make_ready`` ready      also ``ready``
running:  ``_start_next`` running    a task, which runs its driver (``_run``); one slot, but not
storing:  ``_conclude``; ready again:
           while it is settled                                               ``_put_back``; ended:
           ``_fail_item``
storing    ``_storing``: its verdict is on the way to the store              ended:  ``_stored`` ended
nothing here; what is stored is in ``_finished``, until           ``_end_item``: then the next item of
           ``next_finished`` gives it                                        its thing is ready, perhaps later
=========  ================================================================
===================================

A run ends in one of three ways: ``fail`` ends it at once with an error, ``end_when_idle`` with an error once
what is under way has ended, and ``stop`` at the wish of the caller.  ``halt``, a part of each, lets no more
items begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from invsvc_async.api.operations import WEBHOOKS_LIST
from invsvc_async.batch.circuit_breaker import CircuitBreaker
from invsvc_async.batch.item import Item, ItemOptions
from invsvc_async.batch.pacing import Slots
from invsvc_async.batch.team_turns import ReadyItems
from invsvc_async.durable.entry import LostLaneError
from invsvc_async.errors import BatchStoppedError, ConfigurationError, JournalError
from invsvc_async.reconcile.history import Resumed, Verdict
from invsvc_async.reconcile.outcome import LIST_FULL
from invsvc_async.writes.driver import AnyDriver, Driver, new_run
from invsvc_async.writes.new_intent import spec_of_intent
from invsvc_async.writes.recovery import check_scope
from invsvc_async.writes.starting import Start, new_start, taken_up
from invsvc_async.writes.state_reads import LIST_SIZE, StateReader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from invsvc_async.batch.sending import Sending
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.spec import WriteSpec


log: logging.Logger = logging.getLogger("invsvc_async.batch")

_FULL = (
    "the list of webhooks is full: a create whose answer is lost is certain only if the list shows its tag, "
    "and otherwise UNKNOWN. %s"
)
_LIMITED = "the service limits the rate (HTTP 429)"
_LEAST = 20  # writes before a share of failures counts
_TO_STORE = 1.0  # s that the journal of a stopped run has to store finished writes


class Engine:
    """
    The items under way in one run.

    ``add`` adds an item, and ``next_finished`` returns one that has its result. The number of items between
    the two is limited, so a slow consumer slows the input down. A write in doubt frees its slot while it is
    settled. *on_end* is called when an item has ended.
    """

    def __init__(
        self, sending: Sending, on_end: Callable[[Item], None] | None = None
    ) -> None:
        self.sending: Sending = sending
        self._on_end = on_end
        self.done: int = 0  # writes that have their verdict
        self._failed = 0  # of them, those that were not applied
        self._is_filling = False  # in the next round of the loop
        self._is_waited_for = False  # by ``until_hungry``
        self._stopped = False
        self._feeding: asyncio.Task[bool] | None = None
        self._failure: BaseException | None = None
        self._end_error: BaseException | None = None  # raised once nothing is under way
        self.slots: Slots = Slots(sending.concurrency, sending.rate, self._fill_soon)
        self.breaker: CircuitBreaker = CircuitBreaker(
            sending.options, on_change=self._fill_soon, on_stop=self.end_when_idle
        )
        # What has not ended, by the number of the entry; the items of each thing are in their order.
        self.held: dict[int, Item] = {}
        self.ready: ReadyItems = ReadyItems(sending.per_team)
        # By thing, what has not ended of it: the first item is ready or under way.
        self._lines: dict[str, deque[Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # For the one look whether the list of webhooks, by which all creates are settled, is full. Creates
        # wait for it; ``None`` once it was made.
        self._list_lock: asyncio.Lock | None = asyncio.Lock()
        # The stores of verdicts that have not ended. Those that ``stop`` has given up are not in it.
        self._storing: set[asyncio.Future[None]] = set()
        self._finished: deque[Item] = deque()
        self._changed = asyncio.Event()
        self.input_ended: bool = False  # although writes that were stored may follow

    # --- in

    @property
    def complete(self) -> bool:
        """Whether all items were added."""
        feeding = self._feeding
        return (
            feeding is not None
            and feeding.done()
            and not feeding.cancelled()
            and feeding.result()
        )

    async def until_room(self) -> None:
        """Wait until an item may be added. Of a stopped run, the task that feeds it is cancelled."""
        while not self.has_room:
            await self._wait()

    @property
    def has_room(self) -> bool:
        """Whether an item may be added."""
        return not (self._stopped or self._is_full)

    @property
    def is_stopped(self) -> bool:
        """Whether no more items start."""
        return self._stopped

    @property
    def is_busy(self) -> bool:
        """Whether there are items between ``add`` and ``next_finished``."""
        return bool(self.held or self._finished)

    @property
    def _is_at_limit(self) -> bool:
        """
        Whether as many items are between ``add`` and ``next_finished`` as memory is used for.

        That leaves room for those that are settled beside those in slots, and for results that wait.
        """
        return len(self.held) + len(self._finished) >= 8 * self.sending.concurrency + 64

    @property
    def _is_full(self) -> bool:
        """Whether the limit is reached, or enough items are ready: more would slow garbage collection."""
        return self._is_at_limit or self.ready.startable >= max(
            1, self.sending.concurrency // 2
        )

    def add(self, item: Item) -> None:
        """Add *item*. It starts once there is a slot and all earlier items of its thing have ended."""
        self.held[item.entry.seq] = item
        if (thing := item.entry.thing) is not None:
            self._lines.setdefault(thing, deque()).append(item)
        self._make_ready(item)
        self._fill()

    def _make_ready(self, item: Item) -> None:
        """Mark *item* as ready, if it is the first in its line."""
        if item.entry.thing is None or self._lines[item.entry.thing][0] is item:
            self.ready.append(item)

    def feed(self, source: Coroutine[Any, Any, None]) -> None:
        """Run *source*, which adds the items, until it or the run ends. An error of *source* ends the run."""
        self._feeding = asyncio.create_task(self._feed(source))

    async def _feed(self, source: Coroutine[Any, Any, None]) -> bool:
        """Return whether *source* ended without an error."""
        try:
            await source
        except JournalError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - any error of the source ends the run
            self.end_when_idle(error)
        else:
            self._changed.set()
            return True
        return False

    def fail(self, error: BaseException) -> None:
        """End the run with *error* at once. No more items start."""
        self._failure = self._failure or error
        self.halt()

    def end_when_idle(self, error: BaseException) -> None:
        """Start no more items, and end the run with *error* once those under way have ended."""
        self._end_error = self._end_error or error
        self.halt()

    def halt(self) -> None:
        """Start no more items."""
        self._stopped = True
        self._changed.set()

    # --- out

    async def next_finished(self) -> Item | None:
        """Return the next item that ends, or ``None`` if there are no more."""
        while True:
            if self._finished:
                self._changed.set()  # another item can be added
                return self._finished.popleft()
            is_idle = not (self._tasks or self._storing)
            is_over = self._stopped or (self.complete and not self.held)
            if self._failure is not None or (is_idle and is_over):
                return None
            await self._wait()

    def take_failure(self) -> BaseException | None:
        """Return the error that ended the run, once."""
        failure = self._failure or self._end_error
        self._failure = None
        self._end_error = None
        return failure

    async def until_hungry(self) -> None:
        """Wait until fewer items are ready than there are slots, so that no slot stays empty."""
        self._is_waited_for = True
        try:
            while (
                not self.has_room
                or self.ready.startable >= self.slots.free + self.slots.in_use
            ):
                await self._wait()
        finally:
            self._is_waited_for = False

    @property
    def under_way(self) -> int:
        """How many items have started and are not stored as done."""
        return len(self._tasks) + len(self._storing)

    @property
    def settling(self) -> int:
        """How many of them are being settled."""
        return max(len(self._tasks) - self.slots.in_use, 0)

    @property
    def pause(self) -> tuple[str | None, float | None]:
        """Why nothing can be sent now, and the seconds until the service is tried again, if that is known."""
        why, seconds = self.breaker.pause
        if why is None and (limited_for := self.slots.limited_for) > 0:
            return _LIMITED, limited_for
        return why, seconds

    @property
    def limited_by(self) -> str | None:
        """
        The limit that keeps more writes from being under way now, in a few words.

        What stands before a colon names the limit: by it, a run adds up for how long each held.
        """
        why, _ = self.pause
        if why is not None or self._stopped:
            return why
        if not self.breaker.allows(self.slots.in_use):
            return "recovery: one write at a time, until one is answered"
        if self.ready.first() is not None:
            return self.slots.limit
        if self.ready:
            return f"per_team: {self.sending.per_team} of each team are under way"
        if self._is_at_limit:
            waiting = len(self._finished)
            return f"results: {self.settling:,} writes are settled, and {waiting:,} wait to be taken"
        if behind := sum(len(line) - 1 for line in self._lines.values()):
            return f"order: {behind:,} wait for earlier writes to the same resources"
        if not (self.complete or self.input_ended):
            return "input: it has no more writes yet"
        if self.slots.in_use:
            return f"answers: {self.slots.in_use:,} outstanding"
        return "lost answers: nothing else is left" if self.settling else None

    async def stop(self, grace: float) -> None:
        """
        Start no more items, let those under way end within *grace* seconds, and shelve the rest.

        First what adds items and lets them begin is stopped; then what is under way has its time; the rest is
        cancelled, and what is stored by then is waited for.
        """
        self.halt()
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait([self._feeding])
        self.slots.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        while (left := self._left()) and (seconds := until - loop.time()) > 0:
            await asyncio.wait(left, timeout=seconds)
        await self.breaker.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._storing:
            await asyncio.wait(self._storing, timeout=_TO_STORE)
        # A journal that hangs is not waited for: the next run settles what is not stored.
        self._storing.clear()
        self._changed.set()

    def _left(self) -> set[asyncio.Future[None]]:
        """Return what has not ended."""
        return {each for each in (*self._tasks, *self._storing) if not each.done()}

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- running

    def _fill_soon(self) -> None:
        """Fill the slots in the next round of the loop, after tasks that end now have taken more."""
        if not self._is_filling:
            self._is_filling = True
            asyncio.get_running_loop().call_soon(self._guarded, self._fill)

    def _fill(self) -> None:
        """Start items while there are slots."""
        self._is_filling = False
        while (item := self._start_next()) is not None:
            task = asyncio.create_task(self._work(item))
            self._tasks.add(task)
            task.add_done_callback(partial(self._guarded, self._task_ended))

    def _start_next(self) -> Item | None:
        """
        Return the first ready item, which has a slot from now on, for the task that runs it.

        ``None`` if it has to wait for a slot. An item that is not sent at once needs none yet: one in doubt
        is settled first, and one to whose thing an earlier write may still land waits.
        """
        if self._stopped or not (self.ready and self.breaker.allows(self.slots.in_use)):
            return None
        item = self.ready.first()
        if item is None:
            return None
        needs_no_slot = (
            item.in_doubt or self.sending.core.writes.closed_for(item.entry.thing) > 0
        )
        item.in_slot = not needs_no_slot and self.slots.take(item)
        if not (item.in_slot or needs_no_slot):
            return None
        if self._is_waited_for:
            self._changed.set()
        self.ready.take(item)
        return item

    def _guarded(self, call: Callable[..., None], *given: object) -> None:
        """
        Make a call for the event loop.

        An error in it, as of a signal handler, ends the run: the loop would only log it, and the run wait on.
        """
        try:
            call(*given)
        except Exception as error:  # noqa: BLE001 - any error ends the run
            self.fail(error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Note that *task* has ended; an error of it ends the run."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self._changed.set()

    async def _work(self, item: Item) -> None:
        """Run *item*, and then others while there are slots. A task per item would cost more."""
        following: Item | None = item
        while following is not None:
            await self._run(following)
            following = self._start_next()

    async def _run(self, item: Item) -> None:
        """Run the driver of *item* until its verdict, and begin to store that."""
        try:
            if self._list_lock is not None and item.kind.has_secret:
                await self._warn_of_full_list(self._list_lock, item.intent)
            driver = self._driver_of(item)
            await driver.drive()
            await self._conclude(item, driver.outcome())
        except asyncio.CancelledError:
            if not self._stopped:  # Somebody else than ``stop`` has cancelled it.
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
            item.spec = None
            item.leave()

    async def _conclude(self, item: Item, outcome: AnyOutcome) -> None:
        """Begin to store *outcome* as that of *item*; if *item* was put back, make it ready again."""
        # The driver tells the item its verdict, by ``settled``. But if the user has settled the write
        # meanwhile, the client has the verdict already, and the driver does not.
        has_been_told = item.is_put_back or item.storing is not None
        if not has_been_told:
            await item.settled(outcome)
        if item.is_put_back:
            self._put_back(item)
            return
        self._count(outcome.verdict)
        # How long the next item of the thing has to wait: as long as this write, or another one of the
        # client, may still land.
        wait = self.sending.core.writes.closed_for(item.entry.thing)
        if outcome.verdict is Verdict.UNKNOWN:
            wait = max(
                wait,
                (outcome.evidence.window_until or 0.0) - self.sending.core.clock.now(),
            )
        assert item.storing is not None
        self._storing.add(item.storing)
        item.storing.add_done_callback(partial(self._guarded, self._stored, item, wait))

    async def _warn_of_full_list(self, lock: asyncio.Lock, intent: Intent) -> None:
        """Warn before the first create of a webhook, that of *intent*, if the list is full."""
        async with lock:
            if self._list_lock is None:  # Another task has looked meanwhile.
                return
            last = self.sending.core.writes.last_list(
                WEBHOOKS_LIST.name, intent.scope.team
            )
            if last is None:
                looks = StateReader(
                    self.sending.options.without_team(),
                    intent,
                    lambda: intent,
                    own=None,
                )
                full = (await looks.look(WEBHOOKS_LIST.name, lane="settle")).full
            else:
                full = last.many >= LIST_SIZE
            if full:
                log.warning(_FULL, LIST_FULL)
            self._list_lock = None

    def _count(self, verdict: Verdict) -> None:
        """Count a finished write, and end the run if there are too many failures now."""
        self.done += 1
        self._failed += verdict is not Verdict.APPLIED
        most = self.sending.stop_after
        if most is None or verdict is Verdict.APPLIED:
            return
        if self._has_failed_too_often(most):
            reason = (
                f"stop_after: {self._failed:,} of {self.done:,} writes were not applied, and the limit is "
                f"{most}. See the results, and run again once the cause is removed; other writes are to do."
            )
            self.end_when_idle(BatchStoppedError(reason))

    def _has_failed_too_often(self, most: float) -> bool:
        """Return whether *most* failures are reached: a number, or a share of enough finished writes."""
        if isinstance(most, int):
            return self._failed >= most
        return self.done >= _LEAST and self._failed >= most * self.done

    def _put_back(self, item: Item) -> None:
        """Run *item* next. The item keeps its place in its line."""
        item.is_put_back = False
        # The client has noted the outcome of this run. The next run would take it for the verdict.
        self.sending.core.writes.ended.pop(item.intent.identity, None)
        self.ready.end(item)
        self.ready.append_first(item)

    def _stored(self, item: Item, wait: float, storing: asyncio.Future[None]) -> None:
        """
        Make the result of *item* available, if it is stored now.

        The next item of its thing begins *wait* seconds later.
        """
        was_given_up = storing not in self._storing  # by ``stop``
        self._storing.discard(storing)
        error = storing.exception()
        if error is None:
            self._finished.append(item)
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
        if isinstance(error, LostLaneError):
            self.sending.core.writes.forget(item.identity)
        else:
            self.fail(error)
        self._end_item(item, 0.0)

    def _end_item(self, item: Item, wait: float) -> None:
        """Forget *item*, and make the next item of its thing ready after *wait* seconds."""
        del self.held[item.entry.seq]
        self.ready.end(item)
        if self.sending.per_team is not None:
            self._fill_soon()  # Its team may have another item under way now.
        self._changed.set()
        if self._on_end is not None:
            self._on_end(item)
        self._next_in_line(item.entry.thing, wait)

    def _driver_of(self, item: Item) -> AnyDriver:
        """
        Return the driver of *item*, which begins in one of four ways.

        - an item that is as in the input, as a new run;
        - one that may have been sent, or is not the newest of its thing: where the earlier run left it. It is
          settled first, and not sent if it is not the newest;
        - one that was put back: anew, unless the client has sent a newer write to its thing meanwhile;
        - any other stored one: as a new run of the stored intent.
        """
        if item.spec is not None:
            return new_run(item.spec, item.intent)
        anywhere = self.sending.options.without_team()
        same_mode = self.sending.same_mode
        check_scope(anywhere, item.intent, same_mode=same_mode, in_doubt=item.in_doubt)
        intent = item.intent
        begin = None
        if item.in_doubt or intent.newest is False:
            since = self.sending.core.clock.now() if item.lane.was_free else None
            begin = partial(_taken_up, self.sending.core, since, item.entry.thing)
        spec = spec_of_intent(ItemOptions.of(item, anywhere), intent, item.reader)
        if begin is None and item.times_put_back and item.entry.thing is not None:
            begin = partial(_begun_again, spec, item.entry.thing, item.intent)
        return Driver(spec, intent, begin=begin, takes_up=item.in_doubt)

    def _next_in_line(self, thing: str | None, wait: float) -> None:
        """Start the next item of *thing* after *wait* seconds, when the one before can no longer land."""
        if thing is None:
            return
        if wait > 0 and not self._stopped:
            loop = asyncio.get_running_loop()
            loop.call_later(wait, self._guarded, self._next_in_line, thing, 0.0)
            return
        line = self._lines[thing]
        line.popleft()
        if line:
            self._make_ready(line[0])
            self._fill()
        else:
            del self._lines[thing]


def _has_written_beside(core: ClientCore, thing: str | None, intent: Intent) -> bool:
    """
    Return whether this client has sent a newer write to *thing* than *intent*, with an effect perhaps.

    What entries call a thing is the name of a line in ``writes``.
    """
    return thing is not None and core.writes.is_last(thing, intent.identity) is False


def _begun_again(
    spec: WriteSpec, thing: str, put_back: Intent, intent: Intent
) -> Start:
    """
    Start a write that was *put_back*, unless the client has meanwhile sent a newer write to its thing.

    *intent* is the same without the sends that had no effect.
    """
    core = spec.options.core
    if _has_written_beside(core, thing, intent):
        return taken_up(core, attrs.evolve(put_back, newest=False), journaled=True)
    return new_start(spec, thing, intent)


def _taken_up(
    core: ClientCore, gone_since: float | None, thing: str | None, intent: Intent
) -> Start:
    """
    Start where an earlier run left *intent*, a write to *thing*.

    ``newest`` is what the journal knows of it: false if a later write to the thing was sent, ``None`` if it
    cannot tell, because it was restored from a copy. Only the journal knows what other processes have sent;
    and neither knows what this client has sent beside the journal. So true becomes ``None`` if it has.
    """
    latest = core.writes.opened(intent.identity)
    if latest is not None and intent.newest is False:
        core.writes.revise(attrs.evolve(latest, newest=False))
    start = taken_up(core, intent, journaled=True, gone_since=gone_since)
    resumed = cast("Resumed", start.history[0])
    if intent.newest is not None:
        may_be_overtaken = resumed.newest and _has_written_beside(core, thing, intent)
        if not may_be_overtaken:
            return start
    return Start(start.intent, (attrs.evolve(resumed, newest=None),))
