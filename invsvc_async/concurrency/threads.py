"""Threads of their own, for calls that may hang."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")
# s between looks whether a thread has ended, if no other can be started to wait for it
_LOOK: Final = 0.01
JOIN: Final = "invsvc join "  # the name of a thread that waits for another's end, with that one's number


def called(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """
    Call *function* in a new daemon thread; the future gets the result or the exception.

    Not with ``asyncio.to_thread``, whose threads may all be in use by code that hangs, and which the end of
    the process waits for.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # it is called even if nobody waits for it any more

    def run() -> None:
        try:
            done.set_result(function())
        except StopIteration as error:  # a future of asyncio cannot hold one
            done.set_exception(RuntimeError(str(error)))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)

    threading.Thread(
        target=copy_context().run,
        args=(run,),
        name=name,
        daemon=True,
    ).start()
    return asyncio.wrap_future(done)


async def joined(thread: threading.Thread) -> None:
    """Wait until *thread*, which was started, has ended."""
    if not thread.is_alive():
        return
    try:
        ended = called(thread.join, f"{JOIN}{thread.ident}")
    except RuntimeError:  # the process has too many
        while thread.is_alive():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(_LOOK)
    else:
        await ended
