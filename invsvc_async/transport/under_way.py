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
_LONGEST_LOOK = 3600.0


class UnderWay(Struct, eq=False):
    """
    The runs of writes, their waits, and the hooks of users that are under way in one client.

    - ``closed``: the client was closed. Nothing is begun any more, and each run ends with its next decision.
    - ``runs``: the runs of writes, with their tasks. The close waits until none is left. A run takes itself
      out at its end, and the last one sets ``idle``.
    - ``_waits``: waits that end when the client is closed.
    - ``_hooks``: limits waits for hooks of users, which end some time after that.
    - ``_handing``: the waits for hooks of users that are under way.
    """

    clock: Clock
    closed: bool = False
    runs: dict[object, asyncio.Task[Any] | None] = field(default_factory=dict)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _waits: Deadlines | None = None
    _hooks: Deadlines | None = None
    _handing: set[Deadline] = field(default_factory=set)

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
        known: set[Any] = {getattr(run, "known_identity", None) for run in self.runs}
        known.discard(None)
        return known

    # --- waits

    def until_closed(self) -> Deadline:
        """Limit a wait to the time until the client is closed, which ends it with ``TimeoutError``."""
        loop = asyncio.get_running_loop()
        if self._waits is None or self._waits.loop is not loop:
            self._waits = Deadlines(loop)
        return Deadline(loop, inf, self._waits)

    async def pause(self, seconds: float) -> bool:
        """Sleep for *seconds*. Return ``False``, perhaps earlier, if the client is closed."""
        if not self.closed:
            with suppress(TimeoutError), self.until_closed():
                await self.clock.sleep(seconds)
        return not self.closed

    @contextmanager
    def until_hooks_end(self) -> Generator[Deadline]:
        """Limit the wait for a user's hook to ``TO_KEEP_SECRETS`` seconds after the client is closed."""
        loop = asyncio.get_running_loop()
        if self._hooks is None or self._hooks.loop is not loop:
            self._hooks = Deadlines(loop)
        deadline = loop.time() + TO_KEEP_SECRETS if self.closed else inf
        waiting = Deadline(loop, deadline, self._hooks)
        with waiting:
            self._handing.add(waiting)
            try:
                yield waiting
            finally:
                self._handing.discard(waiting)

    # --- the close

    def end_waits(self) -> None:
        """End the waits of other tasks on this loop; a wait for a user's hook ends a little later."""
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if self._waits is not None and self._waits.loop is loop:
            for wait in tuple(self._waits.open):
                if wait.task is not task:
                    wait.expire()
        if self._hooks is not None and self._hooks.loop is loop:
            self._hooks.end_within(TO_KEEP_SECRETS)

    async def until_runs_end(self) -> None:
        """Wait until no write runs, unless this is called within one."""
        loop = asyncio.get_running_loop()
        # The runs of a loop that is closed will not end.
        for run, task in tuple(self.runs.items()):
            if task is None or task.get_loop() is not loop:
                del self.runs[run]
        if self.runs and asyncio.current_task() not in self.runs.values():
            self.idle.clear()
            await self._until_idle()

    async def _until_idle(self) -> None:
        """Wait until no run is left but those whose hooks were cancelled, and go on all the same."""
        while self.runs:
            now = asyncio.get_running_loop().time()
            ends = {
                wait.task: wait.deadline + TO_BE_CANCELLED for wait in self._handing
            }
            stuck = {task for task, end in ends.items() if end <= now}
            if stuck and stuck.issuperset(self.runs.values()):
                log.error(
                    "on_secret refuses to be cancelled: the client was closed without %d writes that have "
                    "not ended. Nobody may have the secrets of their webhooks.",
                    len(stuck),
                )
                return
            pause = _LOOK
            if not stuck:
                pause = min((end - now for end in ends.values()), default=_LONGEST_LOOK)
            await set_within(self.idle, pause)
