"""
What must hold at the end of a history, judged by the service's ledger.

lost       Each key that somebody ran to its end has a verdict.
twice      Nothing is done twice.
false      Verdicts are true.
other      What a create is said to have made is what it made.
stranger   No write is superseded, because nobody else writes.
reason     Reasons are true: what is told as overtaken was, by a newer write that was sent, or may have been; and so on.
waiting    What a process begins at once is not overtaken by what it began with it.
order      Writes to one thing take effect in the order of their first claims.  Of a write without a key, which is made
           by one process, that is its first send; writes of other processes that live at that time are in no order
           with it.
start      Writes to one thing that one process begins in an order are claimed in that order.
overlap    Nothing is sent while an earlier send of it, or another write to the same thing, may still land.
final      A key has one final verdict, and nothing is sent under it after that was told.
unknown    A write is UNKNOWN only where something stood in the way.
settled    What is settled as not applied is not sent by a run that had it before.
person     A verdict of a person is what one has found; what was found as not applied is sent again only once
           somebody asks for it anew.
early      Nothing is sent before it is due.
hang       Nothing fails, and nothing is stuck.

What a person has found counts as a verdict that was told when it was stored.

Of writes without keys, these are other rules:

order      The writes of a process to one thing take effect in the order of their first sends.
final      Each verdict but UNKNOWN is final, and nothing is sent after that was told.
refused    What was refused is not sent again.
limited    What was limited is sent again only by whoever waits, and once that is allowed.
kept       An await that is cancelled ends at once; its intent is kept if it may have an effect, and only then.
           What is told as UNKNOWN is unsettled, and nothing else is.
lost       What was sent has a verdict, or is open: in ``client.unsettled``, or in the journal.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

import attrs

from invsvc_async.conformance.reasons import Happened, UnknownReasonError, contradiction
from invsvc_async.reconcile.history import Verdict
from tests.exhaustive.batches.judge import ended
from tests.exhaustive.batches.stage import FROZEN
from tests.interleavings.judge import entry_of
from tests.interleavings.service import SHORT
from tests.walk.program import CREATES, MAPPINGS
from tests.walk.service import MAPPING, RETRY_AFTER
from tests.walk.signals import SoftLimitError
from tests.walk.stage import DONE, QUICK, SLOW
from tests.walk.uses import SILENT
from tests.walk.wire import TOO_MANY, is_refused, thing_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from typing import Any

    from invsvc_async.conformance.reasons import Told
    from tests.interleavings.service import Effect, Sent
    from tests.walk.heard import Heard
    from tests.walk.process import Process
    from tests.walk.program import Change
    from tests.walk.stage import WalkStage

TIE = 1e-6  # s
_OF_A_MILLISECOND = 0.001  # s: as exact as due times are
# s: an outbox reads the verdict, then what was noted beside it, then what several intents have in common
READS_OF_AN_OUTBOX = (1 + 2 + 2) * QUICK[1]
TAKES_OVER = "client.recover() takes over what it left"
NO_EFFECT = (Verdict.NOT_APPLIED, Verdict.REFUSED)
FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)


def broken(stage: WalkStage) -> list[str]:
    """Return what is broken, each with the name of its rule."""
    if stage.program.use == "writes":
        return broken_of_writes(stage)
    return [
        *_while_played(stage),
        *_ended(stage),
        *_lost(stage),
        *_effects(stage),
        *_made_by_others(stage),
        *_reasons(stage),
        *_waiting(stage),
        *_in_order(stage),
        *_started(stage),
        *_final(stage),
        *_settled(stage),
        *_unknown(stage),
        *_of_persons(stage),
        *_anew(stage),
        *_early(stage),
    ]


def _early(stage: WalkStage) -> Iterator[str]:
    """Judge what is sent before it is due, in a world whose clocks agree."""
    program = stage.program
    if program.wall or any(life.wall for life in program.lives):
        return
    for write in program.writes:
        asked = [at for at, _, key in stage.asked if key == write.key]
        sent = [
            each.started for each in stage.service.sends if each.writer == write.key
        ]
        if sent and min(sent) < min(asked) + write.due - _OF_A_MILLISECOND:
            yield f"early: {write.key} was sent at {min(sent):.3f}, asked for at {min(asked):.3f}"


def _while_played(stage: WalkStage) -> Iterator[str]:
    for words in stage.wrong:
        rule, _, what = words.partition(": ")
        yield f"{rule if rule == 'kept' else 'overlap'}: {what}"


def _ended(stage: WalkStage) -> Iterator[str]:
    for words in ended(stage):
        if SoftLimitError.__name__ not in words:
            yield f"hang: {words.partition(': ')[2]}"
    for process in stage.lives.values():
        if process.ended is None:
            yield f"hang: {process.name} never ends"
    for life in stage.program.lives:
        if life.name not in stage.lives:
            yield f"hang: {life.name} never begins"
    yield from _failed(stage)


def _failed(stage: WalkStage) -> Iterator[str]:
    for run, task in stage.loop.tasks:
        process = stage.lives.get(run.partition("/")[0])
        if process is not None and _is_unseen(task) and _is_undisturbed(stage, process):
            yield f"hang: an error of {run} that nobody saw: {task.exception()!r}"
    for name, key, error in stage.errors:
        if key in stage.handed and TAKES_OVER in str(error):
            continue  # the journal has it, too, and says so
        if _is_undisturbed(stage, stage.lives[name]):
            yield f"hang: {key or name} of {name} failed, though nothing had happened: {error}"


def _lost(stage: WalkStage) -> Iterator[str]:
    told = {told.writer for told in stage.told}
    failed = {key for name, key, _ in stage.errors if name == "last"}
    for write in stage.program.writes:
        state, verdict = stage.states.get(write.key, (None, None))
        if write.without_key:
            continue  # its entry is deleted once it is told
        if write.key not in failed and (write.key not in told or state != DONE):
            yield f"lost: {write.key} has no verdict, or nobody was told: {state}, {verdict}"


def _is_undisturbed(stage: WalkStage, process: Process) -> bool:
    has_signal = stage.has_been_signalled(process)
    is_hit = process.hit is not None or has_signal
    return not (is_hit or process.life.lost or process.life.slow)


def _is_unseen(task: asyncio.Task[Any]) -> bool:
    """Return whether *task* failed, and nobody has asked for its error."""
    is_over = task.done() and not task.cancelled()
    return is_over and bool(getattr(task, "_log_traceback", False))


def _effects(stage: WalkStage) -> Iterator[str]:
    service = stage.service
    for write in stage.program.writes:
        effects = [effect for effect in service.effects if effect.writer == write.key]
        whole = [effect for effect in effects if effect.number not in service.in_part]
        if len(whole) > 1:
            yield f"twice: {write.key} took effect {len(whole)} times"
        for told in (*stage.told, *stage.found):
            if told.writer != write.key:
                continue
            if told.verdict is Verdict.SUPERSEDED and not _strangers(stage, told):
                yield f"stranger: {told.writer} is superseded, and nobody else was there"
            if told.verdict is Verdict.APPLIED and not any(
                effect.at <= told.at for effect in whole
            ):
                yield f"false: {write.key} is said to be applied, and is not"
            early = [service.sends[each.number].started for each in effects]
            early = [
                at
                for at in early
                if at < told.at
                and not _is_of_a_refusal_before(stage, told, at)
                and not _is_done_anew(stage, told, at)
            ]
            if told.verdict in NO_EFFECT and early:
                yield f"false: {write.key} is said to be {told.verdict}, and took effect"


def _made_by_others(stage: WalkStage) -> Iterator[str]:
    """Yield the creates that are told as applied with a webhook that they have not made."""
    for told in (*stage.told, *stage.found):
        is_create = stage.program.write(told.writer).kind in CREATES
        shown = told.told.made
        if not is_create or told.verdict is not Verdict.APPLIED or shown is None:
            continue
        effects = stage.service.effects
        made = {each.made for each in effects if each.writer == told.writer}
        is_unsure = _is_made_unsure(stage, told) and _is_oldest(stage, told)
        if shown not in made and not is_unsure:
            yield f"other: {told.writer} is said to have made {shown}, and has made {', '.join(map(str, made))}"


def _edited(stage: WalkStage, *how: Change) -> set[str]:
    """Return the webhooks that somebody has edited in one of these ways, or has made so."""
    return {each.hook for each in stage.service.edited if each.edit.how in how}


def _is_made_unsure(stage: WalkStage, heard: Heard) -> bool:
    """
    Return whether no read can tell what the create of *heard* has made.

    Of two webhooks with its tag, any may be a copy; and its own one may have been edited, while a copy was not.
    Then that of another URL may be its own as well, whose URL was edited.
    """
    effects = stage.service.effects
    made = {each.made for each in effects if each.writer == heard.writer}
    edited = {each.hook for each in stage.service.edited}
    shown = {heard.told.made, *(heard.told.duplicates or ())}
    if shown & _edited(stage, "copy beside", "copy onto"):
        return bool(made & (shown | edited))
    return bool(shown & _edited(stage, "copy elsewhere")) and bool(made & edited)


def _is_oldest(stage: WalkStage, heard: Heard) -> bool:
    """Return whether no webhook that is told as a duplicate was made before the one that is told as the effect."""
    made = stage.service.hooks[str(heard.told.made)]["created_at"]
    return all(
        made <= stage.service.hooks[each]["created_at"]
        for each in heard.told.duplicates or ()
    )


def _line(stage: WalkStage, key: str) -> str:
    write = stage.program.write(key)
    if write.kind in MAPPINGS:
        return MAPPING
    return (
        f"create {key}"
        if write.kind in CREATES
        else f"{write.kind == 'rename'} {write.thing}"
    )


def _may_be_taken_for(stage: WalkStage, one: str, other: str) -> bool:
    """Return whether what is seen of one write may be of the *other*."""
    writes = stage.program.write(one), stage.program.write(other)
    if all(write.kind in CREATES for write in writes):
        # of any URL: a service may store those in its own words, and all have one host
        return any(write.kind == "untagged" for write in writes)
    return _line(stage, one) == _line(stage, other)


def _newer(stage: WalkStage, key: str) -> list[str]:
    """Return the keys of the newer writes to the thing of *key*."""
    if stage.program.use == "writes":
        return _sent_after(stage, key)
    place, line = stage.places.get(key, 0), _line(stage, key)
    return [
        each
        for each, at in stage.places.items()
        if at > place and _line(stage, each) == line
    ]


def _sent_after(stage: WalkStage, key: str) -> list[str]:
    """Return the keys of the writes to the thing of *key* that were sent first after it, or after it was asked for."""
    line = _line(stage, key)
    asked = min((at for at, _, each in stage.asked if each == key), default=0.0)
    firsts = _first_sends(stage)
    since = firsts.get(key, asked)
    newer = {sent.writer for sent in stage.service.sends if sent.started >= since}
    return [each for each in newer - {key} if _line(stage, each) == line]


def _first_sends(stage: WalkStage) -> dict[str, float]:
    """Return when each write was sent first; what was refused is as if it had not been sent."""
    firsts: dict[str, float] = {}
    for sent in stage.service.sends:
        if not is_refused(sent):
            firsts.setdefault(sent.writer, sent.started)
    return firsts


def _strangers(stage: WalkStage, heard: Heard) -> list[Effect]:
    """
    Return the effects on the thing of *heard* that its process does not know as those of this program.

    A write without a key, and others, are strangers to each other if their processes live at the same time.
    """
    thing = thing_of(stage.program.write(heard.writer))
    senders = {heard.client} | {
        sent.client for sent in stage.service.sends if sent.writer == heard.writer
    }
    return [
        effect
        for effect in stage.service.effects
        if effect.thing == thing
        and effect.writer not in (heard.writer, None)
        and _are_strangers(stage, effect, heard, senders)
    ]


def _are_strangers(
    stage: WalkStage, effect: Effect, heard: Heard, senders: set[str]
) -> bool:
    sender = stage.service.sends[effect.number].client
    if stage.program.use == "writes":
        return sender != heard.client
    if _has_key(stage, heard.writer) and _has_key(stage, str(effect.writer)):
        return False
    other = stage.lives[sender]
    return any(
        name != sender
        # what a process has sent is known to it, unless another one has found the verdict
        and (heard.client != sender or _lives_until(stage.lives[name]) > effect.at)
        and stage.lives[name].begun < _seems_to_live_until(other)
        and other.begun < _seems_to_live_until(stage.lives[name])
        for name in senders
    )


def _lives_until(process: Process) -> float:
    return inf if process.ended is None else process.ended


def _seems_to_live_until(process: Process) -> float:
    """Return until when *process* lives, or, if it was ended from outside, seems to."""
    return _lives_until(process) + (0.0 if process.hit is None else SILENT)


def _has_key(stage: WalkStage, key: str) -> bool:
    """Return whether the write that is called *key* has one, and not only in the program."""
    return stage.program.use != "writes" and not stage.program.is_without_key(key)


def _reasons(stage: WalkStage) -> Iterator[str]:
    for heard in stage.told:
        told = heard.told
        try:
            why = contradiction(_without_copies(stage, heard), _happened(stage, heard))
        except UnknownReasonError as error:
            why = str(error)
        if why is not None:
            yield f"reason: {heard.writer} is {told.verdict}, {told.basis}, {told.cause}: {why}: {told.words}"


def _without_copies(stage: WalkStage, heard: Heard) -> Told:
    """Return what was told, without duplicates if some may be copies that somebody has made."""
    if heard.told.duplicates is None or not _is_made_unsure(stage, heard):
        return heard.told
    return attrs.evolve(heard.told, duplicates=None)


def _happened(stage: WalkStage, heard: Heard) -> Happened:
    """Return what the ledger has about a write; what was sent after it was told is another run's."""
    service, key, thing = (
        stage.service,
        heard.writer,
        thing_of(stage.program.write(heard.writer)),
    )
    sends = [
        (number, sent)
        for number, sent in enumerate(service.sends)
        if sent.writer == key
        and sent.started <= heard.at
        and not _is_done_anew(stage, heard, sent.started)
    ]
    # what was refused before is over: then it is done anew
    if heard.verdict is not Verdict.REFUSED and stage.program.use != "writes":
        sends = [
            (number, sent)
            for number, sent in sends
            if not _was_refused(sent, heard.begun)
        ]
    newer = _newer(stage, key)
    arrived = [sent.started for sent in service.sends if sent.writer in newer]
    since = min((sent.started for _, sent in sends), default=heard.begun)
    strangers = _strangers(stage, heard)
    return Happened(
        sends=[entry_of(stage, number, sent) for number, sent in sends],
        newer=[
            *arrived,
            *(at for each, at in stage.may_have_sent.items() if each in newer),
            *(heard.at for each in newer if _is_about_to_be_sent(stage, heard, each)),
        ],
        others=[each.at for each in strangers],
        siblings=[
            each.at
            for each in service.effects
            if each.thing == thing and each.writer != key and each not in strangers
        ],
        states=[state for _, state in service.states.get(thing, [])],
        wanted=sends[-1][1].body if sends else None,
        since_seen=_since_seen(stage, [sent for _, sent in sends], thing, since),
        since=since,
        window=SHORT * _shortest_windows(stage, key),
        echoes=service.stores.echoes,
    )


