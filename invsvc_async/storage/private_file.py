"""Files that only their owner may read, because they contain personal data."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def open_private(path: str, flags: int) -> int:
    """
    Open a file, as *opener* of ``open``, and set its mode to 0600.

    Raises:
        OSError: It cannot be opened, belongs to another user, or is a symbolic link to a file: somebody else
            may have made it, to have another file overwritten or to get what is written.
    """
    number = _open_itself(path, flags & ~os.O_TRUNC)
    try:
        make_private(number)
        if flags & os.O_TRUNC and stat.S_ISREG(os.fstat(number).st_mode):
            os.ftruncate(number, 0)  # not before it is known to be ours
    except BaseException:
        os.close(number)
        raise
    return number


def _open_itself(path: str, flags: int) -> int:
    """Open a file that is no symbolic link. A device, such as ``/dev/stdout``, may be a link."""
    # else Windows writes two characters for a line end
    flags |= getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    number = os.open(path, flags & ~os.O_CREAT, 0o600)
    if stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.ELOOP, "it is a symbolic link. Name the file itself")
    return number


def make_private(file: str | int, *, for_root: bool = True) -> None:
    """
    Set the mode of a file, given by its path or descriptor, to 0600; leave a device or pipe as it is.

    Windows has no such modes: its files have the permissions of their folder.

    Raises:
        OSError: It belongs to another user.  *for_root*: root may use it nevertheless.
    """
    found = os.stat(file)  # noqa: PTH116 - it may be a descriptor
    if sys.platform != "win32" and stat.S_ISREG(found.st_mode):
        user = os.geteuid()
        is_owner = user == found.st_uid
        is_allowed_root = for_root and user == 0
        if not is_owner and not is_allowed_root:
            raise OSError(
                errno.EPERM,
                "it belongs to another user. Change its owner, or choose another file",
            )
        if found.st_mode & 0o077:
            os.chmod(file, 0o600)  # noqa: PTH101


def own_private(path: Path, flags: int = 0) -> int:
    """
    Open a file to read and write, or create it, and set its mode to 0600.

    Raises:
        OSError: It cannot be opened, or it is something else, such as a device, whose mode is not changed.
    """
    number = open_private(str(path), os.O_RDWR | os.O_CREAT | flags)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return number


def create_private(path: Path) -> BinaryIO:
    """Create the file at *path* with mode 0600, or empty it."""
    return open(path, "wb", opener=open_private)


def write_private(path: Path, text: str) -> None:
    """Write *text* to the file at *path*, with mode 0600."""
    with errors_naming(path), create_private(path) as file:
        file.write(text.encode())


def make_database_private(path: Path | str) -> None:
    """
    Do the same for a file of SQLite and its log, once it is known to be ours.

    Raises:
        OSError: One of them belongs to another user, and this is not root.
    """
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            make_private(f"{path}{suffix}")


@contextmanager
def errors_naming(path: Path | str) -> Generator[None]:
    """Add *path* to an OSError of the block, which has none if the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
