"""Intents from an older copy of a journal: any of them may have been sent since the copy was made."""

from __future__ import annotations

import attrs

from invsvc_async.reconcile.intent import Intent, Sent

__all__ = ["in_doubt"]


def in_doubt(intent: Intent, earliest: float | None = None) -> Intent:
    """
    Return *intent* with one more send, at an unknown time: after *earliest* (server time in s), if given.

    It is then settled like any write in doubt.
    """
    sent = Sent(earliest=earliest, attempt_timeout=intent.timeouts.attempt)
    # Later writes to the same thing may have been sent as well.
    newest = None if intent.newest else intent.newest
    if sent in intent.sent:
        return attrs.evolve(intent, newest=newest)
    if any(each.end is None or each.end.kind != "not applied" for each in intent.sent):
        return attrs.evolve(intent, sent=(*intent.sent, sent), newest=newest)
    # A state that was read before is no baseline: lost sends may have been before it.
    return attrs.evolve(intent, sent=(sent,), baseline=None, bounds=None, newest=newest)