def _shortest_windows(stage: WalkStage, key: str) -> float:
    """Return the shortest windows of the processes that sent *key*, as times of the usual ones."""
    senders = {sent.client for sent in stage.service.sends if sent.writer == key}
    return min((stage.lives[name].life.windows for name in senders), default=1.0)


def _is_about_to_be_sent(stage: WalkStage, heard: Heard, key: str) -> bool:
    """
    Return whether *key* was stored as being sent when another write was told, and left as soon as the store replied.

    A reply that is lost may take as long again.
    """
    if key not in heard.being_sent:
        return False
    asked = {name for at, name, each in stage.asked if each == key and at <= heard.at}
    return any(
        sent.writer == key
        and sent.client in asked
        and heard.at <= sent.started <= heard.at + 2 * SLOW + TIE
        for sent in stage.service.sends
    )


def _since_seen(
    stage: WalkStage, sends: list[Sent], thing: str, until: float
) -> list[float]:
    """
    Return when other writes changed *thing* before the first of *sends*, *until* then.

    Only those that were sent after the process of that send had read the thing.  A journey shows when it was changed,
    so its state counts also if it was read while an earlier write could have an effect.
    """
    if not sends:
        return []
    service, key = stage.service, sends[0].writer
    reads = [
        ended
        for _, ended, run, what in service.looks
        if run.partition("/")[0] == sends[0].client and what == f"{thing} 200"
    ]
    first = min(reads, default=until)
    is_dated = thing.startswith("/journeys/")
    return [
        effect.at
        for effect in service.effects
        if effect.thing == thing
        and effect.writer != key
        and first <= (effect.at if is_dated else service.sends[effect.number].started)
        and effect.at < until
    ]


