"""The embedded service in a thread, for synchronous tests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from invsvc_async.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["serving"]


@contextmanager
def serving(**options: Any) -> Generator[Simulator]:  # Any: the arguments of Simulator
    """
    Run the embedded service in a thread until the block ends; *options* are those of ``Simulator``.

    Script and seed it only while no request is in flight.  Its coroutines belong to the other thread's
    loop.

    Raises:
        ValueError: An option is invalid.
    """
    started: Future[tuple[Simulator, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with Simulator(**options) as service:
            started.set_result((service, stop))
            await stop.wait()

    def live() -> None:
        try:
            runner.get_loop()  # fails if the process has no more files, for example
            runner.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    runner = asyncio.Runner()
    thread = threading.Thread(target=live, name="invsvc-service", daemon=True)
    thread.start()
    try:
        service, stop = started.result()
        try:
            yield service
        finally:
            runner.get_loop().call_soon_threadsafe(stop.set)
    finally:
        thread.join()
        runner.close()
