"""What is under way in a client, and how its close ends that."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from invsvc_async.concurrency.deadline import Deadline, Deadlines, set_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from invsvc_async.concurrency.clock import Clock


log: logging.Logger = logging.getLogger("invsvc_async")

T = TypeVar("T")

TO_KEEP_SECRETS = 10.0  # s that `on_secret` may still take once the client is closed
TO_BE_CANCELLED = 1.0  # s that it may take to end after that, when it was cancelled
_LOOK = 0.1  # s between looks whether only such hooks are left


class UnderWay(Struct, eq=False):
    """
    The runs of writes, their waits, and the hooks of users that are under way in one client.

    - ``closed``: the client was closed. Nothing is begun any more, and each run ends with its next decision.
    - ``runs``: the runs of writes, with their tasks. The close waits until none is left. A run takes itself
      out at its end, and the last one sets ``idle``. A key is the driver of a write, or a mere object for a
      run that has none (:meth:`tracked`).
    - ``_wait_limits``: the open blocks of :meth:`ended_by_close`, which the close ends.
    - ``_turn_limits``: those of :meth:`ended_if_stuck`, which the close ends if a run is stuck.
    - ``_hook_limits``: the timer of the blocks of :meth:`hook_ended_after_close`. The close sets it.
    - ``_hook_waits``: those blocks. Unlike the timer, this keeps a block that was cancelled and goes on.
    """

    clock: Clock
    closed: bool = False
    runs: dict[object, asyncio.Task[Any] | None] = field(default_factory=dict)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _wait_limits: Deadlines | None = None
    _turn_limits: Deadlines | None = None
    _hook_limits: Deadlines | None = None
    _hook_waits: set[Deadline] = field(default_factory=set)

    # --- runs

    async def tracked(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Await the run of a write. Until it ends, the client does not close."""
        run = object()
        self.runs[run] = asyncio.current_task()
        try:
            return await begin()
        finally:
            self.end(run)

    def end(self, run: object) -> None:
        """Note that *run* has ended, and tell a closing client. A second call changes nothing."""
        self.runs.pop(run, None)
        if self.closed and not self.runs:
            self.idle.set()

    def is_running(self, identity: str) -> bool:
        """Return whether a run of the write with this identity is under way."""
        return identity in self.identities()

    def identities(self) -> set[str]:
        """Return the identities of the writes whose runs are under way, as far as they can be known."""
        # Drivers have `known_identity`: None while the intent is not made. Mere objects do not.
        known: set[Any] = {getattr(run, "known_identity", None) for run in self.runs}
        known.discard(None)
        return known

    # --- waits

    def ended_by_close(self) -> Deadline:
        """Return a block that the close of the client ends with ``TimeoutError``."""
        self._wait_limits = limits = _limits_here(self._wait_limits)
        return Deadline(limits.loop, inf, limits)

    def ended_if_stuck(self) -> Deadline:
        """
        Return a block that waits for other runs.

        The close of the client ends the block with ``TimeoutError`` if a run is stuck.
        """
        self._turn_limits = limits = _limits_here(self._turn_limits)
        return Deadline(limits.loop, inf, limits)

    async def pause(self, seconds: float) -> bool:
        """Sleep for *seconds*. Return ``False``, perhaps earlier, if the client is closed."""
        if not self.closed:
            with suppress(TimeoutError), self.ended_by_close():
                await self.clock.sleep(seconds)
        return not self.closed

    @contextmanager
    def hook_ended_after_close(self) -> Generator[Deadline]:
        """End this block, which waits for a user's hook, ``TO_KEEP_SECRETS`` seconds after the close."""
        self._hook_limits = limits = _limits_here(self._hook_limits)
        loop = limits.loop
        deadline = loop.time() + TO_KEEP_SECRETS if self.closed else inf
        waiting = Deadline(loop, deadline, limits)
        with waiting:
            self._hook_waits.add(waiting)
            try:
                yield waiting
            finally:
                self._hook_waits.discard(waiting)

    # --- the close

    def end_waits(self) -> None:
        """End the waits of other tasks on this loop; a wait for a user's hook ends a little later."""
        loop = asyncio.get_running_loop()
        _end_here(self._wait_limits)
        if self._hook_limits is not None and self._hook_limits.loop is loop:
            self._hook_limits.end_within(TO_KEEP_SECRETS)

    async def wait_for_runs(self) -> None:
        """Wait until no write runs, unless this is called within one."""
        loop = asyncio.get_running_loop()
        # The runs of a loop that is closed will not end.
        for run, task in tuple(self.runs.items()):
            if task is None or task.get_loop() is not loop:
                del self.runs[run]
        if self.runs and asyncio.current_task() not in self.runs.values():
            await self._wait_until_idle()

    async def _wait_until_idle(self) -> None:
        """
        Wait until no run is left but stuck ones, and log those.

        A run is stuck if it waits for a hook that was cancelled at the deadline of the wait, and has not
        ended ``TO_BE_CANCELLED`` seconds later.  Those that wait for others may wait for such a run.
        """
        loop = asyncio.get_running_loop()
        while self.runs:
            now = loop.time()
            stuck_from = {
                wait.task: wait.deadline + TO_BE_CANCELLED for wait in self._hook_waits
            }
            stuck = {task for task, when in stuck_from.items() if when <= now}
            if stuck and stuck.issuperset(self.runs.values()):
                log.error(
                    "on_secret refuses to be cancelled: the client was closed without %d writes that have "
                    "not ended. Nobody may have the secrets of their webhooks.",
                    len(stuck),
                )
                return
            if stuck:
                _end_here(self._turn_limits)
                # `idle` may never be set, so look again and again whether the others have ended.
                until_look = _LOOK
            elif stuck_from:
                until_look = min(stuck_from.values()) - now
            else:
                # A hook may begin meanwhile: then it has its deadline at the next look.
                until_look = TO_KEEP_SECRETS
            # It may be set: then a run has begun since the last one ended.
            self.idle.clear()
            await set_within(self.idle, until_look)


def _end_here(limits: Deadlines | None) -> None:
    """End the open blocks of *limits* at once, if they are in other tasks of the running event loop."""
    if limits is None or limits.loop is not asyncio.get_running_loop():
        return
    task = asyncio.current_task()
    for block in tuple(limits.open):
        if block.task is not task:
            block.expire()


def _limits_here(limits: Deadlines | None) -> Deadlines:
    """Return *limits* if they are of the running event loop; otherwise new limits."""
    loop = asyncio.get_running_loop()
    if limits is None or limits.loop is not loop:
        return Deadlines(loop)
    return limits
