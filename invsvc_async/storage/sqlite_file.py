"""Files of SQLite: what is wrong with a file, in words for people, and whether it is still the same."""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger("invsvc_async.storage")
_TELL_EVERY: Final = 10.0  # s
# of SQLite's virtual machine, a millisecond, between looks whether to stop
STEPS: Final = 10_000
DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# s; one for each commit made puts slower, because it releases the GIL
_LOOK_EVERY: Final = 1.0
_SAFE = (
    "Keep it, and do not continue with an older copy or a new file: what those do not know would be done "
    "again. The documentation of batches says what is safe"
)
_DAMAGED = "the file is damaged", _SAFE
# A part of SQLite's message, what is wrong, and what to do.
_KNOWN = (
    (
        "full",
        "the disk is full, so nothing more was stored or sent",
        "Free some space and try again",
    ),
    (
        "readonly",
        "the file is read-only",
        "Check the permissions of the file and its folder",
    ),
    (
        "unable to open",
        "the file cannot be opened",
        "Check that the folder exists and is writable",
    ),
    ("malformed", *_DAMAGED),
    ("could not decode", *_DAMAGED),
    (
        "not a database",
        "the file is not a SQLite database",
        f"If it never was one, choose another path. Otherwise it is damaged. {_SAFE}",
    ),
    (
        "locked",
        "another connection is using the file",
        "End its transaction, or stop its process",
    ),
    (
        "disk i/o error",
        "the disk cannot be read or written",
        "Look at the system's log",
    ),
)


def is_locked(error: BaseException) -> bool:
    """Return whether another program kept the file locked for as long as SQLite waited."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    # A transaction whose snapshot became too old fails at once, and may succeed when it is repeated.
    return code & 0xFF == sqlite3.SQLITE_BUSY and code != sqlite3.SQLITE_BUSY_SNAPSHOT


def in_words(name: str, error: BaseException) -> JournalError:
    """Return a JournalError for *error* of the file *name*, with advice."""
    if isinstance(error, JournalError):
        return error
    said = str(error).partition(" with text ")[0]  # what follows is a stored value
    wrong = f"it failed with {type(error).__name__}"
    advice = "The cause of this error says where"
    if isinstance(error, sqlite3.Error):
        known = (each[1:] for each in _KNOWN if each[0] in said.lower())
        wrong, advice = next(known, (wrong, advice))
    failure = JournalError(f"{name}: {wrong} ({said}). {advice}.")
    failure.__cause__ = error
    return failure


def boot() -> str:
    """Return a text that stays the same until the machine is started again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (
        OSError
    ):  # not Linux: the hour in which it was started, as far as the clocks tell
        return f"{(time.time() - SystemClock.now()) // 3600:.0f}"


def opened_as(path: Path) -> str:
    """
    Return what an open file notes of itself, and deletes when it is closed.

    If a file at *path* has another note, the machine was started since, or it is a copy.
    """
    found = path.stat()
    return f"{boot()} {found.st_dev} {found.st_ino}"


def check_file(
    connection: sqlite3.Connection,
    name: str,
    stops: Callable[[], bool] | None = None,
) -> None:
    """
    Compare the tables of the file *name* with their indexes; that takes a second or more for a million rows.

    A kill of the process cannot damage a file.  A power cut can, where a disk loses what it has confirmed,
    and so can a copy that was made while the file was open.  The log says every ten seconds that it lasts.

    *stops*, if given, is asked now and then whether to give up, also by later statements of the connection.

    Raises:
        JournalError: They differ: the file is damaged.
        sqlite3.Error: It was interrupted, or a part of the file cannot be read.
    """
    begun = told = time.monotonic()

    def look() -> bool:
        nonlocal told
        now = time.monotonic()
        if now - told >= _TELL_EVERY:
            told = now
            _log.warning("%s: is searched for damage, since %.0f s", name, now - begun)
        return stops is not None and stops()

    connection.set_progress_handler(look, STEPS)
    try:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    finally:
        connection.set_progress_handler(stops, STEPS)
    if found == "ok":
        return
    if (code := _code_in(found)) is not None and code & 0xFF not in DAMAGE:
        raise _unread(found, code)
    wrong, advice = _DAMAGED
    raise JournalError(f"{name}: {wrong} ({found}). {advice}.")


def _code_in(found: str) -> int | None:
    """Return the error code in the text of a check, as of a page that SQLite could not load."""
    code = re.search(r"error code[ =](\d+)", found)
    if code is None:
        return None
    return int(code[1])


def _unread(found: str, code: int) -> sqlite3.Error:
    """Return the error of a statement that could not read the page: the check has hidden it."""
    what = "it cannot be checked"
    if code & 0xFF == sqlite3.SQLITE_IOERR:
        what = "disk I/O error"
    error = sqlite3.OperationalError(f"{what}: {found}")
    error.sqlite_errorcode = code
    return error


class SameFile:
    """Recognise that the file at *path* was deleted, replaced or emptied: what is stored would be lost."""

    def __init__(self, path: Path, name: str, users: str) -> None:
        self._path = path
        self._name = name
        self._users = users  # what has to be stopped, as the error says it
        self._opened: tuple[int, int, bool] | None = None
        self._looked = float("-inf")

    def remember(self) -> None:
        """Store the identity of the file, once the file is open."""
        self._opened = self._found()

    def check(self) -> None:
        """Raise JournalError if it is not the file that was opened; looks at most once a second."""
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
