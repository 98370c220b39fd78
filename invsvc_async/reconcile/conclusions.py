"""
Make the final word on a write, with the evidence for it.

What the word is, is decided in ``decide``; nothing here judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.history import Done, Evidence, Verdict

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Applied, Attempt, Basis, Reading

__all__ = ["applied", "done", "not_applied", "out_of_time", "refused", "shown", "unknown"]


def shown(known: Known, finding: Applied[Wire], reading: Reading) -> Done:
    """Say that the state shows the write, and by what it is known for ours."""
    basis: Basis = "match"
    if reading.finding is not None:
        basis = "reader"
    elif known.operation.finder == "deleted_webhook":
        basis = "gone"
    elif known.operation.finder in ("journey", "updated_webhook"):
        basis = "equal"
    elif known.intent.tag is not None:
        basis = "tag"
    return applied(known, finding.value, basis, "the state shows it", reading, duplicates=finding.duplicates)


def applied(
    known: Known,
    value: Wire,
    basis: Basis,
    reason: str,
    reading: Reading | None = None,
    *,
    duplicates: tuple[Wire, ...] | None = (),
) -> Done:
    """Say that the write came about; *duplicates* of ``None``: whether more than once is not known."""
    evidence = _evidence(known, basis, reading, duplicates=duplicates)
    return Done(verdict=Verdict.APPLIED, reason=reason, value=value, evidence=evidence)


def refused(known: Known, attempt: Attempt, reading: Reading | None = None) -> Done:
    """Say that the service's answer was a no; *reading* is what showed that it meant this very write."""
    reason = f"the service answered HTTP {attempt.status}"
    if reading is not None:
        reason += " to a re-send, and the state shows that the first send did nothing"
    return done(known, Verdict.REFUSED, reason, "answered", reading)


def not_applied(known: Known, basis: Basis, reason: str) -> Done:
    """Say that the write provably did not happen, and that it is not being sent."""
    return done(known, Verdict.NOT_APPLIED, reason, basis)


def out_of_time(known: Known) -> Done:
    """Say that the deadline was met before any read could tell."""
    if known.now < known.over:
        left = known.over - known.now
        return unknown(
            known, f"the time to find out ran out while the settle window is open for another {left:.1f} s"
        )
    return unknown(known, "the time to find out ran out: no read after the settle window could tell")


def unknown(
    known: Known, reason: str, reading: Reading | None = None, *, candidates: tuple[Wire, ...] = ()
) -> Done:
    """Say that nothing tells, and *candidates*: what may be ours."""
    evidence = _evidence(known, "none", reading, candidates=candidates)
    return Done(verdict=Verdict.UNKNOWN, reason=reason, evidence=evidence)


def done(known: Known, verdict: Verdict, reason: str, basis: Basis, reading: Reading | None = None) -> Done:
    """Say *verdict*, by *basis*."""
    return Done(verdict=verdict, reason=reason, evidence=_evidence(known, basis, reading))


def _evidence(
    known: Known,
    basis: Basis,
    reading: Reading | None,
    *,
    candidates: tuple[Wire, ...] = (),
    duplicates: tuple[Wire, ...] | None = (),
) -> Evidence:
    return Evidence(
        basis=basis,
        read_at=None if reading is None else reading.started,
        window_until=known.over if known.in_doubt and known.sends else None,
        candidates=candidates,
        duplicates=duplicates,
    )
