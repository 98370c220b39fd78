"""The scenes of batches that are walked."""

from __future__ import annotations

import asyncio
from contextvars import Context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from invsvc_async import Verdict
from tests.exhaustive.batches.journal_scenes import JOURNAL_SCENES, slowly
from tests.exhaustive.batches.key_scenes import KEY_SCENES
from tests.exhaustive.batches.stage import FROZEN, Play, keys_of, seed, writes
from tests.interleavings.scene import Scene

if TYPE_CHECKING:
    from tests.exhaustive.batches.stage import BatchStage, Process

LONG_AGO = 30.0  # s: no window of a write that was done before is open
FAR = datetime(2100, 1, 1, tzinfo=UTC)

# --- one process at a time


def killed(
    *asked: tuple[str, str], then: tuple[tuple[str, str], ...] = (), kills: int = 2, **settings: Any
) -> Play:
    """Return a scene where a process is killed, perhaps the next one too, and the last one runs to its end."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked), *keys_of(then))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}", **settings)
            of_this = asked if number == 1 else (*asked, *then)

            async def work(process: Process) -> None:
                await stage.take(process, writes(process, of_this))

            stage.run(process, work, then=begin if number == 1 and then else None)
            if number <= kills:
                stage.offer_kill(process, lambda: begin(number + 1))

        begin(1)

    return scene


def retried(
    *asked: tuple[str, str],
    then: tuple[tuple[str, str], ...] = (),
    force: bool = False,
    prune: bool = False,
    only: Verdict | None = None,
    **settings: Any,
) -> Play:
    """
    Return a scene where the writes that failed are retried by a second process, and a third one runs again.

    With *force*, the retried ones become the newest. With *only*, those with that verdict are retried. The second
    process may be killed.
    """

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))

        async def first(process: Process) -> None:
            await stage.take(process, writes(process, asked))

        async def second(process: Process) -> None:
            if prune:
                await asyncio.sleep(LONG_AGO)
                await process.batch.prune(done_before=FAR)
            failed = [
                told.writer
                for told in stage.heard
                if told.verdict is only or not (only or told.outcome.applied)
            ]
            stage.reopen(*failed)
            if force:
                stage.force(failed)
            await process.batch.retry(verdict=only or (), failed=only is None, force=force)
            stage.rank(*(key for key in keys_of(then) if key not in stage.ranks))
            await stage.take(process, writes(process, then))

        async def third(process: Process) -> None:
            stage.rank(*(key for key in keys_of(then) if key not in stage.ranks))
            await stage.take(process, writes(process, (*asked, *then)))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}", **(settings if number == 1 else {}))
            stage.run(process, (first, second, third)[number - 1], then=begin if number < 3 else None)
            if number == 2:
                stage.offer_kill(process, lambda: begin(3))

        begin(1)

    return scene


def retried_meanwhile(*asked: tuple[str, str]) -> Play:
    """Return a scene where what failed is retried while the rest is under way. The process may be killed."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}")

            async def work(process: Process) -> None:
                await stage.take(process, writes(process, asked))

            async def retry() -> None:
                while not stage.heard:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.3)
                stage.reopen(*(told.writer for told in stage.heard if not told.outcome.applied))
                await process.batch.retry(failed=True)

            stage.run(process, work)
            if number == 1:
                stage.start("p1/retry", retry())
                stage.offer_kill(process, lambda: begin(2))

        begin(1)

    return scene


def killed_and(*asked: tuple[str, str], prune: bool = False, then: tuple[tuple[str, str], ...] = ()) -> Play:
    """Return a scene where a process is killed, and the next one prunes, or retries what failed, before it runs."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked), *keys_of(then))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}")

            async def work(process: Process) -> None:
                if number == 2 and prune:
                    await asyncio.sleep(LONG_AGO)
                    await process.batch.prune(done_before=FAR)
                elif number == 2:
                    stage.reopen(*(told.writer for told in stage.heard if not told.outcome.applied))
                    await process.batch.retry(failed=True)
                await stage.take(process, writes(process, (*asked, *(then if number == 2 else ()))))

            stage.run(process, work, then=begin if number == 1 else None)
            if number == 1:
                stage.offer_kill(process, lambda: begin(2))

        begin(1)

    return scene


def outage(*asked: tuple[str, str], moments: tuple[float, ...], lasts: float) -> Play:
    """Return a scene where the service is away for *lasts* seconds, from one of *moments*; p1 may be killed."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}", deadline=8.0)

            async def work(process: Process) -> None:
                await stage.take(process, writes(process, asked))

            stage.run(process, work)
            if number == 1:
                stage.offer_kill(process, lambda: begin(2))

        begin(1)
        await stage.at(*moments, what="outage begins")
        stage.is_away = True
        await asyncio.sleep(lasts)
        stage.is_away = False

    return scene


