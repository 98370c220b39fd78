"""
How a run of a write ends: with a verdict, or interrupted.

The verdict is stored, where there is a journal, before the application gets it, and before a newer write to
the thing can be sent. An interrupted run keeps its intent if a byte may have left: somebody has to settle it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from invsvc_async.reconcile.attempts import ANSWERED
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.history import Done, Verdict
from invsvc_async.writes.settling import look

if TYPE_CHECKING:
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")
# Cheaper than access through the class.
_APPLIED = Verdict.APPLIED
_UNKNOWN = Verdict.UNKNOWN


async def conclude(run: WriteRun[T], done: Done) -> None:
    """
    End *run* with the verdict *done*: store it, and note it for later writes. The run has ended then.

    1. The value is found, if no answer had it: that may need a read.
    2. What a create made, by a method or raw, is claimed, so that no other write takes it for its own.
    3. A secret is passed on, because the outcome tells who has it.
    4. A state of the thing that was seen before the write is forgotten: it is not what the write left.
    5. The verdict is stored, before a newer write to the thing can be sent.
    6. The intent is no longer open, or is still.
    7. Later writes and runs learn of the end. A first answer that succeeded (``ANSWERED``, by far the most)
       leaves nothing to note, and its outcome is made when it is asked for.
    8. ``result.done`` is set, last: from then on, the run is over for all who ask.
    """
    kind = run.spec.kind
    result = run.result
    value = run.answers.value
    outcome: Outcome[T] | None = None
    if done is ANSWERED and value is not None:
        found: T | None = value
    else:
        done, found = await result.with_value(done, partial(look, run))
    if run.place.is_create and done.verdict is _APPLIED:
        result.claim(done)
    if kind.has_secret:
        await result.pass_secret_on(done)
    if done is not ANSWERED:
        _forget_state_before(run, done)
    if run.journal is not None:
        outcome = result.new_outcome(done, found)
        await run.journal.settled(outcome)
        run.journal.move_here(run.record.intent)
    _note_whether_open(run, done)
    result.found = found
    if done is not ANSWERED:
        outcome = outcome or result.new_outcome(done, found)
        _note_verdict(run, done, outcome)
    # Also ``None``: an end that was interrupted just here has left its own.
    result.outcome = outcome
    result.done = done


def _forget_state_before(run: WriteRun[T], done: Done) -> None:
    """
    Forget a state of the thing that was seen before the write was sent, unless the write had no effect.

    It would be stored as what the write left, and be the baseline of the next one, which then finds that
    another write changed the thing. A read that showed the effect is not always kept: not, for example, if
    an earlier await of this write was cancelled, and closed the line.
    """
    last = run.place.thing.last
    if last is None or run.place.thing.line is None:
        return
    if done.verdict in NO_EFFECT:
        return
    known = run.record.known()
    sent = known.windows.first_sent
    if sent is None and known.resumed is not None:
        # another client sent it, at some time before this one took it up
        sent = known.resumed.at
    if sent is None or last.ended < sent:
        run.core.writes.shown.forget_state(run.place.thing.line)


def _note_whether_open(run: WriteRun[T], done: Done) -> None:
    """Keep the intent as an open one only if its outcome is not known."""
    open_writes = run.core.writes.open_writes
    if done.verdict is _UNKNOWN:
        _leave_open(run, run.current_intent())
    elif open_writes.unsettled or open_writes.leftovers:
        open_writes.forget(run.record.intent.identity)


def _note_verdict(
    run: WriteRun[T],
    done: Done,
    outcome: Outcome[T],
) -> None:
    """Note what later writes to the thing, and later runs of the same intent, have to know of the end."""
    run.place.note_end()
    if done.verdict in NO_EFFECT:
        run.place.note_no_effect()
    known = run.record.known()
    if run.record.is_taken_up or known.in_doubt:
        identity = run.record.intent.identity
        run.core.writes.ended.keep(identity, outcome)
        run.core.writes.open_writes.note_first_send(identity, known.windows.first_sent)


def shelve(run: WriteRun[T]) -> None:
    """
    Keep the intent of *run*, which was interrupted, if a byte of it may have been sent.

    1. A send whose end was not recorded is recorded as lost; with that, it is known whether it has left.
    2. The place is given back, or kept; then its end is noted.
    3. A refusal counts, although nobody has it as a verdict yet: a later run does not send the write again.
    4. The intent stays open if a send may have had an effect. One that was refused did leave, but leaves
       nothing to settle.
    5. The journal is told, last: it may be the user's, and raise.
    """
    run.record.note_lost_send(run.core.clock.now())
    run.place.note_whether_sent()
    intent = run.current_intent()
    known = run.record.known()
    refusal = _refusal(known)
    may_have_effect = bool(known.windows.sends) and refusal is None
    if refusal is None:
        run.place.note_end()
    else:
        _note_verdict(run, refusal, run.result.new_outcome(refusal, None))
    if may_have_effect:
        _leave_open(run, intent)
        run.core.writes.open_writes.note_first_send(
            intent.identity, known.windows.first_sent
        )
    if run.journal is not None:
        run.journal.shelved(intent, sent=may_have_effect)


def _refusal(known: Known) -> Done | None:
    """Return the verdict of a run in doubt whose last send was refused, and whose others had no effect."""
    if not known.windows.sends:
        return None
    decision = decide(known)
    if isinstance(decision, Done) and decision.verdict is Verdict.REFUSED:
        return decision
    return None


def _leave_open(run: WriteRun[T], intent: Intent) -> None:
    """Keep an intent with an unknown outcome, and forget the earlier state of its thing."""
    line = run.place.thing.line
    if line is not None and run.spec.kind.needs_baseline:
        run.core.writes.shown.forget_state(line)
    in_journal = run.journal is not None and run.journal.is_of_client
    run.core.leave_unsettled(intent, line, in_journal=in_journal)
