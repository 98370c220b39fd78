"""A client for code without ``async``, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterator,
    )

    from invsvc_async.client import Client

__all__ = ["Portal"]

T = TypeVar("T")

# s: how late a waiting thread notices an exception that another one raises in it, or Ctrl-C on Windows.
_PULSE: Final = 0.25
_NOT_ENTERED: Final = "it was not entered. Use it as `with Portal(…) as portal:`."


class Portal:
    """
    A client for code without ``async``: scripts, notebooks, workers of a task queue, views in threads.

    ``with Portal(Client.from_env) as portal:`` makes the client, and runs its event loop in a thread of its
    own. Any number of threads of this process may share the portal; a forked process needs its own. At the
    end of the block the client is closed, which ends the calls that are still under way. A portal that is
    never left is closed when the process ends.

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
        self._loop: asyncio.AbstractEventLoop
        # sets no loop of this thread
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._thread: threading.Thread
        self._held = AsyncExitStack()

    @property
    def client(self) -> Client:
        """The client. :meth:`call` and :meth:`iterate` take what its methods return."""
        if self._client is None:
            raise _refusal(_NOT_ENTERED)
        return self._client

    def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await *awaitable* in the loop, and return its result: ``portal.call(client.journeys.get("jrn_1"))``.

        It sees the context variables of the caller. An exception that interrupts the caller, such as Ctrl-C
        or a time limit of a task queue, cancels it, waits until it has ended, and is raised then. By then,
        the intent of a write that may have been sent is in ``client.unsettled``.

        Raises:
            ConfigurationError: The portal has ended, or ends during the call; it belongs to the parent of
                this process; or it is called from its own loop.
        """
        return self._call(awaitable, copy_context())

    def iterate(self, items: AsyncIterable[T]) -> Iterator[T]:
        """
        Iterate over *items*, such as a list of the service or the results of a batch.

        Each item is asked for when it is needed. An exception that interrupts the caller ends the iteration.

        Raises:
            ConfigurationError: As :meth:`call`.
        """
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
        self._loop = self._runner.get_loop()
        # Not earlier: a thread that was made before a fork counts as ended after it.
        self._thread = threading.Thread(
            target=self._live, name="invsvc portal", daemon=True
        )
        self._thread.start()
        self._is_open = True
        try:
            atexit.register(self._end)
            self._client = self.enter(self._make())
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> bool | None:
        return self._end(error)

    def _live(self) -> None:
        with self._runner:  # which cancels what is left
            self._loop.run_forever()

    def _end(self, error: BaseException | None = None) -> bool:
        """Leave all that was entered, and end the thread. Return whether that has handled *error*."""
        # in a forked process there is nothing to end
        if not self._is_open or self._process != os.getpid():
            return False
        self._is_open = False
        atexit.unregister(self._end)
        kind, trace = (
            (None, None) if error is None else (type(error), error.__traceback__)
        )
        try:
            return bool(
                self._waited(
                    _ThreadCall(
                        self._held.__aexit__(kind, error, trace), copy_context()
                    )
                )
            )
        finally:
            self._soon(self._loop.stop)
            self._thread.join()

    # --- from a thread into the loop

    def _call(self, awaitable: Awaitable[T], context: Context) -> T:
        if not inspect.isawaitable(awaitable):
            raise _refusal(
                f"{type(awaitable).__name__} is not awaitable. Pass what an async method returns."
            )
        call = _ThreadCall(awaitable, context)
        if self._process is None:
            raise call.refused(_NOT_ENTERED)
        if self._process != os.getpid():
            why = "its thread stayed in the process from which this one was forked. Make a portal here."
            raise call.refused(why)
        if threading.current_thread() is self._thread:
            why = "it was called from its own loop, which would wait for itself. Use await there."
            raise call.refused(why)
        if not self._is_open:
            raise call.refused("it has ended. Make another one.")
        return self._waited(call)

    def _waited(self, call: _ThreadCall[T]) -> T:
        try:
            self._soon(call.begin)
            call.wait(self._thread)
        except (
            BaseException
        ):  # whatever interrupts the caller: nobody would get the result
            self._soon(call.cancel)
            call.wait(self._thread)
            raise
        return call.result()

    def _soon(self, step: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(step)

    async def _entered(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter *manager* in a task that also leaves it, as task groups and time limits require."""
        entered: asyncio.Future[T] = self._loop.create_future()
        leaving: asyncio.Future[BaseException | None] = self._loop.create_future()

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
            _kind: object, error: BaseException | None, _trace: object
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


class _ThreadCall(Generic[T]):
    """An awaitable, and its result or error. The thread that waits may be interrupted at any place."""

    def __init__(self, awaitable: Awaitable[T], context: Context) -> None:
        self._awaitable = awaitable
        self._context = context
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
        try:
            self._value.append(await self._awaitable)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            self._error = error

    def _ring(self, _task: object = None) -> None:
        self._is_over = True
        self._bell.release()

    def wait(self, thread: threading.Thread) -> None:
        """Wait until it has ended, or the *thread* of the loop has."""
        while not self._is_over and thread.is_alive():
            self._bell.acquire(timeout=_PULSE)

    def result(self) -> T:
        """Return the result of the call, or raise its exception."""
        if self._error is not None:
            raise self._error
        if not self._value:
            raise self.refused(
                "it ended during this call. What may have been sent is in client.unsettled."
            )
        return self._value[0]

    def refused(self, why: str) -> ConfigurationError:
        """Return the error of an awaitable that is not awaited."""
        if inspect.iscoroutine(self._awaitable):
            self._awaitable.close()  # otherwise Python warns as well
        return _refusal(why)


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)  # in the loop, which closes generators that are left


def _refusal(why: str) -> ConfigurationError:
    return ConfigurationError(f"portal: {why}")
