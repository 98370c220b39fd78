"""An entry of a store: the key of a write, its intent, and its progress."""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.writes.noted import NOTED_NAMES, NOTHING_NOTED, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.storage.dialect import Cell


# A *claim* in an entry is not that of a key: it is the id of the webhook that an untagged create has made.
ANSWERED = "="  # before that id if an answer contained it; others may come from a match

# The columns of an entry, in the order of `entry_in`.
ENTRY: Final = (
    "e.seq, e.place, e.key, e.lane, e.thing, e.digest, e.operation, e.state, e.common, e.intent, e.verdict,"
    " e.outcome, e.claim, e.done_at"
)
_NAMES: Final = tuple(name.partition(".")[2] for name in ENTRY.split(", "))
# What every store has of a new write, in the order of ``written_of``.  Its number, its place and its lane are
# the store's own.
_NOTED: Final = " ".join(f"{name}:text" for name in NOTED_NAMES)
WRITTEN: Final = (
    "key:text thing:text digest:text operation:text state:smallint common:bigint intent:text"
    f" {_NOTED} team:text"
)
WRITTEN_NAMES: Final = tuple(each.partition(":")[0] for each in WRITTEN.split())
# Any: of each column its own
written_of: attrgetter[tuple[Any, ...]] = attrgetter(
    *(f"noted.{name}" if name in NOTED_NAMES else name for name in WRITTEN_NAMES)
)
# What changes in an entry, in the order of ``columns_of``.
CHANGING: Final = (
    "state:smallint common:bigint intent:text claim:text verdict:text outcome:text done_at:bigint"
    " flags:smallint"
)
CHANGING_NAMES: Final = [each.partition(":")[0] for each in CHANGING.split()]
SET_CHANGING: Final = ", ".join(f"{name} = given.{name}" for name in CHANGING_NAMES)
# Any: of each column its own
columns_of: attrgetter[tuple[Any, ...]] = attrgetter(*CHANGING_NAMES)


class State(IntEnum):
    """The progress of a write.  The numbers are stored."""

    TO_DO = 0  # not sent yet, or reopened
    SENDING = 1  # stored before its first byte, so a byte may have left
    DONE = 2  # it has a verdict, which may be UNKNOWN


class VerdictAt(NamedTuple):
    """A verdict of the entry ``seq``; ``done_at`` tells one from the next verdict of the entry."""

    seq: int
    done_at: int | None


# two are made for each write, and attrs classes are slower
class Entry(msgspec.Struct, kw_only=True):
    """
    One row of a store.

    - ``place``: its place in the order of the writes to one thing (``store/order``): that of its arrival, or
      a later one. 0 without a key of the user's own.
    - ``lane``: the part of the store that it is in.
    - ``thing``: what it writes to, if others may not be sent meanwhile.
    - ``digest``: of the request, by which a changed input is recognised.
    - ``common`` and ``intent``: the packed intent, None once it is not needed any more.
    - ``outcome``: the record of the outcome, as JSON.
    - ``claim``: the id of the webhook that an untagged create made, after ``ANSWERED`` if an answer
      contained it.
    - ``done_at``: epoch ms, in a database by its clock, in a file by this machine's, within the bounds that
      the service's answers set.
    - ``taker``: who gives its verdict to the application.
    - ``flags``: what is counted of ``outcome``, as ``records.flags_of``; stored with it, and not read again.
    - ``team``: the one that the request names, or "", by which a dispatcher takes turns; not read again.
    - ``noted``: by the user, a column for each field; stored once, read for commands.
    - ``not_before``: the time before which it is not sent, as the user gave it (epoch ms); the same.
    - ``is_behind``: whether it comes behind one to the same thing that waits for its time; only as it is
      read to be sent.
    - ``heard`` and ``added_at``: whether its verdict was acknowledged, and when it was stored first (epoch
      ms), as commands show them.
    """

    seq: int = 0
    key: str
    state: State
    operation: str
    verdict: str | None = None
    common: int | None = None
    intent: str | None = None
    outcome: str | None = None
    claim: str | None = None
    done_at: int | None = None
    taker: str | None = None
    flags: int = 0
    heard: bool = False
    added_at: int | None = None
    place: int = 0
    lane: int = 0
    thing: str | None = None
    digest: str = ""
    noted: Noted = NOTHING_NOTED
    team: str = ""
    not_before: int | None = None
    is_behind: bool = False


def entry_in(row: Sequence[Cell]) -> Entry:
    """Return the entry in *row*, which has the columns ``ENTRY``; raise JournalError if it is damaged."""
    fields = dict(zip(_NAMES, row, strict=True))
    try:
        return msgspec.convert(fields, Entry)
    except msgspec.ValidationError as error:
        raise unreadable(fields["key"], error) from None


def is_same_row(one: Entry, other: Entry) -> bool:
    """Return whether two readings show the same row, whatever was noted for people beside it."""
    bare = [
        replace(each, heard=False, added_at=None, noted=NOTHING_NOTED, not_before=None)
        for each in (one, other)
    ]
    return bare[0] == bare[1]


def unreadable(key: object, why: object) -> JournalError:
    """Return the error for the damaged entry of *key*."""
    if isinstance(why, InvalidRequestError):
        why = "; ".join(why.problems)  # its advice is about arguments
    return JournalError(
        f"entry {key!r} of the journal: it cannot be read ({why}). Keep the file, and do not continue with "
        "an older copy: what the copy does not know would be done again. The documentation of batches says "
        "what is safe."
    )


class LostEntryError(JournalError):
    """
    The entry belongs to another process: nothing may be sent for it here.

    Another process has taken its lane, or the entry was dropped, finished or reopened.
    """


class AnotherIsHeldError(JournalError):
    """Another create of the thing, which may have been sent, has to end before this one can be acquired."""
