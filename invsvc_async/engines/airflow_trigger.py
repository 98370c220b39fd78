"""
The trigger of deferred tasks of Airflow: their writes are sent, and settled, in the process of the triggerer.

All triggers of the process share one client for each function that makes one. A trigger that Airflow runs
again, or in two triggerers at once, has the same key, and so one effect.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

import asyncio
import pkgutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from invsvc_async.engines.again import runs_again
from invsvc_async.engines.airflow_connection import client_of_connection
from invsvc_async.engines.task_writes import task_portal, task_result, task_write
from invsvc_async.engines.versions import AIRFLOW_TRIGGERER, require
from invsvc_async.errors import ConfigurationError, InvsvcError

require(*AIRFLOW_TRIGGERER)
from airflow.sdk import BaseHook  # noqa: E402 - of a version that fits
from airflow.triggers.base import BaseTrigger, TriggerEvent  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from invsvc_async.client import Client
    from invsvc_async.engines.results import Plain

__all__ = ["InvsvcWriteTrigger", "path_of"]

_OF_DAGS = "unusual_prefix_"  # what Airflow names the modules of its folder of DAGs


class InvsvcWriteTrigger(BaseTrigger):  # pyright: ignore[reportGeneralTypeIssues]  # without the engine
    """
    Sends the write that *line* describes under *key*; its event has the result, or the error.

    The client is made by the function at *client*, ``module:function``, or of the connection *conn_id*.
    """

    def __init__(
        self,
        line: dict[str, Any],
        key: str,
        client: str,
        conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.line = line
        self.key = key
        self.client = client
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes the trigger in the triggerer."""
        given = {
            name: getattr(self, name) for name in ("line", "key", "client", "conn_id")
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", given

    async def run(self) -> AsyncIterator[Any]:  # Any: a TriggerEvent
        """Send the write, and yield the event."""
        try:
            event: dict[str, Any] = {"result": await self._sent()}
        except InvsvcError as error:
            said = f"{type(error).__name__}: {error}"
            event = {"error": said, "runs_again": runs_again(error)}
        yield TriggerEvent(event)

    async def _sent(self) -> dict[str, Plain]:
        make = await self._maker()
        with ExitStack() as held:
            # in a thread: other triggers go on while the journal is opened
            portal = await asyncio.to_thread(held.enter_context, task_portal(make))
            write = task_write(portal.client, self.line, self.key)
            outcome = await asyncio.wrap_future(portal.submit(write.outcome()))
            return task_result(self.key, outcome)

    async def _maker(self) -> Callable[[], Client]:
        if self.conn_id is not None:
            return client_of_connection(await BaseHook.aget_connection(self.conn_id))
        found: Callable[[], Client] = pkgutil.resolve_name(self.client)
        return found


def path_of(make: Callable[[], Client]) -> str:
    """
    Return the path of *make*, by which the triggerer finds it.

    Raises:
        ConfigurationError: The triggerer cannot import it.
    """
    module = getattr(make, "__module__", "")
    path = f"{module}:{getattr(make, '__qualname__', '')}"
    is_importable = not module.startswith((_OF_DAGS, "__main__"))
    try:
        is_found = is_importable and pkgutil.resolve_name(path) == make
    except (ImportError, AttributeError, ValueError):
        is_found = False
    if not is_found:
        raise ConfigurationError(
            "client: the triggerer cannot import it. Pass a function of a module that is installed there, "
            "not of a DAG's file, or deferrable=False."
        )
    return path
