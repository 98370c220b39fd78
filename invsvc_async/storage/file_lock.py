"""
Let one process at a time own a journal's file, and tell the others who it is; never wait for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

from invsvc_async._errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Owner"]

if sys.platform == "win32":  # pragma: no cover - the other branch is tested
    import msvcrt

    _FAR = 2**30  # a byte beyond the text, for Windows locks out readers too

    def _lock(number: int) -> None:
        os.lseek(number, _FAR, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Owner:
    """The lock beside a journal: it ends with the process, however that ends."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(f"{journal.name}.owner")
        self._file: int | None = None

    def take(self) -> None:
        """
        Become the owner.

        Raises:
            JournalError: Somebody else is, and who; or the lock cannot be made.

        """
        try:
            number = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(
                f"journal {self._journal}: {self._path.name} cannot be made beside it ({error.strerror}): "
                "check that the folder exists and can be written"
            ) from error
        try:
            _lock(number)
        except OSError as error:
            holder = _told(os.pread(number, 1000, 0) if hasattr(os, "pread") else b"")
            os.close(number)
            raise JournalError(
                f"journal {self._journal}: it is in use by {holder}. One process at a time owns a journal: "
                "wait for it, end it, or give this one a journal of its own"
            ) from error
        os.ftruncate(number, 0)
        os.write(number, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        self._file = number

    def release(self) -> None:
        """Let go.  The file stays: to take it away could take a newer owner's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _told(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