def _was_refused(sent: Sent, before: float) -> bool:
    is_over = sent.ended is not None and sent.ended < before
    return is_over and is_refused(sent)


def _is_of_a_refusal_before(stage: WalkStage, told: Heard, at: float) -> bool:
    """
    Return whether what was *told* is a refusal that was over *at* then, since when another run may have done it anew.

    It is that of another run, which the one that was told waited for, or its own, which it hears of late because
    the store is slow.  What a process that stood still hears is what became of the write since.
    """
    if told.verdict is not Verdict.REFUSED:
        return False
    end = stage.lives[told.client].life.end
    stood_still = end is not None and end.how == "freeze"
    refusals = [
        sent
        for sent in stage.service.sends
        if sent.writer == told.writer
        and not (sent.client == told.client and stood_still)
    ]
    return any(
        _was_refused(sent, at) and (sent.ended or 0.0) >= told.begun
        for sent in refusals
    )


def _is_done_anew(stage: WalkStage, told: Heard, at: float) -> bool:
    """
    Return whether another process may have sent the write anew *at* then, while the store was slow to say that
    the verdict NOT_APPLIED is stored, which was *told*.
    """
    return (
        told.verdict is Verdict.NOT_APPLIED
        and bool(stage.lives[told.client].life.slow)
        and told.begun < at
        and told.at - at <= SLOW
        and all(
            sent.client != told.client
            for sent in stage.service.sends
            if sent.writer == told.writer and sent.started == at
        )
    )


