"""
What must hold at the end of an execution, by the numbers of the invariants of writes.

Judged is what the application was told and what the client keeps, against the ledger of the service.
"""

from __future__ import annotations

import contextlib
from itertools import combinations
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.conformance.reasons import Happened, Told, contradiction
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator import Entry
from tests.interleavings.loop import START
from tests.interleavings.service import ATTEMPT, CONNECT, LONG, SHORT, thing_of
from tests.support.virtual_time import HandClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.register import WriteRegister
    from tests.interleavings.execution import Heard, Member, Stage
    from tests.interleavings.service import Effect, Sent

SLACK, BAND = 0.25, 1.0  # s, of the policy
TIE = 1e-6
_FINAL = (Verdict.APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED)


def broken(stage: Stage) -> list[str]:
    """Return what is broken, each with the number of its invariant; 0 for what has none."""
    found = list(stage.wrong)
    found += _ended(stage)
    found += _once(stage)
    for heard in stage.heard:
        found += _true(stage, heard)
        found += _reasoned(stage, heard)
    found += _in_order(stage)
    found += _apart(stage)
    found += _kept(stage)
    found += _firm(stage)
    found += _prompt(stage)
    found += _calm(stage)
    return found


def _ended(stage: Stage) -> Iterator[str]:
    """Nothing is stuck, and nothing is left behind."""
    loop = stage.loop
    for context in loop.failures:
        yield f"0: an error that nobody saw: {context.get('message')} {context.get('exception')!r}"
    for run, task in loop.tasks:
        if run in loop.dead:
            continue
        if not task.done():
            yield f"0: {task.get_name()} of {run} never ends"
        elif not task.cancelled() and task.exception() is not None:
            yield f"0: {run} failed: {task.exception()!r}"
    for member in stage.members.values():
        if member.name not in stage.killed_at:
            yield from _released(stage, member)


def _released(stage: Stage, member: Member) -> Iterator[str]:
    """Each line is free once its time has passed, and nothing is kept of it."""
    state, longest = member.state, LONG + ATTEMPT + 2 * SLACK + 3 * BAND
    for key, line in state.writes.records.all().items():
        if line.held or line.waiters:
            yield f"0: the line {key} of {member.name} is not released"
        elif line.opens_at(None) > stage.loop.now + longest:
            yield f"0: the line {key} of {member.name} stays closed"
        else:
            _go_through(state.writes, key)
    if any(
        line.held or line.closed_until for line in state.writes.records.all().values()
    ):
        yield f"0: {member.name} keeps lines that nobody needs"
    if (
        state.under_way.runs
        or state.writes.listings._under_way
        or state.writes.listings._next
    ):
        yield f"0: {member.name} keeps a pause or a list"


def _go_through(writes: WriteRegister, line: str) -> None:
    """Enter a line whose time has passed, and leave it."""

    async def pause(_seconds: float) -> bool:
        raise AssertionError

    # after all windows
    clock, writes.lines.clock = writes.lines.clock, HandClock(10 * START)
    with contextlib.suppress(StopIteration):
        writes.lines.turn(writes.records.of(line), None, pause).send(None)
    writes.lines.leave(writes.records.of(line))
    writes.lines.clock = clock


def _once(stage: Stage) -> Iterator[str]:
    """Rules 1 and 3: one effect for each write, and nothing is sent again that happened or may happen."""
    if stage.scene.misuse:
        return
    service = stage.service
    for writer in {sent.writer for sent in service.sends}:
        count = sum(
            effect.writer == writer and effect.stored != "in part"
            for effect in service.effects
        )
        if count > 1:
            yield f"3: {writer} took effect {count} times"
    for number, sent in enumerate(service.sends):
        for before in service.sends[:number]:
            if before.writer != sent.writer:
                continue
            in_part = before.fate.stored == "in part"
            has_landed = (
                before.effect_at is not None and before.effect_at <= sent.started
            )
            if has_landed and not in_part and _landed(stage, before):
                yield f"1: {sent.writer} was sent again at {_at(sent.started)} after it took effect"
            over = (before.ended or before.started) + before.fate.window
            if before.fate.window and sent.started < over - TIE:
                yield f"1: {sent.writer} was sent again at {_at(sent.started)} within its window"


def _landed(stage: Stage, sent: Sent) -> bool:
    number = stage.service.sends.index(sent)
    return any(effect.number == number for effect in stage.service.effects)


def _sends(stage: Stage, heard: Heard) -> list[tuple[int, Sent]]:
    return [
        (number, sent)
        for number, sent in enumerate(stage.service.sends)
        if sent.writer == heard.writer and sent.started < heard.at
    ]


