"""
Say in words what is wrong with a journal's file; never hide an error.
"""

from __future__ import annotations

import sqlite3

from invsvc_async._errors import JournalError

__all__ = ["DAMAGED", "in_words"]

DAMAGED = "the file is damaged: restore a copy (a new journal would send again what this one knows as done)"
_HINTS = (
    ("full", "the disk is full, so nothing can be stored and nothing was sent: make room and start again"),
    ("readonly", "it cannot be written: check the file's and its folder's permissions"),
    ("unable to open", "it cannot be opened: check that the folder exists and can be written"),
    ("malformed", DAMAGED),
    ("not a database", "this is no journal: give another path"),
    ("locked", "another program is using the file: end it and start again"),
    ("disk i/o error", "the disk cannot be read or written"),
)


def in_words(path: str, error: BaseException) -> JournalError:
    """Make the error that says what is wrong with the journal at *path*, and what to do."""
    if isinstance(error, JournalError):
        return error
    said = str(error)
    hint = next((words for mark, words in _HINTS if mark in said.lower()), None)
    if hint is None or not isinstance(error, (sqlite3.Error, OSError)):
        hint = f"it failed with {type(error).__name__}"
    failure = JournalError(f"journal {path}: {hint} ({said})")
    failure.__cause__ = error
    return failure
