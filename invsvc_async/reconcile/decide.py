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

In doubt, time has three parts. Until the *settle windows* of all sends are over (``known.windows.over``), a
request may still take effect: a read that shows the write is a proof, a read that does not show it is
none. After that, one read decides. At the *deadline*, what is not known stays UNKNOWN.

A re-send needs a proof of its own: the event just before it is a read that began after all windows and
shows absence. The proof lasts ``PROOF_LASTS`` seconds, because the longer ago the read was, the more can
have happened since. So two sends can both take effect only if a request arrives later than any window,
and that is what the windows are for; ``policy`` sets them.

An update that the service stored in part is in between. Live, it is UNKNOWN. A resumed one is sent again,
once each time it is resumed, if a read after all windows shows the very mixture that the read before its
verdict showed: nothing has changed since, so to repeat the update only completes it.

What conflicts: after a re-send, the answer "404" or "409" may be the echo of the first send, so it is
read again (``known.refusal``). A create that was sent twice needs one more read for duplicates, even if
it was answered (``_needs_audit``). A resumed write must not be sent if a newer write to the same thing
may have been (``_held_back``). ``Closed`` ends everything at once, with what is known.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from invsvc_async.reconcile.attempts import kind_of
from invsvc_async.reconcile.before_send import readings_before_send
from invsvc_async.reconcile.facts import time_of
from invsvc_async.reconcile.findings import (
    evidence_in,
    find,
    is_evidence,
    is_unique,
    no_such_read,
)
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
    Tick,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.intent import NEVER_LISTED
from invsvc_async.reconcile.turn import is_newest, is_overtaken
from invsvc_async.settings import JOURNEY_READER, READ_TIME, SHORTEST_RESEND

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import (
        Basis,
        Cause,
        Decision,
        ErrorFacts,
        Event,
        Finding,
    )
    from invsvc_async.settings import ReconcilePolicy


NOT_SENT_TRIES = 3  # retries of a request that never left
# s: for so long after its end, a read that shows absence allows a re-send
PROOF_LASTS = 5.0
SHORTEST_TRY = 1.0  # s: minimum timeout of such a retry, unless half of the configured one is shorter
NOT_SENT_PAUSES = (0.1, 0.5, 2.0)  # s before each further try
BASELINE_PAUSES = (0.1, 0.5)  # s before the read of baseline and clock is retried
# s between settling reads; the last one repeats
READ_PAUSES = (0.5, 1.0, 2.0, 4.0, 5.0)
# s: minimum wait before a rate-limited write is sent again; doubled each time
LIMITED_PAUSE = 0.1

_ANSWERED_AGAIN = "the service answered so to a re-send"
_HELD_BACK: dict[Cause, str] = {
    "overtaken": "a newer write of this program to the same resource was sent",
    "only read": "settling only reads",
    "perhaps overtaken": (
        "a newer write of this program to the same resource may have been sent. If none was, make the write "
        "again"
    ),
}


@attrs.frozen
class _NoSend:
    """The write is not sent again, and why."""

    why: str


def decide(known: Known) -> Decision:
    """
    Return what to do next about a write, given the facts at the end of its history.

    Its intent is as it was when this process started with it.  Its history has the events of this process; if
    it begins with ``Resumed``, the intent's ``sent`` counts as well.

    A verdict comes before all else: it also stands where the client was closed meanwhile, and where the write
    must not be sent again.
    """
    decision = _settle(known) if known.in_doubt else _first(known)
    if isinstance(decision, Done):
        return decision
    if isinstance(known.last, Closed):
        return _closed(known)
    if isinstance(decision, Send):
        held = _held_back(known)
        if held is not None:
            return _not_sent_again(known, held)
    return decision


def _closed(known: Known) -> Done:
    """Return the verdict on a write whose client was closed before the rules came to one."""
    if _was_answered_elsewhere(known):
        return _applied_elsewhere(known, value=None)
    if known.in_doubt:
        reason = "the client was closed before the outcome was known"
        return _shown_by_earlier_event(known) or unknown(known, reason, "client closed")
    reason = "the client was closed before the write could be sent; no earlier send had an effect"
    basis = _basis_without_doubt(known)
    return done(known, Verdict.NOT_APPLIED, reason, basis, cause="client closed")


