"""The walk: programs are drawn, played and judged, until the time is over."""

from __future__ import annotations

import gc
import time
from collections import Counter
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import attrs

from tests.walk.draw import drawn
from tests.walk.play import play, told
from tests.walk.program import text_of
from tests.walk.shrink import shrunk

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from tests.walk.program import Journal, Program, Use

MOST_OF_A_RULE = 3  # broken programs that are kept of each rule


@attrs.frozen
class Broken:
    """A program that breaks a rule, as it was drawn."""

    seed: int
    rule: str
    words: str
    program: Program


@attrs.define
class Found:
    """What a walk came to."""

    histories: int = 0
    seconds: float = 0.0
    busy: float = 0.0  # s of this process
    worlds: set[tuple[str, ...]] = attrs.field(factory=set)
    verdicts: Counter[str] = attrs.field(factory=Counter)
    rules: Counter[str] = attrs.field(factory=Counter)
    broken: list[Broken] = attrs.field(factory=list)

    def __str__(self) -> str:
        rate = self.histories / max(self.busy, 0.001)
        said = ", ".join(
            f"{many:,} {verdict}" for verdict, many in self.verdicts.most_common()
        )
        wrong = (
            ", ".join(f"{rule} in {many:,}" for rule, many in self.rules.most_common())
            or "nothing"
        )
        return (
            f"{self.histories:,} histories in {self.seconds:.0f} s ({rate:.0f} in each second of this process), "
            f"{len(self.worlds):,} worlds; told: {said}; broken: {wrong}"
        )


@attrs.frozen(kw_only=True)
class Asked:
    """What is walked: of which *journals* and *uses*, *without* which events, and which *rules* count (all)."""

    journals: tuple[Journal, ...] = ("file", "database")
    uses: tuple[Use, ...] = ("keys",)
    without: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    def program(self, seed: int) -> Program:
        """Return the program of a seed."""
        return drawn(Random(seed), self.journals, self.uses, self.without)

    def of(self, words: Collection[str]) -> list[str]:
        """Return those of *words* that count."""
        return [each for each in words if not self.rules or rule_of(each) in self.rules]


def rule_of(words: str) -> str:
    """Return the rule of what is broken."""
    return words.partition(":")[0]


def walk(
    asked: Asked,
    first: int,
    *,
    seconds: float = 1e9,
    most: int = 10**9,
    stop_at: int = 10**9,
) -> Found:
    """
    Play the programs of the seeds from *first*, for so many *seconds* or histories.

    Stop once *stop_at* of them were broken.
    """
    found = Found()
    begun = time.monotonic()
    before = time.process_time()
    with _little_garbage():
        for seed in range(first, first + most):
            found.seconds = time.monotonic() - begun
            if found.seconds > seconds or sum(found.rules.values()) >= stop_at:
                break
            program = asked.program(seed)
            stage, wrong = play(program)
            found.histories += 1
            found.worlds.add(world_of(program))
            found.verdicts.update(str(told.verdict) for told in stage.told)
            by_rule = {rule_of(words): words for words in reversed(asked.of(wrong))}
            for rule, words in by_rule.items():
                found.rules[rule] += 1
                if found.rules[rule] <= MOST_OF_A_RULE:
                    found.broken.append(Broken(seed, rule, words, program))
            if found.histories % 100 == 0:
                gc.collect()
    found.seconds = time.monotonic() - begun
    found.busy = time.process_time() - before
    return found


@contextmanager
def _little_garbage() -> Generator[None]:
    gc.disable()
    gc.freeze()  # what is there already is not looked at again and again
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def world_of(program: Program) -> tuple[str, ...]:
    """Return what kind of world *program* has: its journal, its use, and what happens in it."""
    ends = {life.end.how for life in program.lives if life.end is not None}
    marks = {
        "clocks": any(life.wall for life in program.lives),
        "clock of the database": bool(program.wall),
        "lost replies": any(life.lost for life in program.lives),
        "slow replies": any(life.slow for life in program.lives),
        "time limits": any(life.cancels for life in program.lives),
        "prune": any(life.prunes is not None for life in program.lives),
        "own words": bool(program.stores),
        "fates": bool(program.fates),
        "reads": bool(program.reads),
        "a person": any(life.looks or life.resolves for life in program.lives),
        "other windows": any(life.windows != 1.0 for life in program.lives),
        "a namespace without a name": not program.is_named,
        "a team with two names": program.names_team,
        "edited descriptions": bool(program.edits),
        "due times": any(write.due for write in program.writes),
        "processes at once": any(not life.after for life in program.lives[1:]),
    }
    return (
        program.journal,
        program.use,
        *sorted(ends),
        *(name for name, is_so in marks.items() if is_so),
    )


def smallest(broken: Broken, *, within: float = 60.0) -> tuple[Program, list[str]]:
    """Return a program that breaks the same rule and is as small as can be found, and what happened in it."""

    def breaks(program: Program) -> bool:
        _, wrong = play(program)
        return any(rule_of(words) == broken.rule for words in wrong)

    with _little_garbage():
        program = shrunk(broken.program, breaks, within=within)
    stage, wrong = play(program)
    return program, [*told(stage), *wrong]


def as_text(program: Program) -> str:
    """Return *program* as it can be stored and played again."""
    return text_of(program)
