"""Export files of text formats, which can be truncated to the last complete page."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import attrs

from invsvc_async.codec import envelope, unstructure
from invsvc_async.errors import (
    ConfigurationError,
    FieldError,
    InvalidRequestError,
    InvsvcError,
)
from invsvc_async.models import Invoice
from invsvc_async.models.common import Model, wire_names
from invsvc_async.storage.flush import flush
from invsvc_async.storage.private_file import create_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

Form = Literal["jsonl", "csv", "parquet"]
# A spreadsheet skips blanks before a formula, and takes full-width signs for the usual ones.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n]")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([Ee][+-]?[0-9]+)?")
MAX_ROW = 2**20  # bytes of a row that is read
NOT_UTF_8 = "is not UTF-8. Save the file as UTF-8"
PROBLEMS = "problems"  # column with the malformed fields of a row
OTHER_COLUMNS = (
    "another version of this package began it with other columns. Start over"
)


class ExportError(InvsvcError):
    """A value does not fit its column, or the files of an interrupted export were changed."""


def pyarrow(module: str) -> Any:  # Any: it is untyped
    """Import a *module* of pyarrow."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        words = "parquet: needs pyarrow. Install invsvc-async with its extra 'parquet'."
        raise ConfigurationError(words) from None


def beside(path: Path, ending: str) -> Path:
    """Return the path with *ending* after its name."""
    return path.with_name(path.name + ending)


def present(item: Model, name: str) -> Any:  # Any: a field's value
    """Return a field; ``None`` if it is absent or malformed."""
    try:
        return getattr(item, name)
    except FieldError:
        return None


def named(item: Model) -> list[str]:
    """Return the malformed fields, each with its value as received."""
    return [f"{problem.address}: {problem.raw!r}" for problem in item.problems]


@attrs.define
class TextSink:
    """
    JSON lines (in the service's own form and digits) or CSV; its marks are file sizes in bytes.

    Its methods block, as those of ``ParquetSink``: they run in a thread.
    """

    path: Path
    form: Literal["jsonl", "csv"]
    escape_formulas: bool = False
    _file: Any = attrs.field(init=False, default=None)  # Any: a binary file

    def open(self, mark: int | None) -> None:
        """Create the file, or truncate it to *mark*, which ``write`` returned."""
        columns = [*wire_names(Invoice).values(), PROBLEMS]
        header = csv_row(columns).encode() if self.form == "csv" else b""
        if mark is None:
            self._file = create_private(self.path)
            self._file.write(header)
            return
        if not self.path.is_file() or self.path.stat().st_size < mark:
            raise ExportError(
                f"{self.path}: missing or truncated since the export stopped. Start over"
            )
        self._file = self.path.open("r+b")
        if self._file.read(len(header)) != header:
            raise ExportError(f"{self.path}: {OTHER_COLUMNS}")
        self._file.truncate(mark)
        self._file.seek(mark)

    def write(self, items: Sequence[Model], *, last: bool) -> int:
        """Write a page and return the file size."""
        self._file.write(b"".join(map(self._line, items)))
        self._file.flush()
        return int(self._file.tell())

    def close(self, *, whole: bool) -> None:
        """Close the file; a *whole* one is on the disk then.  A second call does nothing."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            if whole:
                flush(file.fileno())

    def _line(self, item: Model) -> bytes:
        if self.form == "jsonl":
            return envelope.dumps(unstructure(item)) + b"\n"
        cells = [
            *(text_of(present(item, name)) for name in wire_names(type(item))),
            "; ".join(named(item)),
        ]
        return csv_row(cells, escape_formulas=self.escape_formulas).encode()


def csv_row(cells: Iterable[str], *, escape_formulas: bool = False) -> str:
    """Return a line of CSV, in which a cell with a line break of any kind is quoted."""
    if escape_formulas:
        cells = map(escaped_formula, cells)
    out = io.StringIO()
    # Before Python 3.13, the writer quotes the characters of its own line end only.
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def csv_rows(
    readline: Callable[[int], bytes],
    delimiter: str,
    *,
    begin: int = 0,
    errors: str = "strict",
) -> Iterator[tuple[int, list[str]]]:
    """
    Yield the rows of a file, without empty ones, each with the number of its first line, after *begin* lines.

    Raises:
        InvalidRequestError: A row is not CSV or too long or, unless *errors* are handled, not in UTF-8.
    """
    lines = _Lines(readline, begin=begin, errors=errors)
    rows = csv.reader(lines.texts(), delimiter=delimiter, strict=True)
    try:
        for cells in rows:
            if cells:
                yield lines.first, cells
            lines.begin_row(begin + rows.line_num + 1)
    except UnicodeDecodeError:
        raise InvalidRequestError(f"line {lines.first}: {NOT_UTF_8}") from None
    except (
        csv.Error
    ) as error:  # a bad row that was skipped might be the rest of another one
        why = "a quote is not closed" if lines.ended else f"is not CSV ({error})"
        raise InvalidRequestError(f"line {lines.first}: {why}") from error


class _Lines:
    """The lines of a file after *begin* lines, and which of them the current row has."""

    def __init__(
        self,
        readline: Callable[[int], bytes],
        *,
        begin: int,
        errors: str,
    ) -> None:
        self._readline = readline
        self._begin = begin
        self._errors = errors
        self._size = 0  # bytes of the row so far
        self.first: int = begin + 1  # the first line of the row
        self.ended: bool = False

    def begin_row(self, first: int) -> None:
        """Begin the row whose first line has the number *first*."""
        self.first = first
        self._size = 0

    def texts(self) -> Iterator[str]:
        """
        Yield the lines as text.

        Raises:
            InvalidRequestError: The row is too long.
        """
        encoding = "utf-8"
        if self._begin == 0:
            encoding = "utf-8-sig"  # of the first line
        while True:
            line = self._readline(MAX_ROW + 1)
            if not line:
                self.ended = True
                return
            self._size += len(line)
            if self._size > MAX_ROW:
                why = (
                    f"the row has more than {MAX_ROW:,} bytes, or a quote is not closed"
                )
                raise InvalidRequestError(f"line {self.first}: {why}")
            yield line.decode(encoding, self._errors)
            encoding = "utf-8"


def escaped_formula(cell: str) -> str:
    """Return *cell* with ``'`` before it if a spreadsheet would run it as a formula; numbers stay numbers."""
    if _FORMULA.match(cell) is None:
        return cell
    if _NUMBER.fullmatch(cell) is not None:
        return cell
    return f"'{cell}"


def text_of(value: Any) -> str:  # Any: a field's value
    """Return a value as text: times in ISO 8601, numbers with all digits, nested data as JSON."""
    match value:
        case None:
            return ""
        case bool():
            if value:
                return "true"
            return "false"
        case str() | int() | float() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _:
            return envelope.dumps(unstructure(value)).decode()