def _not_sent_again(known: Known, held: Cause) -> Done:
    """Return NOT_APPLIED for a write that may be sent, as far as its own events say, and is *held* back."""
    basis: Basis = "absence" if known.in_doubt else _basis_without_doubt(known)
    reason = f"not sent again, because {_HELD_BACK[held]}"
    return done(
        known, Verdict.NOT_APPLIED, reason, basis, known.last_reading, cause=held
    )


def _basis_without_doubt(known: Known) -> Basis:
    """Return why a write without an attempt in doubt certainly had no effect."""
    if not known.never_left:
        return "answered"  # with a definite no
    # How a send of another process ended without an effect is not stored.
    if known.intent.sent:
        return "none"
    return "never sent"


def _held_back(known: Known) -> Cause | None:
    """Return why a resumed write must not be sent; ``None`` if it may be sent."""
    resumed = known.resumed
    if resumed is None:
        return None
    if is_overtaken(known):
        return "overtaken"
    if resumed.reads_only:
        return "only read"
    # Where its place among the writes to the same resource is known, it is not overtaken: asked above.
    if resumed.is_place_known:
        return None
    if known.method == "POST":
        return None  # it replaces nothing
    reading = known.last_reading
    if reading is not None and is_newest(known, reading):
        return None
    return "perhaps overtaken"


# --- Nothing is ambiguous: there was no attempt, or each one ended in a definite no.


def _first(known: Known) -> Decision:
    if not known.attempts:
        return _before_first(known)
    last = known.attempts[-1]
    if known.kinds[-1] == "applied":
        reason = "the service answered so"
        return done(known, Verdict.APPLIED, reason, "answered", value=last.value)
    if last.end is End.NOT_SENT:
        return _never_left(known)
    if _has_fresh_token(known, last):
        return _send(known)
    if last.status == 429:
        return _limited(known, last)
    return refused(known, last)


def _has_fresh_token(known: Known, last: Attempt) -> bool:
    """Return whether *last* was refused for its token, and the write has got its first new token."""
    if last.status != 401:
        return False
    if not last.token_renewed:
        return False
    return sum(each.token_renewed for each in known.attempts) == 1


def _limited(known: Known, last: Attempt) -> Decision:
    """Send again after the pause that a rate limit asks for, if the policy says so and there is time."""
    is_rate_limit = last.error is not None and last.error.code == "rate_limit_exceeded"
    if not known.policy.wait_when_limited or not is_rate_limit:
        return refused(known, last)
    if last.retry_after is None:
        return refused(known, last)
    refusals = sum(each.status == 429 for each in known.attempts)
    pause = max(last.retry_after, LIMITED_PAUSE * 2 ** (refusals - 1))
    deadline = known.attempts[0].started + known.policy.deadline
    return _after_pause(known, pause, deadline) or refused(known, last)


def _before_first(known: Known) -> Decision:
    """
    Read before the first send if something must be known that is not, up to three times.

    The reads take at most half of the call's time.  What must be known is the service's clock and, for an
    update, the baseline; for a create, the things that exist.
    """
    reader = _reader_in_spec(known)
    if reader is None:
        return _send(known)
    if not _must_read_first(known):
        return _send(known)
    read = Read(reader=reader, why="the state and the service's clock before the write")
    tries = known.readings
    if not tries:
        return read
    last = tries[-1]
    if len(tries) > len(BASELINE_PAUSES) or _is_final(known, last):
        return _send(known)
    due = last.ended + BASELINE_PAUSES[len(tries) - 1]
    if due >= tries[0].started + known.intent.timeouts.call / 2:
        return _send(known)
    if known.now >= due:
        return read
    return Wait(due - known.now)


def _must_read_first(known: Known) -> bool:
    """Return whether something is not known that a read before the first send shows."""
    if known.clock.bounds is None:
        return True
    if known.kind.needs_baseline and known.state_before.state is None:
        return True
    return known.intent.forgotten_until == NEVER_LISTED


