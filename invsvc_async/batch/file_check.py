"""
A file with one write per line, as ``resources.by_name`` describes it.

It is checked before anything is sent, and then read again, in constant memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import stat
import sys
from codecs import BOM_UTF8
from contextlib import asynccontextmanager, closing
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias, cast

import attrs
import msgspec

from invsvc_async.api.operations import BY_NAME
from invsvc_async.client import Client, options_of
from invsvc_async.errors import ConfigurationError, InvalidRequestError, InvsvcError
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.resources.by_name import as_write, parsed
from invsvc_async.storage.sqlite_file import in_words

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
    )

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.writes.write import Write


Writes: TypeAlias = "Iterable[Write[Any]] | AsyncIterable[Write[Any]] | str | Path"  # Any: of any operation

log: logging.Logger = logging.getLogger("invsvc_async.batch")

MAX_LINE = 2**20  # bytes
_TELL_EVERY = 10.0  # s
_EMPTY = "the file contains no writes"
_NAMED = 20  # bad lines in an error
_FIRST = 3  # good lines that are kept
_STEP = 128  # lines checked before other tasks may run
_BLOCK = 2**20  # bytes read at once up to a checkpoint


@attrs.frozen
class Line:
    """One write as data. Its arguments are not checked yet. ``number`` counts lines from 1."""

    number: int
    operation: str
    arguments: WireObject
    key: str | None = None


@attrs.frozen
class BadLine:
    """A line that is not a write, and why. Number 0 is the whole file."""

    number: int
    reason: str

    def __str__(self) -> str:
        if self.number:
            return f"line {self.number}: {self.reason}"
        return self.reason


class Readable(Protocol):
    """A file that is open for reading."""

    def readline(self, limit: int, /) -> bytes:
        """Return the rest of the line, at most *limit* bytes."""
        ...


def read_lines(
    file: Readable,
    number: int = 0,
    *,
    max_bytes: int = MAX_LINE,
) -> Iterator[Line | BadLine]:
    """
    Read *file* line by line, and yield each one that is not empty. *number* lines were read before.

    A line of more than *max_bytes* is bad, and is skipped without loading it. A byte order mark of UTF-8 is
    skipped.
    """
    while text := file.readline(max_bytes + 1):
        number += 1
        if len(text) > max_bytes and not text.endswith(b"\n"):
            length = len(text)
            while not text.endswith(b"\n") and (text := file.readline(max_bytes)):
                length += len(text)
            yield BadLine(
                number, f"is {length:,} bytes long; the limit is {max_bytes:,}"
            )
            continue
        if number == 1:
            text = text.removeprefix(BOM_UTF8)
        if plain := text.strip():
            try:
                line: Line | BadLine = Line(number, *parsed(plain))
            except InvalidRequestError as error:
                line = BadLine(number, "; ".join(error.problems))
            yield line


# Any: of any operation
def _write_of(client: Client, line: Line) -> Write[Any] | BadLine:
    try:
        return as_write(client, line.operation, line.arguments, key=line.key)
    except InvalidRequestError as error:
        return BadLine(line.number, f"{line.operation}: {'; '.join(error.problems)}")
    except ConfigurationError as error:
        return BadLine(line.number, str(error))


def check_line(client: Client, line: Line) -> BadLine | None:
    """Return what is wrong with *line* as a write of *client*, or ``None``."""
    found = _write_of(client, line)
    if isinstance(found, BadLine):
        return found
    found.close()
    return None


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The position up to which a file of writes was taken in; the next run parses the file from there.

    It is stored with the writes before it, each of which has a key. ``offset``, ``lines``, ``writes`` and
    ``bad`` (skipped lines) count what is before it, and ``digest`` identifies it. ``team`` is that of the
    client.
    """

    offset: int
    digest: str
    lines: int
    writes: int
    bad: int = 0
    team: str | None = None


def rereadable(path: Path) -> BinaryIO:
    """
    Open the file at *path* for reading it more than once; ``-`` is the standard input.

    If it is not a regular file, such as a pipe, it is copied to an unnamed file first.
    """
    file = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    if file is not sys.stdin.buffer and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    # a wrapper of one on Windows; the caller closes it
    copy = cast("BinaryIO", TemporaryFile())  # noqa: SIM115
    try:
        shutil.copyfileobj(file, copy)
    except BaseException:
        copy.close()
        raise
    finally:
        if file is not sys.stdin.buffer:
            file.close()
    return copy


