"""A client for code without ``async``, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from invsvc_async.concurrency.loop_thread import LoopThread
from invsvc_async.concurrency.thread_calls import Submission, ThreadCall, close
from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from concurrent.futures import Future
    from contextvars import Context
    from types import TracebackType

    from invsvc_async.client import Client
    from invsvc_async.writes.write import AnyWrite

__all__ = ["Portal"]

T = TypeVar("T")

_NOT_ENTERED: Final = "it was not entered. Use it as `with Portal(…) as portal:`."
_ENDED: Final = "it has ended. Make another one."
_ENDED_MEANWHILE: Final = (
    "it ended during this call. What may have been sent is in client.unsettled."
)
# What runs at the end of a process that they have forked: such a process leaves without `atexit`.
_ENDS_OF_CHILDREN: Final = ("multiprocessing.util", "billiard.util")


class Portal:
    """
    A client for code without ``async``: scripts, notebooks, workers of a task queue, views in threads.

    ``with Portal(Client.from_env) as portal:`` makes the client, and runs its event loop in a thread of its
    own. Any number of threads of this process may share the portal; a forked process needs its own. At the
    end of the block the client is closed, which ends the calls that are still under way. A portal that is
    never left is closed when the process ends, also if ``multiprocessing`` or Celery has forked it.

    Raises:
        ConfigurationError: *make* is not a function.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        if not callable(make):
            raise _refusal(
                "it takes a function that makes the client. Pass Client.from_env, for example."
            )
        self._make = make
        self._client: Client | None = None
        self._process: int | None = None  # that entered it
        self._is_open = False
        self._running = LoopThread()
        self._held = AsyncExitStack()
        self._submitted: set[Submission[Any]] = set()  # that have not ended

    @property
    def client(self) -> Client:
        """The client. :meth:`call` and :meth:`iterate` take what its methods return."""
        if self._client is None:
            raise _refusal(_NOT_ENTERED)
        return self._client

    def call(self, awaitable: Awaitable[T], *, timeout: float | None = None) -> T:
        """
        Await *awaitable* in the loop, and return its result: ``portal.call(client.journeys.get("jrn_1"))``.

        It sees the context variables of the caller. An exception that interrupts the caller, such as Ctrl-C
        or a time limit of a task queue, cancels it, waits until it has ended, and is raised then. By then,
        the intent of a write that may have been sent is in ``client.unsettled``. That is also so after
        *timeout* seconds.

        Raises:
            TimeoutError: It took longer than *timeout*.
            ConfigurationError: The portal has ended, or ends during the call; it belongs to the parent of
                this process; or it is called from its own loop.
        """
        return self._call(awaitable, copy_context(), timeout)

    def submit(self, awaitable: Awaitable[T]) -> Future[T]:
        """
        Begin to await *awaitable* in the loop, and return a future of its result, without waiting for it.

        What is submitted begins in its order, so writes to one thing that are submitted one after the other
        take effect one after the other. It sees the context variables of the caller. ``future.cancel()``
        cancels it. When the portal ends, a write that is under way gets its verdict, UNKNOWN if need be, and
        the future of anything else that has not ended gets a ``ConfigurationError``.

        Raises:
            ConfigurationError: The portal has ended, or belongs to the parent of this process.
        """
        self._check(awaitable)
        write = _begin_handover(awaitable)
        note_end = None if write is None else write._end_handover  # noqa: SLF001 - the package's own
        submission = Submission(awaitable, copy_context(), note_end)
        self._submitted.add(submission)
        submission.future.add_done_callback(
            lambda future: self._has_ended(submission, future)
        )
        self._running.soon(partial(self._begin, submission))
        if self._running.loop.is_closed():  # it has ended meanwhile
            submission.fail(_refusal(_ENDED))
        return submission.future

    def _has_ended(self, submission: Submission[T], future: Future[T]) -> None:
        self._submitted.discard(submission)
        if future.cancelled():
            self._running.soon(submission.cancel)

    def iterate(self, items: AsyncIterable[T]) -> Iterator[T]:
        """
        Iterate over *items*, such as a list of the service or the results of a batch.

        Each item is asked for when it is needed. An exception that interrupts the caller ends the iteration.

        Raises:
            ConfigurationError: As :meth:`call`; or *items* is nothing for ``async for``.
        """
        if not isinstance(items, AsyncIterable):
            raise _not_iterable(items)
        iterator = aiter(items)
        context = copy_context()
        while True:
            try:
                item = self._call(_next(iterator), context)
            except StopAsyncIteration:
                return
            yield item

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """
        Enter *manager* in the loop, and return what it gives: ``outbox = portal.enter(Outbox.open(…))``.

        It is left at the end of the portal, before those that were entered earlier, with the exception that
        ended the ``with`` block, if there is one.

        Raises:
            ConfigurationError: As :meth:`call`.
        """
        return self.call(self._entered(manager))

    # --- its life

    def __enter__(self) -> Self:
        if self._process is not None:
            raise _refusal("it was entered before. Share it, or make another one.")
        self._process = os.getpid()
        self._running.start("invsvc portal", self._fail_submitted)
        self._is_open = True
        try:
            self._end_with_process()
            self._client = self.enter(self._make())
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self,
        _kind: object,
        error: BaseException | None,
        _trace: object,
    ) -> bool | None:
        return self._end(error)

    def _end_with_process(self) -> None:
        """Register the end of the portal as a part of the end of the process."""
        atexit.register(self._end)
        for name in _ENDS_OF_CHILDREN:
            if (ends := sys.modules.get(name)) is not None:
                ends.Finalize(None, self._end, exitpriority=0)

    def _fail_submitted(self) -> None:
        """Fail the submissions that have not ended, in the thread of the loop, once the loop is closed."""
        for submission in (*self._submitted,):
            submission.fail(self._ended_meanwhile())

    def _ended_meanwhile(self) -> ConfigurationError:
        """Return the error of what the end of the loop has cut off, with the exit that ended the loop."""
        error = _refusal(_ENDED_MEANWHILE)
        if self._running.exit is not None:
            error.__cause__ = self._running.exit
        return error

    def _end(self, error: BaseException | None = None) -> bool:
        """Leave all that was entered, and end the thread. Return whether that has handled *error*."""
        # in a forked process there is nothing to end
        if not self._is_open or self._process != os.getpid():
            return False
        self._is_open = False
        atexit.unregister(self._end)
        kind: type[BaseException] | None = None
        trace: TracebackType | None = None
        if error is not None:
            kind = type(error)
            trace = error.__traceback__
        try:
            return bool(
                self._waited(
                    ThreadCall(self._held.__aexit__(kind, error, trace), copy_context())
                )
            )
        finally:
            self._running.stop()

    # --- from a thread into the loop

    def _call(
        self,
        awaitable: Awaitable[T],
        context: Context,
        timeout: float | None = None,
    ) -> T:
        self._check(awaitable)
        if threading.current_thread() is self._running.thread:
            why = "it was called from its own loop, which would wait for itself. Use await there."
            raise _refused(awaitable, why)
        return self._waited(ThreadCall(awaitable, context, timeout))

    def _check(self, awaitable: Awaitable[T]) -> None:
        """Refuse an *awaitable* that this portal cannot await in this process."""
        if not inspect.isawaitable(awaitable):
            raise _not_awaitable(awaitable)
        if self._process is None:
            raise _refused(awaitable, _NOT_ENTERED)
        if self._process != os.getpid():
            why = "its thread stayed in the process from which this one was forked. Make a portal here."
            raise _refused(awaitable, why)
        if not self._is_open:
            raise _refused(awaitable, _ENDED)

    def _waited(self, call: ThreadCall[T]) -> T:
        write = _begin_handover(call.awaitable)
        try:
            self._running.soon(partial(self._begin, call))
            call.wait(self._running.thread)
            if write is not None:
                self._running.soon(partial(write._end_handover, True))  # noqa: SLF001 - the package's own
        except (
            BaseException
        ):  # whatever interrupts the caller: nobody would get the result
            self._running.soon(call.cancel)
            call.wait(self._running.thread)
            if write is not None:
                self._leave_unheard(write)
            raise
        if not call.has_result:
            close(call.awaitable)
            raise self._ended_meanwhile()
        return call.result()

    def _leave_unheard(self, write: AnyWrite) -> None:
        """Note in the loop that nobody gets the result of *write*, and wait for that."""

        async def note() -> None:
            write._end_handover(False)  # noqa: SLF001 - the package's own

        call = ThreadCall(note(), copy_context())
        self._running.soon(partial(self._begin, call))
        call.wait(self._running.thread)
        close(call.awaitable)  # not awaited if the loop has ended

    def _begin(self, call: ThreadCall[T] | Submission[T]) -> None:
        """Begin *call*, in the loop. Cancel it if the loop has stopped: nobody would end it later."""
        if self._running.has_stopped:
            call.cancel()
        else:
            call.begin()

    async def _entered(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter *manager* in a task that also leaves it, as task groups and time limits require."""
        entered: asyncio.Future[T] = self._running.loop.create_future()
        leaving: asyncio.Future[BaseException | None] = (
            self._running.loop.create_future()
        )

        async def hold() -> BaseException | None:
            try:
                async with manager as given:
                    entered.set_result(given)
                    if (error := await leaving) is not None:
                        raise error  # noqa: TRY301 - in the block of the manager
            except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
                if not entered.done():
                    entered.set_exception(error)
                return error
            return None

        async def leave(
            _kind: object,
            error: BaseException | None,
            _trace: object,
        ) -> bool:
            if not leaving.done():  # cancelled, if the loop ends
                leaving.set_result(error)
            if (left := await task) is None or left is error:
                return left is None
            raise left

        task = asyncio.create_task(hold())
        try:
            given = await entered
        except BaseException:
            task.cancel()
            await asyncio.wait([task])
            raise
        self._held.push_async_exit(leave)
        return given


def _begin_handover(awaitable: object) -> AnyWrite | None:
    """Do as :func:`begin_handover`, which programs that only read need not load."""
    if "invsvc_async.writes.write" not in sys.modules:
        return None  # then there is no write
    from invsvc_async.writes.result_handover import begin_handover

    return begin_handover(awaitable)


def _not_awaitable(given: object) -> ConfigurationError:
    """Return the error for what :meth:`Portal.call` cannot await."""
    advice = "Pass what an async method returns"
    if isinstance(given, AsyncIterable):
        advice = "Pass it to portal.iterate(…)"
    elif isinstance(given, AbstractAsyncContextManager):
        advice = "Pass it to portal.enter(…)"
    elif callable(given):
        advice = "Call it, and pass what it returns"
    return _refusal(f"{type(given).__name__} is not awaitable. {advice}.")


def _not_iterable(given: object) -> ConfigurationError:
    """Return the error for what :meth:`Portal.iterate` cannot iterate over."""
    name = type(given).__name__
    if not inspect.isawaitable(given):
        return _refusal(
            f"{name} is nothing for `async for`. Pass a list of the client's."
        )
    close(given)
    return _refusal(f"{name} is nothing for `async for`. Pass it to portal.call(…).")


def _refused(awaitable: Awaitable[T], why: str) -> ConfigurationError:
    """Return the error of an awaitable that is not awaited."""
    close(awaitable)
    return _refusal(why)


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)  # in the loop, which closes generators that are left


def _refusal(why: str) -> ConfigurationError:
    return ConfigurationError(f"portal: {why}")
