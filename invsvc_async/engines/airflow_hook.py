"""The hook of Airflow: a client for the writes of the running task."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Self, TypeVar

from invsvc_async.client import Client
from invsvc_async.engines.airflow_connection import client_of_connection
from invsvc_async.engines.airflow_task import final_errors, key_here
from invsvc_async.engines.task_writes import (
    check_call,
    task_portal,
    task_result,
    task_write,
    under_task_key,
)
from invsvc_async.engines.versions import AIRFLOW, require
from invsvc_async.errors import ConfigurationError

require(*AIRFLOW)
from airflow.sdk import BaseHook  # noqa: E402 - of a version that fits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from invsvc_async.engines.results import Plain
    from invsvc_async.portal import Portal
    from invsvc_async.writes.write import Write

__all__ = ["InvsvcHook"]

T = TypeVar("T")


class InvsvcHook(BaseHook):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
    """
    A client for the writes of the running task: ``with InvsvcHook() as invsvc:``.

    *client* makes the client. With *conn_id*, it is made of a connection of Airflow instead: its host is the
    base URL, its password the API key, and its extra may have ``journal`` and ``team``.
    """

    def __init__(
        self,
        conn_id: str | None = None,
        *,
        client: Callable[[], Client] = Client.from_env,
    ) -> None:
        super().__init__()
        self._conn_id = conn_id
        self._make = client
        self._held = ExitStack()
        self._portal: Portal | None = None

    def __enter__(self) -> Self:
        make = self._maker()
        with final_errors():
            self._portal = self._held.enter_context(task_portal(make, keep=False))
        return self

    def __exit__(self, *_exc: object) -> None:
        self._portal = None
        self._held.close()

    @property
    def client(self) -> Client:
        """The client. Its methods return writes for :meth:`send`, and reads for :meth:`call`."""
        return self._opened().client

    def get_conn(self) -> Client:
        """Return the client."""
        return self.client

    def send(self, write: Write[T], *, key: str = "") -> T:
        """
        Send *write* for the running task, and return its value.

        Its key has the ids of DAG, run and task, *key*, and what clearing the task renews. *key* comes from
        the data, such as the number of an order: a mapped task needs it, because the index of an order
        changes with the list. A second write of a task needs it, too.

        Raises:
            AirflowFailException: The write failed, and would fail again.
            InvsvcError: It failed, and the task runs again if it has ``retries``.
        """
        with (
            closing(write),
            final_errors(),
            under_task_key(write, key_here(key), "key") as keyed,
        ):
            return self._opened().call(keyed)

    def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await what a method of :attr:`client` returns, such as a read, and return its result.

        A write without a key, which each try would do anew, is refused: that is for :meth:`send`.

        Raises:
            AirflowFailException, InvsvcError: As :meth:`send`.
        """
        with final_errors():
            check_call(awaitable)
            return self._opened().call(awaitable)

    def result(self, line: Mapping[str, Any], *, key: str = "") -> dict[str, Plain]:
        """
        Send the write that *line* describes, and return what is told of it, as plain values.

        *line* has an ``operation`` and its ``arguments``, as in a file of a batch. Of a new webhook, the
        secret is not returned: the client has to have ``on_secret``.

        Raises:
            AirflowFailException, InvsvcError: As :meth:`send`.
        """
        with final_errors():
            own = key_here(key)
            write = task_write(self.client, line, own)
            return task_result(own, self._opened().call(write.outcome()))

    def _opened(self) -> Portal:
        if self._portal is None:
            raise ConfigurationError(
                "hook: it is not open. Use it as `with InvsvcHook() as invsvc:`."
            )
        return self._portal

    def _maker(self) -> Callable[[], Client]:
        if self._conn_id is None:
            return self._make
        return client_of_connection(self.get_connection(self._conn_id))
