"""
The ends of attempts, and the verdicts on writes.

A client that only reads needs these, but not ``history``, which is slow to import.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["NO_EFFECT", "End", "Verdict"]


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