def _waiting(stage: WalkStage) -> Iterator[str]:
    if stage.program.lives[-1].how != "at once":
        return
    cut = {each.key for each in stage.program.lives[-1].cuts}
    seen = stage.had_verdict | cut  # what was cancelled may come back too late
    for told in sorted(stage.told, key=lambda told: told.at):
        is_first = told.writer not in seen  # what is done anew has waited for nothing
        seen.add(told.writer)
        if told.client != "last" or not is_first:
            continue
        # One without a key overtakes what was claimed before, whoever begins that again.
        newer = {
            key
            for key in _newer(stage, told.writer)
            if not stage.program.is_without_key(key)
        }
        sends = [
            sent
            for sent in stage.service.sends
            if sent.writer in newer and sent.started <= told.at
        ]
        before = [
            sent for sent in sends if sent.client != "last" or sent.started < told.begun
        ]
        if (
            told.is_overtaken
            and sends
            and not before
            and not newer & stage.may_have_sent.keys()
        ):
            yield f"waiting: {told.writer} is overtaken by {sends[0].writer}, which was begun with it"


def _in_order(stage: WalkStage) -> Iterator[str]:
    last: dict[str, tuple[int, str]] = {}
    for effect in stage.service.effects:
        if (
            effect.writer is None
            or effect.thing.startswith("url")
            or effect.writer not in stage.places
        ):
            continue
        rank = stage.places[effect.writer]
        before, newer = last.get(effect.thing, (0, ""))
        if rank < before and _are_in_order(stage, effect.writer, newer):
            yield f"order: {effect.writer} took effect after {newer}, which is newer"
        last[effect.thing] = max((before, newer), (rank, effect.writer))


