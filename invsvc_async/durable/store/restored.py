"""
How a store that went back in time, or was copied, is recognised, and the notes about such a store.

*Place* is here where a store is, and not, as for entries, the order of writes.  An *epoch* is no time, but
the identity that a store in a file gets when it is made.

What that means for its writes is in ``durable/intents.py``; for keys that it may lack, in ``key_names.py``.

In PostgreSQL, it is recognised by the place of its tables, which ``check_place`` in ``postgres`` compares:
the cluster's system identifier, the timeline of its log, and the identities of the database and of a table.
Recovery from a backup and the promotion of a replica begin a new timeline; a dump makes a new table;
``CREATE DATABASE … TEMPLATE`` makes a new database, whose tables have the identities of the old ones.  A
snapshot of the storage that is put back as it was cannot be recognised.

A file counts each time that it stores a write before a send.  A file beside it repeats the count after each
group of them.  A store that has counted less than the file beside it is an older copy.  The process that
has the store open remembers the count, too: so older contents that another program puts into the open file
are recognised before the next group.
"""

from __future__ import annotations

import logging
import os
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.durable.store.fact_names import MARK
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.errors import JournalError
from invsvc_async.storage.flush import flush
from invsvc_async.storage.private_file import own_private
from invsvc_async.storage.sqlite_writer import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

    from invsvc_async.durable.store.tables import Opening
    from invsvc_async.storage.dialect import Script, SqliteDialect


log: logging.Logger = logging.getLogger("invsvc_async.writes")

SETTLED: Final = (
    "%s. Its open writes are settled as if they had been sent again since. What was written after the copy "
    "was made is not in it: look for those writes in your own records."
)
_WRONG_WITH: Final = {
    "system": "the database is another server's than before: the journal was copied, or restored from a dump",
    "timeline": "the server was restored from a backup, or a replica was promoted, since the last use",
    "entries": "the tables were made anew: the journal was copied, or restored from a dump",
    "database": "the database is another one than before, and has its tables: it is a copy of that one",
}


class PlaceError(JournalError):
    """The store may lack sends, because it is in another place than before."""


class Mark(msgspec.Struct, kw_only=True):
    """
    What is noted of a restored store.  SQL looks into its JSON (``MARK_IS_OPEN``), where no default is left
    out.

    - ``through``: the number of the last entry of the copy, of which sends may be missing; ``UP_TO_ALL``
      while that is not known
    - ``since``: the copy had all sends until then (epoch ms); ``None`` if that is not known
    - ``is_open``: whether whole writes may be missing, too, and are still looked for: until the input of a
      batch was read again, no entry of the copy is open in an outbox, or a person has opened the journal of a
      client as complete
    """

    through: int
    since: int | None
    is_open: bool = True


_mark_in = msgspec.json.Decoder(Mark).decode
_encode = msgspec.json.Encoder().encode
# Of an outbox in a file, until its process has moved the rows of the copy from the application's file.
UP_TO_ALL: Final = 2**62
NOT_RESTORED: Final = Mark(
    through=0,
    since=None,
    is_open=False,
)


def marked() -> Script[Mark]:
    """Return what is noted, or ``NOT_RESTORED``."""
    found = yield store_sql.LOCK_FACT, (MARK,)
    if found:
        return _mark_in(found[0][0])
    return NOT_RESTORED


def mark_restored(through: int | None = None) -> Script[None]:
    """
    Note that sends may have been made of which the store does not know, of entries up to *through*.

    ``None``: up to the last one that is there now.
    """
    [(last,)] = yield entry_sql.LAST_NUMBER, ()
    [(since,)] = yield store_sql.LATEST_END, ()
    earlier = yield from marked()
    if earlier.is_open:
        # Writes lost by an earlier restore are still looked for, so its time stays.
        since = earlier.since
    mark = Mark(through=last if through is None else through, since=since)
    yield store_sql.SET_FACT, (MARK, _encode(mark).decode())


def close_restored() -> Script[None]:
    """Note that the search for writes missing in the copy has ended: see ``is_open`` of ``Mark``."""
    mark = yield from marked()
    if mark.is_open:
        yield (
            store_sql.SET_FACT,
            (MARK, _encode(replace(mark, is_open=False)).decode()),
        )


