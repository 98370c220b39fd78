"""A lock file, by which one process at a time owns a journal."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

from invsvc_async._errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock"]

if sys.platform == "win32":  # pragma: no cover - the other branch is tested
    import msvcrt

    _FAR = 2**30  # a byte beyond the text, because locks on Windows block readers too

    def _lock(number: int) -> None:
        os.lseek(number, _FAR, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLock:
    """The lock of the file at *path*, which errors call *name*.  It ends with the process."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._path = path.with_name(f"{path.name}.owner")
        self._file: int | None = None

    def acquire(self) -> None:
        """
        Acquire the lock, or fail at once.

        Raises:
            JournalError: Another process has it, which is named; or the lock file cannot be created.

        """
        try:
            number = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(
                f"{self._name}: the lock file {self._path.name} cannot be created ({error.strerror}). "
                "Check that the folder exists and is writable."
            ) from error
        try:
            _lock(number)
        except OSError as error:
            holder = _holder(os.pread(number, 1000, 0) if hasattr(os, "pread") else b"")
            os.close(number)
            raise JournalError(
                f"{self._name}: it is in use by {holder}, and one process at a time may use it. "
                "Wait for that process, stop it, or use another path."
            ) from error
        os.ftruncate(number, 0)
        os.write(number, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        self._file = number

    def release(self) -> None:
        """Release the lock.  The lock file stays: deleting it could delete a newer owner's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _holder(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
