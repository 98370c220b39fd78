"""
Say at once what ``decide`` says of a write that nothing happens to: sent, and answered with a yes; pure.

Most writes are so, and for them nothing has to be gathered first.  Never anything that ``decide`` would not
say: a test holds the two against each other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from invsvc_async.reconcile.facts import kind_of
from invsvc_async.reconcile.history import Attempt, Done, Evidence, Send, Verdict

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.reconcile.history import History
    from invsvc_async.settings import Timeouts

__all__ = ["ANSWERED", "answered_at_once", "sent_at_once"]

ANSWERED = Done(
    verdict=Verdict.APPLIED, reason="the service answered so", evidence=Evidence(basis="answered")
)


def sent_at_once(
    operation: Operation,
    timeouts: Timeouts,
    *,
    has_baseline: bool,
    knows_clock: bool,
    never_listed: bool = False,
) -> Send | None:
    """Give the first send of a write where no read has to go before it; ``None``: ask ``decide``."""
    if not knows_clock or never_listed or (operation.finder == "updated_webhook" and not has_baseline):
        return None
    return _first_send(min(timeouts.attempt, timeouts.call))


@lru_cache(maxsize=64)
def _first_send(attempt_timeout: float) -> Send:
    return Send(attempt_timeout=attempt_timeout)


def answered_at_once(history: History) -> Done | None:
    """Tell that a write is applied where its first send was answered so; ``None``: ask ``decide``."""
    if len(history) != 1 or not isinstance(history[0], Attempt) or history[0].value is not None:
        return None
    return ANSWERED if kind_of(history[0]) == "applied" else None
