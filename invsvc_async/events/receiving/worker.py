"""
The worker that handles stored events, with retries.

A failed handler is called again after a random delay that grows; the last failure makes a dead letter.  If a
process dies, its leases run out, and another worker on the same store takes over the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from math import inf
from typing import TYPE_CHECKING, Final

from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.errors import MalformedEventError
from invsvc_async.events.parse import parse
from invsvc_async.events.stores import event_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handler import Handler, Pace
    from invsvc_async.events.receiving.handlers import Handlers
    from invsvc_async.events.receiving.policy import InboxPolicy
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.stores import Backlog, Delivery, Entry, Store

__all__ = ["Worker", "ended", "reason_of", "report_failure"]

_log: Final = logging.getLogger("invsvc_async.events")
_MARGIN: Final = 5.0  # s between the handler's timeout and the end of the lease, to store the result
_PRUNE_EVERY: Final = 3600.0
_SAMPLE_EVERY: Final = 5.0  # s between two looks at the backlog
_LOOK_EVERY: Final = 0.5  # s between two looks
_LATE: Final = 0.5  # s by which a look is late if something has blocked the loop


class Worker:
    """
    Handle the events in *store* with *handle*, which raises if it fails; *random* returns 0 to 1.

    Only events for one of *handlers* are taken, or for none yet, if the store knows handlers.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        handle: Callable[[Handler, Event, int], Awaitable[object]],
        policy: InboxPolicy,
        *,
        random: Callable[[], float],
        tally: Tally,
    ) -> None:
        self._tally = tally
        self._store = store
        self._handlers = handlers
        self._handle = handle
        self._turns = 0
        self._held_by: list[Pace] = []
        self._policy = policy
        self._random = random
        self._stir = asyncio.Event()
        self._running: dict[asyncio.Task[None], float] = {}  # with the end of its lease, by the loop's time
        self._loop: asyncio.Task[None] | None = None
        self._stopping = False
        self._warned = False
        self._beside = {self._prune: _PRUNE_EVERY, self._sample: _SAMPLE_EVERY}  # in seconds
        self._begun: dict[object, float] = {}  # when each of these began last
        self._upkeep: dict[object, asyncio.Task[None]] = {}

    @property
    def running(self) -> int:
        """How many events are being handled."""
        return len(self._running)

    @property
    def overdue(self) -> int:
        """How many handlers still run although they were cancelled and their leases have ended."""
        now = asyncio.get_running_loop().time()
        return sum(end < now for end in self._running.values())

    @property
    def is_running(self) -> bool:
        """Whether this worker handles the events in the store."""
        return self._loop is not None and not self._loop.done() and not self._stopping

    def start(self) -> None:
        """Start to take events, in a task of this loop; nothing of an earlier loop is used any more."""
        self._stopping = False
        self._stir = asyncio.Event()
        self._running = {}
        self._upkeep = {}
        self._loop = asyncio.create_task(self._work(), name="invsvc events worker")

    def wake(self) -> None:
        """Read the store now, because an event was stored; warn once if no worker runs."""
        if self.is_running:
            self._stir.set()
        elif not self._warned:
            self._warned = True
            _log.warning(
                "Events are stored, but no worker runs here. Use 'async with receiver' in some process."
            )

    async def stop(self, *, grace: float) -> None:
        """Stop taking events, wait *grace* seconds for running handlers, then cancel and release these."""
        self._stopping = True
        self._stir.set()
        if self._loop is not None:
            # It is not cancelled, because events that it is taking would wait for their lease to end.
            await ended({self._loop}, grace)
        for task in self._upkeep.values():  # the rest can wait for the next start
            task.cancel()
            await asyncio.wait({task}, timeout=grace)
        await ended(self._running, grace)

    def cancel(self) -> None:
        """Cancel what runs, because nobody waits for it any more; it releases what it has not handled."""
        for task in self._running:
            task.cancel()

    async def _work(self) -> None:
        watch = _LoopWatch()
        try:
            while not self._stopping:
                self._stir.clear()
                if not await self._take(watch):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause()):
                            await self._stir.wait()
        finally:
            watch.stop()

    async def _take(self, watch: _LoopWatch) -> bool:
        """Start what is due, within the limit; return ``False`` if there is nothing to do now."""
        self._held_by = []
        self._keep_up()
        if not self._room():
            return False
        try:
            return await self._take_due(watch)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a user-supplied store may raise anything; continue
            raise_if_cancelled()  # else something within the store was
            _log.error(
                "The event store failed; trying again in %s s: %s", self._policy.poll, reason_of(error)
            )
            return False

    async def _take_due(self, watch: _LoopWatch) -> bool:
        groups, store = self._handlers.groups(), self._handlers.store
        if store is None:  # it does not know handlers, so that it may return an event for any of them
            lease = max(group.timeout for group in groups) + _MARGIN
            watch.free = asyncio.get_running_loop().time()
            return self._start(await self._store.take(limit=self._room(), lease=lease), watch)
        self._turns += 1  # each group is the first in its turn, so that none waits for ever
        first = self._turns % len(groups)
        started = False
        for group in (*groups[first:], *groups[:first]):
            now, limit = asyncio.get_running_loop().time(), self._room()
            if group.pace is not None:
                limit = min(limit, group.pace.free(now))
                if limit <= 0:
                    self._held_by.append(group.pace)
            if limit > 0:
                lease = group.timeout + _MARGIN
                watch.free = now
                entries = await store.take(limit=limit, lease=lease, handlers=group.names)
                if group.pace is not None:
                    group.pace.use(len(entries), now)
                started = self._start(entries, watch) or started
        return started

    def _room(self) -> int:
        return self._policy.concurrency - len(self._running)

    def _pause(self) -> float:
        """Return how long to wait for a reason to look at the store: at most until a rate allows a call."""
        now = asyncio.get_running_loop().time()
        return min([self._policy.poll, *(pace.wait(now) for pace in self._held_by)])

    def _start(self, entries: Sequence[Entry], watch: _LoopWatch) -> bool:
        """Start what was taken.  Its leases began when the loop was free, or a little later."""
        since = watch.free
        for entry in entries:
            name = f"{entry.type} {_key_of(entry)}".rstrip()
            end = since + self._handlers.policy_of(entry).timeout + _MARGIN
            task = asyncio.create_task(self._run(entry, end - _MARGIN / 2), name=name)
            self._running[task] = end
            task.add_done_callback(self._ended)
            task.add_done_callback(report_failure)
        return bool(entries)

    def _keep_up(self) -> None:
        """Begin what is due beside the handling of events, each alone."""
        now = asyncio.get_running_loop().time()
        for work, seconds in self._beside.items():
            task = self._upkeep.get(work)
            if now - self._begun.get(work, -inf) >= seconds and (task is None or task.done()):
                self._begun[work] = now
                self._upkeep[work] = asyncio.create_task(work(), name="invsvc events upkeep")

    async def _prune(self) -> None:
        """Prune the store every hour: it may take minutes."""
        policy = self._policy
        ages = {"older_than": policy.keep, "bodies": policy.keep_bodies, "dead": policy.keep_dead}
        try:
            await self._store.prune(**{name: age for name, age in ages.items() if age is not None})
        except Exception as error:  # noqa: BLE001 - a user-supplied store may raise anything
            _log.error("Handled events could not be deleted; trying again in an hour: %s", reason_of(error))

    async def _sample(self) -> None:
        """Read the backlog now and then, for ``Receiver.stats``, if the store has that method."""
        read: Callable[[], Awaitable[Backlog]] | None = getattr(self._store, "backlog", None)
        if read is None:
            return
        backlog = None
        try:
            backlog = await read()
        except Exception as error:  # noqa: BLE001 - a user-supplied store may raise anything
            _log.warning("The backlog could not be read: %s", reason_of(error))
        self._tally.backlog = backlog

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._stir.set()

    async def _run(self, entry: Entry, latest: float) -> None:
        """Handle one event until the loop's time *latest*, just before its lease ends; store the result."""
        policy = self._handlers.policy_of(entry)
        if entry.attempts > policy.attempts:  # all leases ran out: it may kill the process every time
            await self._bury(entry, f"not handled in {policy.attempts} attempts")
            return
        if asyncio.get_running_loop().time() >= latest:
            _log.warning(
                "%s %s was not begun in its lease: the event loop was blocked", entry.type, _key_of(entry)
            )
            await self._store.release(entry, delay=0)
            return
        store = self._handlers.store
        deliveries: Sequence[Delivery] = ()
        try:
            event = parse(entry.body or b"")
            deliveries = self._handlers.to_assign(entry, event)
            if not deliveries:
                await self._call(entry, event, policy.timeout, latest)
        except asyncio.CancelledError:
            await self._store.release(entry, delay=0)
            raise
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            await self.failed(entry, error)
        else:
            if deliveries and store is not None:
                await store.assign(entry, deliveries)
            else:
                await self.succeeded(entry)

    async def _call(self, entry: Entry, event: Event, timeout: float, latest: float) -> None:
        handler = self._handlers.of(entry, event)
        if handler is None:
            _log.info("There is no handler for %s: it is ignored", event.type)
            return
        # Less than the timeout, if something has blocked the event loop since the event was taken.
        seconds = min(timeout, latest - asyncio.get_running_loop().time())
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._handle(handler, event, entry.attempts)
        except TimeoutError as error:
            if not limit.expired():  # a timeout of its own
                raise
            raise TimeoutError(f"the handler did not end within {seconds:g} s") from error

    async def succeeded(self, entry: Entry, event: Event | None = None) -> None:
        """Store that *entry* is handled; *event* has its body, if only a claim was stored."""
        kept = (
            {} if self._policy.keep_bodies is None else {"body": entry.body if event is None else event.raw}
        )
        if not await self._store.handled(entry, **kept):
            self._tally.ended("lease lost")
            _log.warning(
                "%s %s was handled after its lease had ended: it may be handled twice",
                entry.type,
                _key_of(entry),
            )

    async def failed(self, entry: Entry, error: Exception) -> None:
        """Store that handling failed, for a retry or as a dead letter."""
        unreadable = isinstance(error, MalformedEventError)
        policy = self._handlers.policy_of(entry)
        if unreadable or entry.attempts >= policy.attempts:
            await self._bury(entry, reason_of(error))
            return
        delay = policy.delay(entry.attempts, self._random())
        _log.warning(
            "Handling %s %s failed (%s), attempt %s; trying again in %.1f s",
            entry.type, _key_of(entry), entry.handler or "handler", entry.attempts, delay, exc_info=error,
        )  # fmt: skip
        await self._store.release(entry, delay=delay)

    async def _bury(self, entry: Entry, reason: str) -> None:
        whose = f" of {entry.handler}" if entry.handler else ""
        _log.error("Event %s %s is a dead letter%s: %s", entry.type, _key_of(entry), whose, reason)
        if await self._store.bury(entry, reason=reason):
            self._tally.ended("dead letter")