def _are_in_order(stage: WalkStage, older: str, newer: str) -> bool:
    """
    Return whether *older* must not take effect after *newer*.

    If one has no key: only if the last send of *older* is by the process of the first send of *newer*, or by one
    that began later.
    """
    if not any(map(stage.program.is_without_key, (older, newer))):
        return True
    sends = stage.service.sends
    last = [sent for sent in sends if sent.writer == older][-1]
    first = next(sent for sent in sends if sent.writer == newer)
    if last.client == first.client:
        return True
    return stage.lives[last.client].begun > first.started


def _started(stage: WalkStage) -> Iterator[str]:
    first: dict[str, tuple[float, str]] = {}
    runs: defaultdict[str, list[str]] = defaultdict(list)
    for begun, name, key in stage.asked:
        if first.setdefault(key, (begun, name))[1] == name and key not in runs[name]:
            runs[name].append(key)
    for name, keys in runs.items():
        process = stage.lives[name]
        if (
            process.life.cancels
            or process.life.cuts
            or process.life.lost
            or process.life.slow
        ):
            continue
        until = process.hit if process.hit is not None else process.ended
        others = {
            key
            for at, other, key in stage.asked
            if other != name and (until is None or at <= until)
        }
        claimed = stage.places.keys() if process.claimed is None else process.claimed
        # their claims may be withdrawn
        failed = {key for each, key, _ in stage.errors if each == name}
        own = [key for key in keys if key not in others and key not in failed]
        known = [key for key in own if key in stage.places and key in claimed]
        for one, two in combinations(known, 2):
            if (
                _line(stage, one) == _line(stage, two)
                and stage.places[one] > stage.places[two]
            ):
                yield f"start: {one} was begun before {two} by {name}, and is claimed after it"


