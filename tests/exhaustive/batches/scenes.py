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
    from collections.abc import Callable, Coroutine, Iterable

    from tests.exhaustive.batches.stage import BatchStage, Process

    Work = Callable[[Process], Coroutine[Any, Any, None]]

LONG_AGO = 30.0  # s: no window of a write that was done before is open
FAR = datetime(2100, 1, 1, tzinfo=UTC)

Asked = tuple[tuple[str, str], ...]  # kinds and keys of writes


def taking(stage: BatchStage, asked: Asked | None, **how: Any) -> Work:
    """Return what a process does that runs its batch over *asked*, or without an input, and takes the results."""

    async def work(process: Process) -> None:
        given = () if asked is None else (writes(process, asked),)
        await stage.take(process, *given, **how)

    return work


def ranked(stage: BatchStage, *asked: Asked) -> None:
    """Store the things, and let the order of the writes be that of *asked*."""
    seed(stage)
    stage.rank(*(key for each in asked for key in keys_of(each)))


# --- one process at a time


def relay(
    stage: BatchStage,
    *works: Work,
    goes_on: Iterable[int] = (1,),
    dies: Iterable[int] = (1,),
    of_all: bool = True,
    **settings: Any,
) -> None:
    """
    Run processes one after the other, each with its work; the last work is that of all later ones.

    The next one begins when one with a number in *goes_on* ends, or one with a number in *dies* is killed.  The
    *settings* are those of all processes, or of the first one.
    """

    def begin(number: int) -> None:
        process = stage.process(
            f"p{number}", **(settings if of_all or number == 1 else {})
        )
        work = works[min(number, len(works)) - 1]
        stage.run(process, work, then=begin if number in goes_on else None)
        if number in dies:
            stage.offer_kill(process, lambda: begin(number + 1))

    begin(1)


def killed(
    *asked: tuple[str, str], then: Asked = (), kills: int = 2, **settings: Any
) -> Play:
    """Return a scene where a process is killed, perhaps the next one too, and the last one runs to its end."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked, then)
        works = taking(stage, asked), taking(stage, (*asked, *then))
        relay(
            stage,
            *works,
            goes_on=(1,) if then else (),
            dies=range(1, kills + 1),
            **settings,
        )

    return scene


def retried(
    *asked: tuple[str, str],
    then: Asked = (),
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
        def rank_rest() -> None:
            stage.rank(*(key for key in keys_of(then) if key not in stage.ranks))

        async def second(process: Process) -> None:
            if prune:
                await long_after(process)
            failed = [
                told.writer
                for told in stage.heard
                if told.verdict is only or not (only or told.outcome.applied)
            ]
            stage.reopen(*failed)
            if force:
                stage.force(failed)
            await process.batch.retry(
                verdict=only or (), failed=only is None, force=force
            )
            rank_rest()
            await stage.take(process, writes(process, then))

        async def third(process: Process) -> None:
            rank_rest()
            await stage.take(process, writes(process, (*asked, *then)))

        ranked(stage, asked)
        relay(
            stage,
            taking(stage, asked),
            second,
            third,
            goes_on=(1, 2),
            dies=(2,),
            of_all=False,
            **settings,
        )

    return scene


async def long_after(process: Process) -> None:
    """Prune once no window of a write that was done before is open."""
    await asyncio.sleep(LONG_AGO)
    await process.batch.prune(done_before=FAR)


async def retry_failed(stage: BatchStage, process: Process) -> None:
    """Retry what somebody was told of as not applied."""
    stage.reopen(*(told.writer for told in stage.heard if not told.outcome.applied))
    await process.batch.retry(failed=True)


def retried_meanwhile(*asked: tuple[str, str]) -> Play:
    """Return a scene where what failed is retried while the rest is under way. The process may be killed."""

    async def scene(stage: BatchStage) -> None:
        async def retry() -> None:
            while not stage.heard:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.3)
            await retry_failed(stage, stage.processes["p1"])

        ranked(stage, asked)
        relay(stage, taking(stage, asked), goes_on=())
        stage.start("p1/retry", retry())

    return scene


def killed_and(*asked: tuple[str, str], prune: bool = False, then: Asked = ()) -> Play:
    """Return a scene where a process is killed, and the next one prunes, or retries what failed, before it runs."""

    async def scene(stage: BatchStage) -> None:
        async def second(process: Process) -> None:
            await (long_after(process) if prune else retry_failed(stage, process))
            await stage.take(process, writes(process, (*asked, *then)))

        ranked(stage, asked, then)
        relay(stage, taking(stage, asked), second)

    return scene


def outage(*asked: tuple[str, str], moments: tuple[float, ...], lasts: float) -> Play:
    """Return a scene where the service is away for *lasts* seconds, from one of *moments*; p1 may be killed."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked)
        relay(stage, taking(stage, asked), goes_on=(), deadline=8.0)
        await stage.at(*moments, what="outage begins")
        stage.is_away = True
        await asyncio.sleep(lasts)
        stage.is_away = False

    return scene


