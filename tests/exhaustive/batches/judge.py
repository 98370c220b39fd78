"""
What must hold at the end of an execution of a batch, judged by the service's ledger.

1  One owner sends: no write is sent while an earlier send of it may still land.
2  Verdicts are true.
3  Nothing is done twice.
8  No write is superseded, because nobody else writes.
11 Nothing is sent while another write to the same thing may still land.
12 Writes to one thing take effect in their order.
13 Nothing is lost: each write has a verdict, and somebody was given it.
14 Nothing is told again once it is acknowledged.
15 What the journal counts is what it has.
22 Reasons are true, too.
0  Nothing fails, and nothing is stuck.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.result import Result
from invsvc_async.conformance.reasons import Happened, Told, contradiction
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.history import Verdict
from tests.interleavings.actions import HOOK, URL
from tests.interleavings.judge import entry_of
from tests.interleavings.service import SHORT, thing_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.exhaustive.batches.stage import BatchStage, Told as Given

_DONE = 2  # of an entry's states
THINGS = {  # of writes that were never sent
    "journeys.update": "/journeys/j1",
    "webhooks.update": f"/webhooks/{HOOK}",
    "webhooks.delete": f"/webhooks/{HOOK}",
    "webhooks.create": thing_of("POST", "/webhooks", {"url": URL}),
}


def broken(stage: BatchStage) -> list[str]:
    return [
        *stage.wrong,
        *ended(stage),
        *_judged(stage),
        *_told(stage),
        *in_order(stage),
        *reasoned(stage),
    ]


def ended(stage: BatchStage) -> Iterator[str]:
    """Yield what failed, or never ends."""
    for context in stage.loop.failures:
        yield f"0: an error that nobody saw: {context.get('message')} {context.get('exception')!r}"
    for run, task in stage.loop.tasks:
        if run in stage.loop.dead:
            continue
        if not task.done():
            yield f"0: {run} never ends"
        elif (
            not task.cancelled()
            and (error := task.exception()) is not None
            and task is stage.runs.get(run)
        ):
            yield f"0: {run} failed: {error!r}"


def _judged(stage: BatchStage) -> Iterator[str]:
    found = Counter((state, verdict or "") for state, verdict in stage.states.values())
    if +stage.counts != found:
        yield f"15: the journal counts {+stage.counts}, and has {found}"
    for writer in stage.ranks:
        effects = sum(effect.writer == writer for effect in stage.service.effects)
        if effects > 1:
            yield f"3: {writer} took effect {effects} times"
        state, verdict = stage.states.get(writer, (None, None))
        if state != _DONE or verdict is None:
            yield f"13: {writer} has no verdict: {state}"
            continue
        if verdict == Verdict.SUPERSEDED:
            yield f"8: {writer} is superseded, and nobody else was there"
        if verdict == Verdict.APPLIED and not effects:
            yield f"2: {writer} is said to be applied, and is not"
        if verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) and effects:
            yield f"2: {writer} is said to be {verdict}, and took effect"


def _told(stage: BatchStage) -> Iterator[str]:
    """Compare the last result that was given of each write with the journal. Somebody took it."""
    last = {told.writer: str(told.verdict) for told in stage.heard}
    # What a killed process was given last may have been taken at that moment.
    taken = stage.taken | {
        told.writer for told in stage.heard if told.client in stage.killed_at
    }
    for writer, (_, verdict) in stage.states.items():
        if verdict is not None and last.get(writer) != verdict:
            yield f"13: {writer} is {verdict}, and was last given as {last.get(writer)}"
        elif verdict is not None and writer not in taken:
            yield f"13: nobody took the result of {writer}, and it was not given again"


def reasoned(stage: BatchStage) -> Iterator[str]:
    """Yield the results and outcomes that were given with a reason that the ledger contradicts."""
    for told in stage.heard:
        outcome = told.outcome
        claim = (
            Told.of_result(outcome, at=told.at)
            if isinstance(outcome, Result)
            else Told.of(outcome, at=told.at)
        )
        if (
            why := contradiction(claim, _since_its_last_end(stage, told, claim))
        ) is not None:
            yield f"22: {told.writer} was given as {claim.verdict}, {claim.basis}, {claim.cause}: {why}: {claim.words}"


def _since_its_last_end(stage: BatchStage, told: Given, claim: Told) -> Happened:
    """
    Return what the ledger has about a write; about one that was never sent, since it was begun anew.

    A write that ended without an effect and is retried is a new one: what was sent of it before is not.
    """
    happened = _happened_to(stage, told)
    if claim.basis != "never sent":
        return happened
    ends = [
        each.at
        for each in stage.heard
        if each.writer == told.writer
        and each.at < told.at
        and each.outcome.verdict in NO_EFFECT
    ]
    begun = max(ends, default=-math.inf)
    return attrs.evolve(
        happened, sends=[sent for sent in happened.sends if sent.received_at > begun]
    )


def _happened_to(stage: BatchStage, told: Given) -> Happened:
    """Return what the ledger has about a write.  Nobody else writes here."""
    service = stage.service
    sends = [
        (number, sent)
        for number, sent in enumerate(service.sends)
        if sent.started <= told.at
    ]
    own = [(number, sent) for number, sent in sends if sent.writer == told.writer]
    thing = own[0][1].thing if own else THINGS[_operation(told)]
    since = own[0][1].started if own else told.begun
    ranks = stage.places if stage.by_journal else told.ranks
    rank = ranks.get(told.writer, 0)
    beside = [
        each.at
        for each in service.effects
        if each.thing == thing and each.writer != told.writer
    ]
    return Happened(
        sends=[entry_of(stage, number, sent) for number, sent in own],
        newer=[
            sent.started
            for _, sent in sends
            if sent.thing == thing and ranks.get(sent.writer, 0) > rank
        ],
        siblings=beside,
        states=[state for _, state in service.states.get(thing, [])],
        since=since,
        window=SHORT,
    )


def _operation(told: Given) -> str:
    outcome = told.outcome
    return (
        outcome.operation
        if isinstance(outcome, Result)
        else outcome.started_as.operation
    )


def in_order(stage: BatchStage) -> Iterator[str]:
    """Yield which writes to one thing took effect in another order than theirs."""
    last: dict[str, tuple[int, str]] = {}
    for effect in stage.service.effects:
        if effect.writer is None or effect.thing.startswith("url"):
            continue
        rank = (
            stage.places[effect.writer]
            if stage.by_journal
            else stage.ranks_sent[effect.number]
        )
        before, newer = last.get(effect.thing, (0, ""))
        if rank < before:
            yield f"12: {effect.writer} took effect after {newer}, which is newer"
        last[effect.thing] = max((before, newer), (rank, effect.writer))
