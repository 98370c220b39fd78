"""The scenes in which a journal is copied and put back, or its input is a file."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.exhaustive.batches.stage import keys_of, seed, writes
from tests.interleavings.actions import EVENTS, HOOK, URL
from tests.interleavings.scene import Scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.exhaustive.batches.stage import BatchStage, Play, Process

LONG = 3_600_000  # ms: the journey was changed long before the copy


def restored(
    *asked: tuple[str, str],
    then: tuple[tuple[str, str], ...] = (),
    at: tuple[float, ...] = (),
    pause: float = 0.0,
) -> Play:
    """
    Return a scene where p1 may be killed, and a copy of its journal from one of the times *at* is put back.

    Without *at*, p1 retries what failed, and the copy is made before it runs again. The input of p1 has a *pause*
    before each write.

    The next process uses the journal as it is, if it is accepted. Otherwise the next one has ``restored=True``.
    That one may be killed; the last one runs to its end without it, and with *then* in its input.
    """

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.service.journeys["j1"]["last_updated"] -= LONG
        stage.rank(*keys_of(asked), *keys_of(then))

        def begin(number: int, *, accepts: bool = False) -> None:
            process = stage.process(f"p{number}", restored=accepts)
            is_last = number > 1 and (accepts or number > 2)

            async def work(process: Process) -> None:
                given = writes(process, (*asked, *then) if is_last else asked)
                await stage.take(
                    process, slowly(given, pause) if number == 1 and pause else given
                )
                if number == 1 and not at:
                    await retried(stage, process)

            def over(*, is_killed: bool) -> None:
                if number == 1:
                    stage.put_back()
                if is_killed or number < 4:
                    begin(number + 1)

            stage.run(
                process,
                work,
                then=lambda _: over(is_killed=False),
                refused=lambda: begin(number + 1, accepts=True),
            )
            if number == 1 or accepts:
                stage.offer_kill(process, partial(over, is_killed=True))

        begin(1)
        await copied(stage, at)

    return scene


async def slowly(given: Iterable[Any], pause: float) -> AsyncIterator[Any]:
    """Yield writes with a *pause* before each."""
    for each in given:
        await asyncio.sleep(pause)
        yield each


async def retried(stage: BatchStage, process: Process) -> None:
    """Retry what failed, and copy the journal before that is sent."""
    stage.reopen(*(told.writer for told in stage.heard if not told.outcome.applied))
    await process.batch.retry(failed=True)
    stage.copy_journal()
    await stage.take(process)


async def copied(stage: BatchStage, at: tuple[float, ...]) -> None:
    """Copy the journal of p1 at one of the times *at*, unless it is over by then."""
    if at:
        await stage.at(*at, what="the journal is copied")
        if "p2" not in stage.processes:
            stage.copy_journal()


# --- files


def line_of(kind: str, key: str) -> str:
    """Return the line of a file for a write."""
    operation, arguments = {
        "rename": ("journeys.update", {"journey": "j1", "name": key}),
        "change": ("webhooks.update", {"webhook": HOOK, "description": key}),
        "create": (
            "webhooks.create",
            {"url": URL, "events": EVENTS, "description": key},
        ),
    }[kind]
    return (
        json.dumps({"operation": operation, "arguments": arguments, "key": key}) + "\n"
    )


def from_file(
    *asked: tuple[str, str],
    then: tuple[tuple[str, str], ...] = (),
    before: tuple[tuple[str, str], ...] = (),
) -> Play:
    """
    Return a scene where the input is a file, and p1 may be killed. The next one has *then* at its end.

    With *before*, the next one has these at its start, so it is another file.
    """

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked), *keys_of(before), *keys_of(then))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}")
            lines = asked if number == 1 else (*before, *asked, *then)
            stage.journal.input.write_text(
                "".join(line_of(*each) for each in lines), encoding="utf-8"
            )

            async def work(process: Process) -> None:
                await stage.take(process, stage.journal.input)

            stage.run(process, work, then=begin if number < 3 else None)
            if number == 1:
                stage.offer_kill(process, killed)

        def killed() -> None:
            stage.judge_input(keys_of(asked))
            begin(2)

        begin(1)

    return scene


A, B, C = (("rename", key) for key in "ABC")
D, E = (("change", key) for key in "DE")
F, G = (("create", key) for key in "FG")
LEFT = ("ok", "lost", "late")
JOURNAL_SCENES: tuple[Scene, ...] = (
    Scene(name="file: restored: three renames", play=restored(A, B, C, at=(1.0, 0.4, 0.8)), fates={"A": LEFT, "B": LEFT}),
    Scene(name="file: restored: fed slowly", play=restored(A, B, at=(1.5, 1.0), pause=0.7), fates={"A": LEFT}),
    Scene(name="file: restored: two changes", play=restored(D, E, at=(1.0, 0.4, 0.8)), fates={"D": LEFT, "E": LEFT}),
    Scene(name="file: restored: two creates", play=restored(F, G, at=(1.0, 0.4, 0.8)), fates={"F": LEFT, "G": LEFT}),
    Scene(name="file: restored: refused, then another", play=restored(A, D, then=(B, E), at=(1.0, 0.5, 0.8)),
          fates={"A": ("refused", "late"), "D": ("refused", "late"), "B": ("ok", "late"), "E": ("ok",)}),
    Scene(name="file: restored: retried", play=restored(A, D), fates={"A": ("refused", "late"), "D": ("refused",)}),
    Scene(name="file: input from a file: two things", play=from_file(A, D, F), fates={"A": LEFT, "D": ("ok", "late")}),
    Scene(name="file: input from a file: more lines", play=from_file(A, B, then=(C, D)),
          fates={"A": LEFT, "B": ("ok", "late")}),
    Scene(name="file: input from a file: another file", play=from_file(D, B, before=(F, G)),
          fates={"D": LEFT, "B": ("ok", "late")}),
)  # fmt: skip