def _final(stage: WalkStage) -> Iterator[str]:
    final: dict[str, tuple[Verdict, float]] = {}
    for told in sorted((*stage.told, *stage.found), key=lambda told: told.at):
        if told.verdict is Verdict.UNKNOWN and not _has_key(stage, told.writer):
            continue  # what another process finds out, its own does not hear
        verdict, at = final.setdefault(told.writer, (told.verdict, told.at))
        if verdict not in FINAL:
            final[told.writer] = told.verdict, told.at
        elif told.verdict is not verdict and not (
            _is_of_a_refusal_before(stage, told, at)
            or _is_heard_late(stage, told, at)
            or _was_read_before_it_was_found(stage, told, at)
            or any(
                _is_done_anew(stage, told, sent.started)
                for sent in stage.service.sends
                if sent.writer == told.writer
            )
        ):
            yield f"final: {told.writer} is {verdict}, and {told.client} was told {told.verdict}"
    for sent in stage.service.sends:
        verdict, at = final.get(sent.writer, (None, 0.0))
        if verdict in FINAL and sent.started > at:
            yield f"final: {sent.writer} is sent by {sent.client} after it was told as {verdict}"


def _settled(stage: WalkStage) -> Iterator[str]:
    """
    Yield what was settled as not applied, which says that it may be written again, although a run may send it.

    That is a run that had the write before it was settled.  Those that begin later wait for that, and do it anew.
    """
    for told in stage.told:
        if told.sender and told.verdict in NO_EFFECT:
            has_begun_anew = any(
                key == told.writer and name == told.sender and at >= told.begun
                for at, name, key in stage.asked
            )
            is_sent = any(
                sent.writer == told.writer
                and sent.client == told.sender
                and sent.started > told.at
                for sent in stage.service.sends
            )
            if is_sent and not has_begun_anew:
                yield f"settled: {told.writer} is settled as {told.verdict} by {told.client}, and {told.sender} sends it"


def _of_persons(stage: WalkStage) -> Iterator[str]:
    for told in stage.told:
        is_found = any(
            found.writer == told.writer
            and found.verdict is told.verdict
            and found.at <= told.at
            for found in stage.found
        )
        is_found = is_found or told.writer in stage.perhaps_found
        if told.told.basis == "person" and not is_found:
            yield f"person: {told.client} is told that a person found {told.writer} as {told.verdict}, and none has"


def _anew(stage: WalkStage) -> Iterator[str]:
    """
    Yield what a person has found as not applied, and is sent before anybody asks for it anew.

    Then also who had it before may send it: that one takes over what a new run has left.  A key that nobody had is
    claimed by whoever awaits it already: that one was asked for it, and has not begun.
    """
    for found in stage.found:
        if found.verdict is not Verdict.NOT_APPLIED:
            continue
        if stage.program.use == "keys" and not found.had_owner:
            continue
        asked = min(
            (
                at
                for at, _, key in (*stage.asked, *stage.retried)
                if key == found.writer and at >= found.at
            ),
            default=inf,
        )
        for sent in stage.service.sends:
            is_between = found.at < sent.started < asked
            if sent.writer == found.writer and is_between:
                yield f"person: {sent.writer} is sent by {sent.client} after {found.client} found it as not applied"


