"""
Compare what the SDK does with the truth: the invariants, each by its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.attempts import kind_of
from invsvc_async.reconcile.compare import is_time
from invsvc_async.reconcile.history import Attempt, Done, End, Reading, Send, Verdict
from invsvc_async.reconcile.server_clock import cut_by
from tests.exhaustive.broken import Broken, hold
from tests.exhaustive.models import WORDED, Hook, Journey, Listing, Team
from tests.exhaustive.reasons import judge_reason
from tests.exhaustive.siblings import (
    AGREEING,
    OWN,
    SOMEBODY,
    judge_absence,
    judge_order,
    judge_turn,
)
from tests.exhaustive.world import EPSILON

if TYPE_CHECKING:
    from tests.exhaustive.world import Thing
    from tests.exhaustive.world_setup import Node, Run, SetUp

ENDING, PROOF, TRUTH, ONCE, SETTLING, CALM, WINDOW = 0, 1, 2, 3, 4, 5, 6
MOST_STEPS = 250
LONGEST_READ = 5.0
SHORTEST = 5.0
TRIES = 4

# which only the absence of an effect makes final, in doubt
_REFUSALS = (401, 403, 404, 409, 410, 429)
_HAPPENED = {Verdict.APPLIED: True, Verdict.NOT_APPLIED: False, Verdict.REFUSED: False}


def judge_send(setup: SetUp, node: Node, run: Run, send: Send) -> None:
    """Check a send that is about to begin against rules 1 and 3, and the rule of what still fits."""
    if setup.tolerant:
        return
    hold(PROOF, run.mode != "settle", "sent by a mere settle")
    judge_turn(setup, node, run)
    hold(
        ONCE, not _seen(setup, node, run, whole=True), "sent again after it took effect"
    )
    hold(
        ONCE,
        setup.lenient or not node.pending(run.number),
        "sent again while it may still take effect",
    )
    hold(
        PROOF,
        0 < send.attempt_timeout <= setup.timeouts.attempt,
        "the attempt is given more than configured",
    )
    if not run.doubt:
        hold(PROOF, send.not_after is None, "a first send needs no proof")
        return
    last, policy = run.history[-1], setup.policy
    is_first = not any(isinstance(each, Attempt) for each in run.history)
    left = run.intent.sent[-1].end if is_first and run.intent.sent else None
    hold(PROOF, left is None or left.refusal is None, "sent again after a refusal")
    # An update of which a part is stored may be repeated, once, when it is resumed: it writes the same state.
    completes = (
        run.partly
        and run.mode == "resume"
        and run.intent.mixture is not None
        and not run.resends
    )
    hold(
        PROOF,
        isinstance(last, Reading) and (run.absent or completes),
        "sent in doubt without a proof of absence just before",
    )
    if completes:
        _judge_completion(setup, node, run)
    else:
        _judge_age(setup, run)
    judge_absence(setup, node, run)
    hold(
        PROOF,
        send.not_after is not None and send.not_after <= run.local() + 5.0 + EPSILON,
        "the proof is old",
    )
    hold(
        PROOF,
        policy.resend == "proven" and run.resends < policy.max_resends,
        "sent more often than allowed",
    )
    hold(
        PROOF,
        send.attempt_timeout >= min(SHORTEST, setup.timeouts.attempt),
        "the attempt is given too little",
    )
    needed = send.attempt_timeout + policy.settle_after_loss + 2 * LONGEST_READ
    assert run.since is not None
    hold(
        PROOF,
        run.now + needed <= run.since + policy.deadline + EPSILON,
        "it does not fit before the deadline",
    )


def judge(setup: SetUp, node: Node, run: Run, done: Done) -> None:
    """Compare a verdict with the truth."""
    pending = node.pending(run.number)
    if setup.tolerant:
        _judge_duplicates(node, run, done)
        return
    whole = node.whole_effects(setup, run.number)
    hold(ONCE, setup.lenient or len(whole) + pending <= 1, "two effects")
    judge_order(setup, node)
    judge_reason(setup, node, run, done)
    match done.verdict:
        case Verdict.APPLIED:
            _judge_applied(setup, node, run, done)
        case Verdict.NOT_APPLIED | Verdict.REFUSED:
            hold(TRUTH, not _seen(setup, node, run), f"{done.verdict}, but it happened")
            hold(
                WINDOW,
                setup.lenient or not pending,
                f"{done.verdict}, but it may still happen",
            )
            last = next(
                (each for each in reversed(run.history) if isinstance(each, Attempt)),
                None,
            )
            echoed = run.doubt and last is not None and last.status in _REFUSALS
            hold(
                ENDING,
                not echoed or done.verdict is Verdict.REFUSED,
                "an echo that is not told",
            )
            if done.verdict is Verdict.NOT_APPLIED and run.doubt:
                hold(
                    PROOF,
                    isinstance(run.history[-1], Reading) and run.absent,
                    "not applied without a proof",
                )
                judge_absence(setup, node, run)
            hold(
                TRUTH,
                done.verdict is Verdict.NOT_APPLIED or not run.echo,
                "an echo is believed without a read",
            )
        case Verdict.SUPERSEDED:
            touched = node.touched(setup, run.number)
            hold(CALM, touched, "superseded, but nobody touched it")
            hold(
                SOMEBODY,
                touched > run.touched,
                "superseded, but nobody acted after the send",
            )
            hold(WINDOW, not pending, "superseded, but it may still happen")
        case _:
            calm = setup.calm is True or (
                setup.calm == "awaited" and run.mode == "live"
            )
            hold(
                CALM,
                not calm or _may_have_come_and_gone(run) or _may_be_later(run),
                "unknown, though nothing stood in the way",
            )
            early = run.doubt and not run.closed and not _may_give_up(setup, run)
            hold(WINDOW, not early, "unknown before the windows are over")
    said = _was_told(run)
    hold(
        SETTLING,
        not said or done.verdict is Verdict.APPLIED,
        "a yes of the service is forgotten",
    )
    _judge_time(setup, run, done)
    if done.verdict is not Verdict.APPLIED and not run.doubt:
        _judge_tries(setup, run)
    if run.live is not None:
        _judge_settled(setup, node, run.number, run.live, done)


def _was_told(run: Run) -> bool:
    """Return whether the service answered a send of *run* with a success, as far as its process knows."""
    ends = [sent.end for sent in run.intent.sent if sent.end is not None]
    here = [kind_of(event) for event in run.history if isinstance(event, Attempt)]
    return "applied" in (*here, *(end.kind for end in ends))


def _seen(setup: SetUp, node: Node, run: Run, *, whole: bool = False) -> bool:
    """
    Return whether it has taken effect and, where commits may come late, whether the last read showed that.

    *whole*: an effect of which only a part was stored does not count.
    """
    effects = (
        node.whole_effects(setup, run.number) if whole else node.effects(run.number)
    )
    return bool(effects) and (run.visible or not setup.lenient)


def _judge_completion(setup: SetUp, node: Node, run: Run) -> None:
    """Check that nobody has changed what was sent since the verdict that it was stored in part."""
    model, thing = setup.model, node.world.thing
    assert isinstance(model, Hook | Journey)
    hold(
        PROOF,
        model.is_part(thing, run.number),
        "completed, though it does not show a part of the write",
    )
    hold(
        PROOF,
        thing[0] == run.left,
        "completed, though somebody has changed it since its verdict",
    )
    hold(
        PROOF,
        _is_of_program(setup, run, thing),
        "completed over what somebody else wrote",
    )


def _is_of_program(setup: SetUp, run: Run, thing: Thing) -> bool:
    """Return whether each field that is written holds what was there before, or what a write of ours left."""
    model = setup.model
    assert isinstance(model, Hook | Journey)
    ours = {model.value_of(number) for number in range(setup.runs)}
    return all(
        held == before or held % WORDED in ours
        for held, before in zip(thing[0], setup.thing[0], strict=True)
    )


def _judge_tries(setup: SetUp, run: Run) -> None:
    """Compare a write that was given up, though nothing is in doubt, with what should have been tried."""
    attempts = [event for event in run.history if isinstance(event, Attempt)]
    if run.mode == "settle" or run.closed or not attempts:
        return
    last, policy = attempts[-1], setup.policy
    in_time = run.now - attempts[0].started - run.shift < setup.timeouts.call / 2
    unsent = sum(attempt.end is End.NOT_SENT for attempt in attempts)
    hold(
        ENDING,
        last.end is not End.NOT_SENT or unsent == TRIES or not in_time,
        "given up before it was tried enough",
    )
    renewed = sum(attempt.token_renewed for attempt in attempts)
    hold(ENDING, not last.token_renewed or renewed > 1, "given up with a fresh token")
    limited = policy.wait_when_limited and last.retry_after is not None
    hold(
        ENDING,
        not limited or run.local() + 1.0 > attempts[0].started + policy.deadline / 2,
        "given up where a wait was told",
    )


def _may_have_come_and_gone(run: Run) -> bool:
    """
    Return whether reads show the thing neither before the write nor after it, and may lag.

    Then it may have been made just before, changed by the write, and deleted since.
    """
    last = run.history[-1]
    is_gone = isinstance(last, Reading) and last.status == 404
    return is_gone and not run.intent.baseline and run.intent.policy.reads_lag > 0


def _may_be_later(run: Run) -> bool:
    """
    Return whether the last read took long, and shows a thing that may have been made until its end.

    The service dates it at a whole second, as one does that cuts times, so it may be of after the window.
    """
    last = run.history[-1]
    if not isinstance(last, Reading) or not isinstance(last.seen, list):
        return False
    took_long = last.ended - last.started > run.intent.policy.clock_slack
    dates = [each.get("created_at") for each in last.seen]
    return took_long and any(is_time(date) and cut_by(date) > 0 for date in dates)


def _judge_applied(setup: SetUp, node: Node, run: Run, done: Done) -> None:
    effects = node.effects(run.number)
    if not isinstance(setup.model, Listing | Team):
        whole = node.whole_effects(setup, run.number)
        hold(TRUTH, whole or run.shown or run.told, "applied, but no state showed it")
        # Others may have made an equal write, but not where it was so before.
        alone = node.world.touched == 0 or setup.model.wanted(setup.thing, run.number)
        already = setup.runs == 1 and not effects and not run.told and alone
        if (
            already
            and setup.model.operation_of(run.number) != "webhooks.delete"
            and (setup.baseline or isinstance(setup.model, Journey))
        ):
            hold(
                WINDOW,
                run.read_late,
                "already so, but read before the windows were over",
            )
        return
    ours = {setup.model.name_of(number) for number in effects}
    siblings = {
        setup.model.name_of(number)
        for by, number in node.world.effects
        if by != run.number
    }
    hold(
        OWN,
        done.value is None or done.value["id"] not in siblings,
        "applied, by the effect of a sibling",
    )
    hold(TRUTH, effects, "applied, but it did not happen")
    hold(
        TRUTH,
        run.told if done.value is None else done.value["id"] in ours,
        "applied, but by somebody else",
    )
    if done.evidence.duplicates is not None:
        named = {one["id"] for one in done.evidence.duplicates}
        hold(TRUTH, named <= ours, "names a thing of somebody else as its duplicate")
        itself = done.value is not None and done.value["id"] in named
        hold(TRUTH, not itself, "names itself as its duplicate")
        early = (
            run.resends
            and isinstance(setup.model, Listing)
            and run.doubt
            and not run.read_late
        )
        hold(WINDOW, not early, "duplicates are known before the windows are over")


def _judge_duplicates(node: Node, run: Run, done: Done) -> None:
    """Compare what is said of a second effect with what a read has shown."""
    if done.verdict is Verdict.APPLIED and done.evidence.duplicates is not None:
        shown = {f"wh_{number}" for number in node.effects(run.number)}
        named = {done.value["id"], *(one["id"] for one in done.evidence.duplicates)}
        hold(TRUTH, named == shown, "a second effect is hidden")


def _may_give_up(setup: SetUp, run: Run) -> bool:
    """Return whether nothing more can be learnt, or whether a read after the windows could not tell."""
    last = run.history[-1]
    denied = isinstance(last, Reading) and last.status in (401, 403, 404, 405, 501)
    switched_off = (
        isinstance(setup.model, Journey) and setup.policy.journey_reader is None
    )
    blind = switched_off or (isinstance(setup.model, Team) and setup.reader is None)
    assert run.since is not None
    return (
        denied
        or blind
        or run.read_late
        or run.now >= run.since + setup.policy.deadline - EPSILON
    )


def _judge_age(setup: SetUp, run: Run) -> None:
    """
    Check the age of an absence from which something is concluded, where a thing may have come and gone.

    A webhook that is gone does not come back, so its absence does not age.
    """
    decays = (
        isinstance(setup.model, Listing | Team)
        or setup.model.operation_of(run.number) == "webhooks.update"
    )
    last = run.history[-1]
    gone = isinstance(last, Reading) and last.status == 404
    if run.doubt and decays and not gone and run.first is not None:
        recent = run.now <= run.first + setup.policy.absence_within + EPSILON
        hold(TRUTH, recent, "an absence that is too old")


def _judge_time(setup: SetUp, run: Run, done: Done) -> None:
    if done.evidence.basis == "absence":
        _judge_age(setup, run)
    unsent = sum(
        isinstance(event, Attempt) and event.end is End.NOT_SENT
        for event in run.history
    )
    hold(ENDING, run.doubt or unsent <= TRIES, "tried too often to send it at all")
    if run.doubt and run.since is not None:
        late = setup.nap + setup.overslept
        latest = run.since + setup.policy.deadline + LONGEST_READ + late
        hold(ENDING, run.now <= latest + EPSILON, "the deadline was passed")


def _judge_settled(
    setup: SetUp, node: Node, run: int, live: Done, settled: Done
) -> None:
    """Compare the verdict of settling it once more with the live one."""
    sent_again = any(isinstance(event, Attempt) for event in node.runs[run].history)
    if node.world.acts < setup.acting or node.touched(setup, run) or sent_again:
        return
    one, other = _HAPPENED.get(live.verdict), _HAPPENED.get(settled.verdict)
    same = one is None or other is None or one is other
    rule = SETTLING if setup.runs == 1 else AGREEING
    hold(
        rule,
        same,
        f"settled as {settled.verdict} after the live verdict {live.verdict}",
    )


__all__ = ["MOST_STEPS", "Broken", "hold", "judge", "judge_send"]
