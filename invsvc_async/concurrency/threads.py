"""Waiting for the end of a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

__all__ = ["joined"]


async def joined(thread: threading.Thread) -> None:
    """
    Wait until *thread*, which was started, has ended.

    Not with ``asyncio.to_thread``, whose threads may all be in use: by an application's code that hangs.
    """
    if not thread.is_alive():
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def complete() -> None:
        if not done.done():
            done.set_result(None)

    def wait() -> None:
        thread.join()
        with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            loop.call_soon_threadsafe(complete)

    threading.Thread(target=wait, name="invsvc join", daemon=True).start()
    await done
