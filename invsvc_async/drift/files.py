"""Rows in files: CSV, JSON lines and Parquet, read one by one."""

from __future__ import annotations

import csv
import sys
from codecs import BOM_UTF8
from collections import Counter
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from invsvc_async.codec import envelope
from invsvc_async.drift.columns import words_of
from invsvc_async.errors import ConfigurationError, InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.export.files import Form

__all__ = ["rows_of_file"]

MAX_LINE = 2**20  # bytes
_AT_ONCE = 1000  # rows of Parquet


def rows_of_file(name: str, form: Form | None, delimiter: str) -> Iterator[tuple[int, object]]:
    """
    Yield each row of a file (``-`` is standard input) with its line, or in Parquet its number, from 1.

    Raises:
        InvalidRequestError: The file is not what *form* says, or empty; the message names the line.
        ConfigurationError: Parquet needs the extra ``parquet``.

    """
    with ExitStack() as stack:
        file = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        lines = _Lines(file)
        try:
            if form == "parquet":
                yield from _parquet_rows(file)
            elif form == "csv":
                yield from _csv_rows(lines, delimiter)
            else:
                yield from ((lines.number, envelope.loads(line.encode())) for line in lines if line.strip())
            if form != "parquet" and not lines.number:
                raise ValueError("is empty")  # noqa: TRY301 - named below
        except (ValueError, csv.Error, UnreadableResponseError) as error:
            place = f"line {lines.number}: " if lines.number else ""
            words = f"{name}: {place}{words_of(error)}"
            raise InvalidRequestError(words, hint="Nothing was compared. Correct the file.") from None


class _Lines:
    """Lines of bounded length; ``number`` counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(MAX_LINE + 1):
            self.number += 1
            if len(line) > MAX_LINE:
                raise ValueError(f"is longer than {MAX_LINE:,} bytes")
            try:
                text = (line.removeprefix(BOM_UTF8) if self.number == 1 else line).decode()
            except UnicodeDecodeError:
                raise ValueError("is not UTF-8. Save the file as UTF-8") from None
            yield text


def _csv_rows(lines: _Lines, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = next(reader, [])
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise ValueError(f"has two columns with the name {twice[0]!r}")
    for cells in reader:
        if cells and len(cells) != len(header):
            raise ValueError(f"has {len(cells)} cells, but the first line has {len(header)}")
        if cells:
            yield lines.number, dict(zip(header, cells, strict=True))


def _parquet_rows(file: BinaryIO) -> Iterator[tuple[int, object]]:
    try:
        parquet: Any = import_module("pyarrow.parquet")  # Any: pyarrow is untyped
    except ModuleNotFoundError:
        words = "parquet: needs pyarrow. Install the extra: pip install 'invsvc-async[parquet]'."
        raise ConfigurationError(words) from None
    batches = parquet.ParquetFile(file).iter_batches(_AT_ONCE)
    yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