def _true(stage: Stage, heard: Heard) -> Iterator[str]:
    """Rules 2, 6, 8 and 9: the verdict is true."""
    service, sends = stage.service, _sends(stage, heard)
    numbers = {number for number, _ in sends}
    effects = [effect for effect in service.effects if effect.number in numbers]
    who = f"{heard.writer} ({heard.how} by {heard.client}, at {_at(heard.at)})"
    match heard.verdict:
        case Verdict.APPLIED:
            yield from _applied(
                stage,
                heard,
                [effect for effect in effects if effect.at <= heard.at],
                who,
            )
        case Verdict.NOT_APPLIED | Verdict.REFUSED if (
            effects and not stage.scene.misuse
        ):
            late = (
                "6: it happened after the verdict"
                if effects[0].at > heard.at
                else "2: it had happened"
            )
            yield f"{late}: {who} is {heard.verdict}: {heard.outcome.message}"
        case Verdict.SUPERSEDED:
            acts = [each for each in service.effects if _is_strange(stage, heard, each)]
            if not any(
                sent.thing == each.thing and sent.started <= each.at <= heard.at
                for _, sent in sends[:1]
                for each in acts
            ):
                yield f"9: {who} is superseded, and no stranger acted: {heard.outcome.message}"


def _reasoned(stage: Stage, heard: Heard) -> Iterator[str]:
    """Rule 22: the reason is true, too."""
    told = Told.of(heard.outcome, at=heard.at)
    if stage.scene.rivals:  # no client can tell its own webhook from an equal one
        told = attrs.evolve(told, duplicates=None)
    if (why := contradiction(told, happened_to(stage, heard))) is not None:
        evidence = heard.outcome.evidence
        yield (
            f"22: {heard.writer} ({heard.how} by {heard.client}, at {_at(heard.at)}) is {heard.verdict}, "
            f"{evidence.basis}, {evidence.cause}: {why}: {heard.outcome.message}"
        )


def happened_to(stage: Stage, heard: Heard) -> Happened:
    """Return what the service's ledger has about the write that *heard* is about."""
    service, intent = stage.service, heard.outcome.started_as
    sends = [
        (number, sent)
        for number, sent in enumerate(service.sends)
        if sent.started <= heard.at
    ]
    own = [(number, sent) for number, sent in sends if sent.writer == heard.writer]
    thing = own[0][1].thing if own else _thing(intent)
    beside = [
        each
        for each in service.effects
        if each.thing == thing and each.writer != heard.writer
    ]
    strange = [each.at for each in beside if _is_strange(stage, heard, each)]
    since = own[0][1].started if own else heard.begun
    history = service.states.get(thing, [])
    return Happened(
        sends=[entry_of(stage, number, sent) for number, sent in own],
        newer=[
            sent.started
            for _, sent in sends
            if sent.thing == thing and _is_newer(stage, sent.writer, heard)
        ],
        others=strange,
        siblings=[each.at for each in beside if not _is_strange(stage, heard, each)],
        states=[state for at, state in history if since <= at <= heard.at]
        + [state for at, state in history if at <= since][-1:],
        wanted=intent.body if isinstance(intent.body, dict) else None,
        since=since,
        window=SHORT,
    )


def _thing(intent: Intent) -> str:
    if intent.operation == "webhooks.create":
        return thing_of("POST", "/webhooks", intent.body)
    return f"/{intent.operation.partition('.')[0]}/{intent.path['id']}"


def entry_of(stage: Stage, number: int, sent: Sent) -> Entry:
    """Return a send as the ledger of the embedded service would have it."""
    effect = next(
        (each for each in stage.service.effects if each.number == number), None
    )
    return Entry(
        operation="",
        received_at=sent.started,
        applied_at=None if effect is None else effect.at,
        answered=sent.status,
        target=None if effect is None else effect.made or effect.thing,
        stored=None if effect is None else effect.stored,
    )


def _is_newer(stage: Stage, writer: str, heard: Heard) -> bool:
    """Return whether *writer* is not older than the write that *heard* is about."""
    return writer != heard.writer and stage.begun.get(writer, 0) >= stage.begun.get(
        heard.writer, 0
    )


def _is_strange(stage: Stage, heard: Heard, effect: Effect) -> bool:
    """Return whether *effect* is not of the program that said *heard*."""
    if effect.writer is None:
        return True
    programs = {
        stage.members[stage.service.sends[effect.number].client].program,
        stage.members[heard.client].program,
    }
    return effect.writer != heard.writer and len(programs) > 1


def _applied(stage: Stage, heard: Heard, effects: list[Any], who: str) -> Iterator[str]:
    outcome = heard.outcome
    sends = _sends(stage, heard)
    if outcome.started_as.operation == "webhooks.create":
        ours = {effect.made for effect in effects}
        shown = getattr(outcome.value, "id", None)
        if stage.scene.rivals:
            return
        if not effects:
            yield f"2, 8: {who} is applied, by {shown} of another: {outcome.message}"
        elif shown is not None and shown not in ours:
            yield f"8: {who} took {shown} of another for its own"
        told = {each["id"] for each in outcome.evidence.duplicates or ()}
        if told - {
            effect.made
            for effect in stage.service.effects
            if effect.writer == heard.writer
        }:
            yield f"8: {who} names a webhook of another as its duplicate"
    elif not any(
        effect.stored != "in part" for effect in effects
    ) and not _was_as_wanted(stage, heard, sends[0][1].started if sends else 0.0):
        yield f"2: {who} is applied, and it never was: {outcome.message}"


