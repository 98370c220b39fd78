"""Constructors of verdicts with their evidence, for ``decide``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.history import Done, Evidence, Verdict

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Applied, Attempt, Basis, Cause, ErrorFacts, Reading

__all__ = ["applied", "done", "not_applied", "out_of_time", "refused", "shown", "unknown"]


def shown(known: Known, finding: Applied[Wire], reading: Reading) -> Done:
    """Return APPLIED because *reading* shows the write; the basis is how it was recognised."""
    basis: Basis = "tag"
    if reading.finding is not None:
        basis = "reader"
    elif not known.kind.creates or known.intent.tag is None:
        basis = known.kind.basis
    reason = "a read of the state shows the write"
    return applied(known, finding.value, basis, reason, reading, duplicates=finding.duplicates)


def applied(
    known: Known,
    value: Wire,
    basis: Basis,
    reason: str,
    reading: Reading | None = None,
    *,
    candidates: tuple[Wire, ...] = (),
    duplicates: tuple[Wire, ...] | None = (),
) -> Done:
    """Return APPLIED.  If *duplicates* is ``None``, whether there are duplicates is not known."""
    evidence = _evidence(known, basis, reading, candidates=candidates, duplicates=duplicates)
    return Done(verdict=Verdict.APPLIED, reason=reason, value=value, evidence=evidence)


def refused(known: Known, refusal: Attempt | ErrorFacts, reading: Reading | None = None) -> Done:
    """Return REFUSED.  *reading* is the one that showed, in doubt, that no send had an effect."""
    reason = f"the service answered HTTP {refusal.status}"
    if reading is not None:
        reason = f"the answer was HTTP {refusal.status}, and a read shows that no send had an effect"
    return done(known, Verdict.REFUSED, reason, "answered", reading)


def not_applied(
    known: Known, basis: Basis, reason: str, *, cause: Cause, reading: Reading | None = None
) -> Done:
    """Return NOT_APPLIED: the write provably did not happen, and is not sent."""
    return done(known, Verdict.NOT_APPLIED, reason, basis, reading, cause=cause)


def out_of_time(known: Known) -> Done:
    """Return UNKNOWN, because the deadline passed before a read was conclusive."""
    if known.now < known.over:
        left = known.over - known.now
        return unknown(
            known, f"time ran out while the settle window was open for another {left:.1f} s", "out of time"
        )
    return unknown(known, "time ran out: reads after the settle window were not conclusive", "out of time")


def unknown(
    known: Known,
    reason: str,
    cause: Cause,
    reading: Reading | None = None,
    *,
    candidates: tuple[Wire, ...] = (),
) -> Done:
    """Return UNKNOWN.  *candidates* may be effects of the write."""
    evidence = _evidence(known, "none", reading, candidates=candidates, cause=cause)
    return Done(verdict=Verdict.UNKNOWN, reason=reason, evidence=evidence)


def done(
    known: Known,
    verdict: Verdict,
    reason: str,
    basis: Basis,
    reading: Reading | None = None,
    *,
    cause: Cause | None = None,
) -> Done:
    """Return *verdict*, on *basis*."""
    return Done(verdict=verdict, reason=reason, evidence=_evidence(known, basis, reading, cause=cause))


def _evidence(
    known: Known,
    basis: Basis,
    reading: Reading | None,
    *,
    candidates: tuple[Wire, ...] = (),
    duplicates: tuple[Wire, ...] | None = (),
    cause: Cause | None = None,
) -> Evidence:
    return Evidence(
        basis=basis,
        read_at=None if reading is None else reading.started,
        window_until=known.over if known.in_doubt and known.sends else None,
        candidates=candidates,
        duplicates=duplicates,
        cause=cause,
    )
