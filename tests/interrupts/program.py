"""
Running programs one after the other, each on a loop of its own, beside a service that needs no thread.

Time is virtual.  It advances only while a program waits, no thread of the package works, and the service has
nothing to do.  A program that nothing will wake any more is stuck at once.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from asyncio import events
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from invsvc_async.concurrency.threads import JOIN
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.state import ServiceClock

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
LONGEST = 120.0  # s of virtual time for one program
MOST = 100_000  # turns of the loop of one program
_STEP = 0.05  # s by which time advances at most
_LOOK = 0.001  # real s of waiting for threads, or for a database
_EPOCH = 1_780_000_000.0


class Stuck(BaseException):
    """A program waits for what does not happen."""


class WatchedQueue:
    """What stands in for the queue of a writer's thread: it knows whether the thread works."""

    all: ClassVar[deque[WatchedQueue]] = deque(maxlen=64)

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._waits = False
        self.all.append(self)

    def put(self, item: object) -> None:
        """Add *item*."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self) -> Any:
        """Remove the first item, and return it, once there is one."""
        with self._changed:
            self._thread = threading.current_thread()
            while not self._items:
                self._waits = True
                self._changed.wait()
            self._waits = False
            return self._items.popleft()

    def waits_in(self, thread: threading.Thread) -> bool:
        """Return whether *thread* waits here; one that has ended does not, but lets its joiner go on."""
        with self._changed:
            is_empty = self._waits and not self._items
            return thread is self._thread and is_empty and thread.is_alive()


def _threads_work(others: set[threading.Thread]) -> bool:
    """Return whether a thread of the package does something, or is about to; *others* are of earlier tests."""
    ours = [
        each
        for each in threading.enumerate()
        if each.name.startswith("invsvc ") and each not in others
    ]
    resting = {
        each for each in ours if any(queue.waits_in(each) for queue in WatchedQueue.all)
    }
    # Who joins a thread that rests will not hear of its end.
    joining = {f"{JOIN}{each.ident}" for each in resting}
    return any(each not in resting and each.name not in joining for each in ours)


def _waiting() -> str:
    """Return what the tasks of the running loop wait for."""
    found = []
    for task in asyncio.all_tasks():
        names, coroutine = [], task.get_coro()
        while coroutine is not None:
            names.append(getattr(coroutine, "__qualname__", type(coroutine).__name__))
            coroutine = getattr(coroutine, "cr_await", None) or getattr(
                coroutine, "gi_yieldfrom", None
            )
        found.append(" > ".join(names))
    return "; ".join(sorted(found))


class World:
    """The service, its loop, and the time of all loops.  *in_real_time*: there is a database beside it."""

    def __init__(self, *, in_real_time: bool = False) -> None:
        self.now = 1_000.0
        self.in_real_time = in_real_time
        # those that tests before this world have left
        self.other_threads = {*threading.enumerate()}
        self._loop = _Loop(self, is_service=True)
        clock = ServiceClock(wall=lambda: _EPOCH + self.now, steady=lambda: self.now)
        self.service = Simulator(seed=7, clock=clock)
        self._loop.run_until_complete(self.service.__aenter__())
        self._until = 0.0
        self._turns = 0

    def close(self) -> None:
        """End the service."""
        self._loop.run_until_complete(self.service.__aexit__(None, None, None))
        self._loop.close()

    def clear_list(self) -> None:
        """Remove the webhooks of earlier trials: a list shows 100, and a full one proves no absence."""
        for book in self.service._state._books.values():
            for webhook_id in [*book.webhooks.items]:
                book.webhooks.remove(webhook_id)

    def run(self, program: Coroutine[Any, Any, T]) -> T:
        """Run *program* as ``asyncio.run`` does."""
        self._until = self.now + LONGEST
        self._turns = 0
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            runner.get_loop().set_exception_handler(lambda *_: None)
            return runner.run(program)

    def serve(self) -> None:
        """Let the service do what it has to do."""
        before, trace = events._get_running_loop(), sys.gettrace()
        sys.settrace(None)
        events._set_running_loop(None)
        try:
            loop = self._loop
            while True:
                loop.call_soon(loop.stop)
                loop.run_forever()
                if not loop._ready and not loop._selector.select(0):  # type: ignore[attr-defined]
                    return
        finally:
            events._set_running_loop(before)
            sys.settrace(trace)

    def turn(self) -> None:
        """Count the turns of a program's loop that did something."""
        self._turns += 1
        if self._turns > MOST:
            raise Stuck(f"it is still busy after {MOST} turns")

    def advance(self, timeout: float | None) -> None:
        """Advance the time while a program waits, at most by *timeout*."""
        if self.now > self._until or (timeout is None and not self.in_real_time):
            raise Stuck(f"nothing wakes {_waiting()}")
        self.now += min(
            _STEP if timeout is None else timeout, _LOOK if self.in_real_time else _STEP
        )


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, world: World, *, is_service: bool = False) -> None:
        self._world = world
        super().__init__(
            selectors.DefaultSelector() if is_service else _Selector(world)
        )

    def time(self) -> float:
        return self._world.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        world = self._world
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            world.turn()
            return ready
        world.serve()
        if ready := super().select(0):
            return ready
        works = world.in_real_time or _threads_work(world.other_threads)
        # a thread may have said something just before
        if ready := super().select(_LOOK if works else 0):
            return ready
        if world.in_real_time or not works:
            world.advance(timeout)
        return []


def closed(world: World) -> Any:
    """Return a context manager that closes *world*."""
    from contextlib import contextmanager

    @contextmanager
    def closing() -> Any:
        try:
            yield world
        finally:
            with suppress(RuntimeError):
                world.close()

    return closing()
