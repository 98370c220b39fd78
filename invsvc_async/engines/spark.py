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
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

import pkgutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.client import Client
from invsvc_async.engines.results import Incomplete, PartCounts, RowResult, columns_of
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.sender import Settings, no_column
from invsvc_async.engines.versions import require
from invsvc_async.errors import ConfigurationError

require("pyspark", 4)
import pyarrow as pa  # noqa: E402 - pyspark needs it, too
from pyspark.sql.datasource import (  # noqa: E402 - with a version that fits
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from invsvc_async.engines.sender import WriteOf
    from invsvc_async.writes.write import AnyWrite

__all__ = ["InvsvcDataSource", "register", "send_frame"]

RESULTS: Final = "key string, verdict string, id string, message string, replayed boolean, secret string"
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
    if key not in df.columns:
        raise no_column(key, df.columns)
    settings = Settings(
        write_of=write_of, key=key, concurrency=concurrency, rate=rate, several=True
    )
    return df.mapInArrow(partial(_send_batches, settings, client), RESULTS)


def _send_batches(
    settings: Settings[dict[str, Any]],
    client: Callable[[], Client],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Send a partition; yield its results."""
    taken: list[RowResult] = []
    for result in send_part(_rows_of(batches), settings, client):
        taken.append(result)
        if len(taken) == _TAKEN:
            yield _batch_of(taken)
            taken = []
    yield _batch_of(taken)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _batch_of(results: list[RowResult]) -> pa.RecordBatch:
    from invsvc_async.engines.rows import RESULT_SCHEMA

    return pa.RecordBatch.from_pydict(columns_of(results), schema=RESULT_SCHEMA)


# --- the format


def register(spark: SparkSession) -> None:
    """Make ``df.write.format("invsvc")`` known to *spark*."""
    spark.dataSource.register(InvsvcDataSource)


class InvsvcDataSource(DataSource):
    """
    The format ``invsvc``: each row is a write of one operation, whose arguments are the other columns.

    Options: ``operation``, such as ``journeys.update``; ``key``, the column of keys; ``concurrency`` and
    ``rate`` of each worker process; ``client``, as ``module:function``, which makes the client, with
    ``on_secret``, which creates need; and ``incomplete``. A null leaves an argument out. ``save()`` raises if
    rows were not applied, unless ``incomplete`` is ``log``; saved again, the rows that were applied replay.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "invsvc"

    def writer(self, schema: Any, overwrite: bool) -> _FrameWriter:  # noqa: FBT001 - Spark's. Any: its type
        """Return what writes a frame with this *schema*; nothing can be overwritten."""
        options: Mapping[str, str] = self.options
        for name in ("operation", "key"):
            if not options.get(name):
                raise ConfigurationError(
                    f"{name}: is missing. Pass .option({name!r}, …), such as operation='journeys.update' and "
                    "key='order'."
                )
        if overwrite:
            raise ConfigurationError(
                "mode: writes cannot be overwritten. Use .mode('append')."
            )
        key = options["key"]
        if key not in schema.names:
            raise no_column(key, schema.names)
        rate = options.get("rate")
        settings = Settings(
            write_of=partial(_write_of, options["operation"], key),
            key=key,
            concurrency=int(options.get("concurrency", "50")),
            rate=None if rate is None else float(rate),
            several=True,
            is_sink=True,
        )
        return _FrameWriter(
            settings,
            options.get("client", "invsvc_async:Client.from_env"),
            "log" if options.get("incomplete") == "log" else "raise",
        )


def _write_of(
    operation: str, key: str, client: Client, row: dict[str, Any]
) -> AnyWrite:
    arguments = {
        name: value for name, value in row.items() if name != key and value is not None
    }
    return client.write_from({"operation": operation, "arguments": arguments})


def _named(path: str) -> Callable[[], Client]:
    """Return the function that *path* names, as ``module:function``."""
    found: Callable[[], Client] = pkgutil.resolve_name(path)
    return found


class CountsMessage(WriterCommitMessage):
    """What a partition tells the driver: the counts of its verdicts, and the first row not applied."""

    def __init__(self, told: PartCounts) -> None:
        self.told = told


class _FrameWriter(DataSourceArrowWriter):
    def __init__(
        self,
        settings: Settings[dict[str, Any]],
        client: str,
        incomplete: Incomplete,
    ) -> None:
        self._settings = settings
        self._client = client
        self._incomplete: Incomplete = incomplete

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CountsMessage:
        """Send a partition, in a worker."""
        rows = _rows_of(iterator)
        return CountsMessage(
            PartCounts.of(send_part(rows, self._settings, _named(self._client)))
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add up what the partitions tell, on the driver."""
        told = [each.told for each in messages if isinstance(each, CountsMessage)]
        PartCounts.sum(told).conclude(self._incomplete)
