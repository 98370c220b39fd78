"""
How events are handled: those in the store by a worker, with retries, or before their delivery is answered.

A failed handler is called again after a random delay that grows; the last failure makes a dead letter.  If a
process dies, its leases run out, and another worker on the same store takes over the events.

Inline, the handler may fail, hang, or be cancelled with the request.  The result is stored by a separate
task, which that cancellation does not reach.

The store gives events out under leases. What its operations do (``stores.Store``), and who calls them:

- ``take`` leases stored events that are due: the worker.
- ``claim`` stores an event and leases it at once, or says why not: ``Inline``, for each handler.
- ``handled``, ``release`` and ``bury`` end a lease: done, due again after a delay, or a dead letter.  Both
  call them, mostly by ``HandlingResults``.  ``bury`` also stores what was never leased and cannot be read.
- ``assign`` ends a lease of an event that is to be divided among its handlers: the worker.
- ``put`` stores an event for the worker: ``Processing``.  To a claim without a body, it adds the body:
  ``Inline``, before the claim is buried.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from invsvc_async.concurrency.deadline import Deadline, set_within
from invsvc_async.errors import MalformedEventError
from invsvc_async.events.event import (
    Event,
    check_delivered,
    key_of,
    parse,
    subject_in,
)
from invsvc_async.events.receiving.admission import COME_BACK, Receipt
from invsvc_async.events.receiving.handling_results import (
    HandlingResults,
    name_of,
    reason_of,
    report_failure,
)
from invsvc_async.events.receiving.stats import STORE, Tally
from invsvc_async.events.receiving.upkeep import InboxUpkeep, LoopWatch, survived
from invsvc_async.events.stores import Delivery, Entry, Standing, Store

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Coroutine,
        Sequence,
    )
    from contextlib import AbstractContextManager

    from invsvc_async.events.receiving.handlers import Handler, HandlerGroup, Handlers

# Its last argument is the number of the attempt, from 1.
CallHandler: TypeAlias = "Callable[[Handler, Event, int], Awaitable[object]]"

_log: Final = logging.getLogger("invsvc_async.events")
# s between the handler's timeout and the end of the lease, to store the result
_MARGIN: Final = 5.0
_BUSY: Final = Receipt(429, "busy", headers=COME_BACK)
_DUPLICATE: Final = Receipt(200, "duplicate")
_SOON: Final = 1.0  # s that the answer waits until the result is stored


class InboxWorker:
    """
    Handle the events in *store* with *call_handler*, which raises if that fails; *random* returns 0 to 1.

    If the store can keep events for each of several handlers, only those for one of *handlers* are taken, and
    those that were stored before it was known who handles them.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        call_handler: CallHandler,
        *,
        random: Callable[[], float],
        tally: Tally,
    ) -> None:
        self.store: Final = store
        self.call_handler: Final = call_handler
        self.tally: Final = tally
        self._handlers = handlers
        # How often it has looked for events: each look begins with another group of handlers.
        self._rounds = 0
        self._woken = asyncio.Event()
        # The tasks of the events that are being handled, each with the end of its lease, by the loop's time.
        self._running: dict[asyncio.Task[None], float] = {}
        self._assigning = asyncio.Lock()
        self._working: asyncio.Task[None] | None = None
        self._stopping = False
        self._warned = False  # that no worker runs
        self._watch = LoopWatch()
        self._upkeep = InboxUpkeep(store, handlers.policy, tally)
        self.results: Final = HandlingResults(store, handlers, tally, random=random)

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
        if self._working is None or self._stopping:
            return False
        return not self._working.done()

    def start(self) -> None:
        """Start to take events, in a task of this loop; nothing of an earlier loop is used any more."""
        self._stopping = False
        self._woken = asyncio.Event()
        self._assigning = asyncio.Lock()
        self._running = {}
        self._upkeep.start()
        self._working = asyncio.create_task(self._work(), name="invsvc events worker")

    def wake(self) -> None:
        """Read the store now, because an event was stored; warn once if no worker runs."""
        if self.is_running:
            self._woken.set()
        elif not self._warned:
            self._warned = True
            _log.warning(
                "Events are stored, but no worker runs here. Use 'async with receiver' in some process."
            )

    async def stop(self, *, grace: float) -> None:
        """Stop taking events, wait *grace* seconds for running handlers, then cancel and release these."""
        self._stopping = True
        self._woken.set()
        if self._working is not None:
            # It is not cancelled, because events that it is taking would wait for their lease to end.
            await _wait_or_cancel({self._working}, grace)
        await self._upkeep.stop(grace=grace)
        await _wait_or_cancel(self._running, grace)

    def cancel(self) -> None:
        """Cancel the tasks of all events, without waiting; each task then releases its event."""
        for task in self._running:
            task.cancel()

    async def _work(self) -> None:
        """Start to handle events that are due, until the worker is stopped; wait while none is due."""
        with self._watch:
            while not self._stopping:
                self._woken.clear()
                pause = self._handlers.policy.poll
                if self._free_places():
                    with survived(f"The event store failed; trying again in {pause} s"):
                        pause = await self._take()
                if pause:
                    await set_within(self._woken, pause)

    async def _take(self) -> float:
        """
        Start what is due, as far as there are free places; return the pause before the next look, in s.

        The pause is 0 if anything was started, because more may be due.
        """
        groups = self._handlers.groups()
        pause = self._handlers.policy.poll
        # Each group is the first in its turn, so that none waits for ever.
        self._rounds += 1
        first = self._rounds % len(groups)
        started = False
        for group in (*groups[first:], *groups[:first]):
            now = asyncio.get_running_loop().time()
            limit = self._free_places()
            if group.pace is not None:
                limit = min(limit, group.pace.free(now))
                if limit <= 0:
                    pause = min(pause, group.pace.wait(now))
            if limit > 0 and await self._take_of(group, limit, now):
                started = True
        if started:
            return 0.0
        return pause

    async def _take_of(
        self,
        group: HandlerGroup,
        limit: int,
        now: float,
    ) -> bool:
        """Start at most *limit* events of *group* that are due; return whether there were any."""
        self._watch.note_free(now)
        only: dict[str, Any] = {}
        if group.names:
            only["handlers"] = group.names
        entries = await self.store.take(
            limit=limit, lease=group.timeout + _MARGIN, **only
        )
        if group.pace is not None:
            group.pace.use(len(entries), now)
        took = asyncio.get_running_loop().time() - now
        if took > _MARGIN:
            await _release_late(self.store, entries, took)
            return bool(entries)
        return self._start(entries)

    def _free_places(self) -> int:
        """Return how many more events may be handled at the same time."""
        return self._handlers.policy.concurrency - len(self._running)

    def _start(self, entries: Sequence[Entry]) -> bool:
        """
        Start to handle *entries*, which were just taken; return whether there are any.

        Their leases began about ``free_until`` or later (``LoopWatch`` says why), so ends are counted from
        then. They last for the timeout of the group, and ends are counted by that of the handler: the same,
        or a shorter one if the store knows no handlers.
        """
        for entry in entries:
            end = (
                self._watch.free_until
                + self._handlers.policy_of(entry).timeout
                + _MARGIN
            )
            task = asyncio.create_task(self._run(entry, end), name=name_of(entry))
            self._running[task] = end
            task.add_done_callback(self._note_end)
            task.add_done_callback(report_failure)
        return bool(entries)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Free the place of an event that has ended, and look for others."""
        self._running.pop(task, None)
        self._woken.set()

    async def _run(self, entry: Entry, end: float) -> None:
        """Handle an event, and store the result before its lease ends, at the loop's time *end*."""
        policy = self._handlers.policy_of(entry)
        latest = end - _MARGIN / 2  # The rest of the margin is for storing the result.
        # More attempts than are allowed: each lease ran out without a result. The event may kill the process.
        if entry.attempts > policy.attempts:
            await self.results.bury(
                entry, f"not handled in {policy.attempts} attempts", end
            )
            return
        if asyncio.get_running_loop().time() >= latest:
            _log.warning(
                "%s was not begun in its lease: the event loop was blocked",
                name_of(entry),
            )
            await self.store.release(entry, delay=0)
            return
        store = self._handlers.handler_store
        try:
            event = _event_in(entry)
            deliveries = self._handlers.to_assign(entry, event)
            if not deliveries:
                await self._call(entry, event, policy.timeout, latest=latest)
        except asyncio.CancelledError:
            await self.store.release(entry, delay=0)
            raise
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            await self.results.failed(entry, error, end)
            return
        if deliveries and store is not None:
            # In their order, since the first one of an ordering key is the first to be handled.
            async with self._assigning:
                await store.assign(entry, deliveries)  # Each is then taken by itself.
        else:
            await self.results.succeeded(entry, end)

    async def _call(
        self,
        entry: Entry,
        event: Event,
        timeout: float,
        *,
        latest: float,
    ) -> None:
        """Call the handler of *entry* for at most *timeout* seconds, and until the loop's time *latest*."""
        handler = self._handlers.of(entry, event)
        if handler is None:
            _log.info("There is no handler for %s: it is ignored", event.type)
            return
        # Less than the timeout, if something has blocked the event loop since the event was taken.
        seconds = min(timeout, latest - asyncio.get_running_loop().time())
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self.call_handler(handler, event, entry.attempts)
        except TimeoutError as error:
            if not limit.expired():  # It is a timeout of the handler's own.
                raise
            raise TimeoutError(
                f"the handler did not end within {seconds:g} s"
            ) from error


