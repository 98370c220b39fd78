"""
Walk every history of a small world through ``decide`` and ``stored``; never know their code, only the rules.
"""

from __future__ import annotations

import random
import time
from array import array
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.operations import BY_NAME
from invsvc_async.reconcile.evidence import Done, End, Evidence, History, Read, Reading, Send, Tick, Verdict, Wait
from tests.exhaustive.judge import ENDING, MOST_STEPS, PROOF, TRUTH, Broken, hold, judge, judge_send
from tests.exhaustive.models import Listing, Team
from tests.exhaustive.setup import NEVER, Crash, Node, Run, SetUp, resumed
from tests.exhaustive.world import Pending, World, evolve, landed, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from invsvc_async.reconcile.intent import Intent, Sent
    from tests.exhaustive.answers import Ending

WINDOWS = {"short": 2.0, "long": 15.0}


@attrs.frozen
class Subject:
    """What is walked: the two functions that ship."""

    decide: Callable[..., Any]
    stored: Callable[..., Any]


def shipped() -> Subject:
    """Give the functions that ship."""
    from invsvc_async.reconcile.decide import decide
    from invsvc_async.reconcile.revise import stored

    return Subject(decide, stored)


@attrs.define
class Found:
    """What a walk found: the signatures of the histories by verdict, and the rules that were broken."""

    signs: dict[str, array[int]] = attrs.field(factory=dict)
    walked: int = 0
    broken: list[tuple[str, str, str, History]] = attrs.field(factory=list)  # set-up, rule, words, shortest history
    whole: bool = True  # no history was left out

    def count(self, verdict: str, sign: int) -> None:
        """Count one history."""
        self.signs.setdefault(verdict, array("q")).append(sign)
        self.walked += 1

    def add(self, setup: SetUp, error: Broken, history: History) -> None:
        """Keep the shortest history for each way to break a rule."""
        words = str(error)
        for place, (name, known, _, kept) in enumerate(self.broken):
            if (name, known) == (setup.name, words):
                if len(history) < len(kept):
                    self.broken[place] = (name, words, setup.model.operation, history)
                return
        self.broken.append((setup.name, words, setup.model.operation, history))


