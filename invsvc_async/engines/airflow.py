"""
Tasks of Airflow whose writes have one effect, however often Airflow runs them, until the task is cleared.

As a file in the folder of DAGs, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and
``INVSVC_JOURNAL=postgresql://…`` set for the workers::

    from datetime import datetime, timedelta

    from airflow.sdk import dag, task

    from invsvc_async.engines.airflow import InvsvcHook, InvsvcWriteOperator

    AGAIN = {"retries": 20, "retry_delay": timedelta(seconds=30)}


    @task(**AGAIN)
    def register(order: str) -> str:
        with InvsvcHook() as invsvc:
            write = invsvc.client.webhooks.create(
                url=f"https://me.example/{order}", events=["invoice.created"]
            )
            return invsvc.send(write, key=order).id


    @dag(schedule=None, start_date=datetime(2026, 1, 1))
    def invoicing():
        register.expand(order=["order-17", "order-18"])
        InvsvcWriteOperator(
            task_id="rename",
            operation="journeys.update",
            arguments={"journey": "jrn_1", "name": "{{ run_id }}"},
            **AGAIN,
        )


    invoicing()

A retry goes on with the write of the task. A task that is *cleared* starts over: it does the write anew. One
that is cleared while it runs goes on, because its write may be under way.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from invsvc_async.client import Client
from invsvc_async.engines.again import runs_again
from invsvc_async.engines.airflow_connection import client_of_connection
from invsvc_async.engines.portals import portal_of
from invsvc_async.engines.sender import check_journal
from invsvc_async.engines.task_writes import (
    check_call,
    task_key,
    task_result,
    task_write,
    told_of_names,
)
from invsvc_async.engines.versions import require
from invsvc_async.errors import ConfigurationError, InvsvcError

require("apache-airflow-task-sdk", 1, 1)
from airflow.sdk import (  # noqa: E402 - of a version that fits
    BaseHook,
    BaseOperator,
    get_current_context,
)
from airflow.sdk.exceptions import AirflowFailException  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from invsvc_async.engines.results import Plain
    from invsvc_async.portal import Portal
    from invsvc_async.writes.write import Write

__all__ = ["InvsvcHook", "InvsvcWriteOperator"]

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
        make = self._make if self._conn_id is None else self._from(self._conn_id)
        with ExitStack() as held, _final():
            self._portal = held.enter_context(portal_of(make, keep=False)).portal
            check_journal(self._portal.client, several=True)
            self._held = held.pop_all()
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
        with closing(write), _final(), told_of_names("key"):
            return self._opened().call(write._rekeyed(_key_here(key)))  # noqa: SLF001 - not of users

    def call(self, awaitable: Awaitable[T]) -> T:
        """
        Await what a method of :attr:`client` returns, such as a read, and return its result.

        A write without a key, which each try would do anew, is refused: that is for :meth:`send`.

        Raises:
            AirflowFailException, InvsvcError: As :meth:`send`.
        """
        with _final():
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
        with _final():
            own = _key_here(key)
            write = task_write(self.client, line, own)
            return task_result(own, self._opened().call(write.outcome()))

    def _opened(self) -> Portal:
        if self._portal is None:
            raise ConfigurationError(
                "hook: it is not open. Use it as `with InvsvcHook() as invsvc:`."
            )
        return self._portal

    def _from(self, conn_id: str) -> Callable[[], Client]:
        return client_of_connection(self.get_connection(conn_id))


class InvsvcWriteOperator(BaseOperator):  # pyright: ignore[reportGeneralTypeIssues]  # as above
    """
    A task that does one write, which *operation*, such as ``journeys.update``, and its *arguments* describe.

    It returns the fields of ``RowResult`` but for the secret. *key*, of the data, is needed if it is mapped:
    ``InvsvcWriteOperator.partial(task_id=…, operation=…).expand_kwargs(rows)``, where each row has
    ``arguments`` and ``key``. All three are templates. *conn_id* and *client* are those of the hook. For
    creates, *client* has to set ``on_secret``.

    With *deferrable*, the triggerer sends the write, and no worker waits while a lost answer is settled.
    *client* is then a function of a module that the triggerer has.  Airflow may run a deferred task again
    although its trigger has fired: give it several *retries*.  A try that comes later finds the write done.
    """

    template_fields: ClassVar[tuple[str, ...]] = ("operation", "arguments", "key")

    def __init__(
        self,
        *,
        operation: str,
        arguments: dict[str, Any],
        key: str = "",
        conn_id: str | None = None,
        client: Callable[[], Client] = Client.from_env,
        deferrable: bool = False,
        **settings: Any,  # Any: those of all operators
    ) -> None:
        super().__init__(**settings)
        self.deferrable = deferrable
        self.operation = operation
        self.arguments = arguments
        self.key = key
        self.conn_id = conn_id
        self.client = client

    def execute(self, context: object) -> dict[str, Plain]:
        """Send the write, or have the triggerer send it, and return its result as plain values."""
        del context
        line = {"operation": self.operation, "arguments": self.arguments}
        if self.deferrable:
            self._defer(line)
        with InvsvcHook(self.conn_id, client=self.client) as invsvc:
            return invsvc.result(line, key=self.key)

    def _defer(self, line: dict[str, Any]) -> NoReturn:
        from invsvc_async.engines.airflow_trigger import InvsvcWriteTrigger, path_of

        with _final():
            trigger = InvsvcWriteTrigger(
                line, _key_here(self.key), path_of(self.client), self.conn_id
            )
        self.defer(trigger=trigger, method_name="execute_complete")
        raise AssertionError("a deferred task goes no further")

    def execute_complete(
        self, context: object, event: Mapping[str, Any]
    ) -> dict[str, Plain]:
        """
        Return what the triggerer tells of the write.

        Raises:
            AirflowFailException: The write failed, and would fail again.
            InvsvcError: It failed, and the task runs again if it has ``retries``.
        """
        del context
        if "result" in event:
            found: dict[str, Plain] = event["result"]
            return found
        if event["runs_again"]:
            raise InvsvcError(event["error"])
        raise AirflowFailException(event["error"])


@contextmanager
def _final() -> Generator[None]:
    """Raise Airflow's final error instead of an error after which another run would fail, too."""
    try:
        yield
    except InvsvcError as error:
        if runs_again(error):
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def _key_here(key: str) -> str:
    """
    Return the key of a write of the running task: the same in each retry, and another one once it is cleared.

    Clearing a task raises its ``max_tries`` above the tries that there were; retries leave it.

    Raises:
        ConfigurationError: The task is mapped, and *key* is empty.
    """
    task: Any = get_current_context()["ti"]  # Any: of the engine
    if task.map_index >= 0 and not key:
        raise ConfigurationError(
            "key: a mapped task needs one, because the index of a row changes with the list. Pass what names "
            "the row, such as the number of an order."
        )
    return task_key(task.dag_id, task.run_id, task.task_id, key, f"to-{task.max_tries}")