def left_early(*asked: tuple[str, str]) -> Play:
    """Return a scene where the first process takes one result and ends; the next one runs to its end."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked)
        relay(stage, taking(stage, asked, most=1), taking(stage, asked))

    return scene


# --- several workers


def later(stage: BatchStage, seconds: float, name: str, work: Work) -> None:
    """Begin a process after some *seconds*."""
    stage.loop.call_later(
        seconds, lambda: stage.run(stage.process(name), work), context=Context()
    )


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
        ranked(stage, asked)
        stage.slow = slow
        one, *others = (stage.process(f"p{number}") for number in range(1, helpers + 2))
        stage.run(one, taking(stage, asked, pause=pause))
        for number, other in enumerate(others, 1):
            help_out = taking(stage, None, pause=pause)
            stage.loop.call_later(
                number * apart, stage.run, other, help_out, context=Context()
            )
        later(stage, 2 * FROZEN, f"p{helpers + 2}", taking(stage, asked))
        for process in (one, *others):
            if process.name in dies.split():
                stage.offer_kill(process)
            if process.name in freezes.split():
                stage.offer_freeze(process, frozen)

    return scene


def fed_slowly(*asked: tuple[str, str], pause: float) -> Play:
    """Return a scene where p1 has an input with pauses, and p2 works beside it, so that both have lanes; p1 may be killed."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked)
        one, two = stage.process("p1"), stage.process("p2")

        async def feed(process: Process) -> None:
            await stage.take(process, slowly(writes(process, asked), pause))

        async def last(process: Process) -> None:
            await two.batch.stop(0.0)
            await stage.take(process, writes(process, asked))

        stage.run(one, feed)
        stage.run(two, taking(stage, None, lasting=True))
        stage.loop.call_later(
            FROZEN, stage.run, stage.process("p3"), last, context=Context()
        )
        stage.offer_kill(one)

    return scene


def one_after_the_other(*asked: tuple[str, str], then: Asked) -> Play:
    """Return a scene where p1 ends with an unknown result, and p2 then feeds *then*; the windows may be open."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked, then)
        works = taking(stage, asked), taking(stage, then)
        relay(stage, *works, dies=(), of_all=False, deadline=1.0)

    return scene


def both_feed(one: Asked, two: Asked, apart: float, *, slow: int = 0) -> Play:
    """
    Return a scene where two workers have an input each, with writes to the same things, or the same writes.

    *slow* is how many transactions may take long.
    """

    async def scene(stage: BatchStage) -> None:
        ranked(stage, one, two)
        stage.by_journal, stage.slow = True, slow
        stage.run(stage.process("p1"), taking(stage, one))
        later(stage, apart, "p2", taking(stage, two))
        later(
            stage, 2 * FROZEN, "p3", taking(stage, tuple(dict.fromkeys((*one, *two))))
        )
        stage.offer_kill(stage.processes["p1"])

    return scene


def retried_beside(*asked: tuple[str, str], force: bool = False) -> Play:
    """Return a scene where failed writes are retried by another process while a worker waits for work."""

    async def scene(stage: BatchStage) -> None:
        ranked(stage, asked)
        one, two = stage.process("p1"), stage.process("p2")

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
            stage.loop.call_later(
                2 * FROZEN,
                stage.start,
                "p1/stop",
                one.batch.stop(0.0),
                context=Context(),
            )

        stage.run(one, taking(stage, None, lasting=True))
        stage.run(two, feed)
        stage.offer_freeze(one)

    return scene


def _scene(
    name: str, play: Any, fates: dict[str, tuple[str, ...]], **settings: Any
) -> Scene:
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
