"""The operator of Airflow: a task that does one write, in its worker or in the triggerer."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from invsvc_async.client import Client
from invsvc_async.engines.airflow_hook import InvsvcHook
from invsvc_async.engines.airflow_task import final_errors, key_here
from invsvc_async.engines.versions import AIRFLOW, require
from invsvc_async.errors import InvsvcError

require(*AIRFLOW)
from airflow.sdk import BaseOperator  # noqa: E402 - of a version that fits
from airflow.sdk.exceptions import AirflowFailException  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.engines.results import Plain

__all__ = ["InvsvcWriteOperator"]


class InvsvcWriteOperator(BaseOperator):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
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

        with final_errors():
            trigger = InvsvcWriteTrigger(
                line, key_here(self.key), path_of(self.client), self.conn_id
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