@attrs.define
class _Reader:
    """
    Reads a file. ``name`` is for errors.

    ``offset`` and ``lines`` count what was read, in bytes and whole lines, ``writes`` and ``bad`` what was
    found in it. ``digest`` is taken of it, and of the form of its lines.
    """

    file: BinaryIO
    name: str
    digest: blake2b
    offset: int = 0
    lines: int = 0
    writes: int = 0
    bad: int = 0
    ends_line: bool = True  # nothing was read, or a whole line at last
    has_keys: bool = True  # each write has one
    is_ahead: bool = False  # something of what was read is not to be given to anybody

    def again(self) -> _Reader:
        """Return another reader, which reads on from the place of this reader."""
        self.file.seek(self.offset)
        return attrs.evolve(self, digest=self.digest.copy())

    def readline(self, limit: int) -> bytes:
        """Return the rest of the line, at most *limit* bytes."""
        text = self._read(self.file.readline, limit)
        if text:
            self.ends_line = text.endswith(b"\n")
            self.lines += self.ends_line
        return text

    def skip(self, checkpoint: Checkpoint) -> Iterator[None]:
        """Read up to *checkpoint*. Yields now and then; ends early if the file does."""
        while self._read(self.file.read, min(checkpoint.offset - self.offset, _BLOCK)):
            yield
        self.lines = checkpoint.lines
        self.writes = checkpoint.writes
        self.bad = checkpoint.bad

    def reached(self, team: str | None) -> Checkpoint:
        """Return where it is, for a client of *team*."""
        return Checkpoint(
            self.offset,
            self.digest.hexdigest(),
            self.lines,
            self.writes,
            self.bad,
            team,
        )

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            text = read(size)
        except OSError as error:
            # Not the usual advice: it may be the second time, when writes were sent already.
            raise InvalidRequestError(
                f"{self.name}: cannot be read ({error})", hint="Check the file."
            ) from error
        self.offset += len(text)
        self.digest.update(text)
        return text


class Met:
    """
    The keys that an input has had, each with the line where it was first.

    They are not part of the journal: each machine tracks its own input, and only for the run. They are in an
    unnamed SQLite file, so memory stays bounded. Nothing is committed or waits for the disk, so this can be
    used on the event loop.
    """

    def __init__(self) -> None:
        self._keys = sqlite3.connect("", isolation_level=None)
        self._keys.execute("PRAGMA journal_mode = OFF")
        self._keys.execute(
            "CREATE TABLE met (key BLOB PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID"
        )
        self._keys.execute("BEGIN")

    def first(self, key: str, line: int = 0) -> int | None:
        """
        Note *key* as that of *line*, and return an earlier line of this key, or ``None``.

        Raises:
            JournalError: The disk is full.
        """
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=16).digest()
        try:
            if (
                self._keys.execute(
                    "INSERT OR IGNORE INTO met VALUES (?, ?)", (digest, line)
                ).rowcount
                == 1
            ):
                return None
            found: int = self._keys.execute(
                "SELECT line FROM met WHERE key = ?", (digest,)
            ).fetchone()[0]
        except sqlite3.Error as error:
            raise in_words("(keys of the input)", error) from error
        return found

    def close(self) -> None:
        """Delete them."""
        self._keys.close()