class _LoopWatch:
    """
    Watch the running event loop, until ``stop``: leases go on while something blocks it.

    ``free`` is the last time, by the loop's clock, until which nothing has blocked it.  What the caller waits
    for has not happened long before: it would have been told.  The caller sets it when it begins to wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.free: float = self._loop.time()
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look, self.free + _LOOK_EVERY)

    def stop(self) -> None:
        """End it."""
        self._timer.cancel()

    def _look(self, expected: float) -> None:
        now = self._loop.time()
        if now - expected < _LATE:
            self.free = now
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look, now + _LOOK_EVERY)


def _key_of(entry: Entry) -> str:
    return event_key(entry.key, entry.handler) or ""


async def ended(tasks: Collection[asyncio.Task[object]], grace: float) -> None:
    """Wait *grace* seconds for tasks, cancel those that are late, and wait for these as long again."""
    for _ in range(2):
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            _log.warning("%s did not end within %s s and is cancelled", task.get_name(), grace)
            task.cancel()


def report_failure(task: asyncio.Task[object]) -> None:
    """Log why a task could not store a result; the lease will run out, and the event is handled again."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("The result of handling an event could not be stored: %s", reason_of(error))


def reason_of(error: BaseException) -> str:
    """Return *error* as one printable line of limited length."""
    try:
        text = f"{type(error).__name__}: {error}"[:500]
    except Exception as failure:  # noqa: BLE001 - it is of a user's class
        text = f"{type(error).__name__} (without a text: it raised {type(failure).__name__})"
    return "".join(sign if sign.isprintable() else " " for sign in text)
