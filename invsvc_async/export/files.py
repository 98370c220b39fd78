"""
Put items into a file that can be cut back to the last whole page; never hold more than a page of text.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from invsvc_async._errors import FieldError, InvsvcError
from invsvc_async.codec import envelope, unstructure
from invsvc_async.models.common import Model, wire_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ExportError", "Form", "Sink", "TextSink", "named", "present", "text_of"]

Form = Literal["jsonl", "csv", "parquet"]
PROBLEMS = "problems"  # the column that names the fields of a row that broke their types


class ExportError(InvsvcError):
    """A value does not fit its column, or the file is not what the export had left."""


class Sink(Protocol):
    """Where items go; every method may block, and runs on a thread."""

    def open(self, mark: int | None) -> None:
        """Begin anew, or (with a mark that ``write`` gave) go on from there."""
        ...

    def write(self, items: Sequence[Model], *, last: bool) -> int | None:
        """Take a page; give a mark once everything up to it is in files, else ``None``."""
        ...

    def close(self, *, whole: bool) -> None:
        """Let go of the file; *whole* says that nothing is missing."""
        ...


def present(item: Model, name: str) -> Any:  # Any: a field's value
    """Give a field; ``None`` where it is absent or broken."""
    try:
        return getattr(item, name)
    except FieldError:
        return None


def named(item: Model) -> list[str]:
    """Name the fields that broke their types, each with its value as received."""
    return [f"{problem.address}: {problem.raw!r}" for problem in item.problems]


@attrs.define
class TextSink:
    """Lines of JSON (the service's own form and digits) or CSV; its marks are sizes in bytes."""

    path: Path
    form: Literal["jsonl", "csv"]
    model: type[Model]
    _file: Any = attrs.field(init=False, default=None)  # Any: a binary file

    def open(self, mark: int | None) -> None:
        """Make the file, or cut it back to *mark*."""
        if mark is None:
            self._file = self.path.open("wb")
            if self.form == "csv":
                self._file.write(_row([*wire_names(self.model).values(), PROBLEMS]))
            return
        if not self.path.is_file() or self.path.stat().st_size < mark:
            raise ExportError(f"{self.path} is gone or shorter than the export had left it: begin anew")
        self._file = self.path.open("r+b")
        self._file.truncate(mark)
        self._file.seek(mark)

    def write(self, items: Sequence[Model], *, last: bool) -> int:  # noqa: ARG002 - the form of a sink
        """Write a page and tell the size."""
        line = _json_line if self.form == "jsonl" else _csv_line
        self._file.write(b"".join(map(line, items)))
        self._file.flush()
        size: int = self._file.tell()
        return size

    def close(self, *, whole: bool) -> None:  # noqa: ARG002 - the form of a sink
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _json_line(item: Model) -> bytes:
    return envelope.dumps(unstructure(item)) + b"\n"


def _csv_line(item: Model) -> bytes:
    return _row([*(text_of(present(item, name)) for name in wire_names(type(item))), "; ".join(named(item))])


def _row(cells: Sequence[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()


def text_of(value: Any) -> str:  # Any: a field's value
    """Write one value as text: times in ISO 8601, numbers digit by digit, what is nested as JSON."""
    match value:
        case None:
            return ""
        case str():
            return str(value)
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case int() | float() | Decimal():
            return str(value)
        case _:
            return envelope.dumps(unstructure(value)).decode()