def _is_final(known: Known, reading: Reading) -> bool:
    """Return whether one more read would show no more than *reading* did."""
    if is_evidence(known, reading):
        return True
    if reading.status in (401, 403):
        return True
    return no_such_read(known, reading)


def _send(known: Known) -> Send:
    timeouts = known.intent.timeouts
    return Send(attempt_timeout=min(timeouts.attempt, timeouts.call))


def _never_left(known: Known) -> Decision:
    """
    Send again what never left, a few times, within the timeout of the call.

    The last try may be shorter than the others, but not shorter than ``shortest``.
    """
    tries = known.unsent
    if tries > NOT_SENT_TRIES:
        return _did_not_leave(known, f", in {tries} attempts")
    usual_timeout = _send(known).attempt_timeout
    shortest = min(SHORTEST_TRY, usual_timeout / 2)
    started = known.attempts[0].started
    end_of_call = started + known.intent.timeouts.call - _spent_before_first(known)
    again = _after_pause(known, NOT_SENT_PAUSES[tries - 1], end_of_call - shortest)
    if isinstance(again, Wait):
        return again
    time_left = end_of_call - known.now
    if again is None or time_left < shortest:
        return _did_not_leave(known, " before the call's timeout")
    return Send(attempt_timeout=min(usual_timeout, time_left))


def _spent_before_first(known: Known) -> float:
    """Return how long the reads before the first attempt took, in seconds."""
    reads = readings_before_send(known.history)
    if not reads:
        return 0.0
    return reads[-1].ended - reads[0].started


def _did_not_leave(known: Known, how_long: str) -> Done:
    """Return NOT_APPLIED, because a request could not be sent.  An earlier one of the write may have been."""
    basis = _basis_without_doubt(known)
    if basis == "never sent":
        reason = f"the request never left this machine{how_long}"
        return done(known, Verdict.NOT_APPLIED, reason, basis, cause="never left")
    statuses = [
        attempt.status for attempt in known.attempts if attempt.end is End.ANSWERED
    ]
    earlier = "an earlier request of it had no effect"
    if statuses:
        earlier = f"the service answered HTTP {statuses[-1]}"
    reason = f"{earlier}, and after that no request left this machine{how_long}"
    return done(known, Verdict.NOT_APPLIED, reason, basis, cause="not sent again")


def _after_pause(
    known: Known,
    pause: float,
    deadline: float,
) -> Wait | Send | None:
    """Send when *pause* has passed since the last attempt; ``None`` if that is after *deadline*."""
    due = known.attempts[-1].ended + pause
    if due > deadline:
        return None
    if known.now >= due:
        return _send(known)
    return Wait(due - known.now)


# --- An attempt was ambiguous: only the service's state shows whether it was applied.


def _settle(known: Known) -> Decision:
    last = known.history[-1]
    if _was_answered_elsewhere(known):
        return _answered_elsewhere(known, last)
    answered = _by_answer_to_resend(known)
    if answered is not None:
        return answered
    if not _reader(known):
        reason = "there is no read that shows whether it was applied"
        return unknown(known, reason, "no read")
    judged = _judged(known, last)
    if judged is not None:
        return judged
    return _next_read(known)


def _was_answered_elsewhere(known: Known) -> bool:
    """Return whether an earlier process got a success."""
    return any(send.kind == "applied" for send in known.windows.carried)


def _answered_elsewhere(known: Known, last: Event) -> Decision:
    """
    Return APPLIED, because an earlier process got a success.  One read, if possible, gets the value.

    What matches an untagged create is only a candidate: after an answer, an equal one may follow at once.
    """
    reader = _reader(known)
    if reader and not isinstance(last, Reading):
        why = "the value of a write that was answered before the restart"
        return Read(reader=reader, why=why)
    return _applied_elsewhere(known, value=_value_shown(known, last))


