"""
How a run of a write starts, once it has its turn: only then it is known what the write before it left.

A run starts in one of three ways:

- **anew**: nothing was sent, as far as this program knows. By far the most.
- **taken up** where another run left the intent, in this process or another. It is settled first.
- **again**, after an await of it was cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from invsvc_async.reconcile.history import Resumed, Tick, Verdict
from invsvc_async.writes.new_intent import Start, new_start, taken_up, thing_of

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Send
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.things import Thing
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")
_CERTAIN = frozenset({Verdict.APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED})


def find_thing(run: WriteRun[T]) -> Thing:
    """Find the record of the line of the write, keep it in the place of the run, and return it."""
    thing = run.place.thing = thing_of(run.spec)
    record = run.record
    could_be_sent_elsewhere = record.is_taken_up or run.spec.reader is not None
    if thing.line is None and could_be_sent_elsewhere:
        # All runs of this write are in one line, because each could send it.
        line = f"key {record.intent.identity}"
        thing = run.place.thing = run.core.writes.records.of(line)
    return thing


def start_with(
    run: WriteRun[T], start: Start, ended_before: Outcome[Any] | None
) -> Send | None:
    """
    Begin the record of *run* with *start*. Return the first send, if it needs no decision.

    *ended_before* was the outcome of another run of the write when this run was asked for.
    """
    run.record.start(start.intent, start.history)
    if start.history:
        _use_known_verdict(run, ended_before)
    return start.first


def start_again(
    run: WriteRun[T], ended_before: Outcome[Any] | None, *, is_new: bool
) -> Send | None:
    """
    Go on with *run* after a cancelled await. Return the first send, if it needs no decision.

    *is_new* is whether it started anew; *ended_before* as in :func:`start_with`.
    """
    record = run.record
    record.note_lost_send(run.core.clock.now())
    latest = run.core.writes.open_writes.opened(record.intent.identity)
    if not _is_latest(run, latest):
        start = taken_up(run.core, latest or run.current_intent())
        return start_with(run, start, ended_before)
    first = None
    if is_new and not record.known().sends:
        first = _start_anew(run)
    if record.history:
        record.add(Tick(run.core.clock.now()))
    return first


def _is_latest(run: WriteRun[T], latest: Intent | None) -> bool:
    """
    Return whether nothing happened to the write since *run* was cancelled.

    Else a later write was sent meanwhile, or another run of this client sent this one, or has the verdict.
    *latest* is the newest revision of the open intent, if it is open.
    """
    if latest is None:
        own = run.record.intent.identity
        return not run.record.known().in_doubt and own not in run.core.writes.ended
    if latest.newest is False:
        return False
    return len(latest.sent) <= len(run.current_intent().sent)


def _start_anew(run: WriteRun[T]) -> Send | None:
    """Learn what other writes did meanwhile, because nothing of this one was sent."""
    record = run.record
    start = new_start(run.spec, run.place.thing.line, record.intent)
    history = record.history
    if record.known().never_left:
        # What was read before the first send is read again.
        history = start.history
        run.call_ends = None
    record.start(start.intent, history)
    return start.first


def _use_known_verdict(run: WriteRun[T], ended_before: Outcome[Any] | None) -> None:
    """
    Use the verdict of an earlier run of the same intent in this client, if there is one.

    NOT_APPLIED counts if this run was asked for before it was known: whoever has heard it may have made
    the write again. But a run that only reads leaves the send to this one.
    """
    ended = run.core.writes.ended.get(run.record.intent.identity)
    if ended is None:
        return
    is_certain = ended.verdict in _CERTAIN
    is_shared = ended is not ended_before and not _only_read(ended)
    if is_certain or (ended.verdict is Verdict.NOT_APPLIED and is_shared):
        run.keep(ended)


def _only_read(ended: Outcome[Any]) -> bool:
    """Return whether the run with this outcome was one that must not send."""
    if not ended.history:
        return False
    begun = ended.history[0]
    return isinstance(begun, Resumed) and begun.reads_only


def leave_waiting(run: WriteRun[T]) -> None:
    """Keep an intent that was taken up in ``client.unsettled``, because its run had no turn."""
    if not run.record.is_taken_up:
        return
    intent = run.record.intent
    latest = run.core.writes.open_writes.opened(intent.identity)
    if latest is None or len(latest.sent) < len(intent.sent):
        # Whether it is the newest to its thing was known where it was stored, and only then.
        is_overtaken = (latest or intent).newest is False
        latest = attrs.evolve(intent, newest=False if is_overtaken else None)
    run.core.leave_unsettled(latest, run.place.thing.line)
