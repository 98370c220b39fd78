"""
Run the items of a batch: as many at once as there are places, those of one thing in their order; never
judge a write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async._errors import ConfigurationError
from invsvc_async.batch.intake import options_for
from invsvc_async.batch.pacing import Slots
from invsvc_async.journal.entry import LostChunkError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.writes.driver import Driver, new_run
from invsvc_async.writes.new_intent import spec_of_intent
from invsvc_async.writes.recovery import check_scope
from invsvc_async.writes.start import taken_up

if TYPE_CHECKING:
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import ClientOptions, ClientState
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.start import Start

__all__ = ["Engine"]

_TO_STORE = 1.0  # s that a journal has, of a run that is stopped, to store what has ended


class Engine:
    """
    What is under way in one run.

    ``add`` takes an item, ``next_result`` gives what became of one; between them so many are held at most,
    so a slow consumer holds the input up.  A write in doubt gives its place to the next one while it waits
    to be found out about.
    """

    def __init__(self, view: ClientOptions, *, concurrency: int, rate: float | None, same_mode: bool) -> None:
        self._view, self._same_mode = view, same_mode
        self._anywhere = attrs.evolve(view, team=None)  # an entry names its own team, or none
        self._most = 8 * concurrency + 64
        self._ahead = max(1, concurrency // 2)
        self._clock = view.session.clock
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(concurrency, rate, self._fill_soon)
        self._is_filling = False  # in the loop's next round
        self._ready: deque[Item] = deque()
        self._lines: dict[str, deque[Item]] = {}  # of one thing each; the first is ready or under way
        self._waiting: dict[str, Item] = {}  # for their readers
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing: set[asyncio.Future[None]] = set()  # what became of those that have ended
        self._finished: deque[Item] = deque()
        self._changed = asyncio.Event()
        self._is_asked = False  # whether it is hungry
        self._stopped = False
        self.held: dict[str, Item] = {}
        self._failure: BaseException | None = None
        self.complete: bool = False  # nothing more will be added

    # --- in

    async def room(self) -> None:
        """Wait until an item may be added."""
        while self._is_full and not self._stopped:
            await self._wait()

    @property
    def _is_full(self) -> bool:
        """
        Whether as much is held as may be, or enough is ready: more only makes collecting garbage slower.

        What waits for the input must not keep it out.
        """
        return len(self._ready) >= self._ahead or len(self.held) - self._kept_waiting() >= self._most

    def _kept_waiting(self) -> int:
        """Count those that wait for the input to bring their readers, and those behind them in line."""
        if not self._waiting:  # as nearly always, and it is asked for each item
            return 0
        things = {item.thing for item in self._waiting.values() if item.thing is not None}
        alone = sum(item.thing is None for item in self._waiting.values())
        return alone + sum(len(self._lines[thing]) for thing in things)

    def add(self, item: Item) -> None:
        """Take *item*; it begins when there is a place and all before it that touch its thing have ended."""
        item.slots = self._slots
        self.held[item.key] = item
        if item.waits:
            self._waiting[item.key] = item
        if item.thing is not None:
            self._lines.setdefault(item.thing, deque()).append(item)
        self._make_ready(item)
        self._fill()

    def meet(self, key: str, spec: WriteSpec) -> None:
        """Take the readers of *spec*, which the input contains, for the item of *key* that waits for them."""
        item = self._waiting.pop(key, None)
        if item is not None:
            item.take_readers(spec)
            self._end_waiting(item)

    def _end_waiting(self, item: Item) -> None:
        item.waits = False
        self._make_ready(item)
        self._fill()

    def _make_ready(self, item: Item) -> None:
        """Let *item* begin, if all before it in its line have ended and it waits for nothing."""
        if not item.waits and (item.thing is None or self._lines[item.thing][0] is item):
            self._ready.append(item)

    def finish(self) -> None:
        """Say that nothing more comes: no reader either."""
        waiting, self._waiting = self._waiting, {}
        for item in waiting.values():
            self._end_waiting(item)
        self.complete = True
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """End the run with *error*: nothing more begins."""
        self._failure = self._failure or error
        self.halt()

    def halt(self) -> None:
        """Begin nothing more."""
        self._stopped = True
        self._changed.set()

    # --- out

    async def next_result(self) -> Result | None:
        """Give the result of one item, in the order in which they end; ``None``: there will be no more."""
        while True:
            if self._finished:
                item = self._finished.popleft()
                self._let_go(item)
                assert item.result is not None
                return item.result
            if self._failure is not None or self.is_over:
                return None
            await self._wait()

    def take_failure(self) -> BaseException | None:
        """Give what ended the run, once."""
        failure, self._failure = self._failure, None
        return failure

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way and nothing will be."""
        idle = not (self._tasks or self._storing)
        return idle and (self._stopped or (self.complete and not self.held))

    async def hunger(self) -> None:
        """Wait until less is ready than there are places: more is to come before one is idle."""
        self._is_asked = True
        try:
            while self._stopped or self._is_full or len(self._ready) >= self._slots.free + self._slots.in_use:
                await self._wait()
        finally:
            self._is_asked = False

    def share_pace(self, part: float) -> None:
        """Send at *part* of the pace: others have the rest of it."""
        self._slots.share(part)

    @property
    def under_way(self) -> int:
        """How many were begun and are not stored as done."""
        return len(self._tasks) + len(self._storing)

    @property
    def settling(self) -> int:
        """How many of them wait to be found out about."""
        return max(len(self._tasks) - self._slots.in_use, 0)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let what is under way end within *grace* seconds, and shelve the rest."""
        self.halt()
        self._slots.close()
        until = self._loop.time() + grace
        while (left := {*self._tasks, *self._storing}) and (seconds := until - self._loop.time()) > 0:
            await asyncio.wait(left, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._storing:
            await asyncio.wait(self._storing, timeout=_TO_STORE)
        self._storing.clear()  # a journal that hangs holds nobody up: the next run settles what is not stored
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- running

    def _fill_soon(self) -> None:
        """Begin what there is a place for, but for what the tasks that end now go on with."""
        if not self._is_filling:
            self._is_filling = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        """Begin what there is a place for."""
        self._is_filling = False
        while (item := self._next()) is not None:
            task = self._loop.create_task(self._work(item))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _next(self) -> Item | None:
        """Take the first that is ready, if there is a place for it."""
        begins = self._ready and not self._stopped and self._has_place(self._ready[0])
        if not begins:
            return None
        if self._is_asked:
            self._changed.set()
        return self._ready.popleft()

    def _has_place(self, item: Item) -> bool:
        """Take a place for *item*, if it may be sent at once."""
        needs_none = item.in_doubt or self._is_held_up(item)
        item.in_slot = not needs_none and self._slots.take()
        return item.in_slot or needs_none

    def _is_held_up(self, item: Item) -> bool:
        """Return whether another write to the same thing may still land; the run of *item* waits for that."""
        return (
            item.thing is not None
            and self._view.session.writes.lines.opens_at(item.thing) > self._clock.now()
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _work(self, item: Item) -> None:
        """Run *item*, and then others, while there is a place: a task for each would cost more."""
        following: Item | None = item
        while following is not None:
            await self._run(following)
            following = self._next()

    async def _run(self, item: Item) -> None:
        try:
            driver = self._taken_up(item) if item.spec is None else new_run(item.spec)
            await driver.drive()
            outcome = driver.outcome()
            if item.storing is None:  # the client knew what became of it: the user has settled it
                await item.settled(outcome)
            wait = 0.0
            if item.thing is not None:
                wait = self._view.session.writes.lines.opens_at(item.thing) - self._clock.now()
            if outcome.verdict is Verdict.UNKNOWN:
                wait = max(wait, (outcome.evidence.window_until or 0.0) - self._clock.now())
            assert item.storing is not None
            self._storing.add(item.storing)
            item.storing.add_done_callback(partial(self._stored, item, wait))
        except asyncio.CancelledError:
            if not self._stopped:  # not ours
                words = "a callback was cancelled, and not by this run: the next one settles what it was for"
                self._fail_item(item, ConfigurationError(words))
                return
            self._end(item, 0.0)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._fail_item(item, error)
        finally:
            item.spec = None  # it refers to its item: freed at once, not by a collection of garbage
            item.leave()

    def _stored(self, item: Item, wait: float, storing: asyncio.Future[None]) -> None:
        """Give the result of *item*, now that it is stored."""
        self._storing.discard(storing)
        error = storing.exception()
        if error is None:
            self._finished.append(item)
            self._changed.set()
            self._end(item, wait)
        else:
            assert item.result is not None
            assert item.result.outcome is not None
            self._view.session.leave_unsettled(item.result.outcome.intent, item.thing)
            self._fail_item(item, error)

    def _fail_item(self, item: Item, error: BaseException) -> None:
        if isinstance(error, LostChunkError):  # another worker does it now, and settles it
            self._view.session.writes.left_open.take_key(item.key)
            self._let_go(item)
        else:
            self.fail(error)
        self._end(item, 0.0)

    def _end(self, item: Item, wait: float) -> None:
        if item.on_end is not None:
            item.on_end()
        self._next_in_line(item.thing, wait)

    def _let_go(self, item: Item) -> None:
        """Forget *item*, which makes room for another."""
        if self.held.get(item.key) is item:  # it may be another by now: the same write, to do again
            del self.held[item.key]
        self._changed.set()

    def _taken_up(self, item: Item) -> Driver[Any]:  # Any: of any operation
        assert item.intent is not None
        check_scope(self._anywhere, item.intent, same_mode=self._same_mode, in_doubt=item.in_doubt)
        intent, begin = item.intent, None
        if item.in_doubt or item.is_overtaken:  # settle first what may have been sent
            since = self._clock.now() if item.sender_gone else None
            begin = partial(_taken_up, self._view.session, since)
        else:  # send anew what provably was not sent
            intent = attrs.evolve(intent, sent=())
        spec = spec_of_intent(options_for(item, self._anywhere), intent, item.reader)
        return Driver(spec, intent, begin=begin, takes_up=item.in_doubt)

    def _next_in_line(self, thing: str | None, wait: float) -> None:
        """Let the next write of *thing* begin; after one that may still land, once its window is over."""
        if thing is None:
            return
        if wait > 0 and not self._stopped:
            self._loop.call_later(wait, self._next_in_line, thing, 0.0)
            return
        line = self._lines[thing]
        line.popleft()
        if line:
            self._make_ready(line[0])
            self._fill()
        else:
            del self._lines[thing]


def _taken_up(session: ClientState, gone_since: float | None, intent: Intent) -> Start:
    """Take a write up where an earlier run left it; of one that was overtaken, this client may not know."""
    latest = session.writes.left_open.get(intent.identity)
    if latest is not None and intent.newest is False:
        session.writes.left_open.unsettled[intent.identity] = attrs.evolve(latest, newest=False)
    return taken_up(session, intent, journaled=True, gone_since=gone_since)