def _applied_elsewhere(known: Known, *, value: Wire) -> Done:
    """Return APPLIED, because an earlier process got a success, with the *value* that a read has shown."""
    reason = "the service had answered so before the restart"
    is_recognised = not known.kind.creates or is_unique(known.intent.tag)
    if value is None or is_recognised:
        return done(known, Verdict.APPLIED, reason, "answered", value=value)
    return done(known, Verdict.APPLIED, reason, "answered", candidates=(value,))


def _value_shown(known: Known, last: Event) -> Wire:
    """Return the thing that matches the write in *last*; ``None`` if that shows none."""
    reading = evidence_in(known, last)
    if reading is None:
        return None
    match find(known, reading):
        case Applied(value) | Holds(value):
            return value
        case _:
            return None


def _by_answer_to_resend(known: Known) -> Decision | None:
    """Return the verdict if the answer to a re-send is conclusive, even if its awaiter was cancelled then."""
    if not known.attempts:
        return None
    last = known.attempts[-1]
    kind = known.kinds[-1]
    if kind == "applied":
        if _needs_audit(known):
            return None
        value = last.value
        return done(known, Verdict.APPLIED, _ANSWERED_AGAIN, "answered", value=value)
    is_refused = kind == "not applied" and last.end is End.ANSWERED
    if is_refused and not _completes(known):
        return refused(known, last)
    return None


def _completes(known: Known) -> bool:
    """
    Return whether the last send was to complete an update that was stored in part.

    A refusal of that send leaves the part in place, so it does not show that the write has no effect.

    The event just before the send tells what it was for: it is the read that allowed it.  See the rule for
    re-sends at the top of this file.
    """
    proof = evidence_in(known, _before_last_attempt(known))
    if proof is None:
        return False
    return isinstance(find(known, proof), Partly)


def _before_last_attempt(known: Known) -> Event | None:
    """Return the event just before the last attempt: what allowed it."""
    found = None
    for before, event in pairwise(known.history):
        if isinstance(event, Attempt):
            found = before
    return found


def _judged(known: Known, last: Event) -> Decision | None:
    """Return the decision if the last event is a conclusive reading; ``None``: read again."""
    if not isinstance(last, Reading):
        return None
    if last.status in (401, 403):
        return _shown_by_earlier_event(known) or _unreadable(known, last)
    if no_such_read(known, last):
        reason = f"this deployment has no {_reader_in_spec(known)} (HTTP {last.status})"
        return unknown(known, reason, "no read")
    after = last.started >= known.windows.over
    if not is_evidence(known, last):
        if after:
            return _after_failed_read(known, last)
        return None
    finding = find(known, last)
    if not after:
        return _in_window(known, finding, last)
    if isinstance(finding, Applied):
        return shown(known, finding, last)
    return _shown_by_earlier_event(known) or _by_state(known, finding, last)


def _in_window(
    known: Known,
    finding: Finding | Partly,
    reading: Reading,
) -> Done | None:
    """Return APPLIED if the write shows.  Nothing else counts while a settle window is open."""
    if not isinstance(finding, Applied):
        return None
    if _needs_audit(known):
        return None
    return shown(known, finding, reading)


def shows_under_way(known: Known, reading: Reading) -> bool:
    """
    Return whether *reading*, which was made while the last attempt hung, shows the write.

    *known* has that attempt as lost, because it would be given up. The proof is the one that APPLIED needs
    while a settle window is open. What the reading does not show proves nothing.
    """
    if not is_evidence(known, reading):
        return False
    return _in_window(known, find(known, reading), reading) is not None


def matches_under_way(known: Known, reading: Reading) -> bool:
    """
    Return whether *reading*, made while the last attempt hung, matches the write and was changed since it.

    Nothing tells then whether this write or another one made it so, because the state before is not known, or
    was the same.  So that is no verdict.  But its answer is not worth a long wait: the request may be given
    up, and its windows begin then.
    """
    changed_at = known.kind.changed_at
    if not known.kind.shows_change:
        return False
    if not is_evidence(known, reading):
        return False
    if not isinstance(find(known, reading), Holds):
        return False
    placed = known.windows.when(reading.seen.get(changed_at), reading)
    return placed in ("band", "after")


