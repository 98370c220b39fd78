"""What threads ask of an event loop that runs in another thread: to await something."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

T = TypeVar("T")

# s: how late a waiting thread notices an exception that another one raises in it, or Ctrl-C on Windows.
PULSE: Final = 0.25


def close(awaitable: Awaitable[object]) -> None:
    """Close what is not awaited, if it is a coroutine or a write: otherwise Python warns as well."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()


class ThreadCall(Generic[T]):
    """
    An awaitable, and its result or error. The thread that waits may be interrupted at any place.

    After *timeout* seconds the awaitable is cancelled, and the error is a ``TimeoutError``.
    """

    def __init__(
        self,
        awaitable: Awaitable[T],
        context: Context,
        timeout: float | None = None,
    ) -> None:
        self.awaitable: Awaitable[T] = awaitable
        self._context = context
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._is_over = False
        self._bell = threading.Lock()
        self._bell.acquire()

    def begin(self) -> None:
        """Begin it, in the loop."""
        self._task = asyncio.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._ring)

    def cancel(self) -> None:
        """Cancel it, in the loop."""
        if self._task is None:
            self._ring()
        else:
            self._task.cancel()

    async def _run(self) -> None:
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                self._value.append(await self.awaitable)
        except asyncio.CancelledError:
            raise
        except TimeoutError as error:
            self._error = self._too_late() if limit.expired() else error
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            self._error = error

    def _too_late(self) -> TimeoutError:
        words = f"timeout: the call took longer than {self._timeout:g} s, and was cancelled."
        advice = "Settle what is in client.unsettled before you write again."
        return TimeoutError(f"{words} {advice}")

    def _ring(self, _task: object = None) -> None:
        self._is_over = True
        self._bell.release()

    def wait(self, thread: threading.Thread) -> None:
        """Wait until it has ended, or the *thread* of the loop has."""
        while not self._is_over and thread.is_alive():
            self._bell.acquire(timeout=PULSE)

    def result(self) -> T:
        """Return the result of the call, or raise its exception. The call must have ended."""
        if self._error is not None:
            raise self._error
        return self._value[0]

    @property
    def has_result(self) -> bool:
        """Whether it has a result or an exception; not if the loop ended before."""
        return self._error is not None or bool(self._value)


class Submission(Generic[T]):
    """
    An awaitable, and the future of its result, which any thread may cancel.

    *note_end* is called in the loop once it has ended: with ``False`` if nobody gets the result, because the
    future was cancelled at the same moment.
    """

    def __init__(
        self,
        awaitable: Awaitable[T],
        context: Context,
        note_end: Callable[[bool], None] | None = None,
    ) -> None:
        self.awaitable: Awaitable[T] = awaitable
        self._context = context
        self._note_end = note_end
        self._task: asyncio.Task[None] | None = None
        self.future: Future[T] = Future()

    def begin(self) -> None:
        """Begin it, in the loop, unless it was cancelled."""
        if self.future.cancelled():
            close(self.awaitable)
            self._note(is_told=False)
            return
        self._task = asyncio.create_task(self._run(), context=self._context)

    def cancel(self) -> None:
        """Cancel it, in the loop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            result = await self.awaitable
        except asyncio.CancelledError as error:
            # By itself: if the portal ends, that is told once the loop has ended.
            if self._is_being_cancelled():
                self._note(is_told=False)
            else:
                self._settle(error=error)
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            self._settle(error=error)
        else:
            self._settle(result)

    def _note(self, *, is_told: bool) -> None:
        if self._note_end is not None:
            self._note_end(is_told)

    def _is_being_cancelled(self) -> bool:
        return self._task is not None and self._task.cancelling() > 0

    def _settle(self, *result: T, error: BaseException | None = None) -> None:
        """Set the result or error of the future, unless it was cancelled at the same moment."""
        try:
            if error is None:
                self.future.set_result(*result)
            else:
                self.future.set_exception(error)
        except InvalidStateError:
            self._note(is_told=False)
        else:
            self._note(is_told=True)

    def fail(self, error: Exception) -> None:
        """Set *error* as that of the future, because the loop has ended."""
        if self._task is None:
            close(self.awaitable)
        self._settle(error=error)
