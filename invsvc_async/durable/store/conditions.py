"""
What the columns of an entry say, as the conditions that statements share; and the numbers that they give.

The states of an entry are in ``store/__init__``.

Each condition stands after the name of a row: ``e.{OPEN}``; in ``DONE_AND_OPEN``, only its first column does.
Migrations repeat the texts, because a migration that was released never changes.

``lane`` says who may send an entry, and whether its time has come.  Only a number above 0 is a row of
``lanes``, with an owner.

===========  ==========================================================================================
a number n   the entry is in the lane n: the owner of that lane sends it, or settles what was sent
0            ``FREED``: a key of the user's own that was released; any run of the key may take it.  The
             process that had it may still have a request under way
-1           ``ENDED``: the same, but the process that had it provably sends nothing more
-1 - n       *aside*: it waits for its time, or behind one that does.  The owner of the lane n brings it back
===========  ==========================================================================================
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from invsvc_async.durable.entry import State

# Somebody still has to do something for the entry: to send or settle it, or, if it is DONE and has no key of
# the user's own, to give its verdict to the application, after which it is deleted (``unkeyed_removal``).
OPEN: Final = "done_at IS NULL"
UNFINISHED: Final = f"state < {State.DONE:d}"  # it has no verdict
# It has a verdict that the application has yet to get: in the journal of a client, of a write without a key.
DONE_AND_OPEN: Final = f"{OPEN} AND state = {State.DONE:d}"
# Its key is one of the user's own, so its digest tells whether an equal key is another write.  An entry that
# a client made up a key for has none.
KEYED: Final = "digest <> ''"
UNKEYED: Final = "digest = ''"

# Statements about one verdict say this, too, so that the index of those not applied is used.
NOT_APPLIED: Final = "verdict <> 'applied'"

FREED: Final = 0
ENDED: Final = -1
ONLY_LANE: Final = 1  # of a file of a batch or an outbox
IN_LANE: Final = "lane > 0"
ASIDE: Final = "lane < -1"
NOT_ASIDE: Final = "lane >= -1"


class Teller(IntEnum):
    """
    Who has to return the secret of a new webhook.  The statements give these numbers.

    That is what ``unheard`` has in the journal of a client, with that process as ``taker``.  In batches and
    outboxes, ``unheard`` has something else: the verdicts that nobody has acknowledged (``unheard``).
    """

    NOBODY = 0  # it was returned, or there is none
    LIVING = 1  # a living process has to
    GONE = 2  # a process that is gone had to, so the secret is lost


class WaitsFor(IntEnum):
    """Which other open writes to its thing a write waits for.  The statements are given these numbers."""

    EARLIER = 0
    EARLIER_AND_SENT = 1  # a create: for later ones that may have been sent, too
    SENT = 2  # a create that may have been sent itself: only for others that may have been, also later ones


def aside_of(lane: int) -> int:
    """Return the lane where writes of *lane* wait for their time."""
    return -1 - lane


def lane_of(lane: int) -> int:
    """Return the lane whose owner sends what is in *lane*, which may be one aside."""
    if is_aside(lane):
        return -1 - lane
    return lane


def is_aside(lane: int) -> bool:
    """Return whether entries in *lane* wait for their time."""
    return lane < -1


def open_aside(row: str) -> str:
    """Return the condition that the entry *row* is open and aside, in the form of two indexes."""
    return f"{row}.{OPEN} AND {row}.{ASIDE}"