def reader_beside(known: Known) -> str | None:
    """
    Return the name of the read that may show the write while its request hangs; ``None`` if there is none.

    No user-supplied reader: it may need a place among the calls, which requests that hang may have taken.
    """
    name = _reader(known)
    if known.intent.reader is not None or name == JOURNEY_READER:
        return None
    # A create that was sent twice waits for a read after the windows.
    if _needs_audit(known):
        return None
    return name


def may_show_from(known: Known) -> float:
    """Return the local time from which a read may show the write while its request hangs."""
    # The time in what is read tells whether it is from before the send.
    shows_time = known.kind.creates or known.kind.shows_change
    if shows_time:
        return known.windows.sends[0].began
    return known.current_from


def _unreadable(known: Known, reading: Reading) -> Done:
    """Return UNKNOWN, because the state must not be read."""
    reason = f"reading the state was refused with HTTP {reading.status}"
    return unknown(known, reason, "read refused")


def _after_failed_read(known: Known, reading: Reading) -> Done | None:
    """Return the verdict after a read that failed, after all settle windows; ``None``: read again."""
    if _is_refused_alike(known, reading):
        reason = (
            f"something before the service answers the write and its reads with HTTP {reading.status}; "
            "check the base URL"
        )
        return unknown(known, reason, "read refused")
    return _shown_by_earlier_event(known)


def _is_refused_alike(known: Known, reading: Reading) -> bool:
    """Return whether the write and *reading* were refused alike, not by the service: as under a wrong URL."""
    refusal = known.refusal
    if refusal is None:
        return False
    if reading.own_envelope:
        return False
    return refusal.status == reading.status


def _by_state(
    known: Known,
    finding: Holds[Wire] | Absent | Superseded | CannotTell | Partly,
    reading: Reading,
) -> Decision:
    """Return the decision after a read that started after all settle windows."""
    match finding:
        case Holds(value):
            reason = "the state matches the write (it may have matched before)"
            basis: Basis = "equal" if reading.finding is None else "reader"
            return done(known, Verdict.APPLIED, reason, basis, reading, value=value)
        case Superseded(reason):
            cause: Cause = "changed since"
            verdict = Verdict.SUPERSEDED
            basis = _superseded_by(known, reading)
            return done(known, verdict, reason, basis, reading, cause=cause)
        case CannotTell(reason, candidates, cause):
            return unknown(known, reason, cause, reading, candidates=candidates)
        case Partly():
            return _partly(known, finding, reading)
        case Absent():
            return _absent(known, reading)


def _superseded_by(known: Known, reading: Reading) -> Basis:
    """Return how *reading* shows that somebody else changed the thing."""
    if reading.finding is not None:
        return "reader"
    if reading.status == 404:
        return "gone"
    return "last_updated" if known.baseline is None else "baseline"


def _partly(
    known: Known,
    finding: Partly,
    reading: Reading,
) -> Send | Done:
    """Return a send that completes an update of which a part is stored; else UNKNOWN, and why not."""
    match _completing_send(known, finding, reading):
        case Send() as again:
            return again
        case _NoSend(why):
            reason = f"{finding.reason}; {why}"
            return unknown(known, reason, "in part", reading)


def _absent(known: Known, reading: Reading) -> Send | Done:
    """Return a re-send of a write that *reading* shows to be absent; else the verdict on it."""
    if known.refusal is not None:
        return refused(known, known.refusal, reading)
    match _resend(known, reading):
        case Send() as again:
            return again
        case _NoSend(why):
            return _absent_for_good(known, reading, why)


def _absent_for_good(
    known: Known,
    reading: Reading,
    why: str,
) -> Done:
    """
    Return NOT_APPLIED for a write that *reading* shows to be absent, and that is not sent again: *why*.

    That it is held back is the better reason, if it is: whoever makes it again may undo a newer write.
    """
    cause: Cause = "absent"
    held = _held_back(known)
    if held is not None:
        why = _HELD_BACK[held]
    if held in ("overtaken", "perhaps overtaken"):
        cause = held
    reason = (
        "a read after the settle window shows that the write was not applied; "
        f"not sent again, because {why}"
    )
    verdict = Verdict.NOT_APPLIED
    return done(known, verdict, reason, "absence", reading, cause=cause)