def _is_heard_late(stage: WalkStage, told: Heard, at: float) -> bool:
    """Return whether *told* is UNKNOWN of a run that had ended *at* then: its store was slow to say so."""
    is_unknown = told.verdict is Verdict.UNKNOWN and told.begun < at
    return is_unknown and bool(stage.lives[told.client].life.slow)


def _was_read_before_it_was_found(stage: WalkStage, told: Heard, at: float) -> bool:
    """
    Return whether *told* is UNKNOWN, which was stored until a person's finding was, *at* then.

    The store's reply was under way, and its process may have stood still meanwhile.
    """
    process = stage.lives[told.client]
    reply = READS_OF_AN_OUTBOX if stage.program.use == "outbox" else QUICK[1]
    hears_from = at
    end = process.life.end
    if end is not None and end.how == "freeze" and process.hit is not None:
        thawed = process.hit + FROZEN
        if process.hit <= at <= thawed:
            hears_from = thawed
    return (
        told.verdict is Verdict.UNKNOWN
        and told.begun < at
        and told.at <= hears_from + reply + TIE
        and any(found.writer == told.writer and found.at == at for found in stage.found)
    )


def _unknown(stage: WalkStage) -> Iterator[str]:
    """
    Yield what is UNKNOWN in the end, though nothing stood in the way.

    That is so if all reads were sound, no other write to the thing was sent, and there was time: what was
    added with a deadline that is shorter than its windows may run out of it each time.
    """
    if stage.program.reads or stage.program.stores:
        return
    short = {
        key
        for life in stage.program.lives
        if life.deadline is not None
        for key in life.keys
    }
    sent = {each.writer for each in stage.service.sends}
    for write in stage.program.writes:
        key = write.key
        told = [told for told in stage.told if told.writer == key]
        if not told or told[-1].verdict is not Verdict.UNKNOWN:
            continue
        cause = told[-1].told.cause
        if cause == "no read" and stage.reader_of(key) is not None:
            continue  # whoever recovers a write has no reader of it
        if not _has_key(stage, key) and _is_of_another(stage, told[-1]):
            continue  # it cannot know what was written after it
        if key in short and cause == "out of time":
            continue
        if _is_too_old(stage, key, cause) or _may_be_edited(stage, key, cause):
            continue
        beside = {
            other
            for other in sent
            if other != key and _may_be_taken_for(stage, other, key)
        }
        if cause == "changed since":
            beside = {
                other for other in beside if not _is_over_before(stage, other, key)
            }
        if not beside:
            yield f"unknown: {key} stays UNKNOWN, and nothing stood in the way: {told[-1].told.words}"


def _is_too_old(stage: WalkStage, key: str, cause: str | None) -> bool:
    """
    Return whether what a process knew that stood still may be too old to settle *key*.

    It may have got no answer to the read before its send, or one so late that it hardly knows the clock of the
    service, by which a webhook without a tag was made at that time.
    """
    is_untagged = stage.program.write(key).kind == "untagged"
    needs_clock = cause == "candidates" and is_untagged
    if not needs_clock and cause != "no baseline":
        return False
    return any(
        life.end is not None and life.end.how == "freeze"
        for life in stage.program.lives
    )


def _may_be_edited(stage: WalkStage, key: str, cause: str | None) -> bool:
    """
    Return whether *key* creates a webhook, and somebody has edited one that may be taken for it.

    What has lost its tag may be of any URL, as what never had one: a service may store URLs in its own words.
    """
    write = stage.program.write(key)
    if cause != "candidates" or write.kind not in CREATES:
        return False
    return any(
        each.edit.how in ("untag", "reword", "copy onto")
        or thing_of(stage.program.write(each.edit.key)) == thing_of(write)
        for each in stage.service.edited
    )


def _is_over_before(stage: WalkStage, other: str, key: str) -> bool:
    """Return whether *other* was last sent, and its final verdict told, before *key* was sent first."""
    first = _first_sends(stage).get(key, 0.0)
    is_told = any(
        told.writer == other and told.verdict in FINAL and told.at < first
        for told in stage.told
    )
    return is_told and all(
        sent.started < first for sent in stage.service.sends if sent.writer == other
    )


