"""
What an attempt proves, and what to do about the most common writes: sent at once, answered with a success.

No facts are gathered for such writes.  The decisions about them are the same as ``decide`` would return.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from invsvc_async.reconcile.history import (
    Attempt,
    Done,
    End,
    Evidence,
    History,
    Send,
    Verdict,
)

if TYPE_CHECKING:
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.settings import Timeouts


AttemptKind = Literal["applied", "not applied", "echo", "short", "long"]
# The kinds of attempts that may have had an effect: whether they had is not known.
AMBIGUOUS = ("short", "long")
# Those of attempts that certainly had none.
WITHOUT_EFFECT = ("not applied", "echo")
ANSWERED = Done(
    verdict=Verdict.APPLIED,
    reason="the service answered so",
    evidence=Evidence(basis="answered"),
)


def kind_of(attempt: Attempt) -> AttemptKind:
    """
    Classify an attempt: a definite yes or no, or ambiguous with a short or a long settle window.

    An "echo" is a 404, 409 or 410.  It is a definite no, but after a re-send the first send may have caused
    it.  A refusal that is in neither form of the service's is ambiguous: it may have come after the write.
    """
    status = attempt.status
    if attempt.end is End.NOT_SENT:
        return "not applied"
    if attempt.end is End.LOST or status is None:
        return "long"
    if 200 <= status < 300:
        return "applied" if attempt.readable and status != 202 else "long"
    if _is_refusal(status) and _is_in_own_form(attempt):
        return "echo" if status in (404, 409, 410) else "not applied"
    # The service has ended with the request: what it has done shows soon, if it has done it.
    if status == 500 and attempt.own_envelope:
        return "short"
    return "long"


def _is_refusal(status: int) -> bool:
    """Return whether *status* refuses a request.  A 408 says only that the service has stopped waiting."""
    return 400 <= status < 500 and status != 408


def _is_in_own_form(attempt: Attempt) -> bool:
    """Return whether the service itself answered, and nothing before it, such as a firewall."""
    return attempt.own_envelope or attempt.of_authentication


def refusal_of(attempt: Attempt) -> Attempt | None:
    """Return *attempt* if it was refused, perhaps after a send took effect: only absence makes it final."""
    if attempt.end is not End.ANSWERED or attempt.status is None:
        return None
    if not _is_refusal(attempt.status):
        return None
    is_final = kind_of(attempt) == "not applied"
    if is_final:
        return None
    return attempt


@lru_cache(maxsize=64)
def _first_send(attempt_timeout: float) -> Send:
    """Return the same decision for the same timeout: most writes of a program have one."""
    return Send(attempt_timeout=attempt_timeout)


def sent_at_once(
    kind: WriteKind,
    timeouts: Timeouts,
    *,
    has_baseline: bool,
    knows_clock: bool,
    never_listed: bool,
) -> Send | None:
    """Return the first send of a write that needs no read before it; ``None``: call ``decide``."""
    if not knows_clock:
        return None
    if never_listed:
        return None
    if kind.needs_baseline and not has_baseline:
        return None
    return _first_send(min(timeouts.attempt, timeouts.call))


def answered_at_once(history: History) -> Done | None:
    """Return APPLIED if the first send was answered with a success; ``None``: call ``decide``."""
    if len(history) != 1:
        return None
    only = history[0]
    if not isinstance(only, Attempt):
        return None
    if only.value is not None:
        return None  # what the answer holds belongs into the verdict
    if kind_of(only) == "applied":
        return ANSWERED
    return None
