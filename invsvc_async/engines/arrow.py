"""Rows and their results in Arrow, for the engines that have tables of it."""

# pyarrow has no types.
# pyright: reportMissingTypeStubs=none, reportUnknownParameterType=none

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from invsvc_async.engines.results import COLUMNS, columns_of
from invsvc_async.errors import ConfigurationError

try:
    import pyarrow as pa
except ImportError:
    raise ConfigurationError(
        "RESULT_SCHEMA: needs pyarrow. Install invsvc-async with its extra 'parquet'."
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from invsvc_async.engines.results import RowResult

_TYPES: Final = {str: pa.string(), bool: pa.bool_()}
RESULT_SCHEMA: pa.Schema = pa.schema(
    {name: _TYPES[kind] for name, kind in COLUMNS.items()}
)


def rows_in(tables: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Return the rows of *tables*, as dictionaries."""
    for table in tables:
        yield from table.to_pylist()


def batch_of(results: Iterable[RowResult]) -> pa.RecordBatch:
    """Return *results* with the columns of ``RESULT_SCHEMA``."""
    return pa.RecordBatch.from_pydict(columns_of(results), schema=RESULT_SCHEMA)
