"""
An event loop and a clock that follow a schedule: which ready task runs next is chosen, and time jumps.

Nothing here waits for real, and nothing knows what the tasks do.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from contextvars import Context, ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.interleavings.schedule import Schedule

START = 1000.0  # local s
MOST_STEPS = 20_000
_TIE = 1e-9  # s
RUN: ContextVar[str] = ContextVar("run", default="service")  # whose step a callback is


class Stuck(Exception):  # noqa: N818 - what it says of the code under test
    """The tasks go on for ever."""


class ScriptedLoop(asyncio.AbstractEventLoop):
    """
    Runs callbacks in the order of asyncio, unless the schedule lets another run go first.

    *pauses* is asked before each step, and whenever nothing is ready, whether something from outside happens
    now (a cancellation, a close): it returns ``True`` if it did.
    """

    def __init__(self, schedule: Schedule, pauses: Callable[[bool], bool]) -> None:
        self.schedule = schedule
        self.now = START
        self.tasks: list[tuple[str, asyncio.Task[Any]]] = []  # with whose they are
        self.failures: list[dict[str, Any]] = []
        # runs that take no step any more: their process was killed
        self.dead: set[str] = set()
        self._pauses = pauses
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()

    # --- what asyncio asks for

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append(
            (RUN.get() if context is None else context.get(RUN, "service"), task)
        )
        return task

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    # --- the clock of the client

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # --- running

    def run(self) -> None:
        """Run until nothing is left to do: no callback, no timer."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for _ in range(MOST_STEPS):
                if not self._step():
                    return
            raise Stuck(
                f"still busy after {MOST_STEPS} steps, at {self.now - START:.3f} s"
            )
        finally:
            events._set_running_loop(before)

    def _step(self) -> bool:
        ready = self._ready = [
            each for each in self._ready if not each.cancelled() and self._lives(each)
        ]
        if self._pauses(bool(ready)):
            return True
        if ready:
            ready.pop(self._choose())._run()
            return True
        return self._jump()

    def _lives(self, handle: asyncio.Handle) -> bool:
        return not self.dead or run_of(handle) not in self.dead

    def _choose(self) -> int:
        """Return which handle runs next: the first, or the first of another run."""
        if len(self._ready) == 1:
            return 0
        firsts: dict[str, int] = {}
        for place, handle in enumerate(self._ready):
            firsts.setdefault(run_of(handle), place)
        if len(firsts) == 1:
            return 0
        return [*firsts.values()][
            self.schedule.choose("next", [*firsts], at=self.now - START)
        ]

    def _jump(self) -> bool:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or not self._lives(timers[0][2])):
            heapq.heappop(timers)
        if not timers:
            return False
        self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now + _TIE:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled() and self._lives(handle):
                self._ready.append(handle)
        return True

    def pending(self) -> set[str]:
        """Return the names of the tasks that are about to be resumed."""
        tasks = (getattr(handle._callback, "__self__", None) for handle in self._ready)  # type: ignore[attr-defined]
        return {task.get_name() for task in tasks if isinstance(task, asyncio.Task)}


def run_of(handle: asyncio.Handle) -> str:
    """Return the run whose step *handle* is."""
    context: Context = handle._context  # type: ignore[attr-defined]  # asyncio has no public name for it
    return context.get(RUN, "service")
