"""Reading files of writes, standard input and pipes too, with the position and a digest."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from hashlib import blake2b
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO

from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Reader", "rereadable"]

_BLOCK = 2**20  # bytes read at once to skip what was read before


def rereadable(path: Path) -> BinaryIO:
    """
    Open the file at *path* for reading it more than once; ``-`` is the standard input.

    If it is not a regular file, such as a pipe, it is copied to an unnamed file first.
    """
    file = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    if file is not sys.stdin.buffer and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    copy: BinaryIO = TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        shutil.copyfileobj(file, copy)
    except BaseException:
        copy.close()
        raise
    finally:
        if file is not sys.stdin.buffer:
            file.close()
    return copy


class Reader:
    """
    Reads a file from its start.

    ``offset`` and ``lines`` count what was read, in bytes and whole lines. *name* is for errors.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._file = file
        file.seek(0)
        self._digest = blake2b(digest_size=16)
        self.offset: int = 0
        self.lines: int = 0
        self.ends_line: bool = True  # nothing was read, or a whole line at last

    @property
    def digest(self) -> str:
        """A digest of what was read."""
        return self._digest.hexdigest()

    def readline(self, limit: int) -> bytes:
        """
        Return the rest of the line, at most *limit* bytes.

        Raises:
            InvalidRequestError: The file cannot be read.

        """
        text = self._read(self._file.readline, limit)
        if text:
            self.ends_line = text.endswith(b"\n")
            self.lines += self.ends_line
        return text

    def skip(self, offset: int, lines: int) -> Iterator[None]:
        """Read up to *offset*, where *lines* end. Yields now and then; ends early if the file does."""
        while (left := offset - self.offset) > 0:
            if not self._read(self._file.read, min(left, _BLOCK)):
                return
            yield
        self.lines = lines

    def resume_as(self, other: Reader) -> None:
        """Go to the position of *other*, which has read the same file, without reading up to there again."""
        self._file.seek(other.offset)
        self._digest = other._digest.copy()
        self.offset, self.lines = other.offset, other.lines

    def copy_position(self) -> Reader:
        """Return an object with this position, for :meth:`resume_as`. It cannot read."""
        copy = object.__new__(Reader)
        copy._digest = self._digest.copy()
        copy.offset, copy.lines = self.offset, self.lines
        return copy

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            text = read(size)
        except OSError as error:
            # Not the usual advice: it may be the second time, when writes were sent already.
            raise InvalidRequestError(
                f"{self._name}: cannot be read ({error})", hint="Check the file."
            ) from error
        self.offset += len(text)
        self._digest.update(text)
        return text
