"""
Tasks of Celery whose writes have one effect, however often Celery runs them.

As a module ``tasks.py``, for ``celery -A tasks worker`` with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and
``INVSVC_JOURNAL=postgresql://…`` set::

    from celery import Celery

    from invsvc_async.engines.celery import KeyedTask

    app = Celery("tasks", broker="redis://127.0.0.1:6379/0")


    @app.task(base=KeyedTask, bind=True)
    def register(task, url):
        write = task.client.webhooks.create(url=url, events=["invoice.created"])
        return task.send(write).id

Submitted twice, ``register.apply_async(("https://me.example/17",), task_id="order-17")`` has one effect.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.client import Client
from invsvc_async.engines.again import MOST_RUNS, RUN_AGAIN, is_overtaken
from invsvc_async.engines.portals import close_portals
from invsvc_async.engines.task_writes import (
    check_call,
    client_of_process,
    task_key,
    task_portal,
    under_task_key,
)
from invsvc_async.engines.versions import CELERY, require
from invsvc_async.errors import ConfigurationError, InvsvcError

require(*CELERY)
from celery import Task  # noqa: E402 - of a version that fits
from celery.signals import worker_process_shutdown  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from invsvc_async.writes.write import Write

__all__ = ["KeyedTask"]

T = TypeVar("T")


def _leave(**_told: object) -> None:
    """Close the client of a process that Celery ends by ``os._exit``."""
    close_portals()


worker_process_shutdown.connect(_leave, weak=False)


class KeyedTask(Task):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
    """
    A base class of tasks, whose id is the key of their write: the same in each retry and delivery.

    A worker process opens its client at its first task, after the fork, and keeps it. ``make_client`` makes
    it: override it, for ``on_secret`` for example. A task runs again after the errors in
    ``autoretry_for``, with backoff, and after the kill of its worker; not if a newer write has overtaken its
    own.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    autoretry_for = RUN_AGAIN
    retry_backoff = True
    max_retries = MOST_RUNS - 1

    @staticmethod
    def make_client() -> Client:
        """Make the client of a worker process; a subclass may do it in its own way."""
        return Client.from_env()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: those of the task
        """Run the task; its process has the client meanwhile."""
        with ExitStack() as held:
            # the task meets the error again, where Celery knows that it has to run again
            with suppress(InvsvcError):
                held.enter_context(task_portal(self.make_client))
            return super().__call__(*args, **kwargs)

    def retry(  # Any: as the engine has it
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,  # noqa: FBT001, FBT002 - the same
        eta: Any = None,
        countdown: float | None = None,
        **options: Any,
    ) -> Any:
        """
        Run the task again, or raise *exc* if a newer write has overtaken that of the task.

        A service that says when to come back is not asked before.
        """
        if exc is not None and is_overtaken(exc):
            raise exc
        asked: float | None = getattr(exc, "retry_after", None)
        if asked is not None and eta is None:
            own: float = self.default_retry_delay if countdown is None else countdown
            countdown = max(asked, own)
        return super().retry(args, kwargs, exc, throw, eta, countdown, **options)

    @property
    def client(self) -> Client:
        """
        The client of this process. Its methods return writes for :meth:`send`, and reads for :meth:`call`.

        Raises:
            ConfigurationError: It has no journal that workers share.
        """
        return client_of_process(self.make_client)

    def send(self, write: Write[T], *, name: str = "") -> T:
        """
        Send *write* under the id of the task, and return its value. A second write of a task needs a *name*.

        Raises:
            ConfigurationError: The task has no id, because it was called as a function.
            InvsvcError: As of awaiting the write. After those in ``autoretry_for`` the task runs again.
        """
        task: str | None = self.request.id
        if not task:
            write.close()
            raise ConfigurationError(
                "key: the task has no id, because it was called as a function. Use delay or apply_async."
            )
        with under_task_key(write, task_key(task, name), "name") as keyed:
            return self.call(keyed)

    def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await what a method of :attr:`client` returns, such as a read, and return its result.

        A write without a key, which each run would do anew, is refused: that is for :meth:`send`.
        """
        check_call(awaitable)
        with task_portal(self.make_client) as portal:
            return portal.call(awaitable)
