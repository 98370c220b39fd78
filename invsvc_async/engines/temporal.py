"""
Activities of Temporal whose writes have one effect, however often Temporal runs them.

As a program, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set::

    import asyncio
    from datetime import timedelta

    from temporalio import activity, workflow
    from temporalio.client import Client as Temporal
    from temporalio.worker import Worker

    with workflow.unsafe.imports_passed_through():
        from invsvc_async.engines.temporal import AGAIN, InvsvcPlugin

    invsvc = InvsvcPlugin()


    @activity.defn
    async def register(url: str) -> str:
        write = invsvc.client.webhooks.create(url=url, events=["invoice.created"])
        return (await invsvc.send(write)).id


    @workflow.defn
    class Order:
        @workflow.run
        async def run(self, url: str) -> str:
            return await workflow.execute_activity(
                register,
                url,
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=timedelta(seconds=10),
                retry_policy=AGAIN,
            )


    async def main():
        temporal = await Temporal.connect("localhost:7233")
        worker = Worker(
            temporal,
            task_queue="invoicing",
            workflows=[Order],
            activities=[register],
            plugins=[invsvc],
        )
        await worker.run()


    if __name__ == "__main__":
        asyncio.run(main())

An activity that Temporal runs again, after an error or the kill of its worker, goes on with its write. A new
run of the workflow (a reset, a retry of the workflow, ``continue_as_new``) starts over, unless ``send`` has a
``key`` of the business, such as the number of the order.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.client import Client
from invsvc_async.engines.task_writes import (
    check_call,
    client_of_process,
    task_key,
    task_portal,
    task_result,
    task_write,
    under_task_key,
)
from invsvc_async.engines.temporal_errors import AGAIN, errors_of_temporal
from invsvc_async.engines.versions import TEMPORAL, require

require(*TEMPORAL)
from temporalio import activity  # noqa: E402 - of a version that fits
from temporalio.plugin import SimplePlugin  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from invsvc_async.writes.write import Write

__all__ = ["AGAIN", "InvsvcPlugin"]

T = TypeVar("T")
_BEATS: Final = 3  # within a heartbeat timeout


class InvsvcPlugin(SimplePlugin):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
    """
    A plugin of workers, for the writes of their activities: each has the ids of its activity as its key.

    A worker process opens its client at its first activity, and keeps it. *client* makes it, with
    ``on_secret`` for example. The plugin has an activity of its own, ``invsvc_write``, for writes as data; to
    create webhooks by it, the client has to have ``on_secret``.
    """

    def __init__(self, client: Callable[[], Client] = Client.from_env) -> None:
        self._make = client
        super().__init__("invsvc_async", activities=[self._own_activity()])

    @property
    def client(self) -> Client:
        """
        The client of this process. Its methods return writes for :meth:`send`, and reads for :meth:`call`.

        Raises:
            ConfigurationError: It has no journal that workers share.
        """
        return client_of_process(self._make)

    async def send(
        self,
        write: Write[T],
        *,
        key: str = "",
        name: str = "",
    ) -> T:
        """
        Send *write* for the running activity, and return its value.

        Its key is *key*, or the ids of the workflow, its run and the activity. A second write of an activity
        needs a *name*. The activity sends heartbeats meanwhile, if it has a ``heartbeat_timeout``, so that
        it learns of its cancellation, and Temporal of the kill of a worker.

        Raises:
            InvsvcError: As of awaiting the write.
            ApplicationError: The service limits requests, and said when to come back; or a newer write has
                overtaken this one.
        """
        with under_task_key(write, _key(key, name), "name") as keyed:
            return await self.call(keyed)

    async def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await what a method of :attr:`client` returns, such as a read, and return its result.

        The client has a loop of its own, so its methods cannot be awaited in an activity without this. A
        write without a key, which each attempt would do anew, is refused: that is for :meth:`send`.

        Raises:
            ApplicationError, InvsvcError: As :meth:`send`.
        """
        check_call(awaitable)
        with errors_of_temporal():
            return await self._sent(awaitable)

    def _own_activity(self) -> Callable[..., Any]:  # Any: plain values
        """Return the activity for writes as data."""

        async def write(line: dict[str, Any], key: str = "") -> dict[str, Any]:
            own = _key(key or str(line.get("key") or ""), "")
            described = task_write(self.client, line, own)
            with errors_of_temporal():
                return task_result(own, await self._sent(described.outcome()))

        activity.defn(name="invsvc_write")(write)  # marks it
        return write

    async def _sent(self, writing: Awaitable[T]) -> T:
        with task_portal(self._make) as portal:
            sent = asyncio.wrap_future(portal.submit(writing))
            try:
                await _beating(sent)
                return sent.result()
            finally:
                sent.cancel()  # does nothing if it has ended


def _key(key: str, name: str) -> str:
    """Return the key of a write of the running activity."""
    if key:
        return task_key(key, name)
    info = activity.info()
    run = info.workflow_run_id or info.activity_run_id or ""
    return task_key(info.workflow_id or "", run, info.activity_id, name)


async def _beating(sent: asyncio.Future[T]) -> None:
    """Wait for *sent*, with heartbeats of the running activity meanwhile, if it has a timeout for them."""
    limit: timedelta | None = activity.info().heartbeat_timeout
    pause = limit.total_seconds() / _BEATS if limit else None
    while not sent.done():
        await asyncio.wait({sent}, timeout=pause)
        if limit:
            activity.heartbeat()
