"""
Make each step from one place of a walk to the next: decide, then everything that the world may answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.history import (
    Bounds,
    Closed,
    Done,
    End,
    Read,
    Reading,
    Send,
    Tick,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.reconcile.server_clock import bounds_of
from invsvc_async.writes.new_intent import before, with_before
from invsvc_async.writes.register import WriteRegister
from tests.exhaustive.answers import GIVEN_UP, LATE
from tests.exhaustive.client import (
    claims_of,
    closes_at,
    cut_short,
    ended,
    overtaking,
    take_up,
)
from tests.exhaustive.judge import ENDING, MOST_STEPS, PROOF, hold, judge, judge_send
from tests.exhaustive.models import Listing, Put, Team
from tests.exhaustive.world import Pending, Thing, World, dated, evolve, landed, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from invsvc_async.api.operations import Operation
    from invsvc_async.reconcile.intent import Intent
    from tests.exhaustive.answers import Ending
    from tests.exhaustive.world_setup import Crash, Node, Run, SetUp

WINDOWS = {"short": 2.0, "long": 15.0}
_CROWDS = {  # how a list may be cut off
    "both": {"raw_count": 100, "full": True},
    "count": {"raw_count": 100, "full": False},
    "flag": {"raw_count": 2, "full": True},
}
DIES_AFTER = 0.25  # s from the start of the attempt in which a process is killed


@attrs.frozen
class Subject:
    """What is walked: the functions that ship, or broken ones."""

    decide: Callable[..., Any]
    known: Callable[..., Any]
    stored: Callable[..., Any]
    shows_under_way: Callable[..., bool]
    matches_under_way: Callable[..., bool]
    register: Callable[..., Any] = WriteRegister
    before: Callable[..., Any] = before
    with_before: Callable[..., Any] = with_before


@attrs.frozen
class Steps:
    """The steps in one small world."""

    setup: SetUp
    subject: Subject

    def operation(self, run: Run) -> Operation:
        """Return the row of the table."""
        return BY_NAME[run.intent.operation]

    def after(self, node: Node, run: Run) -> Iterator[Node]:
        """Return every place that follows *node*, where *run* is the next to act."""
        hold(ENDING, run.steps < MOST_STEPS, "it never ends")
        decision = self.subject.decide(self._known(run))
        if node.sign % 64 == 0:
            again = self.subject.decide(self._known(run))
            hold(ENDING, again == decision, "the same history gave two decisions")
        run = run._replace(steps=run.steps + 1)
        last = run.history[-1] if run.history else None
        denied = run.doubt and isinstance(last, Reading) and last.status in (401, 403)
        hold(
            ENDING,
            not denied or isinstance(decision, Done),
            "on after a read that was refused",
        )
        hold(
            ENDING,
            not run.closed or isinstance(decision, Done),
            "a step of a client that was closed",
        )
        if node.kills < self.setup.kills and not run.spared:
            yield from self._killed(node, run)
            run = run._replace(spared=True)
        if self.setup.closing and run.history and not isinstance(decision, Done):
            closed = run._replace(
                history=(*run.history, Closed(run.local())),
                closed=True,
                absent=False,
                partly=False,
            )
            yield node.with_run(
                closed, sign=hash((node.sign, run.number, run.now, True))
            )
        match decision:
            case Done():
                yield self._done(node, run, decision)
            case Wait(seconds):
                hold(ENDING, seconds > 0, "a wait of no time")
                yield self._waited(node, run, seconds)
            case Read():
                yield from self._read(node, run)
            case Send():
                yield from self._send(node, run, decision)
            case _:
                hold(ENDING, truth=False, words="neither a verdict nor a step")

    def _known(self, run: Run) -> Any:  # Any: as the subject has it
        return self.subject.known(self.operation(run), run.intent, run.history)

    def _done(self, node: Node, run: Run, done: Done) -> Node:
        setup = self.setup
        judge(setup, node, run, done)
        run = run._replace(done=done, kept=None)
        claims = node.claims
        if isinstance(setup.model, Listing) and done.verdict is Verdict.APPLIED:
            claims = claims_of(node, run)
        if setup.runs > 1:
            known = self._known(run)
            run = run._replace(
                closes=max(run.closes, closes_at(setup, known, run.shift))
            )
            if done.verdict is Verdict.UNKNOWN:
                run = run._replace(kept=self.subject.stored(known, at=run.local()))
        sign = hash((node.sign, run.now, tuple(Verdict).index(done.verdict)))
        node = node.with_run(run, claims=claims, sign=sign)
        if done.verdict is Verdict.UNKNOWN:
            node = node._replace(heard=node.hearing(run, None))
        return ended(setup, self.subject, node, run.number)

    def _waited(self, node: Node, run: Run, seconds: float) -> Node:
        seconds += self.setup.overslept
        history = (*run.history, Tick(run.local() + seconds))
        later = run._replace(
            now=run.now + seconds, history=history, absent=False, partly=False
        )
        return node.with_run(later, sign=hash((node.sign, run.number, later.now)))

    # --- reads

    def _read(self, node: Node, run: Run) -> Iterator[Node]:
        setup, ended = self.setup, run.now + self.setup.took
        acts = () if setup.between else setup.acts
        for moment in (run.now, ended) if setup.fresh else (run.now,):
            for world in evolve(node.world, moment - setup.lag, setup.model, acts):
                yield from self._shown(node._replace(world=world), run, moment)
                for earlier in self._earlier(world, run):
                    yield from self._shown(
                        node._replace(world=world), run, moment, earlier
                    )
        if node.fails:
            for miss in setup.misses:
                reading = miss.reading(run.local())
                later = run._replace(
                    now=run.now + miss.took,
                    history=(*run.history, reading),
                    absent=False,
                    partly=False,
                )
                sign = hash((node.sign, run.number, miss.code, run.now))
                yield node.with_run(
                    later,
                    fails=node.fails - 1,
                    sign=sign,
                    heard=node.hearing(run, reading),
                )

    def _earlier(self, world: World, run: Run) -> list[Thing]:
        """Return the states that a read may still show although they are past."""
        if world.past is None or (run.sends and run.now >= run.over):
            return []
        since = run.now - self.setup.stale
        return list(
            {
                thing
                for until, thing in world.past
                if until >= since and thing != world.thing
            }
        )

    def _was_written(self, node: Node, run: Run, earlier: Thing | None) -> bool:
        """Return whether a read that lags shows an *earlier* state, which *run* has written."""
        setup = self.setup
        before = (setup.thing, *(thing for _, thing in setup.earlier))
        return (
            earlier is not None
            and earlier not in before
            and bool(node.effects(run.number))
            and setup.model.wanted(earlier, run.number)
        )

    def _shown(
        self, node: Node, run: Run, moment: float, earlier: Thing | None = None
    ) -> Iterator[Node]:
        """Apply a good read that shows the world of *node* as it is at *moment*, or an *earlier* state."""
        setup, thing = self.setup, node.world.thing
        model, took = setup.model, setup.took
        settled = run.now >= run.over
        run = run._replace(
            shown=run.shown
            or model.wanted(thing, run.number)
            or self._was_written(node, run, earlier),
            read_late=run.read_late or settled,
            absent=settled
            and not node.effects(run.number)
            and (setup.lenient or not node.pending(run.number)),
            partly=settled
            and bool(node.effects(run.number))
            and not node.whole_effects(setup, run.number)
            and not node.pending(run.number),
            echo=False,
            saw=thing[0] if settled and thing else run.saw,
            visible=bool(node.effects(run.number)) and earlier is None,
        )
        begun, claims = run.local(), self._claimed(node, run)
        seen = model.show(thing if earlier is None else earlier)
        if isinstance(model, Put):
            seen = model.finding(seen, run.number)
        for code, facts in self._readings(seen, moment):
            reading = Reading(
                started=begun,
                ended=begun + took,
                claimed_by_others=claims[0],
                guessed=claims[1],
                bounds=self._shown_to_reader(begun, moment),
                **facts,
            )
            later = run._replace(now=run.now + took, history=(*run.history, reading))
            # Not None, whose hash is another one in each process.
            truth = (
                thing,
                earlier or (),
                len(node.world.pending),
                len(node.world.effects),
            )
            sign = hash((node.sign, run.number, code, moment, run.now, truth))
            yield node.with_run(later, sign=sign, heard=node.hearing(run, reading))

    def _shown_to_reader(self, begun: float, moment: float) -> Bounds | None:
        """Return what the answer to a reader of the caller's own has shown the client of the service's clock."""
        setup = self.setup
        if not isinstance(setup.model, Team | Put) or not setup.stamped:
            return None
        mark = stamp(dated(moment, setup.model.step), setup.drift)
        low, high = bounds_of(mark, begun, begun + setup.took)
        return Bounds(low=low, high=high)

    def _readings(
        self, seen: Any, moment: float
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Return what the wire may carry where *seen* is the truth, each with a code of its own."""
        setup = self.setup
        if isinstance(setup.model, Team | Put):
            yield 40, {"finding": seen}
            return
        facts: dict[str, Any] = {
            "own_envelope": True,
            "status": 200 if seen is not None else 404,
            "seen": seen,
            "stamp": stamp(dated(moment, setup.model.step), setup.drift)
            if setup.stamped
            else None,
        }
        if not isinstance(seen, list):
            yield 41, facts
        elif not setup.crowd:
            yield 42, {**facts, "raw_count": len(seen)}
        else:
            for left_out in range(len(seen) + 1):
                rest = seen[: left_out - 1] + seen[left_out:] if left_out else seen
                yield 43 + left_out, {**facts, "seen": rest, **_CROWDS[setup.crowd]}

    def _claimed(self, node: Node, run: Run) -> tuple[frozenset[str], frozenset[str]]:
        """Return the ids that other runs of its client claim by an answer, and by a match."""
        own = self.setup.own_claims
        others = [
            claim
            for claim in node.claims
            if claim[3] == run.client and (own or claim[1] != run.number)
        ]
        return (
            frozenset(number for number, _, certain, _ in others if certain),
            frozenset(number for number, _, certain, _ in others if not certain)
            | self._of_open(node, run),
        )

    def _of_open(self, node: Node, run: Run) -> set[str]:
        """Return the ids of the webhooks whose URL is that of another run of its client, not yet done."""
        if not isinstance(self.setup.model, Listing):
            return set()
        hooks = self.setup.model.show(node.world.thing)
        lines = {
            each.line
            for each in node.runs
            if each.client == run.client
            and each.line != run.line
            and each.first is not None
        }
        return {
            hook["id"]
            for hook in hooks
            if KINDS["create of a webhook"].alike(hook) in lines
        }

    # --- sends

    def _send(self, node: Node, run: Run, send: Send) -> Iterator[Node]:
        judge_send(self.setup, node, run, send)
        if self.setup.runs > 1:
            node = overtaking(node, run)
        for late in {0.0, self.setup.dawdle}:
            begun = run._replace(now=run.now + late)
            if send.not_after is not None and begun.local() > send.not_after:
                yield self._attempted(node, begun, send, LATE, begun.over)
                continue
            acts = (
                self.setup.acts
                if not self.setup.between or (run.number and not run.sends)
                else ()
            )
            for world in evolve(node.world, begun.now, self.setup.model, acts):
                yield from self._attempts(node._replace(world=world), begun, send)

    def _attempts(self, node: Node, run: Run, send: Send) -> Iterator[Node]:
        setup = self.setup
        first = setup.first if setup.later is None or not run.number else setup.later
        for ending in first if run.sends == 0 else setup.again:
            yield from self._attempt(node, run, send, ending)
            if ending.window is not None:
                yield from self._read_beside(node, run, send, ending)
        for crash in setup.crashes if node.kills < setup.kills else ():
            if self.setup.runs > 1 and crash.client != "next":
                continue
            if crash.kept != "nothing" or not (crash.journaled or run.intent.sent):
                yield from self._killed_in_flight(node, run, send, crash)

    def _attempt(
        self, node: Node, run: Run, send: Send, ending: Ending
    ) -> Iterator[Node]:
        setup = self.setup
        ended = run.now + ending.lasts(send.attempt_timeout) + setup.nap
        over = ended + WINDOWS[ending.window] if ending.window else run.over
        worlds = [node.world]
        if ending.effect == "yes":
            alone = setup.in_turn and (setup.runs == 1 or not setup.crashes)
            moments = (run.now, ended) if setup.model.timed and alone else (run.now,)
            worlds = [
                world
                for at in moments
                for world in landed(node.world, at, run.number, setup.model)
            ]
        elif ending.effect == "maybe":
            worlds = [_in_flight(node.world, run.number, run.now, over + setup.late)]
        for world in worlds:
            yield self._attempted(node._replace(world=world), run, send, ending, over)

    def _read_beside(
        self, node: Node, run: Run, send: Send, ending: Ending
    ) -> Iterator[Node]:
        """Read while the request hangs that would end so, and give it up where the read shows the write."""
        setup = self.setup
        for after in setup.beside:
            given_up = attrs.evolve(GIVEN_UP, took=after + setup.took)
            ended = run.now + given_up.lasts(send.attempt_timeout)
            if ended > run.now + ending.lasts(send.attempt_timeout):
                continue
            over = ended + WINDOWS["long"]
            world = _in_flight(node.world, run.number, run.now, over + setup.late)
            sent = self._attempted(
                node._replace(world=world), run, send, given_up, over
            )
            looking = sent.runs[run.number]._replace(now=run.now + after)
            for way in evolve(world, looking.now - setup.lag, setup.model, setup.acts):
                then = sent._replace(world=way)
                for earlier in (None, *self._earlier(way, looking)):
                    for shown in self._shown(then, looking, looking.now, earlier):
                        looked = shown.runs[run.number]
                        if self._is_given_up(looked):
                            yield shown
                        elif self._is_ended(looked):
                            yield then

    def _is_given_up(self, run: Run) -> bool:
        """Return whether the last read of *run* shows the write, so that its request is given up."""
        known = self._known(run)
        if not self.subject.shows_under_way(known, run.history[-1]):
            return False
        decision = self.subject.decide(self._known(run))
        hold(ENDING, isinstance(decision, Done), "given up, and no verdict")
        return True

    def _is_ended(self, run: Run) -> bool:
        """Return whether the last read of *run* matches the write, so that its request is given up without it."""
        return self.subject.matches_under_way(self._known(run), run.history[-1])

    def _attempted(
        self, node: Node, run: Run, send: Send, ending: Ending, over: float
    ) -> Node:
        setup, world = self.setup, node.world
        told, unsure, left = (
            ending.effect == "yes",
            ending.effect == "maybe",
            ending.end is not End.NOT_SENT,
        )
        value = setup.model.answer(world.thing, world.effects[-1][1]) if told else None
        mark = (
            stamp(dated(run.now + setup.nap, setup.model.step), setup.drift)
            if setup.stamped
            else None
        )
        attempt = ending.attempt(run.local(), send.attempt_timeout, value, mark)
        ended = attempt.ended + run.shift + setup.nap
        later = run._replace(
            now=ended,
            history=(*run.history, attempt),
            shift=run.shift + setup.nap,
            sends=run.sends + left,
            resends=run.resends + (run.doubt and left),
            doubt=run.doubt or unsure,
            over=max(over, run.over),
            first=run.now if run.first is None and (unsure or told) else run.first,
            touched=node.touched(setup, run.number)
            if run.first is None
            else run.touched,
            since=ended if run.since is None and unsure else run.since,
            absent=False,
            partly=False,
            told=run.told or told,
            shown=run.shown or told,
            read_late=False,
            echo=run.doubt and ending.status in (404, 409, 410),
            spared=False,
            visible=False,
        )
        sign = hash(
            (
                node.sign,
                run.number,
                ending.code,
                run.now,
                world.thing,
                len(world.pending),
            )
        )
        return node.with_run(later, sign=sign, heard=node.hearing(run, attempt))

    # --- kills, and settling once more

    def _killed(self, node: Node, run: Run) -> Iterator[Node]:
        """Kill the process, or cancel the run, between two steps: before the first send, or right after an attempt."""
        for crash in self.setup.crashes:
            if crash.kept != "nothing" or not (
                run.sends and (crash.journaled or run.intent.sent)
            ):
                yield from self._cut_short(node, run, self._kept(run, crash), crash)

    def _cut_short(
        self, node: Node, run: Run, intent: Intent, crash: Crash
    ) -> Iterator[Node]:
        if self.setup.runs == 1:
            later = take_up(self.setup, node, run, intent, crash, run.now + crash.delay)
            yield later._replace(kills=node.kills + 1)
        elif run.sends and run.mode == "live":
            cut = cut_short(self.setup, self.subject, node, run, intent, crash)
            if cut is not None:
                yield cut

    def _killed_in_flight(
        self, node: Node, run: Run, send: Send, crash: Crash
    ) -> Iterator[Node]:
        intent = run.intent
        if crash.kept != "nothing":
            intent = self.subject.stored(self._known(run), send=send, at=run.local())
            hold(
                PROOF,
                len(intent.sent) > len(run.intent.sent),
                "the send about to begin is not stored",
            )
        dead = run.now + DIES_AFTER
        over = (dead if crash.gone else run.now + send.attempt_timeout) + WINDOWS[
            "long"
        ]
        world = _in_flight(node.world, run.number, run.now, over + self.setup.late)
        first = run.now if run.first is None else run.first
        touched = (
            node.touched(self.setup, run.number) if run.first is None else run.touched
        )
        run = run._replace(
            now=dead,
            sends=run.sends + 1,
            first=first,
            over=max(over, run.over),
            touched=touched,
        )
        yield from self._cut_short(node._replace(world=world), run, intent, crash)

    def settled(self, node: Node, number: int, crash: Crash) -> Node:
        """Settle the intent of run *number* once more after its verdict."""
        run = node.runs[number]
        at = max(each.now for each in node.runs) + crash.delay
        return take_up(self.setup, node, run, self._kept(run, crash), crash, at)

    def _kept(self, run: Run, crash: Crash) -> Intent:
        """Return the revision of the intent that outlived the process."""
        if crash.kept == "nothing":
            return run.intent
        intent: Intent = self.subject.stored(self._known(run), at=run.local())
        if crash.kept == "copy":
            return attrs.evolve(intent, sent=intent.sent[:1])
        if crash.kept == "start":
            return attrs.evolve(
                intent, sent=tuple(attrs.evolve(sent, end=None) for sent in intent.sent)
            )
        return intent


def _in_flight(world: World, run: int, earliest: float, latest: float) -> World:
    return world._replace(pending=(*world.pending, Pending(run, earliest, latest)))
