"""The format ``invsvc`` of Spark: each row of a frame is a write of one operation, without a function."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.engines.row_keys import check_column
from invsvc_async.engines.sender import Settings
from invsvc_async.engines.spark_writer import FrameWriter
from invsvc_async.engines.versions import SPARK, require
from invsvc_async.errors import ConfigurationError

require(*SPARK)
from pyspark.sql.datasource import DataSource  # noqa: E402 - of a version that fits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from invsvc_async.client import Client
    from invsvc_async.engines.results import Incomplete
    from invsvc_async.writes.write import AnyWrite

__all__ = ["InvsvcDataSource", "register"]

OPTIONS: Final = frozenset(
    ("operation", "key", "concurrency", "rate", "client", "incomplete")
)


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

    def writer(self, schema: Any, overwrite: bool) -> FrameWriter:  # noqa: FBT001 - Spark's. Any: its type
        """Return what writes a frame with this *schema*; nothing can be overwritten."""
        if overwrite:
            raise ConfigurationError(
                "mode: writes cannot be overwritten. Use .mode('append')."
            )
        options: Mapping[str, str] = self.options
        _check_names(options)
        settings = _settings_of(options)
        check_column(options["key"], schema.names)
        incomplete: Incomplete = "raise"
        if options.get("incomplete") == "log":
            incomplete = "log"
        client = options.get("client", "invsvc_async:Client.from_env")
        return FrameWriter(settings, client, incomplete)


def _check_names(options: Mapping[str, str]) -> None:
    """Check that all *options* are known: one that is misspelt would be ignored."""
    # Spark knows options without regard to case
    if unknown := sorted({name.lower() for name in options} - OPTIONS):
        raise ConfigurationError(
            f"{unknown[0]}: is no option of the format invsvc. Its options are {', '.join(sorted(OPTIONS))}."
        )


def _settings_of(options: Mapping[str, str]) -> Settings[dict[str, Any]]:
    """Return how rows become writes by the *options* of a frame's writer."""
    for name in ("operation", "key"):
        if not options.get(name):
            raise ConfigurationError(
                f"{name}: is missing. Pass .option({name!r}, …), such as operation='journeys.update' and "
                "key='order'."
            )
    return Settings(
        write_of=partial(_write_of, options["operation"], options["key"]),
        key=options["key"],
        concurrency=_concurrency_of(options.get("concurrency", "50")),
        rate=_rate_of(options.get("rate")),
        several=True,
        is_sink=True,
    )


def _concurrency_of(text: str) -> int:
    if not text.isdecimal():
        raise ConfigurationError(
            f"concurrency: takes a whole number, 1 or more, not {text!r}."
        )
    return int(text)


def _rate_of(text: str | None) -> float | None:
    try:
        if text is None:
            return None
        return float(text)
    except ValueError:
        raise ConfigurationError(
            f"rate: takes rows a second, such as '50', not {text!r}."
        ) from None


def _write_of(
    operation: str,
    key: str,
    client: Client,
    row: dict[str, Any],
) -> AnyWrite:
    """Return the write of a *row*, whose columns but for *key* are the arguments."""
    arguments = {
        name: value for name, value in row.items() if name != key and value is not None
    }
    return client.write_from({"operation": operation, "arguments": arguments})