def _was_as_wanted(stage: Stage, heard: Heard, begun: float) -> bool:
    """Return whether the thing was as wanted at some moment since *begun*, by whatever write."""
    intent = heard.outcome.started_as
    kind = "journeys" if intent.operation.startswith("journeys") else "webhooks"
    history = stage.service.states[f"/{kind}/{intent.path['id']}"]
    since = [state for at, state in history if begun <= at <= heard.at]
    since += [state for at, state in history if at <= begun][-1:]
    if intent.operation == "webhooks.delete":
        return None in since
    return any(
        state is not None and intent.body.items() <= state.items() for state in since
    )


def _in_order(stage: Stage) -> Iterator[str]:
    """Rule 12: writes of one program to one thing take effect in the order in which they were first sent."""
    service = stage.service
    firsts: dict[tuple[str, str], int] = {}
    for number, sent in enumerate(service.sends):
        firsts.setdefault((sent.thing, sent.writer), number)
    for before, after in combinations(service.effects, 2):
        if before.writer is None or after.writer is None or before.thing != after.thing:
            continue
        programs = {
            stage.members[service.sends[each.number].client].program
            for each in (before, after)
        }
        turned = firsts[before.thing, before.writer] > firsts[after.thing, after.writer]
        if turned and len(programs) == 1 and after.made is None:
            yield f"12: {after.writer} took effect after {before.writer}, which was sent later"


def _apart(stage: Stage) -> Iterator[str]:
    """Rule 11: the next of a line is sent when nothing of the one before can appear any more."""
    gap = 2 * SLACK + BAND
    for one, other in combinations(stage.service.sends, 2):
        programs = {stage.members[each.client].program for each in (one, other)}
        if one.thing != other.thing or one.writer == other.writer or len(programs) > 1:
            continue
        if one.ended is None or other.started < one.ended:
            yield f"11: {other.writer} was sent while {one.writer} was in flight"
            continue
        window = (
            0.0
            if one.answered or one.writer in stage.known_at_kill
            else one.fate.window or LONG
        )
        if window and other.started < one.ended + window + gap - TIE:
            left = one.ended + window + gap - other.started
            yield f"11: {other.writer} was sent {left:.3f} s before the line of {one.writer} was free"


def _kept(stage: Stage) -> Iterator[str]:
    """Rule 4: what is open is kept, and what is settled is not."""
    last: dict[tuple[str, str], Heard] = {}
    for heard in stage.heard:
        last[heard.client, heard.writer] = heard
    for (client, writer), heard in last.items():
        if client in stage.killed_at:
            continue
        member = stage.members[client]
        kept = any(
            stage.keys.get(intent.key) == writer for intent in member.client.unsettled
        )
        if kept is not (heard.verdict is Verdict.UNKNOWN):
            yield f"4: {writer} is {heard.verdict} ({heard.how}), kept as unsettled by {client}: {kept}"


def _firm(stage: Stage) -> Iterator[str]:
    """Rule 13: what a client once knew of a write, it says again."""
    known: dict[tuple[str, str], Heard] = {}
    for heard in sorted(stage.heard, key=lambda each: each.at):
        before = known.setdefault((heard.client, heard.writer), heard)
        if before.verdict in _FINAL and heard.verdict is not before.verdict:
            yield f"13: {heard.writer} is {heard.verdict} ({heard.how}) after {before.verdict} ({before.how})"
        known[heard.client, heard.writer] = heard


def _prompt(stage: Stage) -> Iterator[str]:
    """Whoever takes up the only write there is reads at once: what it closed itself does not hold it up."""
    for heard in stage.heard:
        if stage.scene.alone and heard.how in ("settle", "resume"):
            looks = [
                started
                for started, _, _, _ in stage.service.looks
                if started >= heard.begun
            ]
            beside = any(
                other is not heard and other.begun <= heard.begun < other.at
                for other in stage.heard
            )
            if looks and looks[0] > heard.begun + CONNECT + TIE and not beside:
                yield f"5: {heard.writer} ({heard.how}) waited {looks[0] - heard.begun:.3f} s for nobody"


def _calm(stage: Stage) -> Iterator[str]:
    """Rule 5: where nothing stands in the way, each live write is applied."""
    disturbed = any(point.taken and point.kind != "next" and not point.kind.startswith("begins")
                    for point in stage.schedule.points)  # fmt: skip
    if (
        disturbed
        or stage.scene.misuse
        or any(not sent.fate.status for sent in stage.service.sends)
    ):
        return
    for heard in stage.heard:
        if heard.how == "live" and heard.verdict not in (
            Verdict.APPLIED,
            Verdict.REFUSED,
        ):
            yield f"5: {heard.writer} is {heard.verdict} though nothing stood in the way: {heard.outcome.message}"


def _at(moment: float) -> str:
    return f"{moment - START:.3f} s"


__all__ = ["broken", "entry_of"]
