"""Smaller programs that break the same rule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from invsvc_async.simulator.own_words import WORDS
from tests.walk.program import RECENT, End, Life, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIFE = Life("", ())  # what a plain one has
PLAIN = {
    "order": 0,
    "jitter": 0,
    "wall": (),
    "grows": False,
    "stores": "",
    "recent": RECENT,
    "edits": (),
    "is_named": True,
}


def shrunk(
    program: Program, is_broken: Callable[[Program], bool], *, within: float = 60.0
) -> Program:
    """Return the smallest program that was found within so many seconds of this machine."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        for smaller in _smaller(program):
            if time.monotonic() > until:
                return program
            if is_broken(smaller):
                program = smaller
                break
        else:
            return program
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Yield programs with something less, those with much less first."""
    for life in program.lives[:-1]:
        yield _without_life(program, life)
    for write in program.writes:
        if len(program.writes) > 1:
            yield _without_key(program, write.key)
    yield from _plainer_world(program)
    yield from _fewer_fates(program)
    for life in program.lives:
        for simpler in (
            *_simpler_end(life),
            *_simpler(life),
            *_simpler_cuts(life),
        ):
            yield replace(
                program,
                lives=tuple(
                    simpler if each is life else each for each in program.lives
                ),
            )
    for number, write in enumerate(program.writes):
        if write.thing:
            changed = [*program.writes]
            changed[number] = replace(write, thing=0)
            yield replace(program, writes=tuple(changed))
        if write.due:
            changed = [*program.writes]
            changed[number] = replace(write, due=0.0)
            yield replace(program, writes=tuple(changed))


def _plainer_world(program: Program) -> Iterator[Program]:
    for name, plain in PLAIN.items():
        if getattr(program, name) != plain:
            yield replace(program, **{name: plain})
    if len(program.edits) > 1:
        for edit in program.edits:
            rest = tuple(each for each in program.edits if each is not edit)
            yield replace(program, edits=rest)
    parts = program.stores.split(",")
    if len(parts) > 1:
        for part in parts:
            yield replace(
                program, stores=",".join(each for each in parts if each != part)
            )
    if any(
        f"{word}+" in program.stores or f"+{word}" in program.stores for word in WORDS
    ):
        yield from (
            replace(program, stores=f"words={word}")
            for word in WORDS
            if word in program.stores
        )


def _fewer_fates(program: Program) -> Iterator[Program]:
    for name in program.reads:
        yield replace(
            program,
            reads={each: way for each, way in program.reads.items() if each != name},
        )
    for key, fates in program.fates.items():
        rest = {each: others for each, others in program.fates.items() if each != key}
        yield replace(program, fates=rest)
        if len(fates) > 1:
            yield replace(program, fates={**rest, key: fates[:-1]})


def _without_life(program: Program, life: Life) -> Program:
    lives = []
    for each in program.lives:
        if each is life:
            continue
        if life.name in each.after:
            kept = dict.fromkeys(
                (*(name for name in each.after if name != life.name), *life.after)
            )
            lives.append(replace(each, after=tuple(kept)))
        else:
            lives.append(each)
    return replace(program, lives=tuple(lives))


def _without_key(program: Program, key: str) -> Program:
    lives = tuple(
        replace(
            life,
            keys=tuple(each for each in life.keys if each != key),
            cancels=tuple(each for each in life.cancels if each[0] != key),
            cuts=tuple(each for each in life.cuts if each.key != key),
        )
        for life in program.lives
    )
    return replace(
        program,
        writes=tuple(write for write in program.writes if write.key != key),
        lives=lives,
        fates={each: fates for each, fates in program.fates.items() if each != key},
        edits=tuple(edit for edit in program.edits if edit.key != key),
    )


def _simpler_end(life: Life) -> Iterator[Life]:
    if life.end is None:
        return
    yield replace(life, end=None)
    if life.end.how not in ("kill", "raise"):
        yield replace(life, end=replace(life.end, how="kill"))
    if life.end.step is not None and life.end.how != "raise":
        yield replace(life, end=End(life.end.how, at=0.3))


def _simpler_cuts(life: Life) -> Iterator[Life]:
    for number, cut in enumerate(life.cuts):
        for simpler in (replace(cut, pause=0.0), replace(cut, then="again")):
            if simpler != cut:
                yield replace(
                    life,
                    cuts=(*life.cuts[:number], simpler, *life.cuts[number + 1 :]),
                )


def _simpler(life: Life) -> Iterator[Life]:
    for name in ("cancels", "cuts", "wall", "lost", "slow"):
        values = getattr(life, name)
        for number in range(len(values)):
            yield replace(life, **{name: values[:number] + values[number + 1 :]})
    for name in (
        "prunes",
        "recovers",
        "settles",
        "rests",
        "runs_beside",
        "marks",
        "deadline",
        "gap",
        "bare",
        "waits",
        "resumes",
        "resolves",
        "windows",
        "names_team",
    ):
        if getattr(life, name) != getattr(LIFE, name):
            yield replace(life, **{name: getattr(LIFE, name)})
    if life.looks > 1:
        yield replace(life, looks=1)
    if life.name != "last":
        for key in life.keys:
            yield replace(life, keys=tuple(each for each in life.keys if each != key))
    if list(life.keys) != sorted(life.keys):
        yield replace(life, keys=tuple(sorted(life.keys)))
    if life.how == "apart":
        yield replace(life, how="at once")