def wrong_with_place(before: Mapping[str, str], place: Mapping[str, str]) -> str | None:
    """
    Return what is wrong with a store that was used in the place *before* and is in *place* now.

    What only one of them names is not compared: version 0.1.0 did not note the database.
    """
    for name, what in _WRONG_WITH.items():
        are_named = name in before and name in place
        if are_named and before[name] != place[name]:
            return what
    return None


def place_of() -> Script[dict[str, str]]:
    """
    Return the place of a store in PostgreSQL.

    Raises:
        ConnectionError: The server is a standby, or still recovers, so its timeline is not decided.
    """
    [(timeline, entries, database)] = yield store_sql.PLACE, ()
    if timeline is None:
        raise ConnectionError("it is a standby, or still recovers")
    place = {"timeline": timeline, "database": database}
    if entries is not None:  # Without the table, the statements of the store fail.
        place["entries"] = entries
    if (yield store_sql.MAY_ASK_SYSTEM, ())[0][0]:
        [(place["system"],)] = yield store_sql.SYSTEM, ()
    return place


# --- a file: its place does not tell; the count of its sends does

_LENGTH = 80  # bytes of the file: one that is written at once has no torn state


class CountedSends(NamedTuple):
    """The identity of a store in a file, and how many sends it has counted."""

    epoch: str
    sends: int


_NOTHING = CountedSends("", 0)
_DAMAGED = CountedSends("", -1)  # stands for the count of a file that cannot be read
_OR_RESTORED = (
    "Nothing was sent. If nothing newer exists, run {it} with --restored (restored=True), which settles "
    "what may have been sent before it sends."
)


class CopyFault(NamedTuple):
    """
    What is wrong with a store: *what*, and the *advice* of errors, in whole sentences.

    Both are formats: in *what*, ``{beside}`` is the name of the file beside it; in *advice*, ``{it}`` what a
    person runs.
    """

    what: str
    advice: str


def wrong_with(
    store: CountedSends | None, beside: CountedSends | None
) -> CopyFault | None:
    """
    Return what is wrong with a store that has the count *store* beside a file with the count *beside*.

    A count of ``None`` stands for a store that is new, or a file that has no count yet.
    """
    if beside == _DAMAGED:
        return CopyFault(
            "the file {beside} is damaged, so whether this is an older copy is not known",
            _OR_RESTORED,
        )
    if beside is None:
        if store is None or not store.sends:
            return None
        return CopyFault(
            "the file {beside} is missing or empty, so this may be a copy, and later sends may be in another "
            "journal",
            "If it was moved, move that file too, or run {it} with --moved. "
            + _OR_RESTORED,
        )
    if store is None:
        if not beside.sends:
            return None
        return CopyFault(
            f"it is new, but {{beside}} counts {beside.sends:,} sends of a journal that was here",
            "Put that journal back. For another journal, choose another path, or delete that file. "
            + _OR_RESTORED,
        )
    if store.epoch != beside.epoch:
        return CopyFault(
            "the file {beside} belongs to another journal",
            "Put that journal back, or the right file. Nothing was sent.",
        )
    missing = beside.sends - store.sends
    if missing <= 0:
        return None
    sends = "send" if missing == 1 else f"{missing:,} sends"
    return CopyFault(
        f"it is an older copy, which lacks the last {sends}",
        f"Put the newest file back. {_OR_RESTORED}",
    )