def _is_of_another(stage: WalkStage, told: Heard) -> bool:
    senders = {
        sent.client for sent in stage.service.sends if sent.writer == told.writer
    }
    return senders != {told.client}


# --- of writes without keys


def broken_of_writes(stage: WalkStage) -> list[str]:
    """Return what is broken of writes without keys."""
    return [
        *_while_played(stage),
        *_ended(stage),
        *_open(stage),
        *_effects(stage),
        *_made_by_others(stage),
        *_reasons(stage),
        *_in_order_of_sends(stage),
        *_firm(stage),
        *_refused(stage),
        *_unknown(stage),
        *_of_persons(stage),
    ]


def _open(stage: WalkStage) -> Iterator[str]:
    """Yield the writes that may have an effect, and of which nobody knows."""
    stored = stage.stored_at_end
    for key in (write.key for write in stage.program.writes):
        sends = [
            sent
            for sent in stage.service.sends
            if sent.writer == key and not is_refused(sent)
        ]
        if not sends or stage.has_verdict(key):
            continue
        process = stage.lives[sends[-1].client]
        is_forgotten = process.life.bare and process.hit is not None
        if key not in stage.handed and key not in stored and not is_forgotten:
            yield f"lost: {key} was sent by {process.name}, has no verdict, and is open nowhere"


def _in_order_of_sends(stage: WalkStage) -> Iterator[str]:
    service, firsts = stage.service, _first_sends(stage)
    last: dict[tuple[str, str], tuple[float, str]] = {}
    for effect in service.effects:
        if effect.writer is None or effect.thing.startswith("url"):
            continue
        place = effect.thing, service.sends[effect.number].client
        before, newer = last.get(place, (0.0, ""))
        first = firsts[effect.writer]
        if first < before:
            yield f"order: {effect.writer} took effect after {newer}, which is newer"
        last[place] = max((before, newer), (first, effect.writer))


def _firm(stage: WalkStage) -> Iterator[str]:
    final: dict[str, Heard] = {}
    for told in sorted((*stage.told, *stage.found), key=lambda told: told.at):
        if told.verdict is Verdict.UNKNOWN:
            continue
        first = final.setdefault(told.writer, told)
        if first.verdict is not told.verdict and not _is_of_its_own(stage, first, told):
            yield f"final: {told.writer} is {first.verdict}, and {told.client} was told {told.verdict}"
    for number, sent in enumerate(stage.service.sends):
        first = final.get(sent.writer)
        if first is not None and sent.started > first.at:
            yield f"final: {sent.writer} is sent by {sent.client} after it was told as {first.verdict}"
        has_effect = any(each.number == number for each in stage.service.effects)
        if first is not None and first.verdict in NO_EFFECT and has_effect:
            yield f"false: {sent.writer} is said to be {first.verdict}, and took effect"


def _is_of_its_own(stage: WalkStage, first: Heard, told: Heard) -> bool:
    """Return whether *told* is an answer that its process got by itself, before a person had found what is *first*."""
    return (
        first in stage.found
        and told.told.basis == "answered"
        and any(
            sent.writer == told.writer
            and sent.client == told.client
            and sent.status is not None
            and sent.started < first.at
            for sent in stage.service.sends
        )
    )


def _refused(stage: WalkStage) -> Iterator[str]:
    refused: dict[str, Sent] = {}
    for sent in stage.service.sends:
        before = refused.get(sent.writer)
        if before is not None:
            yield from _sent_again(stage, before, sent)
        if is_refused(sent):
            refused[sent.writer] = sent


def _sent_again(stage: WalkStage, before: Sent, sent: Sent) -> Iterator[str]:
    if before.status != TOO_MANY:
        yield f"refused: {sent.writer} is sent again after a {before.status}"
    elif not stage.lives[sent.client].life.waits:
        yield f"limited: {sent.writer} is sent again by {sent.client}, which does not wait"
    elif sent.started < (before.ended or 0.0) + RETRY_AFTER - TIE:
        yield f"limited: {sent.writer} is sent again before Retry-After"
