"""A table in CSV as the input of a batch: each row is a write of one operation."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from typing import TYPE_CHECKING

from invsvc_async.api.operations import Kind
from invsvc_async.batch.jsonl import MAX_LINE, BadLine, Line
from invsvc_async.cli.arguments import arguments_of, operation_of
from invsvc_async.errors import InvalidRequestError
from invsvc_async.resources.by_name import did_you_mean, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from invsvc_async.batch.jsonl import Readable
    from invsvc_async.client import Client

__all__ = ["Table"]

_DELIMITERS = ",;\t"


class Table:
    """
    How the columns of the table in *file* become the arguments of the writes of *operation*.

    *maps* has texts ``ARGUMENT=COLUMN``, or ``ARGUMENT:=COLUMN`` for cells that are JSON. Without any, the
    columns have the names of arguments. *key* is the column of the keys.

    Raises:
        InvalidRequestError: There is no such operation, argument or column, or it is not CSV.

    """

    def __init__(
        self, file: BinaryIO, client: Client, operation: str, maps: Sequence[str], key: str | None
    ) -> None:
        self._operation = operation_of(operation, Kind.WRITE)
        file.seek(0)
        first = file.readline(MAX_LINE)
        self._delimiter = max(_DELIMITERS, key=lambda each: first.count(each.encode()))
        file.seek(0)
        self._begin, self._header = next(self._rows(file, 0), (1, []))
        self._key = None if key is None else self._place_of(key)
        self._columns: dict[str, int] = {}
        known = names_of(client, operation)
        for text in maps or [f"{each}={each}" for each in self._header if each != key]:
            argument, _, column = text.partition("=")
            name = argument.removesuffix(":").partition(".")[0]
            if name not in known or argument in self._columns:
                why = "is mapped twice" if name in known else "is not an argument"
                wrong = f"{name}: {why}; {operation} takes {', '.join(known)}"
                hint = did_you_mean(name, known) or "Use --map ARGUMENT=COLUMN for each column that you need."
                raise InvalidRequestError(wrong, hint=hint)
            self._columns[argument] = self._place_of(column)
        # With the content of the file, this says what its writes are.
        self.form: bytes = repr((operation, self._columns, self._key)).encode()

    def lines(self, file: Readable, number: int) -> Iterator[Line | BadLine]:
        """Yield each row of *file*, of which *number* lines were read before, as a line of input."""
        for begin, row in self._rows(file, number):
            if begin > self._begin:
                yield self._line(begin, row)

    def _line(self, number: int, cells: list[str]) -> Line | BadLine:
        """Return the write of a row; an empty cell leaves its argument out."""
        if len(cells) != len(self._header):
            return BadLine(number, f"has {len(cells)} cells, but the header has {len(self._header)}")
        key = None if self._key is None else cells[self._key]
        if key == "":
            return BadLine(number, "has an empty key")
        words = [f"{argument}={cells[at]}" for argument, at in self._columns.items() if cells[at]]
        try:
            "".join(cells).encode()
            return Line(number, self._operation.name, arguments_of(self._operation, words), key)
        except UnicodeEncodeError:
            return BadLine(number, "is not UTF-8")
        except InvalidRequestError as error:
            return BadLine(number, "; ".join(error.problems))

    def _place_of(self, column: str) -> int:
        if (count := self._header.count(column)) == 1:
            return self._header.index(column)
        names = ", ".join(self._header) or "none"
        wrong = f"{count} columns have this name" if count else f"is no column; the table has {names}"
        raise InvalidRequestError(f"{column}: {wrong}", hint=did_you_mean(column, self._header) or None)

    def _rows(self, file: Readable, number: int) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the first line of each row, and its cells."""
        lines = _Lines(file, number)
        rows = csv.reader(lines, delimiter=self._delimiter, strict=True)
        while not lines.ended:
            lines.begin()
            try:
                cells = next(rows, [])
            except csv.Error as error:  # a bad row that was skipped might be the rest of another one
                why = "a quote is not closed" if lines.ended else f"is not CSV ({error})"
                raise lines.failure(why) from error
            if cells:
                yield lines.first, cells


class _Lines:
    """The lines of *file* as text, of which *number* were read before. Those of one row have a limit."""

    def __init__(self, file: Readable, number: int) -> None:
        self._file, self._number, self._size = file, number, 0
        self.first: int = number  # line of the row
        self.ended: bool = False

    def begin(self) -> None:
        """Begin a row."""
        self.first, self._size = self._number + 1, 0

    def failure(self, why: str) -> InvalidRequestError:
        """Return the error that ends the reading: where the next row begins cannot be told."""
        return InvalidRequestError(f"line {self.first}: {why}")

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        text = self._file.readline(MAX_LINE + 1)
        if not text:
            self.ended = True
            raise StopIteration
        self._number += 1
        self._size += len(text)
        if self._size > MAX_LINE:
            raise self.failure(f"the row has more than {MAX_LINE:,} bytes, or a quote is not closed")
        return (text.removeprefix(BOM_UTF8) if self._number == 1 else text).decode(errors="surrogateescape")