def fact(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a fact about the whole store."""
    row = connection.execute(store_sql.GET_FACT_IN_FILE, (name,)).fetchone()
    if row is None:
        return None
    value: str = row[0]
    return value


def _counted_in(connection: sqlite3.Connection) -> CountedSends | None:
    """Return what the store has counted; ``None`` if it is new."""
    found = dict(connection.execute(store_sql.EPOCH_AND_SENDS).fetchall())
    if "sends" not in found:
        return None
    return CountedSends(str(found.get("epoch")), int(found["sends"]))


def _state_of(connection: sqlite3.Connection) -> int:
    """Return a number that is another one once another connection, of any program, has changed the file."""
    state: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return state


@attrs.define(eq=False)
class Epoch:
    """
    The identity and the count of sends of a store in a file: stored there, and in the file *path* beside it.

    Errors call the store *name*.  One that may lack sends is treated as *how* says, and if it is accepted,
    that is noted in the same transaction.  ``moved`` only accepts one that lacks the file beside it.
    """

    _path: Path
    _name: str
    _dialect: SqliteDialect
    _how: Opening
    # The open file beside the store, as its number; -1: it is not open.
    _number: int = attrs.field(init=False, default=-1)
    # What both have said last.
    _standing: CountedSends = attrs.field(init=False, default=_NOTHING)
    # SQLite's number for the state of the file, which other connections change.  -1: check in any case.
    _state: int = attrs.field(init=False, default=-1)

    def begin(self, connection: sqlite3.Connection) -> None:
        """
        Check the store, and continue its count. The caller has the lock of the file.

        Raises:
            JournalError: It may lack sends that were made, and people must be asked; or the file beside it
                cannot be used.
        """
        try:
            self._begin(connection)
        except OSError as error:
            raise JournalError(
                f"{self._name}: the file {self._path.name} cannot be used ({error.strerror}). "
                "Check the permissions of the file and its folder."
            ) from error

    def _begin(self, connection: sqlite3.Connection) -> None:
        beside = self._read()
        self._state = _state_of(connection)
        here = _counted_in(connection)
        wrong = wrong_with(here, beside)
        restored = self._how.restored
        is_accepted = restored or (self._how.moved and beside is None)
        if wrong is not None and not is_accepted:
            self._refuse_or_log(wrong)
            restored = True
        # The identity is the store's.  A new store takes that of the file beside it, or a new one: if
        # there is no file, or it is damaged.  The count is the higher one: the file may know of more sends
        # than a copy that was accepted.
        known = here or beside or _NOTHING
        sends = max(known.sends, 0 if beside is None else beside.sends, 0)
        if restored or wrong is not None:
            sends += 1  # Other copies of this store are older from now on.
        epoch = known.epoch or token_hex(16)
        with transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute(store_sql.SET_FACT_IN_FILE, ("epoch", epoch))
            connection.execute(store_sql.SET_FACT_IN_FILE, ("sends", str(sends)))
            if restored:
                through = UP_TO_ALL if self._how.kind == "outbox" else None
                self._dialect.run(connection, mark_restored(through))
        self._standing = CountedSends(epoch, sends)
        self.close()
        self._number = own_private(self._path)
        os.ftruncate(self._number, _LENGTH)
        self._write()
        flush(self._number)

    def _refuse_or_log(self, wrong: CopyFault) -> None:
        """Raise JournalError if people must be asked what is *wrong*; otherwise only log it."""
        what = wrong.what.format(beside=self._path.name)
        words = f"{self._name}: {what}"
        if not self._how.asks_people:
            log.error(SETTLED, words)
            return
        advice = wrong.advice.format(it=self._how.run_by)
        raise JournalError(f"{words}. {advice}")

    def check(self, connection: sqlite3.Connection) -> None:
        """
        Check that no other program has replaced the contents of the open store, as SQLite's restore does.

        Raises:
            JournalError: They lack sends, or are of another store.  Later calls raise it, too.
        """
        state = _state_of(connection)
        if state == self._state:
            return
        wrong = wrong_with(_counted_in(connection) or _NOTHING, self._standing)
        if wrong is not None:
            what = wrong.what.format(beside=self._path.name)
            raise JournalError(
                f"{self._name}: its contents were replaced while it was open: {what}. Nothing is sent from "
                "now on. Stop this program, put the newest file back, and start again."
            )
        self._state = state

    def note_sends(self, connection: sqlite3.Connection, sends: int | None) -> None:
        """
        Repeat in the file that *sends* more were stored.

        ``None``: how many is not known, so the store is asked for its count.
        """
        if sends == 0:
            return
        if sends is None:
            here = _counted_in(connection) or _NOTHING
            if wrong_with(here, self._standing) is not None:
                # The count beside it stays, and the next check raises.
                self._state = -1
                return
            count = here.sends
        else:
            count = self._standing.sends + sends
        self._standing = self._standing._replace(sends=count)
        self._write()

    def close(self) -> None:
        """Close the file. Nothing may count any more."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _read(self) -> CountedSends | None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        # A kill or power cut came before its first count: nothing was sent yet.
        if not text.strip(b"\0"):
            return None
        try:
            return msgspec.json.decode(text, type=CountedSends)
        except msgspec.DecodeError:
            return _DAMAGED

    def _write(self) -> None:
        """Write the count. A power cut may undo that, and then older copies of the last seconds pass."""
        text = msgspec.json.encode(self._standing).ljust(_LENGTH - 1) + b"\n"
        os.lseek(self._number, 0, os.SEEK_SET)
        os.write(self._number, text)
