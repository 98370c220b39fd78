"""Files that only their owner may read, because they contain personal data."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["create_private", "errors_naming", "open_private", "own_private", "write_private"]


def open_private(path: str, flags: int) -> int:
    """Open a file, as *opener* of ``open``; a new one has mode 0600."""
    return os.open(path, flags, 0o600)


def own_private(path: Path, flags: int = 0) -> int:
    """
    Open a file to read and write, or create it, and set its mode to 0600.

    Raises:
        OSError: It cannot be opened, or it is something else, such as a device, whose mode is not changed.

    """
    number = open_private(str(path), os.O_RDWR | os.O_CREAT | flags)
    try:
        _own(number, path)
    except BaseException:
        os.close(number)
        raise
    return number


def _own(number: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    path.chmod(0o600)


def create_private(path: Path) -> BinaryIO:
    """Create the file at *path*, or empty it; a new one has mode 0600."""
    return open(path, "wb", opener=open_private)


def write_private(path: Path, text: str) -> None:
    """Write *text* to the file at *path*; a new one has mode 0600."""
    with errors_naming(path), create_private(path) as file:
        file.write(text.encode())


@contextmanager
def errors_naming(path: Path | str) -> Generator[None]:
    """Add *path* to an OSError of the block, which has none if the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
