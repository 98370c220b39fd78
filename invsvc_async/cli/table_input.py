"""A table in CSV as the input of a batch: each row is a write of one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from invsvc_async.api.operations import OperationKind
from invsvc_async.batch.file_check import MAX_LINE, BadLine, Line, Readable
from invsvc_async.cli.arguments import arguments_of, operation_of
from invsvc_async.errors import InvalidRequestError
from invsvc_async.export.files import NOT_UTF_8, csv_rows
from invsvc_async.resources.by_name import did_you_mean, names_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from invsvc_async.client import Client

_DELIMITERS = ",;\t"


class InputTable:
    """
    How the columns of the table in *file* become the arguments of the writes of *operation*.

    *maps* has texts ``ARGUMENT=COLUMN``, or ``ARGUMENT:=COLUMN`` for cells that are JSON. Without any, the
    columns have the names of arguments. *key* is the column of the keys.
    """

    def __init__(
        self,
        file: BinaryIO,
        client: Client,
        operation: str,
        maps: Sequence[str],
        key: str | None,
    ) -> None:
        self._operation = operation_of(operation, OperationKind.WRITE)
        file.seek(0)
        first = file.readline(MAX_LINE)
        self._delimiter = max(_DELIMITERS, key=lambda each: first.count(each.encode()))
        file.seek(0)
        self._begin, self._header = next(self._rows(file, 0), (1, []))
        self._key = None if key is None else self._place_of(key)
        self._columns: dict[str, int] = {}
        known = names_of(client, operation)
        usual = [f"{each}={each}" for each in self._header if each != key]
        for text in maps or usual:
            argument, _, column = text.partition("=")
            name = argument.removesuffix(":").partition(".")[0]
            if name not in known:
                raise _wrong_map(name, "is not an argument", operation, known)
            if argument in self._columns:
                raise _wrong_map(name, "is mapped twice", operation, known)
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
            return BadLine(
                number,
                f"has {len(cells)} cells, but the header has {len(self._header)}",
            )
        key = None if self._key is None else cells[self._key]
        if key == "":
            return BadLine(number, "has an empty key")
        words = [
            f"{argument}={cells[at]}"
            for argument, at in self._columns.items()
            if cells[at]
        ]
        try:
            "".join(cells).encode()
            return Line(
                number, self._operation.name, arguments_of(self._operation, words), key
            )
        except UnicodeEncodeError:
            return BadLine(number, NOT_UTF_8)
        except InvalidRequestError as error:
            return BadLine(number, "; ".join(error.problems))

    def _place_of(self, column: str) -> int:
        if (count := self._header.count(column)) == 1:
            return self._header.index(column)
        names = ", ".join(self._header) or "none"
        if count:
            wrong = f"{count} columns have this name"
        else:
            wrong = f"is no column; the table has {names}"
        raise InvalidRequestError(
            f"{column}: {wrong}", hint=did_you_mean(column, self._header)
        )

    def _rows(self, file: Readable, number: int) -> Iterator[tuple[int, list[str]]]:
        return csv_rows(
            file.readline, self._delimiter, begin=number, errors="surrogateescape"
        )


def _wrong_map(
    name: str,
    why: str,
    operation: str,
    known: Collection[str],
) -> InvalidRequestError:
    hint = (
        did_you_mean(name, known)
        or "Use --map ARGUMENT=COLUMN for each column that you need."
    )
    return InvalidRequestError(
        f"{name}: {why}; {operation} takes {', '.join(known)}", hint=hint
    )
