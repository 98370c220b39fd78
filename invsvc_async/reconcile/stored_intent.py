"""The form in which an intent is stored during its write, so that another process can settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.reconcile.facts import kind_of, refusal_of
from invsvc_async.reconcile.history import Reading
from invsvc_async.reconcile.intent import Intent, Sent, SentEnd

if TYPE_CHECKING:
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Attempt, Bounds, Send


def stored(
    known: Known, *, livemode: bool | None = None, send: Send | None = None, at: float = 0.0
) -> Intent:
    """
    Return the intent with the sends, the baseline and the clock bounds that are known by now.

    *livemode* is the data mode that answers have shown.  *send*, about to begin at *at* (local s), is
    included, because it is stored before its first byte.
    """
    intent, scope = known.intent, known.intent.scope
    # A running write is the newest to its resource, because it has its turn.
    newest = True if known.resumed is None else known.resumed.newest
    if livemode is not None and scope.livemode is None:
        scope = attrs.evolve(scope, livemode=livemode)
    if send is not None and not known.history and intent.baseline is None:  # nothing is known yet
        about_to = _about_to(send, at, intent.bounds)
        return revised(intent, scope=scope, sent=(*intent.sent, about_to), newest=newest)
    bounds, strangers, forgotten_until = known.bounds, known.strangers, known.forgotten_until
    sent = [_sent(attempt, bounds) for attempt in known.attempts]
    if send is not None:
        sent.append(_about_to(send, at, bounds))
        last = known.history[-1] if known.history else None
        if isinstance(last, Reading):
            strangers |= known.shown_by(last)
            if known.shows_list(last) and not (known.carried or known.attempts):
                forgotten_until = None
    return revised(
        intent,
        scope=scope,
        baseline=known.before,
        baseline_at=known.before_at,
        bounds=bounds,
        sent=(*intent.sent, *sent),
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
        newest=newest if known.history or send is not None else intent.newest,
    )


def revised(intent: Intent, **changes: Any) -> Intent:  # Any: as the fields
    """Return a copy with *changes*, in 0.8 µs against 2.2 µs of ``attrs.evolve`` (on 3.11)."""
    copy: Intent = object.__new__(Intent)
    vars(copy).update(vars(intent), **changes)
    return copy


def _about_to(send: Send, at: float, bounds: Bounds | None) -> Sent:
    return Sent(
        earliest=at + bounds.low if bounds else None,
        latest=at + bounds.high if bounds else None,
        attempt_timeout=send.attempt_timeout,
    )


def _sent(attempt: Attempt, bounds: Bounds | None) -> Sent:
    kind, refusal = kind_of(attempt), refusal_of(attempt)
    return Sent(
        earliest=attempt.started + bounds.low if bounds else None,
        latest=attempt.started + bounds.high if bounds else None,
        attempt_timeout=attempt.timeout,
        end=SentEnd(
            kind="not applied" if kind == "echo" else kind,
            latest=attempt.ended + bounds.high if bounds else None,
            earliest=attempt.ended + bounds.low if bounds else None,
            refusal=None if refusal is None else refusal.error,
        ),
    )
