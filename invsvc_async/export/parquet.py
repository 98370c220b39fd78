"""
Parquet export, without rounding, in part files that are joined at the end.

A Parquet file cannot be appended to.  So each part is a file in ``TARGET.parts``, which gets its name when
it is complete.  A resumed export continues after the last part.  The target itself is only written when the
list is complete.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

import attrs

from invsvc_async.codec import envelope, unstructure
from invsvc_async.codec.fields import fields_of, is_model
from invsvc_async.export.files import (
    OTHER_COLUMNS,
    PROBLEMS,
    ExportError,
    beside,
    named,
    present,
    pyarrow,
)
from invsvc_async.models.common import Model
from invsvc_async.storage.flush import flush
from invsvc_async.storage.private_file import create_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pa: Any = pyarrow("pyarrow")  # Any: pyarrow is untyped
pq: Any = pyarrow("pyarrow.parquet")  # Any: the same
ROWS = 10_000  # rows in a part and a row group, and so in memory
_PLAIN: dict[Any, Any] = {  # Any: Python types and Arrow types
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    datetime: pa.timestamp("ms", tz="UTC"),
}
_INT64 = 63  # bits without the sign


@attrs.frozen
class Columns:
    """
    The columns of *model*; *precision* and *scale* are those of decimals.

    Nested models become structs and tuples become lists; free-form data becomes JSON text.
    """

    model: type[Model]
    precision: int = 38
    scale: int = 12

    def schema(self) -> Any:  # Any: a pyarrow schema
        """Return the schema; its last column names the malformed fields of a row."""
        return pa.schema(
            [*self._fields(self.model), pa.field(PROBLEMS, pa.list_(pa.string()))]
        )

    def table(self, items: Sequence[Model]) -> Any:  # Any: a pyarrow table
        """Return a table of *items*; raise ``ExportError`` if a number does not fit its column."""
        rows = [
            self._struct(item, str(present(item, "uuid") or "an item without uuid"))
            | {PROBLEMS: named(item)}
            for item in items
        ]
        return pa.Table.from_pylist(rows, schema=self.schema())

    def _fields(self, model: type[Model]) -> list[Any]:
        return [
            pa.field(field.wire, self._type(field.type)) for field in fields_of(model)
        ]

    def _type(self, hint: Any) -> Any:
        if hint in _PLAIN:
            return _PLAIN[hint]
        if hint is Decimal:
            return pa.decimal128(self.precision, self.scale)
        if get_origin(hint) is tuple:
            return pa.list_(self._type(get_args(hint)[0]))
        if is_model(hint):
            return pa.struct(self._fields(hint))
        return pa.string()  # an enum that may get new values, or plain data

    def _struct(self, item: Model, path: str) -> dict[str, Any]:
        return {
            field.wire: self._value(
                present(item, field.name), field.type, f"{path}.{field.wire}"
            )
            for field in fields_of(type(item))
        }

    def _value(self, value: Any, hint: Any, path: str) -> Any:
        if isinstance(value, str):
            return str(value)
        if value is None or isinstance(value, bool | datetime):
            return value
        if isinstance(value, Decimal | int) and hint in (Decimal, int):
            return self._number(value, path)
        if isinstance(value, Model):
            return self._struct(value, path)
        if get_origin(hint) is tuple:
            inner = get_args(hint)[0]
            many = cast("tuple[Any, ...]", value)
            return [
                self._value(each, inner, f"{path}[{at}]")
                for at, each in enumerate(many)
            ]
        if isinstance(value, float):
            return value
        return envelope.dumps(unstructure(value)).decode()

    def _number(self, value: Decimal | int, path: str) -> Decimal | int:
        if isinstance(value, int):
            if value.bit_length() > _INT64:
                raise ExportError(
                    f"{path}: {value} does not fit 64 bits. Export as jsonl or csv"
                )
            return value
        exact = Context(self.precision, traps=[Inexact, InvalidOperation])
        try:
            return value.quantize(Decimal(1).scaleb(-self.scale), context=exact)
        except (Inexact, InvalidOperation):
            kind = f"decimal128({self.precision}, {self.scale})"
            advice = "Set another scale=, or export as jsonl or csv"
            raise ExportError(
                f"{path}: {value} does not fit {kind} without rounding. {advice}"
            ) from None


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
        return beside(self.path, ".parts")

    def open(self, mark: int | None) -> None:
        """Create an empty folder, or check that the first *mark* parts exist."""
        if mark is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(exist_ok=True)
        self._done = mark or 0
        if not all(self._part(number).is_file() for number in range(self._done)):
            raise ExportError(
                f"{self.folder}: parts are missing since the export stopped. Start over"
            )
        if not self._done:
            return
        if pq.read_schema(self._part(self._done - 1)) != self.columns.schema():
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
                    # closed here: Windows deletes no open file
                    with pq.ParquetFile(self._part(number)) as part:
                        for group in range(part.num_row_groups):
                            out.write_table(part.read_row_group(group))
            file.flush()
            flush(file.fileno())
        joined.replace(self.path)

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"
