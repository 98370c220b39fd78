"""What an intent stores of the facts about its write: all that another process needs to settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from invsvc_async.codec.fields import maker_of
from invsvc_async.reconcile.attempts import kind_of, refusal_of
from invsvc_async.reconcile.before_send import forgotten_after, look_alikes_in
from invsvc_async.reconcile.differences import differences, digest, is_part
from invsvc_async.reconcile.intent import Intent, Scope, Sent, SentEnd, revised
from invsvc_async.reconcile.write_clock import server_times

if TYPE_CHECKING:
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Attempt, Bounds, Send

_make_sent = maker_of(Sent)


def stored(
    known: Known,
    *,
    livemode: bool | None = None,
    send: Send | None = None,
    at: float = 0.0,
) -> Intent:
    """
    Return the intent with the sends, the baseline and the clock bounds that are known by now.

    *livemode* is the data mode that answers have shown.  *send*, about to begin at *at* (local s), is
    included, because it is stored before its first byte.
    """
    intent = known.intent
    scope = _scope_with(intent.scope, livemode=livemode)
    # A running write is the newest to its resource, because it has its turn.
    newest = True if known.resumed is None else known.resumed.newest
    if send is not None and not known.history and intent.baseline is None:
        # Nothing is known yet but what the intent has: the facts below would say the same.
        sent_first = _about_to(send, at, intent.bounds)
        return revised(
            intent,
            scope=scope,
            sent=(*intent.sent, sent_first),
            newest=newest,
        )
    bounds = known.clock.bounds
    sent = [_sent(attempt, bounds) for attempt in known.attempts]
    strangers = known.strangers.ids
    forgotten_until = known.strangers.forgotten_until
    if send is not None:
        sent.append(_about_to(send, at, bounds))
        strangers |= look_alikes_in(known.last, known.kind, intent.body)
        forgotten_until = _forgotten_until(known)
    has_begun = bool(known.history) or send is not None
    return revised(
        intent,
        scope=scope,
        baseline=known.state_before.state,
        baseline_at=known.state_before.seen_at,
        bounds=bounds,
        sent=(*intent.sent, *sent),
        strangers=tuple(sorted(strangers)),
        forgotten_until=forgotten_until,
        newest=newest if has_begun else intent.newest,
        policy=known.policy if send is None else known.own_policy,
        mixture=_mixture(known) or intent.mixture,
    )


def _scope_with(scope: Scope, *, livemode: bool | None) -> Scope:
    """Return *scope* with the data mode of the answers, unless the scope has one."""
    if livemode is None:
        return scope
    if scope.livemode is not None:
        return scope
    return attrs.evolve(scope, livemode=livemode)


def _forgotten_until(known: Known) -> int | None:
    """Return ``forgotten_until`` for a send that is about to begin.  A list before the first may show all."""
    until = known.strangers.forgotten_until
    is_first = not known.windows.carried and not known.attempts
    if is_first:
        return forgotten_after(known.last, known.kind, until)
    return until


def _about_to(send: Send, at: float, bounds: Bounds | None) -> Sent:
    earliest, latest = server_times(at, bounds)
    return _make_sent(
        earliest=earliest,
        latest=latest,
        attempt_timeout=send.attempt_timeout,
    )


def _sent(attempt: Attempt, bounds: Bounds | None) -> Sent:
    kind = kind_of(attempt)
    if kind == "echo":
        kind = "not applied"
    refusal = refusal_of(attempt)
    ended_from, ended_by = server_times(attempt.ended, bounds)
    end = SentEnd(
        kind=kind,
        latest=ended_by,
        earliest=ended_from,
        refusal=None if refusal is None else refusal.error,
    )
    earliest, latest = server_times(attempt.started, bounds)
    return Sent(
        earliest=earliest,
        latest=latest,
        attempt_timeout=attempt.timeout,
        end=end,
    )


def _mixture(known: Known) -> str | None:
    """Return a digest of the state in the last event, if a read there shows an update stored in part."""
    body = known.intent.body
    last = known.last_reading
    if last is None or not isinstance(body, dict):
        return None
    if not known.in_doubt:
        return None
    if last.started < known.windows.over:
        return None
    if not last.own_envelope or not isinstance(last.seen, dict):
        return None
    wanted = known.kind.thing.visible(body)
    if not is_part(differences(known.kind, wanted, known.baseline, last.seen)):
        return None
    return digest(wanted, last.seen)
