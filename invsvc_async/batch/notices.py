"""
The notices between the processes of a store, as texts of ``store.notify``.

=============  ========================================================================================
text           meaning
=============  ========================================================================================
``""``         not sent by a process, but given by the store: notices may have been missed, because the
               connection was lost; or what has changed is not known, as in a file
``"beat"``     give a sign of life now: something has changed by which lanes are divided
``"7"``        the lane 7 has something new
``"-8"``       the lane aside of the lane 7 has something new: a write that waits for its time, or less than
               before
=============  ========================================================================================
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from invsvc_async.durable.store.conditions import lane_of

BEAT: Final = "beat"


class Missed(NamedTuple):
    """Notices may have been missed."""


class Beat(NamedTuple):
    """Another process asks for a sign of life."""


class NewIn(NamedTuple):
    """The *lane* has something new to send."""

    lane: int


class NewAside(NamedTuple):
    """What waits aside of the *lane* has changed."""

    lane: int


Notice: TypeAlias = Missed | Beat | NewIn | NewAside


def notice_in(what: str) -> Notice | None:
    """Return the notice in the text *what*; ``None`` if it is not for batches or outboxes."""
    if not what:
        return Missed()
    if what == BEAT:
        return Beat()
    if what.isdecimal():
        return NewIn(int(what))
    if what.removeprefix("-").isdecimal():
        return NewAside(lane_of(int(what)))
    return None