async def _release_late(store: Store, entries: Sequence[Entry], took: float) -> None:
    """
    Release *entries*, since it is not known how much of their leases is over.

    A file gives a lease before it flushes its commit, and a disk may take long for that.
    """
    for entry in entries:
        _log.warning(
            "%s was not begun in its lease: the event store took %.1f s to give it",
            name_of(entry),
            took,
        )
        await store.release(entry, delay=0)


class _AllClaims:
    """
    Waits until an event is claimed for each of *number* handlers, before any of them is called.

    A handler may end the process. If the service does not send the event again, other handlers would never
    get it, unless it was stored for them before.
    """

    def __init__(self, number: int) -> None:
        self._missing = number
        self._have_ended = asyncio.Event()

    async def counted(self, claiming: Awaitable[Entry | Standing]) -> Entry | Standing:
        """Return the result of *claiming*; count the claim also if it fails: its handler is not called."""
        try:
            return await claiming
        finally:
            self._missing -= 1
            if not self._missing:
                self._have_ended.set()

    async def wait(self) -> None:
        """Wait until all claims have ended."""
        await self._have_ended.wait()


class Inline:
    """
    Claim events in the store of *worker*, and handle each event before it is answered.

    A claim lasts for the *deadline* (s) of an answer, and a margin.  Each handler of an event claims it for
    itself, and all run at the same time.  An event that is sent only once is stored with its body, so that
    the worker can retry it (``_is_retried_here``); others are retried by the service.
    """

    def __init__(self, worker: InboxWorker, *, deadline: float) -> None:
        self._worker = worker
        self._store = worker.store
        self._tally = worker.tally
        self._lease = deadline + _MARGIN
        self._ending: set[asyncio.Task[object]] = set()  # of claims, by their results

    def answer(
        self,
        until: float,
        event: Event,
        handlers: Sequence[Handler],
        *,
        once: bool,
    ) -> Awaitable[Receipt]:
        """
        Handle *event* until the loop time *until*; *once*: the service will not send it again.

        The answer is the worst that is due to one of *handlers*, so that the service sends the event again.
        """
        claims = _claims_of(event, handlers, once=once)
        if len(handlers) == 1:
            return self._answer(
                until,
                event,
                handlers[0],
                claim=claims[0],
                all_claims=None,
            )
        all_claims = _AllClaims(len(handlers)) if once else None
        return _worst(
            [
                self._answer(
                    until,
                    event,
                    handler,
                    claim=claim,
                    all_claims=all_claims,
                )
                for handler, claim in zip(handlers, claims, strict=True)
            ]
        )

    async def _answer(
        self,
        until: float,
        event: Event,
        handler: Handler,
        *,
        claim: Delivery | None,
        all_claims: _AllClaims | None,
    ) -> Receipt:
        """
        Answer for one handler: store *claim*, call the handler, and store the result.

        Without a *claim*, nothing is stored. The handler is called after *all_claims*, if there are several.
        """
        entry = None
        is_claiming = claim is not None  # Meanwhile, an error is one of the store.
        try:
            with Deadline(asyncio.get_running_loop(), until):
                if claim is not None:
                    claiming = self._store.claim(claim, lease=self._lease)
                    if all_claims is not None:
                        claiming = all_claims.counted(claiming)
                    found = await claiming
                    is_claiming = False
                    self._tally.works_again(STORE)
                    if not isinstance(found, Entry):
                        return _answer_by(found, event)
                    entry = found
                    if all_claims is not None:
                        await all_claims.wait()
                await self._call(until, event, handler, entry)
        except asyncio.CancelledError:
            # The sender has disconnected. Its next attempt is to be accepted.
            if entry is not None:
                self._end_apart(self._store.release(entry, delay=0))
            raise
        except Exception as error:  # noqa: BLE001 - a user-supplied store or a handler may raise anything
            if is_claiming:
                return self._tally.unavailable(STORE, error, event)
            return await self._failed(
                event,
                handler,
                error,
                claimed=entry,
                end=until + _MARGIN,
            )
        if entry is not None:
            await self._end_soon(
                self._worker.results.succeeded(entry, until + _MARGIN, event)
            )
        return Receipt(200, "handled", event)

    async def _call(
        self,
        until: float,
        event: Event,
        handler: Handler,
        entry: Entry | None,
    ) -> None:
        """
        Call *handler*, unless its ``where`` refuses *event*, for at most its timeout; *entry* is the claim.

        Raises:
            TimeoutError: Something has blocked the loop until the time *until*: the lease may be over.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= until:
            raise TimeoutError("the handler was not called before the deadline")
        limit: AbstractContextManager[object] = nullcontext()
        if handler.timeout is not None:
            limit = Deadline(loop, loop.time() + handler.timeout)
        attempt = 1
        if entry is not None:
            attempt = entry.attempts
        with limit:
            # An error of the user's ``where`` counts as one of the handler.
            if handler.where is None or handler.wants(event):
                await self._worker.call_handler(handler, event, attempt)

    async def stop(self, *, grace: float) -> None:
        """Wait up to *grace* seconds until all claims have ended with their results."""
        await _wait_or_cancel(self._ending, grace)

    async def _failed(
        self,
        event: Event,
        handler: Handler,
        error: Exception,
        *,
        claimed: Entry | None,
        end: float,
    ) -> Receipt:
        """Return the answer for a handler that has failed with *error*, and store the failure until *end*."""
        if isinstance(error, MalformedEventError):  # Sending it again would not help.
            key = key_of(event) if claimed is None else claimed.key
            found = Delivery(
                key=key,
                type=event.type,
                body=event.raw,
                handler=handler.name,
            )
            receipt = await self.bury_malformed(found, error, claimed=claimed)
            return attrs.evolve(receipt, event=event)
        if claimed is not None and _is_retried_here(claimed):
            await self._end_soon(self._worker.results.failed(claimed, error, end))
            self._worker.wake()
        else:
            _log.warning(
                "Handling %s failed; the service will send it again",
                event.type,
                exc_info=error,
            )
            if claimed is not None:
                await self._end_soon(self._store.release(claimed, delay=0))
        return Receipt(500, "failed", event)

    async def bury_malformed(
        self,
        found: Delivery,
        error: MalformedEventError,
        *,
        claimed: Entry | None,
        within: float = _SOON,
    ) -> Receipt:
        """
        Store what is malformed as a dead letter, *within* so many seconds; return the answer.

        *found* has the body. *claimed* is the event as it was claimed, if it was.
        """
        reason = reason_of(error)
        try:
            async with asyncio.timeout(within):
                await self._store_dead(found, claimed, reason)
        except Exception as failure:  # noqa: BLE001 - a user-supplied store may raise anything
            return self._tally.unavailable(STORE, failure)
        self._tally.works_again(STORE)
        self._tally.ended("dead letter")
        self._tally.unread.note()
        _log.error(
            "%s cannot be read, and is kept as a dead letter: %s",
            _words_for(found),
            reason,
        )
        return Receipt(202, "dead letter", error=error)

    async def _store_dead(
        self,
        found: Delivery,
        claimed: Entry | None,
        reason: str,
    ) -> None:
        """Store *found* as a dead letter; if it was *claimed* before, the claim becomes the dead letter."""
        if claimed is None:
            await self._store.bury(found, reason=reason)
            return
        # A claim of what the service sends again has no body. A person needs one, so ``put`` adds it.
        if not _is_retried_here(claimed):
            await self._store.put(found)
        await self._store.bury(claimed, reason=reason)

    def _end_soon(self, ending: Coroutine[Any, Any, object]) -> Awaitable[object]:
        """Begin to end a claim by *ending*; the returned awaitable waits at most a second for the store."""
        return asyncio.wait([self._end_apart(ending)], timeout=_SOON)

    def _end_apart(self, ending: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """End a claim by *ending* in a task of its own, which no cancellation of a request reaches."""
        task = asyncio.create_task(ending, name="invsvc events record")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.add_done_callback(report_failure)
        return task


def _event_in(entry: Entry) -> Event:
    """
    Return the event that is stored as *entry*.

    Raises:
        MalformedEventError: The body is no event, or claims to be made from a list but was delivered.
    """
    event = parse(entry.body or b"")
    # An event that ``catch_up`` has made is stored under its key. A delivery that only claims to be one is a
    # dead letter without a key, until somebody revives it.
    if entry.key is None:
        check_delivered(event)
    return event


def _claims_of(
    event: Event,
    handlers: Sequence[Handler],
    *,
    once: bool,
) -> Sequence[Delivery | None]:
    """
    Return what to claim of *event* for each of *handlers*; ``None`` if nothing is stored of it.

    - What the service sends only *once* is claimed with its body, for retries by the worker. Without a key,
      the claim always succeeds: no other delivery is known to be of the same event.
    - Of any other event, the key alone is claimed, so that no other delivery is handled meanwhile, or again.
    - Of an event that is sent again, and has no key, there is nothing to store.
    """
    key = key_of(event)
    if not once and key is None:
        return [None] * len(handlers)
    body = event.raw if once else None
    subject = subject_in(event)
    return [
        Delivery(
            key=key,
            type=event.type,
            body=body,
            handler=handler.name,
            subject=subject,
        )
        for handler in handlers
    ]


def _is_retried_here(entry: Entry) -> bool:
    """Return whether the worker retries *entry*, stored with its body: the service sends the event once."""
    return entry.body is not None


def _answer_by(standing: Standing, event: Event) -> Receipt:
    """Return the answer to a delivery of *event*, which another delivery of it has claimed."""
    if standing is Standing.BUSY:
        return attrs.evolve(_BUSY, event=event)
    return attrs.evolve(_DUPLICATE, event=event)


async def _worst(answers: Sequence[Awaitable[Receipt]]) -> Receipt:
    """Return the answer with the highest status; a duplicate only if all are, since it tells least."""
    receipts = await asyncio.gather(*answers)
    return max(
        receipts, key=lambda receipt: (receipt.status, receipt.outcome != "duplicate")
    )


def _words_for(found: Delivery) -> str:
    """Return words for an authentic delivery that cannot be read, with the digest of its body."""
    body = found.body or b""
    digest = sha256(body).hexdigest()[:16]
    name = "An authentic delivery"
    if found.type:
        name = f"Event {found.type} {found.key or 'without a key'}"
    return f"{name} ({len(body)} bytes, SHA-256 {digest}…)"


async def _wait_or_cancel(
    tasks: Collection[asyncio.Task[object]], grace: float
) -> None:
    """
    Wait *grace* seconds for *tasks*, and cancel those that are late.

    Both are done twice, because a task may go on after its first cancellation.
    """
    for _ in range(2):
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            _log.warning(
                "%s did not end within %s s and is cancelled", task.get_name(), grace
            )
            task.cancel()