def _resend(known: Known, reading: Reading) -> Send | _NoSend:
    """Return a re-send, which *reading* allows, or the reason why policy or time does not allow it."""
    policy = known.own_policy
    configured = known.intent.timeouts.attempt
    if reading.status == 404 and known.was_gone:
        return _NoSend("the resource did not exist before the write either")
    never = _why_never_again(policy)
    if never is not None:
        return _NoSend(never)
    if known.resends >= policy.max_resends:
        most = f"max_resends={policy.max_resends}"
        return _NoSend(f"it was sent as often as the policy allows ({most})")
    if known.unsent > NOT_SENT_TRIES:
        return _NoSend(f"no byte left this machine in {known.unsent} attempts")
    # After the attempt, its windows have to fit in, and two reads: one that may be under way as they end, and
    # the one that decides.
    left = known.deadline - reading.ended - policy.settle_after_loss - 2 * READ_TIME
    timeout = min(configured, left)
    if timeout < min(SHORTEST_RESEND, configured):
        return _NoSend(
            f"too little of the deadline of {policy.deadline:g} s is left for another attempt"
        )
    return Send(not_after=reading.ended + PROOF_LASTS, attempt_timeout=timeout)


def _why_never_again(policy: ReconcilePolicy) -> str | None:
    """Return why *policy* allows no re-send, whatever reads show; ``None`` if it allows one."""
    if policy.resend == "never":
        return "the policy has resend='never'"
    if policy.max_resends:
        return None
    return "the policy has max_resends=0"


def _completing_send(
    known: Known,
    finding: Partly,
    reading: Reading,
) -> Send | _NoSend:
    """Return a send that completes an update of which a part is stored, or why there is none."""
    refusal = known.refusal
    if refusal is not None:
        why = f"it was refused with HTTP {refusal.status}"
        return _NoSend(f"not sent again, because {why}")
    never = _why_never_again(known.policy)
    if never is not None:
        return _NoSend(f"not sent again, because {never}")
    resumed = known.resumed
    mixture = known.intent.mixture
    may_send = resumed is not None and not resumed.reads_only
    if not may_send or mixture is None:
        return _NoSend(
            "client.resume, or the same key again, sends it again if it still shows the same then"
        )
    if mixture != finding.shown:
        return _NoSend("not sent again, because it showed something else before")
    if known.resends:
        return _NoSend("not sent again, because that was tried")
    match _resend(known, reading):
        case Send() as again:
            return again
        case _NoSend(why):
            return _NoSend(f"not sent again, because {why}")


def _needs_audit(known: Known) -> bool:
    """
    Return whether a read after the settle windows has to look for duplicates.

    That is so if a create was sent more than once.
    """
    if len(known.windows.sends) < 2:
        return False
    if known.kind.creates:
        return True
    return known.intent.reader is not None and known.method == "POST"