def left_early(*asked: tuple[str, str]) -> Play:
    """Return a scene where the first process takes one result and ends; the next one runs to its end."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))

        def begin(number: int) -> None:
            process = stage.process(f"p{number}")

            async def work(process: Process) -> None:
                await stage.take(process, writes(process, asked), most=1 if number == 1 else None)

            stage.run(process, work, then=begin if number == 1 else None)
            if number == 1:
                stage.offer_kill(process, lambda: begin(2))

        begin(1)

    return scene


# --- several workers


def shared(
    *asked: tuple[str, str],
    helpers: int = 1,
    dies: str = "",
    freezes: str = "",
    slow: int = 0,
    apart: float = 0.3,
    frozen: float = FROZEN,
    pause: float = 0.0,
) -> Play:
    """
    Return a scene where p1 has the input, and *helpers* work beside it.

    One may be killed, or *frozen* for longer than its lease. *slow* is how many transactions may take long, and
    *pause* how long each takes over a result. A last worker begins when all that is over, and runs to the end.
    """

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))
        stage.slow = slow
        one, *others = (stage.process(f"p{number}") for number in range(1, helpers + 2))

        async def feed(process: Process) -> None:
            await stage.take(process, writes(process, asked), pause=pause)

        async def help_out(process: Process) -> None:
            await stage.take(process, pause=pause)

        async def finish(process: Process) -> None:
            await stage.take(process, writes(process, asked))

        def last() -> None:
            stage.run(stage.process(f"p{helpers + 2}"), finish)

        stage.run(one, feed)
        for number, other in enumerate(others, 1):
            stage.loop.call_later(number * apart, stage.run, other, help_out, context=Context())
        stage.loop.call_later(2 * FROZEN, last, context=Context())
        for process in (one, *others):
            if process.name in dies.split():
                stage.offer_kill(process)
            if process.name in freezes.split():
                stage.offer_freeze(process, frozen)

    return scene


def fed_slowly(*asked: tuple[str, str], pause: float) -> Play:
    """Return a scene where p1 has an input with pauses, and p2 works beside it, so that both have lanes; p1 may be killed."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))
        one, two = stage.process("p1"), stage.process("p2")

        async def feed(process: Process) -> None:
            await stage.take(process, slowly(writes(process, asked), pause))

        async def lasting(process: Process) -> None:
            await stage.take(process, lasting=True)

        async def last(process: Process) -> None:
            await two.batch.stop(0.0)
            await stage.take(process, writes(process, asked))

        stage.run(one, feed)
        stage.run(two, lasting)
        stage.loop.call_later(FROZEN, stage.run, stage.process("p3"), last, context=Context())
        stage.offer_kill(one)

    return scene


