"""A file for the secrets of new webhooks, readable only by its owner."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Self

from invsvc_async.codec import envelope
from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.errors import JournalError
from invsvc_async.storage.flush import flush
from invsvc_async.storage.private_file import make_private, own_private

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.models.webhooks import Webhook


class SecretsFile:
    """
    A file of lines ``{"key", "id", "url", "secret"}``, mode 0600, appended to.

    Its ``take`` is an ``on_secret``. It returns once the line is on the disk. One flush serves all callers
    that wait for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self._is_partial = False  # the last line may be incomplete
        self._flushes = SingleFlight()

    async def __aenter__(self) -> Self:
        try:
            self._number = self._opened()
        except OSError as error:
            raise self._unusable(error) from error
        return self

    async def __aexit__(self, *_error: object) -> None:
        os.close(self._number)

    async def take(self, key: str, webhook: Webhook) -> None:
        """Append the secret of *webhook*, which the write of *key* created."""
        names = ("id", "url", "secret")  # one may be malformed
        line = {"key": key} | {name: getattr(webhook, name, None) for name in names}
        try:
            # or it was deleted, or replaced
            if self._is_partial or not os.fstat(self._number).st_nlink:
                os.dup2(number := self._opened(), self._number, inheritable=False)
                os.close(number)
            self._is_partial = True
            _write_whole(self._number, envelope.dumps(line) + b"\n")
            self._is_partial = False
            await self._flushes.share(
                "flush", lambda: asyncio.to_thread(flush, self._number)
            )
        except OSError as error:
            raise self._unusable(error) from error

    def _opened(self) -> int:
        number = own_private(self._path, os.O_APPEND)
        make_private(number, for_root=False)
        end_line(number)
        return number

    def _unusable(self, error: OSError) -> JournalError:
        why = error.strerror
        return JournalError(
            f"{self._path}: cannot store secrets ({why}). Make room, or choose another file."
        )


def end_line(number: int) -> None:
    """End a line that was cut off by a full disk or a kill, so that the next line is not lost, too."""
    if os.fstat(number).st_size:
        os.lseek(number, -1, os.SEEK_END)
        if os.read(number, 1) != b"\n":
            _write_whole(number, b"\n")


def _write_whole(number: int, line: bytes) -> None:
    if os.write(number, line) < len(line):  # the last bytes of the disk
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
