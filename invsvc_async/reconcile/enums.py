"""
Name how an attempt ends and what a write comes to; bracket a clock: what even a client that only reads needs.

Never the rest of the evidence: its classes take as long to make as all that a read needs.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

__all__ = ["Bounds", "End", "Verdict"]


class End(StrEnum):
    """The three ends of an attempt (there is no fourth)."""

    ANSWERED = "answered"  # a whole response arrived
    NOT_SENT = "not sent"  # provably not one byte left
    LOST = "lost"  # anything else


class Verdict(StrEnum):
    """What became of a write."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class Bounds:
    """Bracket the service's clock minus this machine's steady clock, in seconds."""

    low: float
    high: float
