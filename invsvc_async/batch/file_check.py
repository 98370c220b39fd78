"""A check of a file of writes before anything is sent, in constant memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.checkpoint import Checkpoint
from invsvc_async.batch.file_reader import Reader, rereadable
from invsvc_async.batch.jsonl import BadLine, check_line, read_lines
from invsvc_async.batch.seen_keys import Met
from invsvc_async.client import options_of
from invsvc_async.errors import InvalidRequestError, InvsvcError
from invsvc_async.resources.by_name import as_write

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
    from typing import BinaryIO

    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.jsonl import Line
    from invsvc_async.client import Client
    from invsvc_async.writes.write import Write

__all__ = ["Checked", "FileWrites", "check_file", "rereadable", "sound"]

_EMPTY = "the file contains no writes"
_NAMED = 20  # bad lines in an error
_STEP = 128  # lines checked before other tasks may run


@attrs.define(kw_only=True)
class Checked:
    """How many writes a file has, and the first *most* bad lines. Lines before a checkpoint do not count."""

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


class FileWrites:
    """
    The writes of *file*, which is open for reading it more than once. *name* is for errors.

    ``check`` reads it once, and iterating reads it again. Both skip what is before ``checkpoint``, which is
    set if the file begins with what an earlier run has taken in. Bad lines are errors, or with *skips_bad*
    they are left out.
    """

    def __init__(
        self, file: BinaryIO, client: Client, *, name: str = "the file", skips_bad: bool = False
    ) -> None:
        self._file, self._client, self._name = file, client, name
        self._skips_bad = skips_bad
        self._begin: Reader | None = None  # the position of the checkpoint
        self._reader: Reader | None = None  # of the second time
        self._count = self._bad = 0  # of the second time
        self._is_keyless = False  # the same
        self.checked: Checked = Checked()
        self.checkpoint: Checkpoint | None = None

    @property
    def total(self) -> int:
        """How many writes the file has."""
        return self.checked.good + (0 if self.checkpoint is None else self.checkpoint.writes)

    @property
    def bad(self) -> int:
        """How many lines are bad."""
        return self.checked.bad + (0 if self.checkpoint is None else self.checkpoint.bad)

    def check(self, checkpoint: Checkpoint | None = None, *, most: int = 1_000_000) -> Iterator[None]:
        """Check every line after *checkpoint*, or every line if the file was changed. Yields now and then."""
        self.checked, reader = Checked(most=most), self._new_reader()
        if checkpoint is not None and self._may_begin_at(checkpoint):
            yield from reader.skip(checkpoint.offset, checkpoint.lines)
            if (reader.offset, reader.digest) == (checkpoint.offset, checkpoint.digest):
                self.checkpoint, self._begin = checkpoint, reader.copy_position()
            else:
                reader = self._new_reader()
        for number, line in enumerate(_checked(reader, self._client)):
            self.checked.add(line)
            if number % _STEP == 0:
                yield
        if not self.total and not self.checked.bad:
            self.checked.add(BadLine(0, _EMPTY))

    def __iter__(self) -> Iterator[Write[Any]]:  # Any: of any kind
        """
        Yield the writes of all good lines.

        Raises:
            InvsvcError: There are others than in the check, so the file was changed meanwhile.

        """
        reader = self._reader = self._new_reader()
        if self._begin is not None:
            reader.resume_as(self._begin)
        self._count = self._bad = 0
        self._is_keyless = False
        expected = self.checked.good
        for line in _checked(reader, self._client):
            if isinstance(line, BadLine):
                self._bad += 1
                continue
            self._count += 1
            if self._count > expected:
                break
            self._is_keyless = self._is_keyless or line.key is None
            yield as_write(self._client, line.operation, line.arguments, key=line.key)
        if self._count != expected:
            more = " or more" if self._count > expected else ""
            raise InvsvcError(
                f"the file was changed after the check: it had {expected:,} writes, and now has "
                f"{self._count:,}{more}. Some of its writes may have been sent. "
                "Run again once the file no longer changes; finished writes are skipped."
            )

    def reached(self) -> Checkpoint | None:
        """
        Return the position after the last write that was yielded, if a line ends there.

        ``None`` if lines have no keys: which of equal ones are before it could not be told later.
        """
        reader, before = self._reader, self.checkpoint
        if reader is None or not reader.ends_line or self._is_keyless:
            return None
        return Checkpoint(
            offset=reader.offset,
            digest=reader.digest,
            lines=reader.lines,
            writes=self._count + (0 if before is None else before.writes),
            bad=self._bad + (0 if before is None else before.bad),
            team=self._team,
        )

    @property
    def _team(self) -> str | None:
        return options_of(self._client).team

    def _may_begin_at(self, checkpoint: Checkpoint) -> bool:
        """Return whether the lines before *checkpoint* are the same writes for this client, and no others."""
        return checkpoint.team == self._team and (self._skips_bad or not checkpoint.bad)

    def _new_reader(self) -> Reader:
        return Reader(self._file, self._name)


def check_file(writes: FileWrites, checkpoint: Checkpoint | None = None) -> Checked:
    """Check every line of a file after *checkpoint*."""
    for _ in writes.check(checkpoint):
        pass
    return writes.checked


@asynccontextmanager
async def sound(
    writes: Writes, client: Client, checkpoint: Callable[[], Awaitable[Checkpoint | None]]
) -> AsyncGenerator[Iterable[Write[Any]] | AsyncIterable[Write[Any]]]:  # Any: of any operation
    """
    Yield *writes*. If it is the path of a file, check the whole file after the *checkpoint* first.

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
        found = FileWrites(file, client, name=str(writes))
        for _ in found.check(await checkpoint(), most=_NAMED):
            await asyncio.sleep(0)
        checked = found.checked
        if checked.bad:
            more = [f"and {left:,} more lines"] if (left := checked.bad - len(checked.problems)) else []
            raise InvalidRequestError([*map(str, checked.problems), *more])
        yield found


def _checked(reader: Reader, client: Client) -> Iterator[Line | BadLine]:
    """Yield each line, or what is wrong with it. A key that an earlier line has is wrong too."""
    with closing(Met()) as keys:
        for line in read_lines(reader, number=reader.lines):
            if isinstance(line, BadLine):
                yield line
                continue
            yield check_line(client, line) or _repeated_key(keys, line) or line


def _repeated_key(keys: Met, line: Line) -> BadLine | None:
    before = None if line.key is None else keys.first(line.key, line.number)
    return None if before is None else BadLine(line.number, f"has the key {line.key!r}, as line {before}")
