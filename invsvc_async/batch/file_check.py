"""A check of a file of writes before anything is sent, in constant memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async._errors import InvalidRequestError, InvsvcError
from invsvc_async.batch.jsonl import BadLine, as_write, check_line, read_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
    from typing import BinaryIO

    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.jsonl import Line
    from invsvc_async.client import Client
    from invsvc_async.writes.write import Write

__all__ = ["Checked", "check_file", "good_writes", "rereadable", "sound"]

_EMPTY = "the file contains no writes"
_NAMED = 20  # bad lines in an error
_STEP = 128  # lines checked before other tasks may run


@attrs.define(kw_only=True)
class Checked:
    """How many writes a file has, and the first *most* bad lines."""

    most: int = 1_000_000
    good: int = 0
    bad: int = 0
    problems: list[BadLine] = attrs.field(factory=list[BadLine])
    creates_webhooks: bool = False

    def add(self, line: Line | BadLine) -> None:
        """Count *line*."""
        if isinstance(line, BadLine):
            self.bad += 1
            if len(self.problems) < self.most:
                self.problems.append(line)
        else:
            self.good += 1
            self.creates_webhooks = self.creates_webhooks or line.operation == "webhooks.create"


def rereadable(path: Path) -> BinaryIO:
    """
    Open the file at *path* for reading it more than once; ``-`` is standard input.

    If it is not a regular file, such as a pipe, it is copied to an unnamed file first.
    """
    file: BinaryIO = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    if str(path) != "-" and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    copy: BinaryIO = TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with file:
            shutil.copyfileobj(file, copy)
    except BaseException:
        copy.close()
        raise
    return copy


def check_file(file: BinaryIO, client: Client) -> Checked:
    """Check every line of *file*."""
    checked = Checked()
    for line in _checked(file, client):
        checked.add(line)
    if not checked.good and not checked.bad:
        checked.add(BadLine(0, _EMPTY))
    return checked


def good_writes(file: BinaryIO, client: Client, expected: int) -> Iterator[Write[Any]]:  # Any: of any kind
    """
    Yield the writes of all good lines.

    Raises:
        InvsvcError: There are not *expected* of them, so the file was changed since the check.

    """
    count = 0
    for line in _checked(file, client):
        if not isinstance(line, BadLine):
            count += 1
            if count > expected:
                break
            yield as_write(client, line.operation, line.arguments, key=line.key)
    if count != expected:
        raise InvsvcError(
            f"the file was changed after the check: it had {expected:,} writes, and now has "
            f"{count:,}{' or more' if count > expected else ''}. Some of its writes may have been sent. "
            "Run again once the file no longer changes; finished writes are skipped."
        )


@asynccontextmanager
async def sound(
    writes: Writes, client: Client
) -> AsyncGenerator[Iterable[Write[Any]] | AsyncIterable[Write[Any]]]:  # Any: of any operation
    """
    Yield *writes*. If it is the path of a file, check the whole file first.

    Raises:
        InvalidRequestError: The file has bad lines, of which the first are named, or cannot be read.

    """
    if not isinstance(writes, (str, Path)):
        yield writes
        return
    try:
        opened = await asyncio.to_thread(rereadable, Path(writes))
    except OSError as error:
        raise InvalidRequestError(f"{writes}: cannot be read ({error.strerror})") from error
    with opened as file:
        checked = Checked(most=_NAMED)
        for number, line in enumerate(_checked(file, client)):
            checked.add(line)
            if number % _STEP == 0:
                await asyncio.sleep(0)
        if checked.bad:
            more = [f"and {left:,} more lines"] if (left := checked.bad - len(checked.problems)) else []
            raise InvalidRequestError([*map(str, checked.problems), *more])
        yield good_writes(file, client, checked.good)


def _checked(file: BinaryIO, client: Client) -> Iterator[Line | BadLine]:
    """Yield each line, or what is wrong with it. A key that an earlier line has is wrong too."""
    file.seek(0)
    # The keys are in an unnamed file.
    with closing(sqlite3.connect("")) as keys:
        keys.execute("CREATE TABLE seen (key TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        for line in read_lines(file):
            if isinstance(line, BadLine):
                yield line
                continue
            yield check_line(client, line) or _repeated_key(keys, line) or line


def _repeated_key(keys: sqlite3.Connection, line: Line) -> BadLine | None:
    if line.key is None:
        return None
    before = keys.execute("SELECT line FROM seen WHERE key = ?", (line.key,)).fetchone()
    if before is not None:
        return BadLine(line.number, f"has the key {line.key!r}, as line {before[0]}")
    keys.execute("INSERT INTO seen VALUES (?, ?)", (line.key, line.number))
    return None
