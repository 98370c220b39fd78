"""
Look through a file of writes before anything is sent, in constant memory; never send or keep one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
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

_EMPTY = "the file holds no write"
_NAMED = 20  # bad lines in an error
_STEP = 128  # lines looked at before others have a turn


@attrs.define(kw_only=True)
class Checked:
    """What a file holds: how many writes, and which lines are none, the first *most* of them."""

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
    Open the file at *path*, to be read more than once: what is no regular file, such as a pipe, is read to
    its end now, into a file without a name, which is gone when it is closed.
    """
    file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
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
    for line in _judged(file, client):
        checked.add(line)
    if not checked.good and not checked.bad:
        checked.add(BadLine(0, _EMPTY))
    return checked


def good_writes(file: BinaryIO, client: Client, expected: int) -> Iterator[Write[Any]]:  # Any: of any kind
    """
    Give the writes of the lines that are sound, leaving the others out.

    Raises:
        InvsvcError: They are not the *expected* number: somebody has changed the file since it was checked.

    """
    count = 0
    for line in _judged(file, client):
        if not isinstance(line, BadLine):
            count += 1
            if count > expected:
                break
            yield as_write(client, line.operation, line.arguments, key=line.key)
    if count != expected:
        raise InvsvcError(
            f"the file has changed since it was checked: it held {expected:,} writes, and now holds "
            f"{count:,}{' or more' if count > expected else ''}; some of it may have been sent. Run it again "
            "when nobody writes to it: what is done is skipped"
        )


@asynccontextmanager
async def sound(
    writes: Writes, client: Client
) -> AsyncGenerator[Iterable[Write[Any]] | AsyncIterable[Write[Any]]]:  # Any: of any operation
    """
    Give *writes*; of the path of a file those that it holds, once all of it is known to be well-formed.

    Raises:
        InvalidRequestError: It is not; the first bad lines are named.

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
        for number, line in enumerate(_judged(file, client)):
            checked.add(line)
            if number % _STEP == 0:
                await asyncio.sleep(0)
        if checked.bad:
            more = [f"and {left:,} more lines"] if (left := checked.bad - len(checked.problems)) else []
            raise InvalidRequestError([*map(str, checked.problems), *more])
        yield good_writes(file, client, checked.good)


def _judged(file: BinaryIO, client: Client) -> Iterator[Line | BadLine]:
    """Give each line, or what is wrong with it: among its own faults, a key that an earlier line has."""
    file.seek(0)
    # The keys are in a file of their own, gone afterwards.
    with closing(sqlite3.connect("")) as keys:
        keys.execute("CREATE TABLE seen (key TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        for line in read_lines(file):
            if isinstance(line, BadLine):
                yield line
                continue
            yield check_line(client, line) or _twice(keys, line) or line


def _twice(keys: sqlite3.Connection, line: Line) -> BadLine | None:
    if line.key is None:
        return None
    before = keys.execute("SELECT line FROM seen WHERE key = ?", (line.key,)).fetchone()
    if before is not None:
        return BadLine(line.number, f"has the key {line.key!r}, which line {before[0]} has")
    keys.execute("INSERT INTO seen VALUES (?, ?)", (line.key, line.number))
    return None