def one_after_the_other(*asked: tuple[str, str], then: tuple[tuple[str, str], ...]) -> Play:
    """Return a scene where p1 ends with an unknown result, and p2 then feeds *then*; the windows may be open."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked), *keys_of(then))

        async def first(process: Process) -> None:
            await stage.take(process, writes(process, asked))

        async def second(process: Process) -> None:
            await stage.take(process, writes(process, then))

        def begin(_number: int) -> None:
            stage.run(stage.process("p2"), second)

        stage.run(stage.process("p1", deadline=1.0), first, then=begin)

    return scene


def both_feed(
    one: tuple[tuple[str, str], ...], two: tuple[tuple[str, str], ...], apart: float, *, slow: int = 0
) -> Play:
    """
    Return a scene where two workers have an input each, with writes to the same things, or the same writes.

    *slow* is how many transactions may take long.
    """

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(one), *keys_of(two))
        stage.by_journal, stage.slow = True, slow

        def begin(name: str, asked: tuple[tuple[str, str], ...]) -> None:
            async def feed(process: Process) -> None:
                await stage.take(process, writes(process, asked))

            stage.run(stage.process(name), feed)

        begin("p1", one)
        stage.loop.call_later(apart, begin, "p2", two, context=Context())
        stage.loop.call_later(2 * FROZEN, begin, "p3", tuple(dict.fromkeys((*one, *two))), context=Context())
        stage.offer_kill(stage.processes["p1"])

    return scene


def retried_beside(*asked: tuple[str, str], force: bool = False) -> Play:
    """Return a scene where failed writes are retried by another process while a worker waits for work."""

    async def scene(stage: BatchStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))
        one, two = stage.process("p1"), stage.process("p2")

        async def lasting(process: Process) -> None:
            await stage.take(process, lasting=True)

        async def feed(process: Process) -> None:
            await stage.take(process, writes(process, asked[:-1]))
            failed = [told.writer for told in stage.heard if not told.outcome.applied]
            stage.reopen(*failed)
            if force:
                stage.force(failed)
            await process.batch.retry(failed=True, force=force)
            if force:
                stage.rank(asked[-1][1])
            await stage.take(process, writes(process, asked))
            stage.withdraw("freeze p1")
            stage.loop.call_later(2 * FROZEN, stage.start, "p1/stop", one.batch.stop(0.0), context=Context())

        stage.run(one, lasting)
        stage.run(two, feed)
        stage.offer_freeze(one)

    return scene


def _scene(name: str, play: Any, fates: dict[str, tuple[str, ...]], **settings: Any) -> Scene:
    return Scene(name=name, play=play, fates=fates, **settings)


ENDS = ("ok", "lost", "landed", "late", "500 late", "unsent")
LEFT = ("ok", "lost", "late")
A, B, C = (("rename", key) for key in "ABC")
D, E = (("change", key) for key in "DE")
F = ("create", "F")
SCENES: tuple[Scene, ...] = (
    *JOURNAL_SCENES,
    *KEY_SCENES,
    _scene("file: killed: two renames", killed(A, B), {"A": ENDS, "B": LEFT}),
    _scene("file: killed: two changes", killed(D, E), {"D": LEFT, "E": ("ok", "late")}),
    _scene("file: killed: two creates", killed(("create", "F"), ("create", "G")), {"F": LEFT, "G": LEFT}),
    _scene("file: killed: two creates without tags", killed(("create", "F"), ("create", "G"), tag=False),
           {"F": LEFT, "G": ("ok", "late")}),
    _scene("file: killed: two things, one at a time", killed(A, D, B, E, concurrency=1, kills=1),
           {"A": LEFT, "D": ("ok", "late")}),
    _scene("file: killed: then a third rename", killed(A, B, then=(C,)), {"A": LEFT, "B": LEFT}),
    _scene("file: unknown: then another rename", killed(A, then=(B,), deadline=1.0),
           {"A": ("lost", "late", "landed")}),
    _scene("file: retried: a refused one, and a newer one", retried(A, B),
           {"A": ("refused", "lost", "late"), "B": ("ok", "late")}),
    _scene("file: retried: with another one after it", retried(A, B, then=(C,)),
           {"A": ("refused", "late"), "B": ("ok", "refused"), "C": ("ok", "late")}),
    _scene("file: retried: with force", retried(A, B, then=(C,), force=True),
           {"A": ("refused", "late"), "B": ("ok", "refused"), "C": ("ok", "late")}),
    _scene("file: retried: unknown ones", retried(A, B, deadline=1.0),
           {"A": ("lost", "late", "landed"), "B": ("ok", "late")}),
    _scene("file: retried: a refused one, and a newer unknown one",
           retried(A, B, only=Verdict.REFUSED, deadline=1.0), {"A": ("refused",), "B": ("landed", "late", "lost")}),
    _scene("file: retried: after a prune", retried(A, B, prune=True, then=(C,), deadline=1.0),
           {"A": ("lost", "late", "refused"), "B": ("ok", "late"), "C": ("ok", "late")}),
    _scene("file: retried: while another one is under way", retried_meanwhile(A, B), {"A": ("refused",), "B": ("late",)}),
    _scene("file: killed and retried", killed_and(A, B, then=(C,)),
           {"A": ("refused", "late"), "B": ("ok", "late"), "C": ("ok", "late")}),
    _scene("file: killed and pruned", killed_and(A, B, then=(C,), prune=True),
           {"A": ("refused", "late"), "B": ("ok", "late")}),
    _scene("file: outage", outage(A, B, D, moments=(0.0, 0.12, 3.0), lasts=12.0),
           {"A": ("ok", "late", "landed"), "B": ("ok", "late"), "D": ("ok", "lost")}),
    _scene("file: left early: two renames", left_early(A, B, D), {"A": LEFT, "B": LEFT}),
    _scene("database: killed: the one that feeds", shared(A, B, dies="p1"),
           {"A": LEFT, "B": ("ok", "late")}),
    _scene("database: killed: the other one", shared(A, B, D, dies="p2"), {"A": LEFT, "D": ("ok", "late")}),
    _scene("database: frozen: the one that feeds", shared(A, B, freezes="p1"),
           {"A": LEFT, "B": ("ok", "late")}),
    _scene("database: frozen: for a moment", shared(A, B, freezes="p1", frozen=3.0),
           {"A": ("slow", "late"), "B": ("ok",)}),
    _scene("database: killed: beside two workers",
           shared(A, D, helpers=2, dies="p1", freezes="p2", apart=0.1), {"A": ("ok", "late")}),
    _scene("database: read slowly", shared(A, B, freezes="p1", frozen=3.0, pause=2.0, apart=0.5), {"A": ("ok",)}),
    _scene("database: slow", shared(A, B, slow=1, apart=0.01), {"A": LEFT}),
    _scene("database: unknown: then another rename", one_after_the_other(A, D, then=(B, E)),
           {"A": ("late", "lost"), "D": ("late", "ok"), "B": ("ok", "late")}),
    _scene("database: both feed", both_feed((A, D), (B, E), 0.15), {"A": LEFT, "D": ("ok", "late")}),
    _scene("database: fed slowly", fed_slowly(A, C, D, pause=2.0), {"A": ("late", "slow"), "C": ("ok",)}),
    _scene("database: helped", shared(D, A, F), {"F": ("slow", "late"), "D": ("late",), "A": ("slow",)}),
    _scene("database: both feed the same", both_feed((A, D), (A, D), 0.0, slow=1), {"A": LEFT}),
    _scene("database: retried: a worker waits", retried_beside(A, B, C),
           {"A": ("refused", "late"), "B": ("ok", "refused")}),
    _scene("database: retried: with force", retried_beside(A, B, C, force=True),
           {"A": ("refused", "late"), "B": ("ok", "refused")}),
)  # fmt: skip
