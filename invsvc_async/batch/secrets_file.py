"""
Keep the secrets of new webhooks in a file of the caller's, for its owner alone; never anywhere else.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any, Self

from invsvc_async._errors import JournalError
from invsvc_async.codec import envelope

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["SecretsFile"]


class SecretsFile:
    """
    A file of lines ``{"key", "id", "url", "secret"}``, mode 0600, appended to.

    Its ``take`` is an ``on_secret``: it returns once the line is on the disk.  One flush serves all who wait
    for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self._cut = False  # the line before may have come in part
        self._next: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            self._number = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            self._path.chmod(0o600)
            _end_line(self._number)
        except OSError as error:
            raise JournalError(f"{self._path}: secrets cannot be kept there ({error.strerror})") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._number)

    async def take(self, key: str, webhook: Any) -> None:  # Any: a Webhook
        """Append the secret of *webhook*, made by the write of *key*."""
        line = (
            envelope.dumps({"key": key, "id": webhook.id, "url": webhook.url, "secret": webhook.secret})
            + b"\n"
        )
        try:
            if self._cut:
                _end_line(self._number)
            self._cut = True
            _write_whole(self._number, line)
            self._cut = False
            self._next = self._next or asyncio.create_task(self._flush())
            await asyncio.shield(self._next)
        except OSError as error:
            raise JournalError(f"{self._path}: secrets cannot be kept ({error.strerror})") from error

    async def _flush(self) -> None:
        async with self._flushing:
            self._next = None  # what is written from here on waits for the one after
            await asyncio.to_thread(os.fsync, self._number)


def _end_line(number: int) -> None:
    """End the line that a full disk, or a kill, has cut: the next one is not to be lost with it."""
    if os.fstat(number).st_size:
        os.lseek(number, -1, os.SEEK_END)
        if os.read(number, 1) != b"\n":
            _write_whole(number, b"\n")


def _write_whole(number: int, line: bytes) -> None:
    if os.write(number, line) < len(line):  # the last bytes of the disk
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
