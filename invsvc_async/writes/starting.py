"""
How a run of a write starts, once it has its turn: only then it is known what the write before it left.

A run starts in one of three ways:

- **anew**: nothing was sent, as far as this program knows. By far the most.
- **taken up** where another run left the intent, in this process or another. It is settled first.
- **again**, after an await of it was cancelled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from msgspec import Struct

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.attempts import sent_at_once
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import History, Resumed, Send, Tick, Verdict
from invsvc_async.writes.line_names import line_of
from invsvc_async.writes.new_intent import before, request_of, with_before
from invsvc_async.writes.things import Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.journal import Journal
    from invsvc_async.writes.register import WriteRegister
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")
_CERTAIN = frozenset({Verdict.APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED})


class Start(Struct, frozen=True):
    """
    How a run starts, once it has its turn.

    ``intent`` may be what makes the intent, because few writes need it. ``first`` is what ``decide`` would
    say at the start, if that is known.
    """

    intent: Intent | Callable[[], Intent]
    history: History = ()
    first: Send | None = None


# --- anew


def new_start(
    spec: WriteSpec, line: str | None, intent: Intent | Callable[..., Intent]
) -> Start:
    """Start the first run of a write, with the present knowledge of the client."""
    known = before(spec, line)
    first = sent_at_once(
        spec.kind,
        spec.options.timeouts if callable(intent) else intent.timeouts,
        has_baseline=spec.baseline is not None or known.last is not None,
        knows_clock=known.bounds is not None,
        never_listed=known.ids is not None and known.listed is None,
    )
    if callable(intent):
        return Start(partial(intent, known), (), first)
    return Start(with_before(intent, known, spec.baseline), (), first)


# --- taken up


def taken_up(
    core: ClientCore,
    intent: Intent,
    *,
    journaled: bool = False,
    gone_since: float | None = None,
    reads_only: bool = False,
) -> Start:
    """
    Start where another run left *intent*.

    *journaled*: it comes from a journal that stored every send. *gone_since*: the local time since which
    its sender is known to be dead. *reads_only*: it must not be sent.
    """
    revision = _newest_revision(core.writes, intent)
    newest = _is_newest(
        core.writes, intent, revision, journaled=journaled, reads_only=reads_only
    )
    resumed = Resumed(
        at=core.clock.now(),
        journaled=journaled,
        sender_gone=gone_since is not None,
        since=gone_since,
        newest=newest,
        reads_only=reads_only,
        first_sent=core.writes.open_writes.first_sends.get(intent.identity),
    )
    return Start(revision, (resumed,))


def _newest_revision(writes: WriteRegister, given: Intent) -> Intent:
    """Return the revision of *given* with the most sends, under the policy and the reader of *given*."""
    own = given.identity
    latest = writes.open_writes.opened(own)
    ended = writes.ended.get(own)
    if latest is not None and len(latest.sent) >= len(given.sent):
        # This client left it open itself.
        revision = latest
    elif ended is not None and len(ended.intent.sent) >= len(given.sent):
        # This client has the outcome.
        revision = ended.intent
    else:
        return given
    return attrs.evolve(revision, policy=given.policy, reader=given.reader)


def _is_newest(
    writes: WriteRegister,
    given: Intent,
    revision: Intent,
    *,
    journaled: bool,
    reads_only: bool,
) -> bool | None:
    """Return whether *given*, of which *revision* is the newest, was sent last to its thing, if known."""
    if given.newest is False or revision.newest is False:
        return False
    if reads_only and not journaled and _has_company(writes, revision):
        return None
    own = given.identity
    latest = writes.open_writes.opened(own)
    newest: bool | None = given.newest if journaled else None
    if latest is not None and len(latest.sent) >= len(given.sent):
        newest = latest.newest
    # A journal does not know what this client has written otherwise since it had the verdict.
    has_ended = latest is None and own in writes.ended
    if newest is None or has_ended:
        is_last = _is_last(writes, revision)
        return newest if is_last is None else is_last
    return newest


def _is_last(writes: WriteRegister, intent: Intent) -> bool | None:
    """Return whether *intent* was sent last to its thing, as far as this client knows."""
    line = _line_of_intent(intent)
    return None if line is None else writes.is_last(line, intent.identity)


def _line_of_intent(intent: Intent) -> str | None:
    return line_of(request_of(intent), intent.scope.team, intent.tag)


def _has_company(writes: WriteRegister, intent: Intent) -> bool:
    """Return whether others may have written to the same thing, under keys of the same journal."""
    return intent.nonce is not None and getattr(writes.journal, "is_shared", False)


async def close_lines_of_leftovers(core: ClientCore, journal: Journal) -> None:
    """Close the lines of the open intents in *journal* for as long as their writes may still land."""
    writes = core.writes
    async with writes.looking:
        if writes.open_writes.leftovers is not None:
            return
        # All of them first: a cancelled or failed look must not count as one.
        found = [
            (intent, _line_of_intent(intent), _free_at(core, intent))
            async for intent in journal.open_intents()
        ]
        writes.open_writes.leftovers = {}
        for intent, line, free_at in found:
            writes.open_writes.add_leftover(intent, line)
            if line is not None:
                writes.close_for_unknown(line, intent.identity, free_at)


def _free_at(core: ClientCore, intent: Intent) -> float:
    """Return until when *intent*, of a dead process, may still have an effect (local s)."""
    resumed = Resumed(at=core.clock.now(), journaled=True, sender_gone=True)
    return Known(BY_NAME[intent.operation], intent, (resumed,)).free_at


# --- the run


def find_thing(run: WriteRun[T]) -> Thing:
    """Find the record of the line of the write, keep it in the place of the run, and return it."""
    spec = run.spec
    record = run.record
    line = line_of(spec.request, spec.request.team, spec.tag)
    if line is None and (record.is_taken_up or spec.reader is not None):
        # All runs of this write are in one line, because each could send it.
        line = f"key {record.intent.identity}"
    thing = Thing() if line is None else run.core.writes.records.of(line)
    run.place.thing = thing
    return thing


def start_again(
    run: WriteRun[T], ended_before: Outcome[Any] | None, *, is_new: bool
) -> Send | None:
    """
    Go on with *run* after a cancelled await. Return the first send, if it needs no decision.

    *is_new* is whether it started anew; *ended_before* as in :func:`use_known_verdict`.
    """
    record = run.record
    record.note_lost_send(run.core.clock.now())
    latest = run.core.writes.open_writes.opened(record.intent.identity)
    if not _is_latest(run, latest):
        start = taken_up(run.core, latest or run.current_intent())
        record.start(start.intent, start.history)
        use_known_verdict(run, ended_before)
        return start.first
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
    """Learn what other writes did meanwhile, because nothing of this write was sent."""
    record = run.record
    start = new_start(run.spec, run.place.thing.line, record.intent)
    history = record.history
    if record.known().never_left:
        # What was read before the first send is read again.
        history = start.history
        run.call_ends = None
    record.start(start.intent, history)
    return start.first


def use_known_verdict(run: WriteRun[T], ended_before: Outcome[Any] | None) -> None:
    """
    Use the verdict of an earlier run of the same intent in this client, if there is one.

    *ended_before* was the outcome of another run of the write when this run was asked for. A run that starts
    anew uses none: it has no history.

    NOT_APPLIED counts if this run was asked for before it was known: whoever has heard it may have made
    the write again. But a run that only reads leaves the send to this one.
    """
    if not run.record.history:
        return
    ended = run.core.writes.ended.get(run.record.intent.identity)
    if ended is None:
        return
    is_certain = ended.verdict in _CERTAIN
    is_shared = ended is not ended_before and not _only_read(ended)
    if is_certain or (ended.verdict is Verdict.NOT_APPLIED and is_shared):
        run.keep(ended)


def _only_read(ended: Outcome[Any]) -> bool:
    """Return whether the run that *ended* so was not allowed to send."""
    if not ended.history:
        return False
    begun = ended.history[0]
    return isinstance(begun, Resumed) and begun.reads_only


def _is_older(revision: Intent, other: Intent) -> bool:
    """Return whether *revision* of an intent has fewer sends than the *other*."""
    return len(revision.sent) < len(other.sent)


def leave_untouched(run: WriteRun[T]) -> None:
    """Keep an intent that was taken up in ``client.unsettled``, because its run did not start."""
    if not run.record.is_taken_up:
        return
    intent = run.record.intent
    writes = run.core.writes
    latest = writes.open_writes.opened(intent.identity)
    ended = writes.ended.get(intent.identity)
    if latest is None and ended is not None and not _is_older(ended.intent, intent):
        return  # another run has settled it meanwhile
    if latest is None or _is_older(latest, intent):
        # Whether it is the newest to its thing was known where it was stored, and only then.
        is_overtaken = (latest or intent).newest is False
        latest = attrs.evolve(intent, newest=False if is_overtaken else None)
    run.core.leave_unsettled(latest, run.place.thing.line)