def _shown_by_earlier_event(known: Known) -> Done | None:
    """
    Return APPLIED if earlier events of this process show that a re-sent create succeeded.

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
        reading = evidence_in(known, event)
        if reading is not None:
            finding = find(known, reading)
            if isinstance(finding, Applied):
                found = Applied(finding.value, duplicates=None)
                return shown(known, found, reading)
    return None


# --- When to read


def _next_read(known: Known) -> Decision:
    if _is_out_of_time(known):
        return _shown_by_earlier_event(known) or _out_of_time(known)
    due = min(_due(known), known.deadline)
    if known.now < due:
        return Wait(due - known.now)
    reader = _reader(known)
    assert reader is not None
    return Read(reader=reader, why="whether the write was applied")


def _is_out_of_time(known: Known) -> bool:
    """
    Return whether the deadline is over, and its last read was made.

    One read may start at the deadline or after it, if a wait led to it::

        ── reads as they are due ── wait ──┤ deadline ├── (the wait ends late) ── last read ──▶ out of time

    1. Once a read has started at the deadline or later, it was the last one.
    2. Without such a read, time is out as soon as the deadline is over; but if the last event is the end of a
       wait that began before the deadline, that wait has ended late, and the last read is still made.
    """
    readings = known.readings
    if readings and readings[-1].started >= known.deadline:
        return True
    return known.now > known.deadline and not _has_waited_for_deadline(known)


def _has_waited_for_deadline(known: Known) -> bool:
    """Return whether the last event is the end of a wait that began before the deadline."""
    if not isinstance(known.last, Tick) or len(known.history) < 2:
        return False
    before_the_wait = known.history[-2]
    return time_of(before_the_wait) <= known.deadline


def _out_of_time(known: Known) -> Done:
    reason = "time ran out: reads after the settle window were not conclusive"
    if not any(reading.started >= known.windows.over for reading in known.readings):
        reason = "time ran out before the state was read after the settle window"
    left = known.windows.over - known.now
    if left > 0:
        reason = (
            f"time ran out while the settle window was open for another {left:.1f} s"
        )
    return unknown(known, reason, "out of time")


def _due(known: Known) -> float:
    """
    Return when the next read is due, in local seconds.

    The first is immediate, the next follow with backoff, and one starts exactly when the settle windows end.
    If a read shows the wanted state, but may lag and show that from before the write, the next is due when
    reads can show no state from before it any more.
    """
    readings = known.readings
    if not readings:
        return _first_due(known)
    end = max(known.windows.over, known.now)
    if _shown_by_earlier_event(known):
        return end
    latest = readings[-1]
    due = latest.ended + READ_PAUSES[min(len(readings), len(READ_PAUSES)) - 1]
    if latest.started >= known.windows.over:
        return due
    # In this order, because to compare a large state takes long.
    if due < known.current_from and _shows_as_wanted(known, latest):
        due = known.current_from
    return min(due, end)


def _first_due(known: Known) -> float:
    """Return when the first settling read is due: at once, but for a pause after what never left."""
    if not known.attempts:
        return known.now
    last = known.attempts[-1]
    if last.end is not End.NOT_SENT:
        return known.now
    return last.ended + NOT_SENT_PAUSES[min(known.unsent, len(NOT_SENT_PAUSES)) - 1]


def _shows_as_wanted(known: Known, reading: Reading) -> bool:
    """Return whether *reading* shows the wanted state, which may be older than the write."""
    if not is_evidence(known, reading):
        return False
    return isinstance(find(known, reading), Holds)


def _reader(known: Known) -> str | None:
    return known.intent.reader or _reader_in_spec(known)


def _reader_in_spec(known: Known) -> str | None:
    """Return the name of the read that settles the operation.  A read that may be lacking is configurable."""
    if not known.kind.may_lack_read:
        return known.operation.reader
    reader = known.policy.journey_reader
    return JOURNEY_READER if callable(reader) else reader


# --- Verdicts, with their evidence: what `done`, `shown`, `refused` and `unknown` return ends the write


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
        window_until=_end_of_windows(known),
        candidates=candidates,
        duplicates=duplicates,
        cause=cause,
    )
    return Done(
        verdict=verdict,
        reason=reason,
        value=value,
        evidence=evidence,
    )


def _end_of_windows(known: Known) -> float | None:
    """Return when all settle windows are over, if there are any."""
    if known.in_doubt and known.windows.sends:
        return known.windows.over
    return None


def shown(
    known: Known,
    finding: Applied[Wire],
    reading: Reading,
) -> Done:
    """Return APPLIED because *reading* shows the write; the basis is how it was recognised."""
    return done(
        known,
        Verdict.APPLIED,
        "a read of the state shows the write",
        _recognised_by(known, reading),
        reading,
        value=finding.value,
        duplicates=finding.duplicates,
    )


def _recognised_by(known: Known, reading: Reading) -> Basis:
    """Return how the write was recognised in *reading*."""
    if reading.finding is not None:
        return "reader"
    if known.kind.creates and known.intent.tag is not None:
        return "tag"
    return known.kind.basis


def refused(
    known: Known,
    refusal: Attempt | ErrorFacts,
    reading: Reading | None = None,
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
