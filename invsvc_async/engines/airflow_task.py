"""The running task of Airflow: the keys of its writes, and the errors after which it is not run again."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from invsvc_async.engines.again import runs_again
from invsvc_async.engines.task_writes import task_key
from invsvc_async.engines.versions import AIRFLOW, require
from invsvc_async.errors import ConfigurationError, InvsvcError

require(*AIRFLOW)
from airflow.sdk import get_current_context  # noqa: E402 - of a version that fits
from airflow.sdk.exceptions import AirflowFailException  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Generator


def key_here(key: str) -> str:
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


@contextmanager
def final_errors() -> Generator[None]:
    """Raise Airflow's final error instead of an error after which another run would fail, too."""
    try:
        yield
    except InvsvcError as error:
        if runs_again(error):
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
