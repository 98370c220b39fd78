"""The writer of a frame of Spark: workers send its partitions, and the driver adds up what became of them."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none
# pyright: reportUnknownParameterType=none, reportUntypedBaseClass=none

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from invsvc_async.engines.results import Incomplete, PartCounts
from invsvc_async.engines.rows import send_part
from invsvc_async.engines.versions import SPARK, require

require(*SPARK)
from pyspark.sql.datasource import (  # noqa: E402 - of a version that fits
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from invsvc_async.engines.arrow import rows_in  # noqa: E402 - pyspark needs pyarrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from invsvc_async.client import Client
    from invsvc_async.engines.sender import Settings


class CountsMessage(WriterCommitMessage):
    """What a partition tells the driver: the counts of its verdicts, and the first row not applied."""

    def __init__(self, told: PartCounts) -> None:
        self.told = told


class FrameWriter(DataSourceArrowWriter):
    """Writes a frame with these *settings*. *client* is the path of the function that makes the client."""

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
        client: Callable[[], Client] = pkgutil.resolve_name(self._client)
        results = send_part(rows_in(iterator), self._settings, client)
        return CountsMessage(PartCounts.of(results))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add up what the partitions tell, on the driver."""
        told = [each.told for each in messages if isinstance(each, CountsMessage)]
        PartCounts.sum(told).conclude(self._incomplete)
