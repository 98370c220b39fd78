"""Calls of handlers: within the middleware, and each in a task of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.events.receiving.handlers import Handling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.current import CurrentInvoices
    from invsvc_async.events.receiving.handlers import Handler, Middleware
    from invsvc_async.events.receiving.stats import Tally

T = TypeVar("T")
Around: TypeAlias = "Callable[[Handling, Awaitable[None]], Awaitable[None]]"


class HandlerCalls:
    """
    Calls handlers, with what *current* reads for those that fetch.

    *around* returns the function that is called around each call, or ``None``. The functions of
    ``middleware`` are called within it, the first one outermost.
    """

    def __init__(
        self,
        current: CurrentInvoices,
        tally: Tally,
        around: Callable[[], Around | None],
    ) -> None:
        self._current = current
        self._tally = tally
        self._around = around
        self.middleware: list[Middleware] = []

    async def call(
        self,
        handler: Handler,
        event: Event,
        attempt: int,
    ) -> None:
        """Call a handler within the middleware, the first registered outermost."""
        loop = asyncio.get_running_loop()
        failure = None
        started = loop.time()
        handling = Handling(event, handler.name, attempt)
        proceed: Callable[[], Awaitable[Any]] = partial(handler.function, event)
        if handler.fetch:
            proceed = partial(self._current.call_with_invoice, handler.function, event)
        # what any of them returns is dropped
        for function in reversed(self.middleware):
            proceed = partial(function, handling, proceed)  # pyright: ignore[reportArgumentType] - as said
        try:
            running = run_handler(proceed())
            around = self._around()
            if around is None:
                await running
            else:
                await around(handling, running)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._tally.called(handling, loop.time() - started, failure)


async def run_handler(running: Awaitable[object]) -> None:
    """
    Run a handler in a separate task: a handler that cancels the task has failed, and the caller goes on.

    If the caller is cancelled, so is the handler, and its end is waited for: a handler that ends well all the
    same has succeeded. An error that ends the process is raised as it is, in the main thread. Any other that
    is no ``Exception`` becomes a ``RuntimeError``.
    """
    task = asyncio.ensure_future(without_exit(running))
    is_caller_cancelled = False
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        is_caller_cancelled = True
        task.cancel()
        # Each further cancellation of the caller cancels the handler again. None is raised here, because the
        # result of the task, below, says whether the handler has given way to it.
        with suppress(asyncio.CancelledError):
            await until_ended([task], hurry=task.cancel)
    try:
        task.result()
    except asyncio.CancelledError as error:
        if is_caller_cancelled:
            raise
        raise RuntimeError(
            "handler: it, or something that it awaited, was cancelled. Handle that in it."
        ) from error
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise RuntimeError(
            f"handler: it raised {type(error).__name__}, which is no Exception."
        ) from error


async def without_exit(running: Awaitable[T]) -> T:
    """Await *running*. Outside of the main thread its exit would end the loop alone, so that is an error."""
    try:
        return await running
    except (KeyboardInterrupt, SystemExit) as error:
        if threading.current_thread() is threading.main_thread():
            raise
        raise RuntimeError(
            f"it raised {type(error).__name__}, which ends no process in this thread."
        ) from error
