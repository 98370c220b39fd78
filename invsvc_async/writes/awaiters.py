"""The tasks that await one write: one of them runs it, and the others wait for the end of that run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")


class Awaiters(Struct, eq=False):
    """
    Whether a task runs the write, and those that wait for it.

    A run may end without a verdict, if its task is cancelled. Then one of the others runs the write on.
    """

    is_running: bool = False
    _waiting: list[asyncio.Future[None]] = []

    async def until_run_ends(self) -> None:
        """Wait until the task that runs the write has ended its run, with a verdict or without."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def end_run(self) -> None:
        """
        End the run, and let the waiting tasks go on.

        A second call does what the first one did not, because a signal handler raised in it.
        """
        self.is_running = False
        while self._waiting:
            waiter = self._waiting[0]
            if not waiter.done():
                waiter.set_result(None)
            if waiter in self._waiting:
                self._waiting.remove(waiter)


class TaskRuns(Generic[T]):
    """A write as a coroutine, which event loops step through: one for each task that awaits the write."""

    def __init__(self) -> None:
        # None: no event loop runs.
        self.by_task: dict[asyncio.Task[Any] | None, Coroutine[Any, Any, T]] = {}

    def run_on(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        step: Literal["send", "throw"],
        value: Any,
    ) -> Any:  # Any: what a coroutine yields to its event loop is the loop's
        """
        Run a step of the coroutine of the current task, which *make* makes before the first one.

        *make* is not kept: it refers to the write, which is to be freed as soon as nobody has it.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop is running
            task = None
        run = self.by_task.get(task)
        if run is None:
            run = self.by_task[task] = make()
        try:
            return getattr(run, step)(value)
        except BaseException:  # it has ended: coroutines raise to show that
            self.by_task.pop(task, None)
            raise

    def close(self) -> None:
        """Close the coroutines of all tasks."""
        for run in [*self.by_task.values()]:
            run.close()
        self.by_task.clear()
