"""
The decision what to do next about a write, based on all events of the write.

``decide`` is a pure function from the facts to a decision: ``Send``, ``Read``, ``Wait`` or ``Done``. It
has no clock: "now" is the time of the last event. Live writes, ``settle``, ``resume``, batches, outboxes
and the exhaustive check all use it, so a rule is stated once. ``findings`` judges what a read shows; the
windows, the deadline and the rule for re-sends are here.

A write is in one of two states:

- **Nothing is ambiguous** (``_first``). No attempt was made, or each ended in a definite "no". It may be
  sent.
- **In doubt** (``_settle``). An attempt may have had an effect: its answer was lost, or says nothing.
  Only the service's state decides from here on, and the state of "in doubt" is never left except by a
  verdict.

In doubt, time has three parts. Until the *settle windows* of all sends are over (``known.over``), a
request may still take effect: a read that shows the write is a proof, a read that does not show it is
none. After that, one read decides. At the *deadline*, what is not known stays UNKNOWN.

A re-send needs a proof of its own: the event just before it is a read that began after all windows and
shows absence. The proof lasts ``PROOF_LASTS`` seconds, because the longer ago the read was, the more can
have happened since. So two sends can both take effect only if a request arrives later than any window,
and that is what the windows are for; ``policy`` sets them.

An update that the service stored in part is in between. Live, it is UNKNOWN. A resumed one is sent again,
once, if a read after all windows shows the very mixture that the read before its verdict showed: nothing has
changed since, so to repeat the update only completes it.

What conflicts: after a re-send, the answer "404" or "409" may be the echo of the first send, so it is
read again (``known.refusal``). A create that was sent twice needs one more read for duplicates, even if
it was answered (``_needs_audit``). A resumed write must not be sent if a newer write to the same thing
may have been (``_held_back``). ``Closed`` ends everything at once, with what is known.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from invsvc_async.reconcile.attempts import kind_of
from invsvc_async.reconcile.findings import find, is_evidence, is_unique, no_such_read
from invsvc_async.reconcile.history import (
    Absent,
    Applied,
    Attempt,
    CannotTell,
    Closed,
    Done,
    End,
    Evidence,
    Holds,
    Partly,
    Read,
    Reading,
    Send,
    Superseded,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.intent import NEVER_LISTED
from invsvc_async.settings import JOURNEY_READER, READ_TIME, SHORTEST_RESEND

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Basis, Cause, Decision, ErrorFacts


NOT_SENT_TRIES = 3  # retries of a request that never left
PROOF_LASTS = (
    5.0  # s: for so long after its end, a read that shows absence allows a re-send
)
SHORTEST_TRY = 1.0  # s: minimum timeout of such a retry, unless half of the configured one is shorter
NOT_SENT_PAUSES = (0.1, 0.5, 2.0)  # s before each further try
BASELINE_PAUSES = (0.1, 0.5)  # s before the read of baseline and clock is retried
# s between settling reads; the last one repeats
READ_PAUSES = (0.5, 1.0, 2.0, 4.0, 5.0)
LIMITED_PAUSE = (
    0.1  # s: minimum wait before a rate-limited write is sent again; doubled each time
)

_ANSWERED_AGAIN = "the service answered so to a re-send"
_HELD_BACK: dict[Cause, str] = {
    "overtaken": "a newer write of this program to the same resource was sent",
    "only read": "settling only reads",
    "perhaps overtaken": (
        "a newer write of this program to the same resource may have been sent. If none was, make the write "
        "again"
    ),
}


def decide(known: Known) -> Decision:
    """
    Return what to do next about a write, given the facts at the end of its history.

    Its intent is as it was when this process started with it.  Its history has the events of this process; if
    it begins with ``Resumed``, the intent's ``sent`` counts as well.
    """
    history = known.history
    decision = _settle(known) if known.in_doubt else _first(known)
    if history and isinstance(history[-1], Closed) and not isinstance(decision, Done):
        if known.in_doubt:
            return unknown(
                known,
                "the client was closed before the outcome was known",
                "client closed",
            )
        reason = "the client was closed before the write could be sent; no earlier send had an effect"
        return done(
            known,
            Verdict.NOT_APPLIED,
            reason,
            _basis_without_doubt(known),
            cause="client closed",
        )
    if isinstance(decision, Send) and (held := _held_back(known)) is not None:
        basis: Basis = "absence" if known.in_doubt else _basis_without_doubt(known)
        reading = history[-1] if history and isinstance(history[-1], Reading) else None
        reason = f"not sent again, because {_HELD_BACK[held]}"
        return done(known, Verdict.NOT_APPLIED, reason, basis, reading, cause=held)
    return decision


def _basis_without_doubt(known: Known) -> Basis:
    """Return why a write without an attempt in doubt certainly had no effect."""
    if not known.never_left:
        return "answered"  # with a definite no
    # How a send of another process ended without an effect is not stored.
    return "none" if known.intent.sent else "never sent"


def _held_back(known: Known) -> Cause | None:
    """Return why a resumed write must not be sent; ``None`` if it may be sent."""
    resumed = known.resumed
    if resumed is None:
        return None
    if known.is_overtaken:
        return "overtaken"
    if resumed.reads_only:
        return "only read"
    may_be_newest = (
        resumed.journaled or resumed.newest is not None or known.method == "POST"
    )
    last = known.history[-1]
    if may_be_newest or (isinstance(last, Reading) and known.is_newest(last)):
        return None
    return "perhaps overtaken"


# --- Nothing is ambiguous: there was no attempt, or each one ended in a definite no.


def _first(known: Known) -> Decision:
    last = known.attempts[-1] if known.attempts else None
    if last is None:
        return _before_first(known)
    if known.kinds[-1] == "applied":
        return done(
            known,
            Verdict.APPLIED,
            "the service answered so",
            "answered",
            value=last.value,
        )
    if last.end is End.NOT_SENT:
        return _never_left(known)
    if (
        last.status == 401
        and last.token_renewed
        and sum(each.token_renewed for each in known.attempts) == 1
    ):
        return _send(known)
    is_limit = (
        last.status == 429
        and last.error is not None
        and last.error.code == "rate_limit_exceeded"
    )
    if known.policy.wait_when_limited and is_limit and last.retry_after is not None:
        refusals = sum(each.status == 429 for each in known.attempts)
        pause = max(last.retry_after, LIMITED_PAUSE * 2 ** (refusals - 1))
        deadline = known.attempts[0].started + known.policy.deadline
        return _after_pause(known, pause, deadline) or refused(known, last)
    return refused(known, last)


def _before_first(known: Known) -> Decision:
    """
    Read before the first send if something must be known that is not, up to three times.

    The reads take at most half of the call's time.  What must be known is the service's clock and, for an
    update, the baseline; for a create, the webhooks that exist.
    """
    needs_baseline = known.kind.needs_baseline and known.before is None
    needs_baseline |= known.intent.forgotten_until == NEVER_LISTED
    reader = _reader_in_spec(known)
    tries = known.readings
    if reader is None or not (known.bounds is None or needs_baseline):
        return _send(known)
    read = Read(reader=reader, why="the state and the service's clock before the write")
    if not tries:
        return read
    last = tries[-1]
    if (
        len(tries) > len(BASELINE_PAUSES)
        or last.status in (401, 403)
        or is_evidence(known, last)
    ):
        return _send(known)
    due = last.ended + BASELINE_PAUSES[len(tries) - 1]
    if (
        no_such_read(known, last)
        or due >= tries[0].started + known.intent.timeouts.call / 2
    ):
        return _send(known)
    return read if known.now >= due else Wait(due - known.now)


def _send(known: Known) -> Send:
    timeouts = known.intent.timeouts
    return Send(attempt_timeout=min(timeouts.attempt, timeouts.call))


def _never_left(known: Known) -> Decision:
    tries = sum(each.end is End.NOT_SENT for each in known.attempts)
    before = takewhile(lambda event: not isinstance(event, Attempt), known.history)
    reads = [event for event in before if isinstance(event, Reading)]
    spent = reads[-1].ended - reads[0].started if reads else 0.0
    out_of_time = known.attempts[0].started + known.intent.timeouts.call - spent
    if tries > NOT_SENT_TRIES:
        return _did_not_leave(known, f", in {tries} attempts")
    usual = _send(known).attempt_timeout
    least = min(SHORTEST_TRY, usual / 2)
    again = _after_pause(known, NOT_SENT_PAUSES[tries - 1], out_of_time - least)
    left = out_of_time - known.now
    if isinstance(again, Wait):
        return again
    if again is not None and left >= least:
        return Send(attempt_timeout=min(usual, left))
    return _did_not_leave(known, " before the call's timeout")


def _did_not_leave(known: Known, how_long: str) -> Done:
    """Return NOT_APPLIED, because a request could not be sent.  An earlier one of the write may have been."""
    basis = _basis_without_doubt(known)
    if basis == "never sent":
        reason = f"the request never left this machine{how_long}"
        return done(known, Verdict.NOT_APPLIED, reason, basis, cause="never left")
    earlier = "an earlier request of it had no effect"
    answered = [
        attempt.status for attempt in known.attempts if attempt.end is End.ANSWERED
    ]
    if answered:
        earlier = f"the service answered HTTP {answered[-1]}"
    reason = f"{earlier}, and after that no request left this machine{how_long}"
    return done(known, Verdict.NOT_APPLIED, reason, basis, cause="not sent again")


def _after_pause(known: Known, pause: float, deadline: float) -> Wait | Send | None:
    """Send when *pause* has passed since the last attempt; ``None`` if that is after *deadline*."""
    due = known.attempts[-1].ended + pause
    if due > deadline:
        return None
    return _send(known) if known.now >= due else Wait(due - known.now)


# --- An attempt was ambiguous: only the service's state shows whether it was applied.


def _settle(known: Known) -> Decision:
    last = known.history[-1]
    if any(send.kind == "applied" for send in known.carried):
        return _answered_before(known, last)
    if not _reader(known):
        return _answered(known) or unknown(
            known, "there is no read that shows whether it was applied", "no read"
        )
    return _answered(known) or _judged(known, last) or _next_read(known)


def _answered_before(known: Known, last: object) -> Decision:
    """
    Return APPLIED, because an earlier process got a success.  One read, if possible, gets the value.

    What matches an untagged create is only a candidate: after an answer, an equal one may follow at once.
    """
    reader = _reader(known)
    if reader and not isinstance(last, Reading):
        return Read(
            reader=reader,
            why="the value of a write that was answered before the restart",
        )
    finding = (
        find(known, last)
        if isinstance(last, Reading) and is_evidence(known, last)
        else None
    )
    value = finding.value if isinstance(finding, (Applied, Holds)) else None
    reason = "the service had answered so before the restart"
    if value is None or not known.kind.creates or is_unique(known.intent.tag):
        return done(known, Verdict.APPLIED, reason, "answered", value=value)
    return done(known, Verdict.APPLIED, reason, "answered", candidates=(value,))


def _answered(known: Known) -> Decision | None:
    """Return the verdict if the answer to a re-send is conclusive, even if its awaiter was cancelled then."""
    if not known.attempts:
        return None
    last = known.attempts[-1]
    kind = known.kinds[-1]
    if kind == "applied" and not _needs_audit(known):
        return done(
            known, Verdict.APPLIED, _ANSWERED_AGAIN, "answered", value=last.value
        )
    if kind == "not applied" and last.end is End.ANSWERED and not _completes(known):
        return refused(known, last)
    return None


def _completes(known: Known) -> bool:
    """Return whether the last send was to complete an update that was stored in part: it has an effect."""
    sent_at = max(
        at for at, event in enumerate(known.history) if isinstance(event, Attempt)
    )
    proof = known.history[sent_at - 1]
    if not isinstance(proof, Reading) or not is_evidence(known, proof):
        return False
    return isinstance(find(known, proof), Partly)


def _judged(known: Known, last: object) -> Decision | None:
    """Return the decision if the last event is a conclusive reading; ``None``: read again."""
    if not isinstance(last, Reading):
        return None
    if last.status in (401, 403):
        return _positive(known) or unknown(
            known,
            f"reading the state was refused with HTTP {last.status}",
            "read refused",
        )
    if no_such_read(known, last):
        reason = f"this deployment has no {_reader_in_spec(known)} (HTTP {last.status})"
        return unknown(known, reason, "no read")
    after = last.started >= known.over
    if not is_evidence(known, last):
        refusal = known.refusal
        # The write was refused alike, and not by the service, as under a wrong base URL.
        if (
            after
            and refusal is not None
            and refusal.status == last.status
            and not last.own_envelope
        ):
            reason = f"something before the service answers the write and its reads with HTTP {last.status}"
            return unknown(known, f"{reason}; check the base URL", "read refused")
        return _positive(known) if after else None
    finding = find(known, last)
    if isinstance(finding, Applied):
        return shown(known, finding, last) if after or not _needs_audit(known) else None
    if not after:
        return None
    return _positive(known) or _by_state(known, finding, last)


def _by_state(
    known: Known,
    finding: Holds[Wire] | Absent | Superseded | CannotTell | Partly,
    reading: Reading,
) -> Decision:
    """Return the decision after a read that started after all settle windows."""
    match finding:
        case Holds(value):
            reason = "the state matches the write (it may have matched before)"
            return done(known, Verdict.APPLIED, reason, "equal", reading, value=value)
        case Superseded(reason):
            return done(
                known,
                Verdict.SUPERSEDED,
                reason,
                "baseline",
                reading,
                cause="changed since",
            )
        case CannotTell(reason, candidates, cause):
            return unknown(known, reason, cause, reading, candidates=candidates)
        case Partly():
            again = _completing_send(known, finding, reading)
            if isinstance(again, Send):
                return again
            return unknown(known, f"{finding.reason}; {again}", "in part", reading)
        case Absent():
            if known.refusal is not None:
                return refused(known, known.refusal, reading)
            again = _resend(known, reading)
            if isinstance(again, Send):
                return again
            held = _held_back(known)
            if held in ("overtaken", "only read"):
                again = _HELD_BACK[held]
            reason = (
                "a read after the settle window shows that the write was not applied"
            )
            reason = f"{reason}; not sent again, because {again}"
            return done(
                known, Verdict.NOT_APPLIED, reason, "absence", reading, cause="absent"
            )


def _resend(known: Known, reading: Reading) -> Send | str:
    """Return a re-send, which *reading* allows, or the reason why policy or time does not allow it."""
    policy = known.policy
    configured = known.intent.timeouts.attempt
    if reading.status == 404 and known.was_gone:
        return "the resource did not exist before the write either"
    if policy.resend == "never":
        return "the policy has resend='never'"
    if known.resends >= policy.max_resends:
        return f"it was sent as often as the policy allows (max_resends={policy.max_resends})"
    tries = sum(each.end is End.NOT_SENT for each in known.attempts)
    if tries > NOT_SENT_TRIES:
        return f"no byte left this machine in {tries} attempts"
    left = known.deadline - reading.ended - policy.settle_after_loss - 2 * READ_TIME
    timeout = min(configured, left)
    if timeout < min(SHORTEST_RESEND, configured):
        return f"too little of the deadline of {policy.deadline:g} s is left for another attempt"
    return Send(not_after=reading.ended + PROOF_LASTS, attempt_timeout=timeout)


def _completing_send(known: Known, finding: Partly, reading: Reading) -> Send | str:
    """Return a send that completes an update of which a part is stored, or why there is none."""
    resumed = known.resumed
    if resumed is None or resumed.reads_only or known.intent.mixture is None:
        return "client.resume, or the same key again, sends it again if it still shows the same then"
    if known.intent.mixture != finding.shown:
        return "not sent again, because it showed something else before"
    if known.resends or known.refusal is not None:
        return "not sent again, because that was tried"
    again = _resend(known, reading)
    return again if isinstance(again, Send) else f"not sent again, because {again}"


def _needs_audit(known: Known) -> bool:
    """
    Return whether a create was sent more than once.

    If it was, one read after the settle windows looks for duplicates.
    """
    own = known.intent.reader is not None
    return len(known.sends) > 1 and (
        known.kind.creates or (own and known.method == "POST")
    )


def _positive(known: Known) -> Done | None:
    """
    Return APPLIED if earlier events show that a re-sent create succeeded.

    Used if the read for duplicates was not conclusive.
    """
    if not _needs_audit(known):
        return None
    for event in reversed(known.history):
        if isinstance(event, Attempt) and kind_of(event) == "applied":
            return done(
                known,
                Verdict.APPLIED,
                _ANSWERED_AGAIN,
                "answered",
                value=event.value,
                duplicates=None,
            )
        if isinstance(event, Reading) and is_evidence(known, event):
            finding = find(known, event)
            if isinstance(finding, Applied):
                return shown(known, Applied(finding.value, duplicates=None), event)
    return None


# --- When to read


def _next_read(known: Known) -> Decision:
    readings = known.readings
    if known.now > known.deadline or (
        readings and readings[-1].started >= known.deadline
    ):
        reason = "time ran out: reads after the settle window were not conclusive"
        if known.now < known.over:
            left = known.over - known.now
            reason = f"time ran out while the settle window was open for another {left:.1f} s"
        return _positive(known) or unknown(known, reason, "out of time")
    due = min(_due(known), known.deadline)
    reader = _reader(known)
    assert reader is not None
    if known.now < due:
        return Wait(due - known.now)
    return Read(reader=reader, why="whether the write was applied")


def _due(known: Known) -> float:
    """
    Return when the next read is due, in local seconds.

    The first is immediate, the next follow with backoff, and one starts exactly when the settle windows end.
    If one shows the write, but perhaps an earlier state, the next follows when reads show none any more.
    """
    readings = known.readings
    if not readings:
        last = known.attempts[-1] if known.attempts else None
        if last is None or last.end is not End.NOT_SENT:
            return known.now
        tries = sum(each.end is End.NOT_SENT for each in known.attempts)
        return last.ended + NOT_SENT_PAUSES[min(tries, len(NOT_SENT_PAUSES)) - 1]
    end = max(known.over, known.now)
    latest = readings[-1]
    if _positive(known):
        return end
    due = latest.ended + READ_PAUSES[min(len(readings), len(READ_PAUSES)) - 1]
    if latest.started >= known.over:
        return due
    # A large state is compared only if it matters.
    if (
        due < known.current_from
        and is_evidence(known, latest)
        and isinstance(find(known, latest), Holds)
    ):
        due = known.current_from
    return min(due, end)


def _reader(known: Known) -> str | None:
    return known.intent.reader or _reader_in_spec(known)


def _reader_in_spec(known: Known) -> str | None:
    """Return the name of the read that settles the operation.  A read that may be lacking is configurable."""
    if known.kind.may_lack_read:
        reader = known.policy.journey_reader
        return reader if reader is None or isinstance(reader, str) else JOURNEY_READER
    return known.operation.reader


# --- Verdicts, with their evidence


def done(
    known: Known,
    verdict: Verdict,
    reason: str,
    basis: Basis,
    reading: Reading | None = None,
    *,
    value: Wire = None,
    candidates: tuple[Wire, ...] = (),
    duplicates: tuple[Wire, ...] | None = (),
    cause: Cause | None = None,
) -> Done:
    """Return *verdict*, on *basis*.  *duplicates* are ``None`` if it is not known whether there are any."""
    evidence = Evidence(
        basis=basis,
        read_at=None if reading is None else reading.started,
        window_until=known.over if known.in_doubt and known.sends else None,
        candidates=candidates,
        duplicates=duplicates,
        cause=cause,
    )
    return Done(verdict=verdict, reason=reason, value=value, evidence=evidence)


def shown(known: Known, finding: Applied[Wire], reading: Reading) -> Done:
    """Return APPLIED because *reading* shows the write; the basis is how it was recognised."""
    basis: Basis = "tag"
    if reading.finding is not None:
        basis = "reader"
    elif not known.kind.creates or known.intent.tag is None:
        basis = known.kind.basis
    reason = "a read of the state shows the write"
    value = finding.value
    return done(
        known,
        Verdict.APPLIED,
        reason,
        basis,
        reading,
        value=value,
        duplicates=finding.duplicates,
    )


def refused(
    known: Known, refusal: Attempt | ErrorFacts, reading: Reading | None = None
) -> Done:
    """Return REFUSED.  In doubt, *reading* is the read that showed that no send had an effect."""
    reason = f"the service answered HTTP {refusal.status}"
    if reading is not None:
        reason = f"the answer was HTTP {refusal.status}, and a read shows that no send had an effect"
    return done(known, Verdict.REFUSED, reason, "answered", reading)


def unknown(
    known: Known,
    reason: str,
    cause: Cause,
    reading: Reading | None = None,
    *,
    candidates: tuple[Wire, ...] = (),
) -> Done:
    """Return UNKNOWN.  *candidates* may be effects of the write."""
    return done(
        known,
        Verdict.UNKNOWN,
        reason,
        "none",
        reading,
        candidates=candidates,
        cause=cause,
    )
