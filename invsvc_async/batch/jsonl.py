"""Files with one write per line, as ``resources.by_name`` describes it."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.resources.by_name import as_write, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.client import Client

__all__ = ["MAX_LINE", "BadLine", "Line", "Readable", "check_line", "read_lines"]

MAX_LINE = 2**20  # bytes


@attrs.frozen
class Line:
    """One write as data. Its arguments are not checked yet. ``number`` counts lines from 1."""

    number: int
    operation: str
    arguments: dict[str, Any]  # Any: JSON as Python values
    key: str | None = None


@attrs.frozen
class BadLine:
    """A line that is not a write, and why. Number 0 is the whole file."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}" if self.number else self.reason


class Readable(Protocol):
    """A file that is open for reading."""

    def readline(self, limit: int, /) -> bytes:
        """Return the rest of the line, at most *limit* bytes."""
        ...


def read_lines(file: Readable, number: int = 0, *, max_bytes: int = MAX_LINE) -> Iterator[Line | BadLine]:
    """
    Read *file* line by line, and yield each one that is not empty. *number* lines were read before.

    A line of more than *max_bytes* is bad, and is skipped without loading it. A byte order mark of UTF-8 is
    skipped.
    """
    while text := file.readline(max_bytes + 1):
        number += 1
        if len(text) > max_bytes and not text.endswith(b"\n"):
            length = len(text)
            while (rest := file.readline(max_bytes)) and not rest.endswith(b"\n"):
                length += len(rest)
            length += len(rest)
            yield BadLine(number, f"is {length:,} bytes long; the limit is {max_bytes:,}")
        elif plain := (text.removeprefix(BOM_UTF8) if number == 1 else text).strip():
            yield _parsed(plain, number)


def check_line(client: Client, line: Line) -> BadLine | None:
    """Return what is wrong with *line* as a write of *client*, or ``None``."""
    try:
        as_write(client, line.operation, line.arguments, key=line.key).close()
    except InvalidRequestError as error:
        return BadLine(line.number, f"{line.operation}: {'; '.join(error.problems)}")
    except ConfigurationError as error:
        return BadLine(line.number, str(error))
    return None


def _parsed(text: bytes, number: int) -> Line | BadLine:
    try:
        return Line(number, *parsed(text))
    except InvalidRequestError as error:
        return BadLine(number, "; ".join(error.problems))
