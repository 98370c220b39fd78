"""The stories of writes: their outcomes as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.history import Evidence, Verdict
from invsvc_async.reconcile.outcome import OutcomeBase

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import History
    from invsvc_async.reconcile.intent import Intent

__all__ = ["story_of"]


def story_of(intent: Intent, history: History, verdict: str = "unknown") -> str:
    """Return the JSON of an outcome with that *history*."""
    evidence = Evidence(basis="none")
    found = OutcomeBase[object](
        verdict=Verdict(verdict),
        message="because",
        evidence=evidence,
        started_as=intent,
        history=history,
    )
    return found.to_json()
