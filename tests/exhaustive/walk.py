"""
Walk the histories of a small world: all of them, a part, or some at random.
"""

from __future__ import annotations

import random
import time
from array import array
from typing import TYPE_CHECKING

import attrs

from tests.exhaustive.judge import Broken
from tests.exhaustive.steps import Steps, Subject

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import History
    from tests.exhaustive.world_setup import Node, SetUp


def shipped() -> Subject:
    """Return the functions that ship."""
    from invsvc_async.reconcile.decide import decide, matches_under_way, shows_under_way
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.stored_intent import stored

    return Subject(decide, Known, stored, shows_under_way, matches_under_way)


@attrs.define
class Found:
    """What a walk found: the signatures of its histories by verdict, and the rules that were broken."""

    signs: dict[str, array[int]] = attrs.field(factory=dict)
    walked: int = 0
    # world, rule, shortest history
    broken: list[tuple[str, str, History]] = attrs.field(factory=list)
    whole: bool = True  # no history was left out

    def count(self, verdict: str, sign: int) -> None:
        """Count one history."""
        self.signs.setdefault(verdict, array("q")).append(sign)
        self.walked += 1

    def add(self, setup: SetUp, error: Broken, history: History) -> None:
        """Keep the shortest history for each way to break a rule."""
        for place, (name, rule, kept) in enumerate(self.broken):
            if (name, rule) == (setup.name, str(error)):
                if len(history) < len(kept):
                    self.broken[place] = (name, rule, history)
                return
        self.broken.append((setup.name, str(error), history))


@attrs.frozen
class Walk:
    """The walk through one small world."""

    setup: SetUp
    subject: Subject
    steps: Steps = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "steps", Steps(self.setup, self.subject))

    def whole(self, *, first: bool = False) -> Found:
        """Walk every history, or up to the *first* broken rule."""
        found, stack = Found(), [self.setup.root()]
        while stack and not (first and found.broken):
            stack.extend(self._step(stack.pop(), found))
        return found

    def cut(
        self, seed: int, *, until: float, most: float, first: bool = False
    ) -> Found:
        """
        Walk up to *most* histories: all that share a beginning drawn by *seed*, then all of the next.

        With *first*, the first broken rule ends the walk.
        """
        found, draw = Found(whole=False), random.Random(seed)

        def goes_on() -> bool:
            is_enough = found.walked >= most or (first and bool(found.broken))
            return not is_enough and time.monotonic() < until

        while goes_on():
            stack = self._beginning(draw, found)
            while stack and goes_on():
                stack.extend(self._step(stack.pop(), found))
        return found

    def _beginning(self, draw: random.Random, found: Found) -> list[Node]:
        """Make a few steps at random: the first ends, kills and acts."""
        ways = [self.setup.root()]
        for _ in range(draw.randrange(2, 8)):
            ways = self._step(draw.choice(ways), found) or ways
        return ways

    def at_random(self, seed: int, *, until: float, most: float) -> Found:
        """Walk histories drawn by *seed*, each from its beginning."""
        found, draw = Found(whole=False), random.Random(seed)
        while time.monotonic() < until and found.walked < most:
            ways = [self.setup.root()]
            while ways:
                ways = self._step(draw.choice(ways), found)
        return found

    def _step(self, node: Node, found: Found) -> list[Node]:
        """Return the places that follow *node*; count it if it is an end."""
        acting = [run for run in node.runs if run.done is None]
        if not acting:
            return self._end(node, found)
        run = min(acting, key=lambda each: each.now)
        try:
            return list(self.steps.after(node, run))
        except Broken as error:
            others = (
                event
                for each in node.runs
                if each.number != run.number
                for event in each.history
            )
            found.add(self.setup, error, (*others, *run.history))
            return []

    def _end(self, node: Node, found: Found) -> list[Node]:
        done = node.runs[-1].done
        assert done is not None
        found.count(str(done.verdict), node.sign)
        if any(run.live is not None for run in node.runs):
            return []
        return [
            self.steps.settled(node, run.number, crash)
            for run in node.runs
            for crash in self.setup.afterwards
        ]
