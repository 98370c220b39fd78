"""
Take stored events and have them handled, again until it succeeds or a person must look; never receive any.

A handler that fails is tried again after a growing, random delay.  A process that dies leaves its lease to
run out, and whoever works on the same store takes the event over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async._errors import ConfigurationError, MalformedEventError
from invsvc_async.events.parse import parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from invsvc_async.events.event import Event
    from invsvc_async.events.stores import Entry, Store

__all__ = ["InboxPolicy", "Worker", "called", "ended", "reason_of", "report_failure"]

_log: Final = logging.getLogger("invsvc_async.events")
_MARGIN: Final = 5.0  # seconds by which a lease outlasts its handler: time to record the end
_PRUNE_EVERY: Final = 3600.0


def _positive(_: object, field: attrs.Attribute[float], seconds: float) -> None:
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ConfigurationError(f"{field.name}={seconds!r} is not a positive number of seconds.")


def _at_least_one(_: object, field: attrs.Attribute[int], number: int) -> None:
    if not isinstance(number, int) or number < 1:
        raise ConfigurationError(f"{field.name}={number!r} is not a whole number from 1.")


@attrs.frozen(kw_only=True)
class InboxPolicy:
    """
    Say how stored events are handled; all times in seconds.

    Each is tried ``attempts`` times, each time for at most ``timeout``, then kept as a dead letter.  Between
    tries passes a random part of a delay that starts at ``initial`` and doubles up to ``maximum``.
    ``concurrency`` events are handled at once.  A store that other processes fill too is looked at every
    ``poll``.  What was handled is remembered for ``keep``, against late duplicates.
    """

    attempts: int = attrs.field(default=12, validator=_at_least_one)
    timeout: float = attrs.field(default=60.0, validator=_positive)
    initial: float = attrs.field(default=1.0, validator=_positive)
    maximum: float = attrs.field(default=3600.0, validator=_positive)
    concurrency: int = attrs.field(default=16, validator=_at_least_one)
    poll: float = attrs.field(default=1.0, validator=_positive)
    keep: float = attrs.field(default=30 * 86400.0, validator=_positive)

    def delay(self, attempts: int, chance: float) -> float:
        """Give the pause after so many *attempts*; *chance* is from 0 to 1."""
        return chance * min(self.maximum, self.initial * 2.0 ** min(attempts - 1, 62))


class Worker:
    """Handle what is in *store* by *handle*, which raises where it fails; *random* gives 0 to 1."""

    def __init__(
        self,
        store: Store,
        handle: Callable[[Event], Awaitable[object]],
        policy: InboxPolicy,
        *,
        random: Callable[[], float],
    ) -> None:
        self._store = store
        self._handle = handle
        self._policy = policy
        self._random = random
        self._stir = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._stopping = False
        self._warned = False
        self._pruned_at = float("-inf")

    @property
    def is_running(self) -> bool:
        """Whether what is in the store gets handled here."""
        return self._loop is not None and not self._stopping

    def start(self) -> None:
        """Begin to take events, in a task of this loop."""
        self._stopping = False
        self._loop = asyncio.create_task(self._work(), name="invsvc events worker")

    def wake(self) -> None:
        """Look at the store now: something was put there; say so, once, where nobody looks."""
        if self.is_running:
            self._stir.set()
        elif not self._warned:
            self._warned = True
            _log.warning(
                "Events are stored, and no worker runs here: use 'async with receiver' in some process."
            )

    async def stop(self, *, grace: float) -> None:
        """Take no more, let running handlers end within *grace* seconds, then cancel and give theirs back."""
        self._stopping = True
        self._stir.set()
        if self._loop is not None:  # it ends by itself: what it is just taking would wait out its lease
            await ended({self._loop}, grace)
        await ended(self._running, grace)

    async def _work(self) -> None:
        while not self._stopping:
            self._stir.clear()
            if not await self._take():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._policy.poll):
                        await self._stir.wait()

    async def _take(self) -> bool:
        """Start what is due, as far as there is room; ``False`` if there is nothing to do now."""
        room = self._policy.concurrency - len(self._running)
        if not room:
            return False
        try:
            await self._prune()
            entries = await self._store.take(limit=room, lease=self._policy.timeout + _MARGIN)
        except Exception as error:  # noqa: BLE001 - a store of one's own may raise anything; a worker must live on
            _log.error("The store of events fails; looking again in %s s: %s", self._policy.poll, error)
            return False
        for entry in entries:
            name = f"{entry.type} {entry.key or ''}".rstrip()
            task = asyncio.create_task(self._run(entry), name=name)
            self._running.add(task)
            task.add_done_callback(self._ended)
            task.add_done_callback(report_failure)
        return bool(entries)

    async def _prune(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._pruned_at >= _PRUNE_EVERY:
            self._pruned_at = now
            await self._store.prune(older_than=self._policy.keep)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        self._stir.set()

    async def _run(self, entry: Entry) -> None:
        """Handle one and record how it ended."""
        if entry.attempts > self._policy.attempts:  # each lease ran out: it may kill the process every time
            await self._bury(entry, f"not handled in {self._policy.attempts} attempts")
            return
        try:
            event = parse(entry.body or b"")
            async with asyncio.timeout(self._policy.timeout):
                await self._handle(event)
        except asyncio.CancelledError:
            await self._store.release(entry, delay=0)
            raise
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            await self.failed(entry, error)
        else:
            await self.succeeded(entry)

    async def succeeded(self, entry: Entry) -> None:
        """Record that it is handled."""
        if not await self._store.handled(entry):
            _log.warning(
                "%s %s was handled after its lease: it may be handled twice", entry.type, entry.key or ""
            )

    async def failed(self, entry: Entry, error: Exception) -> None:
        """Record that handling failed: to be tried again, or for a person to look at."""
        unreadable = isinstance(error, MalformedEventError)
        if unreadable or entry.attempts >= self._policy.attempts:
            await self._bury(entry, reason_of(error))
            return
        delay = self._policy.delay(entry.attempts, self._random())
        _log.warning(
            "Handling %s %s failed, attempt %s; again in %.1f s",
            entry.type, entry.key or "", entry.attempts, delay, exc_info=error,
        )  # fmt: skip
        await self._store.release(entry, delay=delay)

    async def _bury(self, entry: Entry, reason: str) -> None:
        _log.error("Event %s %s is a dead letter: %s", entry.type, entry.key or "", reason)
        await self._store.bury(entry, reason=reason)


async def ended(tasks: Collection[asyncio.Task[Any]], grace: float) -> None:  # Any: whatever they give
    """Wait *grace* seconds for tasks, cancel those that are late, and wait as long again for their end."""
    for _ in range(2):
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            _log.warning("%s did not end within %s s and is cancelled", task.get_name(), grace)
            task.cancel()


async def called(handler: Callable[[Event], Awaitable[object]], event: Event) -> None:
    """
    Call a handler; a cancellation that came out of itself, and not from outside, is a failure like others.

    Raises:
        RuntimeError: It was cancelled from within.
    """
    try:
        await handler(event)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("The handler was cancelled from within: something it awaited was.") from None


def report_failure(task: asyncio.Task[object]) -> None:
    """Log why a task that was to record an end did not: its lease will run out, and the event comes again."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("What became of an event could not be stored: %s", reason_of(error))


def reason_of(error: BaseException) -> str:
    """Say in one printable line of bounded length what went wrong."""
    text = f"{type(error).__name__}: {error}"[:500]
    return "".join(sign if sign.isprintable() else " " for sign in text)
