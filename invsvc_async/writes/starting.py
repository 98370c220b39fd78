"""
How a run of a write starts, once it has its turn: only then it is known what the write before it left.

A run starts in one of three ways:

- **anew**: nothing was sent, as far as this program knows. By far the most.
- **taken up** where another run left the intent, in this process or another. It is settled first.
- **again**, after an await of it was cancelled.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from msgspec import Struct

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.attempts import sent_at_once
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import History, Resumed, Send, Tick, Verdict
from invsvc_async.reconcile.intent import revised
from invsvc_async.reconcile.safety import safer_settings, safety_of, with_safety
from invsvc_async.reconcile.turn import free_at
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.line_names import line_of
from invsvc_async.writes.new_intent import before, request_of, with_before
from invsvc_async.writes.things import Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import ReconcilePolicy
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
    spec: WriteSpec,
    line: str | None,
    intent: Intent | Callable[..., Intent],
) -> Start:
    """Start the first run of a write, with the present knowledge of the client."""
    known = before(spec, line)
    if callable(intent):
        timeouts = spec.options.timeouts
    else:
        timeouts = intent.timeouts
    first = sent_at_once(
        spec.kind,
        timeouts,
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
    policy: ReconcilePolicy | None = None,
    journaled: bool = False,
    gone_since: float | None = None,
    reads_only: bool = False,
) -> Start:
    """
    Start where another run left *intent*.

    *policy*: that of this run, if it is not the stored one; see ``reconcile.safety``. *journaled*: it comes
    from a journal that stored every send. *gone_since*: the local time since which its sender is known to be
    dead. *reads_only*: it must not be sent.
    """
    revision = _latest_revision(core.writes, intent)
    safety = None
    if policy is not None:
        earlier = revision.policy
        revision = revised(revision, policy=with_safety(policy, safety_of(earlier)))
        safety = safer_settings(earlier, policy)
    newest = _was_sent_last(
        core, intent, revision, journaled=journaled, reads_only=reads_only
    )
    resumed = Resumed(
        at=core.clock.now(),
        journaled=journaled,
        sender_gone=gone_since is not None,
        since=gone_since,
        newest=newest,
        reads_only=reads_only,
        first_sent=core.writes.open_writes.first_sends.get(intent.identity),
        safety=safety,
    )
    return Start(revision, (resumed,))


def _latest_revision(writes: WriteRegister, given: Intent) -> Intent:
    """
    Return the revision of *given* with the most sends, under the policy and the reader of *given*.

    The safety settings belong to the sends.
    """
    own = given.identity
    left_open = writes.open_writes.opened(own)
    ended = writes.ended.get(own)
    if left_open is not None and not _is_older(left_open, given):
        revision = left_open  # by this client
    elif ended is not None and not _is_older(ended.intent, given):
        revision = ended.intent  # this client has the outcome
    else:
        return given
    policy = given.policy
    if _is_older(given, revision):
        policy = with_safety(policy, safety_of(revision.policy))
    return attrs.evolve(revision, policy=policy, reader=given.reader)


def _was_sent_last(
    core: ClientCore,
    given: Intent,
    revision: Intent,
    *,
    journaled: bool,
    reads_only: bool,
) -> bool | None:
    """
    Return whether *given*, whose latest *revision* is known, was sent last to its thing; ``None``: not known.

    If it was not, it is overtaken, and must not be sent again. The first row that applies counts; the mark is
    that of :func:`_marked_as_last`:

    =======================================================  =====================================
    what is known                                            *given* was sent last
    =======================================================  =====================================
    either revision is marked as overtaken                   no: that stays so
    the run only reads, and others may have written          not known
    the mark of a journal says yes, and this client has      not known
    sent a newer write, with an effect perhaps, beside it
    the mark, and this client has no verdict of the write    as the mark says
    the last write to the line, by this client               if it is that one
    the mark, from before this client had the verdict        as the mark says
    nothing                                                  not known
    =======================================================  =====================================

    After a verdict the client may have written to the thing again, so what it knows comes before the mark.
    """
    if given.newest is False or revision.newest is False:
        return False
    writes = core.writes
    if reads_only and not journaled and _has_rivals_by_key(writes, revision):
        return None
    own = given.identity
    left_open = writes.open_writes.opened(own)
    marked = _marked_as_last(given, left_open, journaled=journaled)
    has_verdict_here = left_open is None and own in writes.ended
    is_last_here = _is_last_here(core, revision)
    if marked is not None and not has_verdict_here:
        if marked and journaled and is_last_here is False:
            return None
        return marked
    if is_last_here is not None:
        return is_last_here
    return marked


def _marked_as_last(
    given: Intent,
    left_open: Intent | None,
    *,
    journaled: bool,
) -> bool | None:
    """
    Return whether the write is marked as the one that was sent last; ``None`` if there is no mark.

    The mark is that of *left_open*, the revision that this client left open, if it is no older than *given*;
    else that of the journal from which *given* comes.
    """
    if left_open is not None and not _is_older(left_open, given):
        return left_open.newest
    if journaled:
        return given.newest
    return None


def _is_last_here(core: ClientCore, intent: Intent) -> bool | None:
    """Return whether *intent* was sent last to its thing; ``None`` if this client does not know."""
    line = line_of_intent(core, intent)
    if line is None:
        return None
    return core.writes.is_last(line, intent.identity)


def line_of_intent(core: ClientCore, intent: Intent) -> str | None:
    """Return the line of the write of *intent*, as ``line_of``."""
    return line_of(core, request_of(intent), intent.tag)


def _has_rivals_by_key(writes: WriteRegister, intent: Intent) -> bool:
    """
    Return whether others may have written to the same thing, under keys of the same journal.

    A journal of the user's need not say whether it is shared; it has no keys.
    """
    return intent.nonce is not None and getattr(writes.journal, "is_shared", False)


async def close_lines_of_leftovers(core: ClientCore, journal: Journal) -> None:
    """
    Close the lines of the open intents in *journal* for as long as their writes may still land.

    The first write looks, and those that are begun meanwhile leave in the order in which they came.
    """
    writes = core.writes
    writes.lookers += 1
    try:
        async with writes.looking:
            if writes.open_writes.leftovers is None:
                await _look_at_leftovers(core, journal)
    finally:
        writes.lookers -= 1


async def _look_at_leftovers(core: ClientCore, journal: Journal) -> None:
    writes = core.writes
    # All are collected first. From `leftovers = {}` on, the journal counts as read, and a look that was
    # cancelled, or failed, must not count.
    found = [intent async for intent in journal.open_intents()]
    keys = keys_of(journal)
    of_keys = []
    if keys is not None:
        for line in await keys.queue.things_in_doubt():
            writes.open_writes.lines_in_doubt.setdefault(line, asyncio.Lock())
        of_keys = await keys.left_in_doubt()
    writes.open_writes.leftovers = {}
    for intent in found:
        writes.open_writes.add_leftover(intent, line_of_intent(core, intent))
    for intent in (*found, *of_keys):
        line = line_of_intent(core, intent)
        if line is not None:
            writes.close_for_unknown(line, intent.identity, _free_at(core, intent))


def _free_at(core: ClientCore, intent: Intent) -> float:
    """
    Return until when *intent*, of a dead process, may still have an effect (local s).

    The rules say that of a write that is resumed now.
    """
    resumed = Resumed(
        at=core.clock.now(),
        journaled=True,
        sender_gone=True,
    )
    return free_at(Known(BY_NAME[intent.operation], intent, (resumed,)))


# --- the run


def find_thing(run: WriteRun[T]) -> Thing:
    """Find the record of the line of the write, keep it in the place of the run, and return it."""
    spec = run.spec
    record = run.record
    line = line_of(run.core, spec.request, spec.tag)
    if line is None and (record.is_taken_up or spec.reader is not None):
        # All runs of this write are in one line, because each could send it.
        line = f"key {record.intent.identity}"
    thing = Thing() if line is None else run.core.writes.records.of(line)
    run.place.thing = thing
    return thing


def start_again(
    run: WriteRun[T],
    ended_before: Outcome[Any] | None,
    *,
    started_anew: bool,
) -> Send | None:
    """
    Go on with *run* after a cancelled await. Return the first send, if it needs no decision.

    *started_anew* is whether it did so at first; *ended_before* as in :func:`use_known_verdict`.
    """
    record = run.record
    record.note_lost_send(run.core.clock.now())
    left_open = run.core.writes.open_writes.opened(record.intent.identity)
    if not _is_untouched(run, left_open):
        start = taken_up(
            run.core,
            left_open or run.current_intent(),
            policy=run.record.known().own_policy,
        )
        record.start(start.intent, start.history)
        use_known_verdict(run, ended_before)
        return start.first
    first = None
    if started_anew and record.known().never_left:
        first = _start_anew(run)
    elif started_anew and not record.may_have_effect():
        _learn_of_others(run)
    if record.history:
        # For `decide`, it is as late as the last event says.
        record.add(Tick(run.core.clock.now()))
    return first


def _is_untouched(run: WriteRun[T], left_open: Intent | None) -> bool:
    """
    Return whether nothing happened to the write since *run* was cancelled.

    Else a later write was sent meanwhile, or another run of this client sent this one, or has the verdict.
    *left_open* is the latest revision of the intent, if it is open.
    """
    if left_open is None:
        own = run.record.intent.identity
        return not run.record.known().in_doubt and own not in run.core.writes.ended
    if left_open.newest is False:
        return False
    return not _is_older(run.current_intent(), left_open)


def _start_anew(run: WriteRun[T]) -> Send | None:
    """Start as at first, because no byte of this write has left: what was read before is read again."""
    start = new_start(run.spec, run.place.thing.line, run.record.intent)
    run.call_ends = None
    run.record.start(start.intent, start.history)
    return start.first


def _learn_of_others(run: WriteRun[T]) -> None:
    """Learn of other writes meanwhile; each attempt of this write was refused, or has not left."""
    start = new_start(run.spec, run.place.thing.line, run.record.intent)
    run.record.start(start.intent, run.record.history)


def use_known_verdict(run: WriteRun[T], ended_before: Outcome[Any] | None) -> None:
    """
    Use the verdict of an earlier run of the same intent in this client, if there is one.

    A run that starts anew uses none: it has no history. *ended_before* was the outcome of another run of the
    write when this run was asked for, before it waited for its turn.

    ======================================  ======================================================
    the verdict                             is used
    ======================================  ======================================================
    APPLIED, SUPERSEDED                     always
    REFUSED                                 unless another process has sent the write since
    NOT_APPLIED, since this run was asked   yes: whoever has heard it may have made the write again
    for, of a run that was allowed to send
    NOT_APPLIED, of a run that only reads   no: that run left the send to this one
    NOT_APPLIED, from before                no: this run was asked for in spite of it
    UNKNOWN                                 no
    ======================================  ======================================================
    """
    if not run.record.history:
        return
    ended = run.core.writes.ended.get(run.record.intent.identity)
    if ended is None:
        return
    if _is_certain(ended, run.record.intent):
        run.keep(ended)
        # open still, if nobody got the verdict: see `Driver.leave_unheard`
        run.core.writes.forget(run.record.intent.identity)
        return
    has_ended_since = ended is not ended_before
    may_be_made_again = has_ended_since and not _only_read(ended)
    if ended.verdict is Verdict.NOT_APPLIED and may_be_made_again:
        run.keep(ended)


def _is_certain(ended: Outcome[Any], intent: Intent) -> bool:
    """
    Return whether the verdict of *ended* stays true of the write, of which *intent* is known, too.

    That of the effect does.  A refusal is the answer to the last send: *intent* may have a later one.
    """
    if ended.verdict is Verdict.REFUSED:
        return not _is_older(ended.intent, intent)
    return ended.verdict in _CERTAIN


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
    left_open = writes.open_writes.opened(intent.identity)
    ended = writes.ended.get(intent.identity)
    if ended is not None and _is_certain(ended, intent):
        return  # nothing of it is open, even if the journal has yet to learn that
    if left_open is None and ended is not None and not _is_older(ended.intent, intent):
        return  # another run has settled it meanwhile
    if left_open is None or _is_older(left_open, intent):
        # That it was overtaken stays so.  That it was the last may be outdated since it was stored.
        is_overtaken = (left_open or intent).newest is False
        left_open = attrs.evolve(intent, newest=False if is_overtaken else None)
    run.core.leave_unsettled(left_open, run.place.thing.line)
