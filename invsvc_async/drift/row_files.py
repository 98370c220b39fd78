"""The rows of a file: CSV, JSON lines or Parquet. Errors name the line."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from invsvc_async.codec import envelope
from invsvc_async.drift.columns import words_of
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError
from invsvc_async.export.files import MAX_ROW, NOT_UTF_8, Form, csv_rows, pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 1000  # rows of Parquet


def rows_of_file(
    name: str,
    form: Form | None,
    delimiter: str,
) -> Iterator[tuple[int, object]]:
    """Yield each row of a file (``-`` is standard input) with its line, or in Parquet its number, from 1."""
    with (
        nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file
    ):
        try:
            match form:
                case "parquet":
                    yield from enumerate(_parquet_rows(file), 1)
                case "csv":
                    yield from _csv_rows(file, delimiter)
                case _:
                    yield from _json_rows(file)
        except ValueError as error:
            words = f"{name}: {words_of(error)}"
            raise InvalidRequestError(
                words, hint="Nothing was compared. Correct the file."
            ) from None


def _parquet_rows(file: BinaryIO) -> Iterator[object]:
    for batch in pyarrow("pyarrow.parquet").ParquetFile(file).iter_batches(_AT_ONCE):
        yield from batch.to_pylist()


def _json_rows(file: BinaryIO) -> Iterator[tuple[int, object]]:
    number = 0
    coding = "utf-8-sig"  # of the first line
    for number, line in enumerate(iter(partial(file.readline, MAX_ROW + 1), b""), 1):
        if len(line) > MAX_ROW:
            raise ValueError(f"line {number}: is longer than {MAX_ROW:,} bytes")
        try:
            text = line.decode(coding).strip()
            coding = "utf-8"
            if text:
                yield number, envelope.loads(text.encode())
        except UnicodeDecodeError:
            raise ValueError(f"line {number}: {NOT_UTF_8}") from None
        except UnreadableResponseError as error:
            raise ValueError(f"line {number}: {words_of(error)}") from None
    if not number:
        raise ValueError("is empty")


def _csv_rows(file: BinaryIO, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    rows = csv_rows(file.readline, delimiter)
    line, header = next(rows, (0, []))
    if not line:
        raise ValueError("is empty")
    for name, count in Counter(filter(None, header)).items():
        if count > 1:
            raise ValueError(f"line {line}: has two columns with the name {name!r}")
    for line, cells in rows:
        if len(cells) != len(header):
            words = f"line {line}: has {len(cells)} cells, but the first line has {len(header)}"
            if len(header) == 1:
                words += f", {header[0]!r}. If that is several columns, pass their delimiter (--delimiter)"
            raise ValueError(words)
        yield line, dict(zip(header, cells, strict=True))
