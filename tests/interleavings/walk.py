"""
The walk through all schedules of a scene, those nearest to the default first.
"""

from __future__ import annotations

import gc
import heapq
from itertools import count
from typing import TYPE_CHECKING

import attrs

from tests.interleavings.execution import Stage
from tests.interleavings.judge import broken
from tests.interleavings.loop import START, Stuck
from tests.interleavings.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interleavings.scene import Scene


@attrs.define
class Found:
    """What a walk came to."""

    scene: str
    walked: int = 0
    whole: bool = True  # every schedule within the bound
    verdicts: dict[str, int] = attrs.field(factory=dict)
    # by rule: words, shortest schedule
    broken: dict[str, tuple[str, list[str]]] = attrs.field(factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{self.scene}: {self.walked} executions{'' if self.whole else ', cut off'}, {self.verdicts}"
        ]
        for words, told in self.broken.values():
            lines += [f"  {words}", *(f"      {line}" for line in told)]
        return "\n".join(lines)


def play(scene: Scene, schedule: Schedule) -> tuple[Stage, list[str]]:
    """Play *scene* once and return what is broken."""
    stage = Stage(scene, schedule)
    try:
        stage.play()
    except Stuck as stuck:
        return stage, [f"0: {stuck}"]
    return stage, broken(stage)


def walk(
    scene: Scene,
    *,
    bound: int | None = None,
    most: int = 10**9,
    first: int | None = None,
    play: Callable[[Scene, Schedule], tuple[Stage, list[str]]] = play,
) -> Found:
    """
    Play every schedule whose cost is within *bound*, *most* of them.

    With *first*, only breaks of the rule of that number count, and the first one ends the walk.
    """
    found, order = Found(scene.name), count()
    bound = scene.bound if bound is None else bound
    queue: list[tuple[int, int, int, dict[int, int]]] = [(0, 0, next(order), {})]
    gc.disable()
    gc.freeze()  # what is there already is not looked at again and again
    try:
        while queue:
            if found.walked >= most:
                found.whole = False
                break
            cost, _, _, deviations = heapq.heappop(queue)
            schedule = Schedule(deviations)
            stage, wrong = play(scene, schedule)
            if first is not None:
                wrong = [
                    words
                    for words in wrong
                    if words.startswith((f"{first}:", f"{first}, "))
                ]
            _count(found, stage, wrong)
            if found.walked % 100 == 0:
                gc.collect()
            if first is not None and found.broken:
                break
            for extra, point, way in _others(schedule):
                if cost + extra <= bound:
                    heapq.heappush(
                        queue,
                        (
                            cost + extra,
                            len(deviations) + 1,
                            next(order),
                            {**deviations, point: way},
                        ),
                    )
    finally:
        gc.unfreeze()
        gc.enable()
    return found


def _others(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Yield the ways not taken after the last deviation, with what each costs."""
    last = max(schedule.deviations, default=-1)
    for number in range(last + 1, len(schedule.points)):
        point = schedule.points[number]
        for way in range(1, len(point.ways)):
            yield point.costs[way], number, way


def _count(found: Found, stage: Stage, wrong: list[str]) -> None:
    found.walked += 1
    for heard in stage.heard:
        verdict = str(heard.verdict)
        found.verdicts[verdict] = found.verdicts.get(verdict, 0) + 1
    for words in wrong:
        rule = f"{words.partition(':')[0]} {words.partition(':')[2][:20]}"
        if rule not in found.broken:
            found.broken[rule] = words, [*stage.schedule.told(), *ledger(stage)]


def ledger(stage: Stage) -> list[str]:
    """Return what was sent, what came of it and what the application was told, in order."""
    service = stage.service
    lines = [
        *(
            (sent.started, f"{sent.writer} is sent by {sent.client} ({sent.fate.name})")
            for sent in service.sends
        ),
        *(
            (each.at, f"{each.writer or 'a stranger'} takes effect on {each.thing}")
            for each in service.effects
        ),
        *((started, f"{run} reads {what}") for started, _, run, what in service.looks),
    ]
    for heard in stage.heard:
        words = f"{heard.writer} ({heard.how}, since {heard.begun - START:.3f}) is {heard.verdict}: {heard.outcome.message}"
        lines.append((heard.at, words))
    return [
        f"    {at - START:.3f} {words}"
        for at, words in sorted(lines, key=lambda each: each[0])
    ]
