"""
The ends of attempts, the verdicts on writes, and clock bounds.

A client that only reads needs these, but not ``history``, which is slow to import.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

__all__ = ["NO_EFFECT", "Bounds", "End", "Verdict"]


class End(StrEnum):
    """The three ways in which an attempt can end."""

    ANSWERED = "answered"  # a whole response arrived
    NOT_SENT = "not sent"  # provably not one byte left this machine
    LOST = "lost"  # anything else


class Verdict(StrEnum):
    """The outcome of a write."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


# a write that ended so has overtaken nothing
NO_EFFECT = Verdict.NOT_APPLIED, Verdict.REFUSED


class Bounds(Struct, frozen=True, kw_only=True):
    """Bounds of the service's clock minus this machine's monotonic clock, in seconds."""

    low: float
    high: float
