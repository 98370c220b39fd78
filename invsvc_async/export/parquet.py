"""
Put items into Parquet, by way of parts that are joined at the end; never leave half a file as the target.

A Parquet file cannot be added to.  So each part is a file of its own in ``TARGET.parts``, whole as soon as it
has its name, and an export that was stopped goes on behind the last of them.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.export.files import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from invsvc_async.export.arrow_schema import Columns
    from invsvc_async.models.common import Model

__all__ = ["ParquetSink"]

pq: Any = import_module("pyarrow.parquet")  # Any: it has no types of its own
ROWS = 10_000  # of a part, and of a row group: what is held in memory


@attrs.define
class ParquetSink:
    """Parts of up to *rows* rows; its marks are numbers of parts."""

    path: Path
    columns: Columns
    rows: int = ROWS
    _done: int = attrs.field(init=False, default=0)
    _kept: list[Model] = attrs.field(init=False, factory=list["Model"])

    @property
    def folder(self) -> Path:
        """Where the parts are, until they are joined."""
        return self.path.with_name(self.path.name + ".parts")

    def open(self, mark: int | None) -> None:
        """Make an empty folder, or check that the first *mark* parts are there."""
        if mark is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(exist_ok=True)
        self._done = mark or 0
        if not all(self._part(number).is_file() for number in range(self._done)):
            raise ExportError(f"{self.folder} lacks parts that the export had left there: begin anew")

    def write(self, items: Sequence[Model], *, last: bool) -> int | None:
        """Keep a page; write a part when there is enough for one, or when this is the *last*."""
        self._kept += items
        if not (last or len(self._kept) >= self.rows):
            return None
        table = self.columns.table(self._kept)
        unfinished = self.folder / "unfinished"
        pq.write_table(table, unfinished)
        unfinished.replace(self._part(self._done))
        self._done += 1
        self._kept.clear()
        return self._done

    def close(self, *, whole: bool) -> None:
        """Join the parts, a row group at a time, and remove them."""
        if not whole:
            return
        joined = self.folder / "joined"
        with pq.ParquetWriter(joined, self.columns.schema()) as out:
            for number in range(self._done):
                part = pq.ParquetFile(self._part(number))
                for group in range(part.num_row_groups):
                    out.write_table(part.read_row_group(group))
        joined.replace(self.path)
        shutil.rmtree(self.folder)

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"
