"""Whether a file is still the one that was opened."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SameFile"]

_LOOK_EVERY: Final = 1.0  # s; one for each commit made puts slower, because it releases the GIL


class SameFile:
    """Recognise that the file at *path* was deleted, replaced or emptied: what is stored would be lost."""

    def __init__(self, path: Path, name: str, users: str) -> None:
        self._path = path
        self._name = name
        self._users = users  # what has to be stopped, as the error says it
        self._opened: tuple[int, int, bool] | None = None
        self._looked = float("-inf")

    def remember(self) -> None:
        """Store which file it is, once it is open."""
        self._opened = self._found()

    def check(self) -> None:
        """
        Compare the file with the one that was opened, at most once a second.

        Raises:
            JournalError: It is another one, or there is none.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        if self._found() != self._opened:
            raise JournalError(
                f"{self._name}: the file was emptied, deleted or replaced while it was open. Stop "
                f"{self._users}, put the right file in its place, and start again."
            )
        self._looked = now

    def _found(self) -> tuple[int, int, bool] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size > 0
