"""
How a journal that went back in time is recognised: by a count of its sends that is kept outside it too.

The journal counts each time that it stores a write before a send. A file beside it repeats the count after
each group of them. A journal that has counted less than the file is an older copy.
"""

from __future__ import annotations

import logging
import os
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from invsvc_async.durable.restored import SETTLED
from invsvc_async.errors import JournalError
from invsvc_async.storage.private_file import own_private
from invsvc_async.storage.sqlite_writer import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Epoch", "Standing", "fact", "wrong_with"]

log: logging.Logger = logging.getLogger("invsvc_async.writes")

_SET = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
_LENGTH = 80  # bytes of the file: one that is written at once has no torn state


_ANOTHER = "the file {beside} belongs to another journal"


class Standing(NamedTuple):
    """The identity of a journal, and how many sends it has counted."""

    epoch: str
    sends: int


_DAMAGED = Standing("", -1)  # what a file says that cannot be read


def wrong_with(journal: Standing | None, beside: Standing | None) -> str | None:
    """
    Return what is wrong with a journal that has counted *journal*, if the file beside it says *beside*.

    ``None`` stands for a journal that is new, or a file that has no count yet.
    """
    if beside == _DAMAGED:
        return "the file {beside} is damaged, so whether this is an older copy is not known"
    if beside is None:
        if journal is None or not journal.sends:
            return None
        return (
            "the file {beside} is missing or empty, so this may be a copy, and later sends may be in another "
            "journal. If it was moved, move that file too, or run {it} with --moved"
        )
    if journal is None:
        if not beside.sends:
            return None
        return (
            f"it is new, but {{beside}} counts {beside.sends:,} sends of a journal that was here. Put that "
            "journal back. For another journal, choose another path, or delete that file"
        )
    if journal.epoch != beside.epoch:
        return f"{_ANOTHER}. Put that journal back, or the right file"
    missing = beside.sends - journal.sends
    if missing <= 0:
        return None
    sends = "send" if missing == 1 else f"{missing:,} sends"
    return f"it is an older copy, which lacks the last {sends}. Put the newest file back"


_OTHERWISE = (
    "Nothing was sent. If nothing newer exists, run {it} with --restored (restored=True), which settles "
    "what may have been sent before it sends"
)


def fact(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a fact about the whole journal."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


class Epoch:
    """
    The count of sends of the journal at *path*, which errors call *name*, in the journal and beside it.

    With *restored*, a journal that may lack sends is accepted, and *mark* notes so in the same transaction.
    With *moved*, one whose file is missing is accepted as complete. *it* is what errors advise to run;
    without it, each journal is accepted, and one that may lack sends is logged as an error and marked.
    """

    def __init__(
        self, path: Path, name: str, *, mark: Callable[[sqlite3.Connection], None], it: str | None,
        restored: bool = False, moved: bool = False,
    ) -> None:  # fmt: skip
        self._path = path.with_name(f"{path.name}.epoch")
        self._name = name
        self._mark = mark
        self._it = it
        self._restored, self._moved = restored, moved
        self._number = -1
        self._standing = Standing("", 0)

    def begin(self, connection: sqlite3.Connection) -> None:
        """
        Check the journal, and continue its count. The caller has the lock of the file.

        Raises:
            JournalError: It may lack sends that were made, and people must be asked.

        """
        beside = self._read()
        counted = fact(connection, "sends")
        journal = None if counted is None else Standing(str(fact(connection, "epoch")), int(counted))
        wrong = wrong_with(journal, beside)
        restored = self._restored
        if wrong is not None and not (restored or (self._moved and beside is None)):
            if self._it is not None:
                advice = "Nothing was sent" if wrong.startswith(_ANOTHER) else _OTHERWISE
                words = f"{wrong}. {advice}.".format(beside=self._path.name, it=self._it)
                raise JournalError(f"{self._name}: {words}")
            what = wrong.partition(". ")[0].format(beside=self._path.name)
            log.error(SETTLED, f"{self._name}: {what}")
            restored = True
        known = journal or beside or _DAMAGED
        sends = max(known.sends, 0 if beside is None else beside.sends, 0)
        sends += restored or wrong is not None  # so that other copies are older from now on
        epoch = known.epoch or token_hex(16)
        with transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute(_SET, ("epoch", epoch))
            connection.execute(_SET, ("sends", str(sends)))
            if restored:
                self._mark(connection)
        self._standing = Standing(epoch, sends)
        self._open()

    def ended(self, connection: sqlite3.Connection, sends: int | None) -> None:
        """Repeat in the file that *sends* more were stored; ``None`` if how many is not known."""
        if sends == 0:
            return
        count = int(fact(connection, "sends") or 0) if sends is None else self._standing.sends + sends
        self._standing = self._standing._replace(sends=count)
        self._write()

    def close(self) -> None:
        """Close the file. Nothing may count any more."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _read(self) -> Standing | None:
        """Return what the file says."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        if not text.strip(b"\0"):  # a kill or power cut came before its first count: nothing was sent yet
            return None
        try:
            return msgspec.json.decode(text, type=Standing)
        except msgspec.DecodeError:
            return _DAMAGED

    def _open(self) -> None:
        """Open the file, which then says the same as the journal, durably."""
        self.close()
        try:
            self._number = own_private(self._path)
            os.ftruncate(self._number, _LENGTH)
            self._write()
            os.fsync(self._number)
        except OSError as error:
            raise self._unusable(error) from error

    def _write(self) -> None:
        """Write the count. A power cut may undo that, and then older copies of the last seconds pass."""
        text = msgspec.json.encode(self._standing).ljust(_LENGTH - 1) + b"\n"
        if hasattr(os, "pwrite"):
            os.pwrite(self._number, text, 0)
        else:  # pragma: no cover - Windows
            os.lseek(self._number, 0, os.SEEK_SET)
            os.write(self._number, text)

    def _unusable(self, error: OSError) -> JournalError:
        return JournalError(
            f"{self._name}: the file {self._path.name} cannot be used ({error.strerror}). "
            "Check the permissions of the file and its folder."
        )
