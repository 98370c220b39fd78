"""
Say what an entry of a journal is: a write's key, its intent and how far it got; never store one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from invsvc_async._errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANSWERED", "Entry", "LostChunkError", "Mark", "State", "entry_of", "unreadable"]


ANSWERED = "="  # before the id of a claim that an answer gave; one without it may come from a match


class State(IntEnum):
    """How far a write got.  The numbers are stored."""

    TO_DO = 0  # nothing of it was sent; or it is to be taken up again
    SENDING = 1  # stored durably before its first byte, so a byte may have left
    DONE = 2  # its verdict is known, or known to be unknown


class Entry(msgspec.Struct, kw_only=True):  # two are made for each write, and attrs classes take long
    """
    One row of a journal.

    ``content`` is a digest of what was asked for, by which a changed input is recognised; ``run`` the run
    whose input brought it, or on one machine the last that held it; ``common`` and ``intent`` the packed
    intent (none once it is not needed any more); ``outcome`` a JSON text of what became of it; ``claim`` the
    id of the webhook that an untagged create made, after ``ANSWERED`` if an answer gave it;
    ``done_at`` epoch ms by this machine, for reports only.
    """

    seq: int = 0
    key: str
    content: bytes = b""
    state: State
    run: int = 0
    operation: str
    verdict: str | None = None
    common: int | None = None
    intent: str | None = None
    outcome: str | None = None
    claim: str | None = None
    done_at: int | None = None


def entry_of(row: Mapping[str, Any]) -> Entry:  # Any: as the fields
    """
    Take an entry back from its columns.

    Raises:
        JournalError: It is damaged: a column holds what nobody stored there.

    """
    try:
        return msgspec.convert({**row}, Entry, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise unreadable(row["key"], error) from None


def unreadable(key: object, why: object) -> JournalError:
    """Say that the entry of *key* is damaged."""
    return JournalError(f"entry {key!r} of the journal cannot be read: {why}. Restore a copy of the file.")


class LostChunkError(JournalError):
    """Another worker has taken this entry's chunk over: what it does counts; nothing is to be sent here."""


@attrs.frozen
class Mark:
    """What an input is compared with: an entry's content and state, and whether this input held it before."""

    content: bytes
    state: State = attrs.field(converter=State)
    met: bool
