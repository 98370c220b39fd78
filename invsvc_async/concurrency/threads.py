"""Threads of their own, for calls that may hang."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["called", "joined"]

T = TypeVar("T")


def called(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """
    Call *function* in a daemon thread of its own; the future gets what it returns or raises.

    Not with ``asyncio.to_thread``, whose threads may all be in use by code that hangs, and which the end of
    the process waits for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(found: list[T], error: BaseException | None) -> None:
        if done.done():  # nobody waits for it any more
            return
        if error is None:
            done.set_result(found[0])
        else:  # a future cannot hold a StopIteration
            done.set_exception(RuntimeError(str(error)) if isinstance(error, StopIteration) else error)

    def run() -> None:
        found: list[T] = []
        failure = None
        try:
            found.append(function())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return done


async def joined(thread: threading.Thread) -> None:
    """Wait until *thread*, which was started, has ended."""
    if thread.is_alive():
        await called(thread.join, "invsvc join")
