"""
Write a dataset of Ray Data, with a row of results for each of its rows.

As a program, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and ``INVSVC_JOURNAL=postgresql://…`` set, also for
the workers::

    import ray

    from invsvc_async.engines.ray import WriteRows

    orders = ray.data.from_items(
        [{"order": f"order-{n}", "url": f"https://me.example/{n}"} for n in range(100)]
    )


    def write_of(client, row):
        return client.webhooks.create(url=row["url"], events=["invoice.created"])


    results = orders.map_batches(
        WriteRows,
        fn_constructor_args=(write_of,),
        fn_constructor_kwargs={"key": "order"},
        batch_size=None,
        concurrency=2,
    ).materialize()
    print(results.groupby("verdict").count().take_all())

A batch that Ray runs again, because its worker was killed, replays what was done. Rows of one thing are kept
together, and in order, by ``orders.repartition(keys=["journey"], num_blocks=…)`` and ``sort``.

Without results, ``orders.write_datasink(InvsvcDatasink(write_of, key="order", client=make_client))``, whose
client has to have ``on_secret`` if the rows create webhooks.
"""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from invsvc_async.client import Client
from invsvc_async.engines.results import Counts, Incomplete, PartCounts
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.sender import Settings
from invsvc_async.engines.versions import RAY, require

require(*RAY)
import pyarrow as pa  # noqa: E402 - Ray Data needs it, too
from ray.data import Datasink  # noqa: E402 - of a version that fits

from invsvc_async.engines.arrow import batch_of, rows_in  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from invsvc_async.engines.row_keys import Key
    from invsvc_async.engines.sender import WriteOf

__all__ = ["InvsvcDatasink", "WriteRows"]


class WriteRows:
    """
    A callable for ``map_batches``, which sends a batch of rows and returns their results.

    The columns of the results are the fields of :class:`RowResult`. The arguments are those of
    :func:`~invsvc_async.engines.rows.send_rows`, for each worker process; a row is a dictionary. A batch ends
    when its last row has a result, so let batches be large: ``batch_size=None``.

    Raises:
        ConfigurationError: An argument is of no use.
    """

    def __init__(
        self,
        write_of: WriteOf[dict[str, Any]],
        *,
        key: Key[dict[str, Any]],
        client: Callable[[], Client] = Client.from_env,
        concurrency: int = 50,
        rate: float | None = None,
    ) -> None:
        self._client = client
        self._settings = Settings(
            write_of=write_of,
            key=key,
            concurrency=concurrency,
            rate=rate,
            several=True,
        )

    def __call__(self, batch: object) -> pa.Table:
        """Send a batch of any format of Ray: a table of Arrow, a frame of pandas, or arrays by column."""
        results = send_part(_rows_of(batch), self._settings, self._client)
        return pa.Table.from_batches([batch_of(results)])


class InvsvcDatasink(Datasink):
    """
    A sink for ``write_datasink``, which raises if rows were not applied, unless ``incomplete="log"``.

    The other arguments are those of :class:`WriteRows`; for creates, *client* has to set ``on_secret``.
    ``counts`` has the counts of the verdicts afterwards. Written again, the rows that were applied replay.
    """

    def __init__(
        self,
        write_of: WriteOf[dict[str, Any]],
        *,
        key: Key[dict[str, Any]],
        client: Callable[[], Client] = Client.from_env,
        concurrency: int = 50,
        rate: float | None = None,
        incomplete: Incomplete = "raise",
    ) -> None:
        self.counts: Counts = Counts()
        self._incomplete: Incomplete = incomplete
        self._client = client
        self._settings = Settings(
            write_of=write_of,
            key=key,
            concurrency=concurrency,
            rate=rate,
            several=True,
            is_sink=True,
        )

    def write(self, blocks: Iterable[Any], ctx: object) -> PartCounts:
        """Send the rows of a task, in a worker. Any: blocks of Ray, which are tables or frames."""
        rows = chain.from_iterable(map(_rows_of, blocks))
        return PartCounts.of(send_part(rows, self._settings, self._client))

    def on_write_complete(self, write_result: Any) -> None:  # Any: a WriteResult
        """Add up what the tasks tell, on the driver."""
        told = PartCounts.sum(write_result.write_returns)
        self.counts = told.counts
        told.conclude(self._incomplete)


def _rows_of(batch: Any) -> Iterator[dict[str, Any]]:  # Any: as Ray gives it
    """Return the rows of a table of Arrow, of a frame of pandas, or of arrays by the names of columns."""
    if isinstance(batch, pa.Table):
        yield from rows_in([batch])
        return
    if hasattr(batch, "to_dict"):
        yield from rows_in([pa.Table.from_pandas(batch, preserve_index=False)])
        return
    columns: Mapping[str, Any] = batch
    plain = {name: column.tolist() for name, column in columns.items()}
    for values in zip(*plain.values(), strict=True):
        yield dict(zip(plain, values, strict=True))
