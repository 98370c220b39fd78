"""Reading files of writes: standard input, pipes and compressed files too, with the position and a digest."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import zlib
from functools import partial
from hashlib import blake2b
from importlib import import_module
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Reader", "rereadable"]

_WITH_HEADER = 31  # makes zlib expect the header of gzip
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # the first bytes of a file
_BLOCK = 2**20  # bytes read at once to skip what was read before
_PIECE = 2**15  # compressed bytes that are decompressed at once
_NO_ZSTD = (
    "cannot be read: it is compressed with zstd. Use Python 3.14, or run: pip install 'invsvc-async[zstd]'"
)


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
    Reads a file from its start, decompressed if it is in the format of gzip or zstd.

    ``offset`` and ``lines`` count what was read, decompressed, in bytes and whole lines. *name* is for
    errors.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._file = _plain(file, name)
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
            InvalidRequestError: The file cannot be read or decompressed.

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
        except (OSError, EOFError, zlib.error) as error:
            # Not the usual advice: it may be the second time, when writes were sent already.
            raise InvalidRequestError(
                f"{self._name}: cannot be read ({error})", hint="Check the file."
            ) from error
        self.offset += len(text)
        self._digest.update(text)
        return text


def _plain(file: BinaryIO, name: str) -> BinaryIO:
    """Return *file* from its start, decompressed."""
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    if start.startswith(_GZIP):
        make: Callable[[], _Decompressor] = partial(zlib.decompressobj, _WITH_HEADER)
    elif start == _ZSTD:
        make = _zstd_decompressor(name)
    else:
        return file
    return cast("BinaryIO", io.BufferedReader(_Decompressed(file, make), _BLOCK))


class _Decompressor(Protocol):
    """What zlib and both libraries of zstd have."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd_decompressor(name: str) -> Callable[[], _Decompressor]:
    """
    Return a maker of decompressors of one frame.

    Raises:
        InvalidRequestError: There is no library for it.

    """
    make: Callable[[], _Decompressor]
    try:
        make = import_module("compression.zstd").ZstdDecompressor
    except ImportError:
        try:
            make = import_module("zstandard").ZstdDecompressor().decompressobj
        except ImportError:
            raise InvalidRequestError(f"{name}: {_NO_ZSTD}") from None
    return make


class _Decompressed(io.RawIOBase):
    """
    Decompresses *file*, which has one frame (in gzip, a member) or several.

    ``GzipFile`` is slower (measured), and ``zstandard`` takes a frame that is cut off for the end of a file.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], _Decompressor]) -> None:
        self._source, self._make = file, make
        self._frame: _Decompressor | None = None
        self._text = memoryview(b"")
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Read forward up to *offset*."""
        assert whence == os.SEEK_SET
        while self._offset < offset and self.read(min(offset - self._offset, _BLOCK)):
            pass
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # as RawIOBase does it
        while not self._text:
            data = self._source.read(_PIECE)
            if not data:
                if self._frame is not None:
                    raise EOFError("the compressed file ends early")
                return 0
            self._text = memoryview(self._decompressed(data))
        size = min(len(buffer), len(self._text))
        buffer[:size] = self._text[:size]
        self._text = self._text[size:]
        self._offset += size
        return size

    def _decompressed(self, data: bytes) -> bytes:
        parts = []
        while data.strip(b"\0") if self._frame is None else data:  # padding may follow
            if self._frame is None:
                self._frame = self._make()
            try:
                parts.append(self._frame.decompress(data))
            except Exception as error:  # each library has its own class
                raise OSError(str(error)) from error
            data = b""
            if self._frame.eof:
                data, self._frame = self._frame.unused_data, None
        return b"".join(parts)
