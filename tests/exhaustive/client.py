"""
Stand for the client around the writes: lines, what it knows before a send, what it keeps; by its own pure parts.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.attempts import kind_of
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Attempt, Reading, Resumed
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.reconcile.server_clock import ServerClock
from invsvc_async.reconcile.turn import free_at
from invsvc_async.writes.new_intent import spec_of_intent
from invsvc_async.writes.register import WriteRegister
from invsvc_async.writes.starting import taken_up
from tests.exhaustive.world import SERVER, stamp
from tests.exhaustive.world_setup import CORE, NEVER, NOBODY, START

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Event
    from invsvc_async.reconcile.intent import Intent
    from tests.exhaustive.steps import Subject
    from tests.exhaustive.world_setup import Crash, Node, Run, SetUp

OTHER_CLIENT = 100
THINKS = 0.0625  # s between one write and the next: no two changes in one millisecond


def begin(
    setup: SetUp, subject: Subject, node: Node, number: int, earliest: float
) -> Node:
    """Start a run that waited, once its line is open."""
    run = node.runs[number]
    at = max(earliest + THINKS, _opens(setup, node, run))
    if run.taken is not None and run.taken.client == "other":
        at = earliest + run.taken.delay
    if run.taken is not None:
        assert run.kept is not None
        return take_up(setup, node, run, run.kept, run.taken, at)
    if node.runs[number].after != NOBODY:
        run = run._replace(intent=_informed(setup, subject, node, run, at - node.shift))
    return node.with_run(
        run._replace(now=at, shift=node.shift, client=node.client, after=NOBODY)
    )


def ended(setup: SetUp, subject: Subject, node: Node, number: int) -> Node:
    """Start what waits for the end of run *number*."""
    now = node.runs[number].now
    if setup.reopened is not None and node.opened is None:
        now += setup.reopened
        node = _next_process(setup, node, now)
    for run in node.runs:
        if run.now == NEVER and run.after == number:
            node = begin(setup, subject, node, run.number, now)
    return node


def _next_process(setup: SetUp, node: Node, at: float) -> Node:
    """Continue with the client of a new process, which was opened at *at* and has seen nothing."""
    shift = node.shift - setup.jump
    return node._replace(
        client=node.client + 1, shift=shift, opened=at, heard=(), claims=()
    )


# Any: as the subject has it
def closes_at(setup: SetUp, known: Any, shift: float) -> float:
    """Return until when a run in doubt keeps its line closed."""
    if not known.in_doubt:
        return -NEVER
    return float(free_at(known) if setup.gap else known.windows.over) + shift


def _opens(setup: SetUp, node: Node, run: Run) -> float:
    others = [
        each
        for each in node.runs
        if each.line == run.line and each.number != run.number
    ]
    left = [
        each
        for each in others
        if setup.reopened is None or each.client == node.client or each.kept
    ]
    closed = [each.closes for each in left]
    return max(closed, default=-NEVER)


# --- what the client knows


def _informed(
    setup: SetUp, subject: Subject, node: Node, run: Run, at: float
) -> Intent:
    """Return the intent of *run* with what its client knows at *at*."""
    own, clock = subject.register(is_of_one_mode=True), ServerClock()
    if setup.stamped and setup.bounds is not None and not node.client:
        low, high = setup.first_bounds or setup.bounds
        clock.learn(
            round((START - 1 + SERVER) * 1000), START - 1 - high, START - 1 - low
        )
    for number, event in node.heard:
        _learn(own, clock, node.runs[number], event)
    if node.opened is not None and setup.aware and setup.bounds is not None:
        opened = node.opened - node.shift
        clock.learn(
            stamp(node.opened), opened - setup.bounds[1], opened - setup.bounds[0]
        )
    if setup.forgetful:
        for thing in own.records.all().values():
            thing.ids = thing.ids and thing.ids.shortened(0)
    core = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: at),
        server_clock=clock,
        writes=own,
    )
    view: Any = SimpleNamespace(core=core)
    fresh = attrs.evolve(run.intent, baseline=None)
    known = subject.before(spec_of_intent(view, fresh), run.line)
    if not setup.stamped and setup.bounds is not None and not node.client:
        known = type(known)(
            known.at, run.intent.bounds, known.last, known.ids, known.listed
        )
    intent: Intent = subject.with_before(
        fresh, known, run.intent.baseline if setup.passed else None
    )
    return intent


def _learn(
    own: Any, clock: ServerClock, run: Run, event: Event | None
) -> None:  # Any: a WriteRegister, or a broken one
    """Do what the driver, and what looks for it, do with what they hear."""
    kind, team = kind_of_write(BY_NAME[run.intent.operation]), run.intent.scope.team
    thing = run.line
    if event is None and kind.needs_baseline:
        own.forget_state(thing)
    if not isinstance(event, (Attempt, Reading)):
        return
    if event.stamp is not None:
        clock.learn(event.stamp, event.started, event.ended)
    if isinstance(event, Reading):
        _learn_read(own, thing, team, event)
    elif event.readable and kind.creates:
        if run.line.startswith("url "):
            own.shown.learn_created(
                run.line, event.value["id"], event.value["created_at"]
            )
    elif event.readable:
        state = {} if kind.deletes else event.value
        if state is None:
            own.forget_state(thing)
        else:
            own.learn_state(
                team,
                thing,
                state,
                event.started,
                event.ended,
                stamp=event.stamp,
                written=True,
            )


def _learn_read(own: Any, thing: str, team: str | None, event: Reading) -> None:
    if isinstance(event.seen, list):
        own.learn_list("webhooks.list", team, event.seen)
    elif event.own_envelope and isinstance(event.seen, dict):
        own.learn_state(
            team, thing, event.seen, event.started, event.ended, stamp=event.stamp
        )
    elif event.own_envelope and event.status == 404 and "/webhooks/" in thing:
        own.learn_state(team, thing, {}, event.started, event.ended, stamp=event.stamp)


def claims_of(node: Node, run: Run) -> tuple[tuple[str, int, bool, int], ...]:
    """Return the claims of all runs after *run*, a create, is applied."""
    done, claims = run.done, node.claims
    if done is None or is_unique(run.intent.tag):
        return claims
    answered = [
        event
        for event in run.history
        if isinstance(event, Attempt) and kind_of(event) == "applied"
    ]
    told = next((event.value["id"] for event in answered if event.value), None)
    found = [
        told,
        done.value and done.value["id"],
        *(one["id"] for one in done.evidence.duplicates or ()),
    ]
    for each in dict.fromkeys(found):
        if each is not None and (
            each == told or all(each != claim[0] for claim in claims)
        ):
            others = tuple(
                claim for claim in claims if claim[0] != each or claim[3] != run.client
            )
            claims = (*others, (each, run.number, each == told, run.client))
    return claims


# --- what was left open


def cut_short(
    setup: SetUp, subject: Subject, node: Node, run: Run, intent: Intent, crash: Crash
) -> Node | None:
    """
    Leave *run* open with *intent*, to be resumed as *crash* says, and continue the writes behind it; return
    ``None`` if nothing waits, because then the order does not matter.
    """
    waiting = next(
        (each for each in node.runs if each.now == NEVER and each.after == run.number),
        None,
    )
    if waiting is None and crash.turn == "last":
        return None
    at = run.now + crash.delay
    known = subject.known(BY_NAME[intent.operation], run.intent, run.history)
    if crash.client == "next":
        node = _next_process(setup, node, at)
        taken = Resumed(at=at - node.shift, journaled=True, sender_gone=True)
        known = subject.known(BY_NAME[intent.operation], intent, (taken,))
    gone_since = at - node.shift if crash.client == "next" else None
    closes = closes_at(setup, known, node.shift)
    run = run._replace(
        kept=intent, taken=crash, closes=closes, steps=0, gone_since=gone_since
    )
    node = node.with_run(run, heard=node.hearing(run, None), kills=node.kills + 1)
    node = node._replace(sign=hash((node.sign, run.number, run.now, *crash.sign())))
    last = max(each.number for each in node.runs if each.line == run.line)
    if crash.turn == "last":
        node = node.with_run(run._replace(now=NEVER, after=last))
    else:
        node = take_up(setup, node, run, intent, crash, at)
    if waiting is not None and (crash.turn == "last" or crash.client == "other"):
        node = begin(
            setup,
            subject,
            node,
            waiting.number,
            at if crash.client == "next" else run.now,
        )
    return node


def take_up(
    setup: SetUp, node: Node, run: Run, intent: Intent, crash: Crash, now: float
) -> Node:
    """Resume *intent* of *run* in a client at *now*."""
    shift = (
        node.shift
        if setup.runs > 1 and crash.client != "other"
        else run.shift - setup.jump
    )
    if setup.runs > 1 and crash.client == "same":
        shift = run.shift
    register = WriteRegister(is_of_one_mode=True)
    if crash.client == "same" and run.kept is not None:
        register.leave_open(run.kept, run.line)
    core: Any = SimpleNamespace(
        writes=register,
        clock=SimpleNamespace(now=lambda: now - shift),
        other_team=CORE.other_team,
    )
    gone_since = (
        (now - shift if run.gone_since is None else run.gone_since)
        if crash.gone
        else None
    )
    start = taken_up(
        core,
        intent,
        journaled=crash.journaled,
        gone_since=gone_since,
        reads_only=crash.mode == "settle",
    )
    assert not callable(start.intent)
    intent, client = start.intent, node.client
    unproven = not (intent.sent or crash.journaled)
    begun = run._replace(
        now=now,
        intent=intent,
        history=start.history,
        shift=shift,
        mode=crash.mode,
        resends=0,
        doubt=unproven
        or any(
            sent.end is None or sent.end.kind in ("short", "long")
            for sent in intent.sent
        ),
        since=now,
        absent=False,
        partly=False,
        saw=None,
        left=run.saw,
        shown=False,
        read_late=False,
        echo=False,
        spared=True,
        steps=0,
        live=run.done,
        done=None,
        client=OTHER_CLIENT if crash.client == "other" else client,
        after=NOBODY,
        taken=None,
    )
    sign = hash((node.sign, run.number, now, *crash.sign()))
    return node.with_run(begun, sign=sign)


def overtaking(node: Node, run: Run) -> Node:
    """Mark what was left open before *run*, which is being sent, as overtaken."""
    open_runs = [
        each
        for each in node.runs
        if each.kept is not None and each.line == run.line and each.number != run.number
    ]
    if not open_runs or run.client != node.client:
        return node
    register = WriteRegister(is_of_one_mode=True)
    for each in open_runs:
        assert each.kept is not None
        register.leave_open(each.kept, each.line)
    register.open_writes.overtake(
        *register.open_writes.doubt_others(
            register.records.of(run.line), run.intent.identity
        )
    )
    for each in open_runs:
        if each.taken is None or each.taken.client != "other":
            node = node.with_run(
                node.runs[each.number]._replace(
                    kept=register.opened(each.intent.identity)
                )
            )
    return node
