"""
Write the rows of a pipeline of dlt.

As a program, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=calls.db`` set::

    import dlt

    from invsvc_async.engines.dlt import writes

    ORDERS = [{"order": f"order-{n}", "name": f"Dunning {n}"} for n in range(100)]


    def write_of(client, row):
        return client.journeys.update("jrn_1", name=row["name"])


    pipeline = dlt.pipeline("orders", destination=writes(write_of, key="order"))
    print(pipeline.run(ORDERS, table_name="orders"))

A load that dlt runs again, after an error or a kill (``pipeline.load()``), replays what was done. Rows of one
table are sent in their order; those of different tables at the same time.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.client import Client
from invsvc_async.engines.results import IncompleteError, PartCounts
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.sender import Settings
from invsvc_async.engines.versions import DLT, require
from invsvc_async.errors import ConfigurationError

require(*DLT)
import dlt  # noqa: E402 - of a version that fits
from dlt.common.destination.exceptions import (  # noqa: E402 - as above
    DestinationTerminalException,
    DestinationTransientException,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.engines.results import Counts, Incomplete
    from invsvc_async.engines.row_keys import Key
    from invsvc_async.engines.sender import WriteOf

__all__ = ["writes"]


def writes(
    write_of: WriteOf[dict[str, Any]],
    *,
    key: Key[dict[str, Any]],
    client: Callable[[], Client] = Client.from_env,
    concurrency: int = 50,
    rate: float | None = None,
    incomplete: Incomplete = "raise",
    batch_size: int = 5_000,
) -> Any:  # Any: a destination of dlt
    """
    Return a destination of dlt that sends the write of each row.

    The arguments are those of :func:`~invsvc_async.engines.rows.send_rows`; a row is a dictionary. For
    creates, *client* has to set ``on_secret``. A batch ends when its last row has a result. If rows were not
    applied, the load fails, and is run again by dlt where that may help, unless *incomplete* is ``"log"``.

    Raises:
        ConfigurationError: An argument is of no use.
    """
    settings = Settings(
        write_of=write_of,
        key=key,
        concurrency=concurrency,
        rate=rate,
        is_sink=True,
    )

    def invsvc(items: list[dict[str, Any]], table: dict[str, Any]) -> None:
        del table
        try:
            told = PartCounts.of(send_part(items, settings, client))
        except ConfigurationError as error:
            raise DestinationTerminalException(str(error)) from error
        try:
            told.conclude(incomplete)
        except IncompleteError as error:
            raise _failure_of(told.counts)(str(error)) from error

    make: Any = dlt.destination  # pyright: ignore[reportAttributeAccessIssue]  # without the engine
    return make(
        invsvc,
        batch_size=batch_size,
        loader_file_format="typed-jsonl",
        loader_parallelism_strategy="table-sequential",
    )


def _failure_of(counts: Counts) -> type[Exception]:
    """Return the error of a batch: a transient one, if dlt may apply more rows by running it again."""
    failure: type[Exception] = DestinationTerminalException
    if counts["again"] > 0:
        failure = DestinationTransientException
    return failure
