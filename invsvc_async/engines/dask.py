"""
Write a DataFrame of Dask, with a row of results for each of its rows.

As a program, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set, also for
the workers::

    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client as Cluster

    from invsvc_async.engines.dask import send_frame


    def write_of(client, row):
        return client.webhooks.create(url=row["url"], events=["invoice.created"])


    if __name__ == "__main__":
        rows = [
            {"order": f"order-{n}", "url": f"https://me.example/{n}"} for n in range(100)
        ]
        orders = dd.from_pandas(pd.DataFrame(rows), npartitions=4)
        with Cluster(n_workers=2, threads_per_worker=1):
            results = send_frame(orders, write_of, key="order").compute()
        print(results.verdict.value_counts())

A partition that Dask runs again, because its worker was killed, replays what was done. After an error, such
as a journal whose database is away, it does so only if asked: ``cluster.compute(results, retries=5)``.

Rows of one thing are kept together by ``orders.shuffle("journey")``; sort each partition by their order.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.client import Client
from invsvc_async.engines.results import COLUMNS, columns_of
from invsvc_async.engines.row_keys import check_column
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.sender import Settings
from invsvc_async.engines.versions import DASK, require

require(*DASK)
import pandas as pd  # noqa: E402 - frames of Dask are made of its frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import dask.dataframe as dd

    from invsvc_async.engines.sender import WriteOf

__all__ = ["send_frame"]

_TYPES: Final = {str: "string", bool: "bool"}


def send_frame(
    ddf: dd.DataFrame,
    write_of: WriteOf[dict[str, Any]],
    *,
    key: str,
    client: Callable[[], Client] = Client.from_env,
    concurrency: int = 50,
    rate: float | None = None,
) -> dd.DataFrame:
    """
    Return the DataFrame of the results of *ddf*, with the fields of :class:`RowResult` as columns.

    The arguments are those of :func:`~invsvc_async.engines.rows.send_rows`, for each worker process, whose
    threads share one client; a row is a dictionary, in which what is missing is ``None``. As all frames of
    Dask, the result is computed when it is asked for, and again when it is asked for again: then it replays,
    without secrets. So ``persist()`` it.

    Raises:
        ConfigurationError: The frame has no column *key*, or an argument is of no use.
    """
    check_column(key, [*ddf.columns])
    settings = Settings(
        write_of=write_of,
        key=key,
        concurrency=concurrency,
        rate=rate,
        several=True,
    )
    send = partial(_send_partition, settings, client)
    return ddf.map_partitions(send, meta=_frame_of(columns_of([])))


def _send_partition(
    settings: Settings[dict[str, Any]],
    client: Callable[[], Client],
    partition: pd.DataFrame,
) -> pd.DataFrame:
    """Send a partition, in a worker, and return its results."""
    results = send_part(_rows_of(partition), settings, client)
    return _frame_of(columns_of(results))


def _rows_of(partition: pd.DataFrame) -> Iterator[dict[str, Any]]:
    plain = partition.astype(object)
    yield from plain.where(partition.notna(), None).to_dict("records")


def _frame_of(columns: dict[str, list[Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: pd.Series(columns[name], dtype=_TYPES[kind])
            for name, kind in COLUMNS.items()
        }
    )
