"""
A client in code without `async`: one loop in a thread, and one client, for the whole process.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… python examples/sync_script.py JOURNEY NAME`` renames a journey.  A
Celery worker calls ``start`` when a worker process starts, ``rename`` in its tasks, and ``stop`` at the end.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from anyio.from_thread import start_blocking_portal

from invsvc_async import Client, ReconcilePolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.from_thread import BlockingPortal

    from invsvc_async import Intent, Journey, Outcome

T = TypeVar("T")


class Invoicing:
    """The portal to the loop, and the client that belongs to it.  Any number of threads may use it."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._portal: BlockingPortal
        self._client: Client

    def start(self) -> None:
        """Start the loop and open the client: once in a process, and after it was forked."""
        atexit.register(self.stop)  # otherwise the process would wait for the loop
        self._portal = self._open.enter_context(start_blocking_portal())
        # A task should not wait 90 s; below 50 s, hardly anything could be sent again.
        made = Client.from_env(reconcile=ReconcilePolicy(deadline=50.0))
        self._client = self._open.enter_context(
            self._portal.wrap_async_context_manager(made)
        )

    def stop(self) -> None:
        """Close the client and stop the loop.  A second call does nothing."""
        self._open.close()

    def journey(self, journey: str) -> Journey:
        """Read."""
        return self._call(self._client.journeys.get, journey)

    def rename(self, journey: str, name: str) -> Outcome[Journey]:
        """Write: `outcome` is the function to call, because a portal does not await a `Write`."""
        return self._call(self._client.journeys.update(journey, name=name).outcome)

    def unsettled(self) -> tuple[Intent, ...]:
        """Return the intents of the writes that were interrupted."""
        return tuple(self._client.unsettled)

    def _call(self, method: Callable[..., Awaitable[T]], *arguments: str) -> T:
        """Run *method* in the loop and wait.  Ctrl-C, or a time limit of a worker, cancels it."""
        tasks: set[asyncio.Task[T] | None] = set()

        async def run() -> T:
            tasks.add(asyncio.current_task())
            return await method(*arguments)

        async def end() -> None:
            for task in filter(None, tasks):
                task.cancel()
                # Until it has ended, its intent is not in `unsettled`.
                await asyncio.wait([task])

        try:
            # Either can be interrupted.
            return self._portal.start_task_soon(run).result()
        except BaseException:
            # Otherwise it would go on in the loop, and nobody would get its verdict.
            self._portal.call(end)
            raise


service = Invoicing()  # of this process


def main(journey: str, name: str) -> int:
    """Rename a journey, and print the verdict."""
    service.start()
    try:
        outcome = service.rename(journey, name)
        print(outcome.verdict, service.journey(journey).name)
        return 0 if outcome.applied else 1
    finally:
        service.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
