"""The embedded service in tests: a client with settle windows that fit it, and a thread that runs it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from invsvc_async.client import Client
from invsvc_async.settings import ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.simulator import Simulator
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["quick_client", "serving"]

# The embedded service commits at once, or after a scripted delay: "late 0.1" is within the window.
_POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
_TIMEOUTS = Timeouts(attempt=1.0, connect=2.0, call=5.0)
_READS = ReadRetries(initial=0.01, maximum=0.05)


def quick_client(service: Simulator, **settings: Any) -> Client:  # Any: arguments of Client
    """
    Return a client of *service* that settles within 0.2 s and times out after 1 s; *settings* override
    this.

    It is meant for the embedded service only.  If effects come later than that (``"late 1, then 500"``, or
    ``Faults(rate=0.2)``, whose ``late_up_to`` is 1 s by default), they are missed: pass a longer
    ``reconcile=ReconcilePolicy(…)``, or ``Faults(rate=0.2, late_up_to=0.05)``.

    Raises:
        ConfigurationError: A setting is invalid.
    """
    credential = settings.pop("credential", None) or ApiKey(service.api_key)
    defaults: dict[str, Any] = {"reconcile": _POLICY, "timeout": _TIMEOUTS, "reads": _READS}
    return Client(service.base_url, credential, **{**defaults, **settings})


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
