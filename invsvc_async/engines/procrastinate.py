"""
Jobs of procrastinate whose writes have one effect, however often procrastinate runs them.

As a module ``jobs.py``, for ``procrastinate --app=jobs.app worker`` with ``INVSVC_BASE_URL``,
``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set. Jobs and journal may be in one database::

    import os

    from procrastinate import App, PsycopgConnector

    from invsvc_async.engines.procrastinate import AGAIN, KeyedJobs

    app = App(connector=PsycopgConnector(conninfo=os.environ["INVSVC_JOURNAL"]))
    keyed = KeyedJobs(app)


    @app.task(name="register", pass_context=True, retry=AGAIN)
    async def register(context, url):
        write = keyed.client.webhooks.create(url=url, events=["invoice.created"])
        return (await keyed.send(context, write)).id

Give each task a name: without one, it has that of its module, which is another one where that is the program.
Ids of jobs are those of one database: jobs of another one, or of a new one, need a ``?namespace=`` of their
own in the address of the journal.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.client import Client
from invsvc_async.engines.again import seconds_before
from invsvc_async.engines.task_writes import (
    check_call,
    client_of_process,
    task_key,
    task_portal,
    under_task_key,
)
from invsvc_async.engines.versions import PROCRASTINATE, require
from invsvc_async.errors import ConfigurationError

require(*PROCRASTINATE)
from procrastinate import (  # noqa: E402 - of a version that fits
    BaseRetryStrategy,
    RetryDecision,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.writes.write import Write

__all__ = ["AGAIN", "KeyedJobs"]

T = TypeVar("T")


class _RunAgain(BaseRetryStrategy):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
    """Runs a job again after the errors of ``engines.again``, with backoff."""

    def get_retry_decision(  # Any: of the engine
        self, *, exception: BaseException, job: Any
    ) -> Any:
        """Return when to run *job* again, or ``None``."""
        seconds = seconds_before(exception, job.attempts + 1)
        make: Any = RetryDecision
        return None if seconds is None else make(retry_in={"seconds": seconds})


AGAIN: Final[Any] = _RunAgain()  # Any: without the engine


class KeyedJobs:
    """
    The writes of the jobs of *app*, each under the id of its job: the same in each run of the job.

    A worker process opens its client at its first job, and keeps it. *client* makes it, with ``on_secret``
    for example. Once a minute, or as the cron line *stalled* says, jobs of workers that were killed run
    again; with ``None`` that is left to the application.
    """

    def __init__(
        self,
        app: Any,  # an App; Any: without the engine
        client: Callable[[], Client] = Client.from_env,
        *,
        stalled: str | None = "* * * * *",
    ) -> None:
        self._app = app
        self._make = client
        if stalled is not None:
            name = "invsvc.run_stalled_jobs"
            task = app.task(name=name, queueing_lock=name)(self._run_stalled)
            app.periodic(cron=stalled)(task)

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
        context: Any,
        write: Write[T],
        *,
        name: str = "",
    ) -> T:
        """
        Send *write* under the id of the job, and return its value. A second write of a job needs a *name*.

        Raises:
            InvsvcError: As of awaiting the write. After those of ``engines.again`` a job with
                ``retry=AGAIN`` runs again.
            ConfigurationError: The job is not stored, so it has no id.
        """
        job: int | None = context.job.id
        if job is None:
            write.close()
            raise ConfigurationError(
                "key: the job has no id, because it is not stored. Use defer_async."
            )
        with under_task_key(write, task_key(f"job-{job}", name), "name") as keyed:
            return await self.call(keyed)

    async def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await what a method of :attr:`client` returns, such as a read, and return its result.

        The client has a loop of its own, so its methods cannot be awaited in a job without this. A write
        without a key, which each run would do anew, is refused: that is for :meth:`send`.
        """
        check_call(awaitable)
        with task_portal(self._make) as portal:
            return await asyncio.wrap_future(portal.submit(awaitable))

    async def _run_stalled(self, timestamp: int) -> None:
        """Retry the jobs of workers that were killed; procrastinate's *timestamp* is not used."""
        del timestamp
        for job in await self._app.job_manager.get_stalled_jobs():
            await self._app.job_manager.retry_job(job)