class FileWrites:
    """
    The writes of *file*, which is open for reading it more than once. *name* is for errors.

    ``check`` reads it once, and iterating reads it again. Both skip what is before ``checkpoint``, which is
    set if the file begins with what an earlier run has taken in. Bad lines are errors, or with *skips_bad*
    they are left out. *read* reads lines that are not JSON, and *form* says which writes it makes of them.

    ``good`` and ``bad`` count all lines. ``first``, ``problems`` (the first bad lines) and ``has_secrets``
    (whether the answers to some writes have secrets) are of those after the checkpoint.
    """

    def __init__(
        self,
        file: BinaryIO,
        client: Client,
        *,
        name: str = "the file",
        skips_bad: bool = False,
        read: Callable[[Readable, int], Iterator[Line | BadLine]] = read_lines,
        form: bytes = b"",
    ) -> None:
        self._client = client
        self._skips_bad = skips_bad
        self._read = read
        self._team = options_of(client).team
        # It stays there, or at the checkpoint.
        self._begin = _Reader(file, name, blake2b(form, digest_size=16))
        self._reader = self._begin  # of the second time, as what follows
        self.good: int = 0
        self.bad: int = 0
        self.first: list[Line] = []
        self.problems: list[BadLine] = []
        self.has_secrets: bool = False
        self.checkpoint: Checkpoint | None = None

    def check(
        self,
        checkpoint: Checkpoint | None = None,
        *,
        most: int = 1_000_000,
        tell: Callable[[str], None] = log.info,
    ) -> Iterator[None]:
        """
        Check every line after *checkpoint*, or every line if the file was changed. Yields now and then.

        The first *most* bad lines are kept. *tell* gets words about the progress every ten seconds.
        """
        told = monotonic()
        size = os.fstat(self._begin.file.fileno()).st_size
        for reader in self._checking(checkpoint, most):
            if monotonic() - told >= _TELL_EVERY:
                told = monotonic()
                part = reader.offset / max(size, 1)
                tell(
                    f"{reader.name}: checked {part:.0%}, {reader.lines:,} lines so far"
                )
            yield

    def _checking(self, checkpoint: Checkpoint | None, most: int) -> Iterator[_Reader]:
        """Check the lines, as :meth:`check`. Yields now and then what has read them so far."""
        # It is of no use to a client of another team, nor if lines before it are bad and have to be named.
        if checkpoint is not None and (self._skips_bad or not checkpoint.bad):
            yield from self._skipping(checkpoint)
        reader = self._begin.again()
        for number, found in enumerate(self._lines(reader)):
            if not isinstance(found, BadLine):
                self._note_good(*found)
            elif len(self.problems) < most:
                self.problems.append(found)
            if number % _STEP == 0:
                yield reader
        self.good = reader.writes
        self.bad = reader.bad
        if not self.good and not self.bad:
            self.bad = 1
            self.problems = [BadLine(0, _EMPTY)]

    def _skipping(self, checkpoint: Checkpoint) -> Iterator[_Reader]:
        """Begin after *checkpoint* from now on, if the file is the same up to there. Yields now and then."""
        reader = self._begin.again()
        for _ in reader.skip(checkpoint):
            yield reader
        if reader.reached(self._team) == checkpoint:
            self.checkpoint = checkpoint
            self._begin = reader

    def _note_good(self, line: Line, write: Write[Any]) -> None:  # Any: of any kind
        write.close()
        if len(self.first) < _FIRST:
            self.first.append(line)
        self.has_secrets = (
            self.has_secrets or kind_of_write(BY_NAME[line.operation]).has_secret
        )

    def __iter__(self) -> Iterator[Write[Any]]:  # Any: of any kind
        """
        Yield the writes of all good lines.

        Raises:
            InvsvcError: There are others than in the check, so the file was changed meanwhile.
        """
        reader = self._reader = self._begin.again()
        try:
            yield from self._given_of(reader)
        except Exception:
            reader.is_ahead = True
            raise

    # Any: of any kind
    def _given_of(self, reader: _Reader) -> Iterator[Write[Any]]:
        for found in self._lines(reader):
            if isinstance(found, BadLine):
                continue
            if reader.writes > self.good:
                found[1].close()
                break
            yield found[1]
        if reader.writes != self.good:
            more = " or more" if reader.writes > self.good else ""
            raise InvsvcError(
                f"the file was changed after the check: it had {self.good:,} writes, and now has "
                f"{reader.writes:,}{more}. Some of its writes may have been sent. "
                "Run again once the file no longer changes; finished writes are skipped."
            )

    def reached(self) -> Checkpoint | None:
        """
        Return the position after the last write that was yielded, if a line ends there.

        ``None`` if lines have no keys: which of equal ones are before it could not be told later.  Or if the
        reader stands after a write that was not yielded, as the file was changed.
        """
        reader = self._reader
        if reader.is_ahead:
            return None
        if reader.ends_line and reader.has_keys:
            return reader.reached(self._team)
        return None

    def _lines(self, reader: _Reader) -> Iterator[tuple[Line, Write[Any]] | BadLine]:
        """Yield each line and its write, or else the problem. A key of an earlier line is a problem too."""
        with closing(Met()) as keys:
            for line in self._read(reader, reader.lines):
                found = line if isinstance(line, BadLine) else self._checked(line, keys)
                if isinstance(found, BadLine):
                    reader.bad += 1
                else:
                    reader.writes += 1
                    if found[0].key is None:
                        reader.has_keys = False
                yield found

    def _checked(self, line: Line, keys: Met) -> tuple[Line, Write[Any]] | BadLine:
        found = _write_of(self._client, line)
        if isinstance(found, BadLine):
            return found
        if line.key is None:
            return line, found
        before = keys.first(line.key, line.number)
        if before is None:
            return line, found
        found.close()
        return BadLine(line.number, f"has the key {line.key!r}, as line {before}")


def check_file(
    writes: FileWrites,
    checkpoint: Checkpoint | None = None,
    tell: Callable[[str], None] = log.info,
) -> None:
    """Check every line of a file after *checkpoint*; *tell* is that of :meth:`FileWrites.check`."""
    for _ in writes.check(checkpoint, tell=tell):
        pass


@asynccontextmanager
async def sound(
    writes: Writes,
    client: Client,
    checkpoint: Callable[[], Awaitable[Checkpoint | None]],
    # Any: of any operation
) -> AsyncGenerator[Iterable[Write[Any]] | AsyncIterable[Write[Any]]]:
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
        raise InvalidRequestError(
            f"{writes}: cannot be read ({error.strerror})"
        ) from error
    with opened as file:
        found = FileWrites(file, client, name=str(writes))
        for _ in found.check(await checkpoint(), most=_NAMED):
            await asyncio.sleep(0)
        if found.bad:
            if left := found.bad - len(found.problems):
                more = [f"and {left:,} more lines"]
            else:
                more = []
            raise InvalidRequestError([*map(str, found.problems), *more])
        yield found
