"""
Write a DataFrame of Spark, with a row of results for each of its rows.

As a program, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set, also for
the workers::

    from pyspark.sql import SparkSession

    from invsvc_async.engines.spark import send_frame

    spark = SparkSession.builder.getOrCreate()
    orders = spark.createDataFrame(
        [(f"order-{n}", f"https://me.example/{n}") for n in range(100)],
        "order string, url string",
    )


    def write_of(client, row):
        return client.webhooks.create(url=row["url"], events=["invoice.created"])


    results = send_frame(orders, write_of, key="order").cache()
    results.groupBy("verdict").count().show()

A task that Spark runs again, after a kill or speculatively, has the same rows, so it replays what was done.
To write in the order of a column, keep the rows of one thing together, and sort them:
``frame.repartition("journey").sortWithinPartitions("at")``.

Without a function, with the format ``invsvc`` (Spark 4)::

    from invsvc_async.engines.spark import register

    register(spark)
    names = spark.createDataFrame([("name-1", "jrn_1", "May")], "order string, journey string, name string")
    names.write.format("invsvc").options(operation="journeys.update", key="order").mode("append").save()
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none, reportUnknownParameterType=none

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.client import Client
from invsvc_async.engines.results import COLUMNS, RowResult
from invsvc_async.engines.row_keys import check_column
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.sender import Settings
from invsvc_async.engines.spark_format import InvsvcDataSource, register
from invsvc_async.engines.versions import SPARK, require

require(*SPARK)
from invsvc_async.engines.arrow import batch_of, rows_in  # noqa: E402 - pyspark needs pyarrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from invsvc_async.engines.sender import WriteOf

__all__ = ["InvsvcDataSource", "register", "send_frame"]

_TYPES: Final = {str: "string", bool: "boolean"}
RESULTS: Final = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in COLUMNS.items())
_TAKEN: Final = 256  # results in one batch of Arrow


def send_frame(
    df: DataFrame,
    write_of: WriteOf[dict[str, Any]],
    *,
    key: str,
    client: Callable[[], Client] = Client.from_env,
    concurrency: int = 50,
    rate: float | None = None,
) -> DataFrame:
    """
    Return the DataFrame of the results of *df*, with the fields of :class:`RowResult` as columns.

    The arguments are those of :func:`~invsvc_async.engines.rows.send_rows`, for each worker process; a row is
    a dictionary. As all frames, the result is computed by each action on it: those after the first one
    replay, without secrets. So ``cache()`` it, or write it to a table first.

    Raises:
        ConfigurationError: The frame has no column *key*, or an argument is of no use.
    """
    check_column(key, df.columns)
    settings = Settings(
        write_of=write_of,
        key=key,
        concurrency=concurrency,
        rate=rate,
        several=True,
    )
    return df.mapInArrow(partial(_send_batches, settings, client), RESULTS)


def _send_batches(
    settings: Settings[dict[str, Any]],
    client: Callable[[], Client],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Send a partition; yield its results."""
    taken: list[RowResult] = []
    for result in send_part(rows_in(batches), settings, client):
        taken.append(result)
        if len(taken) == _TAKEN:
            yield batch_of(taken)
            taken = []
    yield batch_of(taken)