@attrs.frozen
class Walk:
    """The walk through one set-up."""

    setup: SetUp
    subject: Subject

    def whole(self, *, first: bool = False) -> Found:
        """Walk every history, or up to the *first* broken rule."""
        found, stack = Found(), [self.setup.root()]
        while stack and not (first and found.broken):
            stack.extend(self._step(stack.pop(), found))
        return found

    def cut(self, seed: int, *, until: float, most: float) -> Found:
        """Walk up to *most* histories, all that share a beginning drawn by *seed*, then all of the next."""
        found, draw = Found(whole=False), random.Random(seed)  # noqa: S311 - repeatable, not secret
        while time.monotonic() < until and found.walked < most:
            stack = self._beginning(draw, found)
            while stack and time.monotonic() < until and found.walked < most:
                stack.extend(self._step(stack.pop(), found))
        return found

    def _beginning(self, draw: random.Random, found: Found) -> list[Node]:
        """Take a few steps at random: the first ends, kills and acts."""
        ways = [self.setup.root()]
        for _ in range(draw.randrange(2, 8)):
            ways = self._step(draw.choice(ways), found) or ways
        return ways

    def at_random(self, seed: int, *, until: float, most: float) -> Found:
        """Walk histories drawn by *seed*, each from its beginning."""
        found, draw = Found(whole=False), random.Random(seed)  # noqa: S311 - the same
        while time.monotonic() < until and found.walked < most:
            ways = [self.setup.root()]
            while ways:
                ways = self._step(draw.choice(ways), found)
        return found

    def _step(self, node: Node, found: Found) -> list[Node]:
        """Give the places that follow *node*; count it where it is an end."""
        open_ = [run for run in node.runs if run.done is None]
        if not open_:
            done = node.runs[-1].done
            assert done is not None
            found.count(str(done.verdict), node.sign)
            if not self.setup.afterwards or node.runs[0].live is not None:
                return []
            return [self._settled(node, crash) for crash in self.setup.afterwards]
        run = min(open_, key=lambda each: each.now)
        try:
            return list(self._next(node, run))
        except Broken as error:
            found.add(self.setup, error, run.history)
            return []

    def _next(self, node: Node, run: Run) -> Iterator[Node]:
        hold(ENDING, run.steps < MOST_STEPS, "it never ends")
        decide = self.subject.decide
        decision = decide(BY_NAME[self.setup.model.operation], run.intent, run.history)
        if node.sign % 64 == 0:
            again = decide(BY_NAME[self.setup.model.operation], run.intent, run.history)
            hold(ENDING, again == decision, "the same history gave two decisions")
        run = run._replace(steps=run.steps + 1)
        if self.setup.crashes and not node.crashed and not run.pause:
            yield from self._killed(node, run)
            run = run._replace(pause=True)
        match decision:
            case Done():
                yield self._done(node, run, decision)
            case Wait(seconds):
                hold(ENDING, seconds > 0, "a wait of no time")
                yield self._waited(node, run, seconds)
            case Read():
                hold(ENDING, run.number >= 0 and decision.reader, "a read of nothing")
                yield from self._read(node, run)
            case Send():
                yield from self._send(node, run, decision)

    def _done(self, node: Node, run: Run, done: Done) -> Node:
        judge(self.setup, node, run, done)
        runs, claims = [*node.runs], node.claims
        runs[run.number] = run._replace(done=done)
        if isinstance(self.setup.model, Listing) and done.verdict is Verdict.APPLIED:
            claims = (*claims, (done.value["id"], run.number)) if done.value else claims
        if run.number + 1 < len(runs) and runs[run.number + 1].now == NEVER:
            begin = max(run.now, run.over + self.setup.margin) if run.doubt else run.now
            runs[run.number + 1] = runs[run.number + 1]._replace(now=begin, history=(Tick(begin),))
        sign = hash((node.sign, run.now, tuple(Verdict).index(done.verdict)))
        return node._replace(runs=tuple(runs), claims=claims, sign=sign)

    def _waited(self, node: Node, run: Run, seconds: float) -> Node:
        later = run._replace(now=run.now + seconds, absent=False)
        later = later._replace(history=(*run.history, Tick(run.local() + seconds)))
        return node.with_run(later, sign=hash((node.sign, run.number, later.now)))

    # --- reads

    def _read(self, node: Node, run: Run) -> Iterator[Node]:
        setup, ended = self.setup, run.now + self.setup.took
        for shown in (run.now, ended) if setup.fresh else (run.now,):
            for world in evolve(node.world, shown - setup.lag, setup.model, setup.acts):
                yield from self._shown(node._replace(world=world), run, shown)
        if node.fails:
            for miss in setup.misses:
                reading = miss.reading(run.local(), self._claimed(node, run))
                later = run._replace(now=run.now + miss.took, history=(*run.history, reading), absent=False)
                sign = hash((node.sign, run.number, miss.code, run.now))
                yield node.with_run(later, fails=node.fails - 1, sign=sign)

    def _shown(self, node: Node, run: Run, moment: float) -> Iterator[Node]:
        """Let a good read show the world of *node* as it is at *moment*."""
        thing, model = node.world.thing, self.setup.model
        in_time = run.now >= run.over
        run = run._replace(
            shown=run.shown or model.wanted(thing, run.number), read_late=run.read_late or in_time,
            absent=in_time and not node.effects(run.number) and not node.pending(run.number), echo=False,
        )  # fmt: skip
        for code, facts in self._readings(model.show(thing), moment):
            reading = Reading(
                started=run.local(), ended=run.local() + self.setup.took, claimed_by_others=self._claimed(node, run), **facts
            )
            later = run._replace(now=run.now + self.setup.took, history=(*run.history, reading))
            truth = (thing, len(node.world.pending), len(node.world.effects))
            yield node.with_run(later, sign=hash((node.sign, run.number, code, moment, run.now, truth)))

    def _readings(self, seen: Any, moment: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give what the wire may carry where *seen* is the truth."""
        setup = self.setup
        if isinstance(setup.model, Team):
            yield 40, {"finding": seen}
            return
        facts: dict[str, Any] = {"own_envelope": True, "status": 200 if seen is not None else 404, "seen": seen}
        if setup.stamped:
            facts["stamp"] = stamp(moment, setup.drift)
        if not isinstance(seen, list):
            yield 41, facts
        elif not setup.crowd:
            yield 42, {**facts, "raw_count": len(seen)}
        else:
            for left_out in range(len(seen) + 1):
                rest = seen[: left_out - 1] + seen[left_out:] if left_out else seen
                yield 43 + left_out, {**facts, "seen": rest, "raw_count": 100, "full": True}

    def _claimed(self, node: Node, run: Run) -> frozenset[str]:
        own = self.setup.own_claims
        if not self.setup.shared:
            return frozenset()
        return frozenset(number for number, by in node.claims if own or by != run.number)

    # --- sends

    def _send(self, node: Node, run: Run, send: Send) -> Iterator[Node]:
        judge_send(self.setup, node, run, send)
        if run.mode == "settle":
            evidence = Evidence(basis="absence")
            yield self._done(node, run, Done(verdict=Verdict.NOT_APPLIED, reason="absent", evidence=evidence))
            return
        for late in {0.0, self.setup.dawdle}:
            begun = run._replace(now=run.now + late)
            if send.not_after is not None and begun.local() > send.not_after:
                yield self._refused_as_late(node, begun, send)
                continue
            for world in evolve(node.world, begun.now, self.setup.model, self.setup.acts):
                yield from self._attempts(node._replace(world=world), begun, send)

    def _refused_as_late(self, node: Node, run: Run, send: Send) -> Node:
        from tests.exhaustive.answers import UNSENT

        attempt = attrs.evolve(UNSENT.attempt(run.local(), send.attempt_timeout, None, None), ended=run.local())
        later = run._replace(history=(*run.history, attempt), absent=False)
        return node.with_run(later, sign=hash((node.sign, run.number, 30, run.now)))

    def _attempts(self, node: Node, run: Run, send: Send) -> Iterator[Node]:
        setup = self.setup
        for ending in setup.first if run.sends == 0 else setup.again:
            yield from self._attempt(node, run, send, ending)
        if node.crashed:
            return
        for crash in setup.crashes:
            if crash.kept != "nothing" or not crash.journaled:
                yield self._killed_in_flight(node, run, send, crash)

    def _attempt(self, node: Node, run: Run, send: Send, ending: Ending) -> Iterator[Node]:
        setup = self.setup
        took = send.attempt_timeout if ending.took is None else ending.took
        ended = run.now + took + setup.nap
        over = ended + WINDOWS[ending.window] if ending.window else run.over
        worlds: list[World | None] = [node.world]
        if ending.effect == "yes":
            moments = (run.now, ended) if setup.model.timed and setup.in_turn else (run.now,)
            worlds = [landed(node.world, at, run.number, setup.model) for at in moments]
        elif ending.effect == "maybe":
            worlds = [_in_flight(node.world, run.number, run.now, over + setup.late)]
        for world in worlds:
            if world is not None:
                yield self._attempted(node._replace(world=world), run, send, ending, over)

    def _attempted(self, node: Node, run: Run, send: Send, ending: Ending, over: float) -> Node:
        setup, world = self.setup, node.world
        told = ending.effect == "yes"
        value = setup.model.answer(world.thing, world.effects[-1][1]) if told else None
        mark = stamp(run.now + setup.nap, setup.drift) if setup.stamped else None
        attempt = ending.attempt(run.local(), send.attempt_timeout, value, mark)
        ended = attempt.ended + run.shift
        unsure = ending.effect == "maybe"
        left = ending.end is not End.NOT_SENT
        later = run._replace(
            now=ended + setup.nap, history=(*run.history, attempt), shift=run.shift + setup.nap, sends=run.sends + left,
            resends=run.resends + (run.doubt and left), doubt=run.doubt or unsure, over=max(over, run.over),
            first=run.now if run.first is None and left else run.first, since=ended if run.since is None and unsure else run.since, absent=False, told=told or run.told,
            echo=run.doubt and ending.status in (404, 409), pause=False, shown=run.shown or told, read_late=False,
        )  # fmt: skip
        sign = hash((node.sign, run.number, ending.code, run.now, world.thing, len(world.pending)))
        return node.with_run(later, sign=sign)

    # --- kills, and settling once more

    def _killed(self, node: Node, run: Run) -> Iterator[Node]:
        """Kill the process between two steps: before the first send, or right after an attempt."""
        for crash in self.setup.crashes:
            history = run.history
            if crash.kept == "nothing" and (crash.journaled and run.sends):
                continue
            intent = self._kept(run, history, crash)
            yield self._taken_up(node, run, intent, crash, over=run.over)

    def _kept(self, run: Run, history: History, crash: Crash) -> Any:
        if crash.kept == "nothing":
            return run.intent
        intent = self.subject.stored(BY_NAME[self.setup.model.operation], run.intent, history, at=run.local())
        if crash.kept == "start":
            return attrs.evolve(intent, sent=tuple(attrs.evolve(sent, end=None) for sent in intent.sent))
        return intent

    def _killed_in_flight(self, node: Node, run: Run, send: Send, crash: Crash) -> Node:
        operation = BY_NAME[self.setup.model.operation]
        intent = run.intent
        if crash.kept != "nothing":
            intent = self.subject.stored(operation, run.intent, run.history, send=send, at=run.local())
            hold(PROOF, len(intent.sent) > len(run.intent.sent), "the send about to begin is not stored")
        dead = run.now + 0.25
        over = (dead if crash.gone else run.now + send.attempt_timeout) + WINDOWS["long"]
        world = _in_flight(node.world, run.number, run.now, over + self.setup.late)
        first = run.now if run.first is None else run.first
        run = run._replace(now=dead, first=first, sends=run.sends + 1, resends=run.resends + run.doubt, doubt=True)
        return self._taken_up(node._replace(world=world), run, intent, crash, over=max(over, run.over))

    def _taken_up(self, node: Node, run: Run, intent: Any, crash: Crash, *, over: float) -> Node:
        now = run.now + crash.delay
        doubt = not (intent.sent or crash.journaled) or any(_unsure(sent) for sent in intent.sent)
        begun = Run(
            run.number, now, intent, (resumed(crash, now - run.shift + self.setup.jump),), run.shift - self.setup.jump, crash.mode,
            run.sends, doubt=doubt, first=run.first, over=over, since=now, live=run.done, pause=True, told=run.told,
        )  # fmt: skip
        sign = hash((node.sign, run.number, now, crash.mode == "settle", crash.journaled, crash.gone, len(crash.kept)))
        return node.with_run(begun, sign=sign, crashed=True)

    def _settled(self, node: Node, crash: Crash) -> Node:
        """Settle the first run's intent once more after its verdict."""
        run = node.runs[0]
        world = evolve(node.world, run.now, self.setup.model, ())[0] if not node.world.pending else node.world
        intent = self._kept(run, run.history, crash)
        hold(TRUTH, run.done is not None, "settled before its verdict")
        return self._taken_up(node._replace(world=world), run, intent, crash, over=run.over)


def _unsure(sent: Sent) -> bool:
    return sent.end is None or sent.end.kind in WINDOWS


def _in_flight(world: World, run: int, earliest: float, latest: float) -> World:
    return world._replace(pending=(*world.pending, Pending(run, earliest, latest)))


