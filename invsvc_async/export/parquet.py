"""
Parquet export, in part files that are joined at the end.

A Parquet file cannot be appended to.  So each part is a file in ``TARGET.parts``, which gets its name when
it is complete.  A resumed export continues after the last part.  The target itself is only written when the
list is complete.
"""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.export.files import OTHER_COLUMNS, ExportError
from invsvc_async.storage.private_file import create_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from invsvc_async.export.arrow_schema import Columns
    from invsvc_async.models.common import Model

__all__ = ["ParquetSink"]

pq: Any = import_module("pyarrow.parquet")  # Any: pyarrow is untyped
ROWS = 10_000  # rows in a part and a row group, and so in memory


@attrs.define
class ParquetSink:
    """Parts of at least *rows* rows; its marks are numbers of parts."""

    path: Path
    columns: Columns
    rows: int = ROWS
    _done: int = attrs.field(init=False, default=0)
    _pending: list[Model] = attrs.field(init=False, factory=list["Model"])

    @property
    def folder(self) -> Path:
        """Folder of the parts."""
        return self.path.with_name(self.path.name + ".parts")

    def open(self, mark: int | None) -> None:
        """Create an empty folder, or check that the first *mark* parts exist."""
        if mark is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(exist_ok=True)
        self._done = mark or 0
        if not all(self._part(number).is_file() for number in range(self._done)):
            raise ExportError(f"{self.folder}: parts are missing since the export stopped. Start over")
        if self._done and pq.read_schema(self._part(self._done - 1)) != self.columns.schema():
            raise ExportError(f"{self.path}: {OTHER_COLUMNS}")

    def write(self, items: Sequence[Model], *, last: bool) -> int | None:
        """Collect a page; write a part if there are enough rows, or if it is the *last* page."""
        self._pending += items
        if not (last or len(self._pending) >= self.rows):
            return None
        table = self.columns.table(self._pending)
        unfinished = self.folder / "unfinished"
        with create_private(unfinished) as file:
            pq.write_table(table, file)
        unfinished.replace(self._part(self._done))
        self._done += 1
        self._pending.clear()
        return self._done

    def close(self, *, whole: bool) -> None:
        """Join the parts, one row group at a time."""
        if not whole:
            return
        joined = self.folder / "joined"
        with create_private(joined) as file:
            with pq.ParquetWriter(file, self.columns.schema()) as out:
                for number in range(self._done):
                    part = pq.ParquetFile(self._part(number))
                    for group in range(part.num_row_groups):
                        out.write_table(part.read_row_group(group))
            file.flush()
            os.fsync(file.fileno())
        joined.replace(self.path)

    def tidy(self) -> None:
        """Remove the parts."""
        shutil.rmtree(self.folder)

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"
