"""The errors of SQLite, worded for people."""

from __future__ import annotations

import sqlite3

from invsvc_async.errors import JournalError

__all__ = ["damaged", "in_words", "is_locked"]

_SAFE = (
    "Keep it, and do not continue with an older copy or a new file: what those do not know would be done "
    "again. The documentation of batches says what is safe"
)
_DAMAGED = "the file is damaged", _SAFE
# A part of SQLite's message, what is wrong, and what to do.
_KNOWN = (
    ("full", "the disk is full, so nothing more was stored or sent", "Free some space and try again"),
    ("readonly", "the file is read-only", "Check the permissions of the file and its folder"),
    ("unable to open", "the file cannot be opened", "Check that the folder exists and is writable"),
    ("malformed", *_DAMAGED),
    ("could not decode", *_DAMAGED),
    (
        "not a database",
        "the file is not a SQLite database",
        f"If it never was one, choose another path. Otherwise it is damaged. {_SAFE}",
    ),
    ("locked", "another connection is using the file", "End its transaction, or stop its process"),
    ("disk i/o error", "the disk cannot be read or written", "Look at the system's log"),
)


def damaged(name: str, found: str) -> JournalError:
    """Return the error that the file *name* is damaged, as was *found*."""
    wrong, advice = _DAMAGED
    return JournalError(f"{name}: {wrong} ({found}). {advice}.")


def is_locked(error: BaseException) -> bool:
    """Return whether another program kept the file locked for as long as SQLite waited."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    # A transaction whose snapshot became too old fails at once, and may succeed when it is repeated.
    return code & 0xFF == sqlite3.SQLITE_BUSY and code != sqlite3.SQLITE_BUSY_SNAPSHOT


def in_words(name: str, error: BaseException) -> JournalError:
    """Return a JournalError that says what is wrong with the file *name*, and what to do."""
    if isinstance(error, JournalError):
        return error
    said = str(error).partition(" with text ")[0]  # what follows is a stored value
    wrong, advice = f"it failed with {type(error).__name__}", "The cause of this error says where"
    if isinstance(error, sqlite3.Error):
        known = (each[1:] for each in _KNOWN if each[0] in said.lower())
        wrong, advice = next(known, (wrong, advice))
    failure = JournalError(f"{name}: {wrong} ({said}). {advice}.")
    failure.__cause__ = error
    return failure
