"""
Walk many worlds on all cores and count distinct histories by write and verdict.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING

import attrs

from invsvc_async.reconcile.history import Verdict
from tests.exhaustive.walk import Found, Walk, shipped
from tests.exhaustive.world_list import LARGE, SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.reconcile.history import History

CUT = 20_000  # histories of one task in a larger world
BUNDLES = 24  # tasks that share the small worlds


@attrs.frozen
class Task:
    """Worlds to walk in one process, by their places in the lists: small ones whole, a large one for a while."""

    small: tuple[int, ...] = ()
    large: int = 0
    seed: int = 0
    until: float = 0.0  # of the monotonic clock, which the processes of a machine share


@attrs.define
class Census:
    """How many distinct histories were walked, by write and verdict, and what was found to be broken."""

    signs: dict[tuple[str, str], set[int]] = attrs.field(factory=dict)
    walked: int = 0
    whole: int = 0
    broken: list[tuple[str, str, History]] = attrs.field(factory=list)

    def add(self, write: str, found: Found) -> None:
        """Count what one walk found."""
        for verdict, signs in found.signs.items():
            self.signs.setdefault((write, verdict), set()).update(signs)
        self.walked += found.walked
        self.whole += found.whole
        self.broken.extend(found.broken)

    @property
    def distinct(self) -> int:
        """Return how many different histories there were."""
        return sum(map(len, self.signs.values()))

    def table(self) -> str:
        """Lay the counts out, a line a write."""
        verdicts = [str(verdict) for verdict in Verdict]
        writes = sorted({write for write, _ in self.signs})
        rows = [["distinct histories", *verdicts, "all"]]
        for write in writes:
            counts = [len(self.signs.get((write, verdict), ())) for verdict in verdicts]
            rows.append([write, *(f"{count:,}" for count in (*counts, sum(counts)))])
        rows.append(["all", *[""] * len(verdicts), f"{self.distinct:,}"])
        return "\n".join(
            f"{row[0]:30}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows
        )


def work(task: Task) -> list[tuple[str, Found]]:
    """Do one task, in a process of its own."""
    # a walk makes no cycles, and an eighth of its time would be looking for them
    gc.set_threshold(100_000)
    subject = shipped()
    if task.small:
        return [
            (_write(SMALL[place].name), Walk(SMALL[place], subject).whole())
            for place in task.small
        ]
    setup = LARGE[task.large]
    walk = Walk(setup, subject)
    if task.seed % 8:
        found = walk.cut(task.seed, until=task.until, most=CUT)
    else:
        found = walk.at_random(task.seed, until=task.until, most=CUT // 10)
    return [(_write(setup.name), found)]


def _write(name: str) -> str:
    return name.rpartition(":")[0]


def take(
    *,
    histories: int = 0,
    seconds: float = 0.0,
    processes: int | None = None,
) -> Census:
    """Walk the small worlds, then larger ones until *histories* are found or *seconds* are over."""
    census, until = Census(), time.monotonic() + seconds
    count = processes or os.cpu_count() or 1
    small = (
        Task(small=tuple(range(start, len(SMALL), BUNDLES))) for start in range(BUNDLES)
    )
    large = (
        Task(large=seed % len(LARGE), seed=seed, until=until)
        for seed in itertools.count(1)
    )
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        _run(pool, census, small, 2 * count)
        _run(
            pool,
            census,
            itertools.takewhile(
                lambda _: census.distinct < histories and time.monotonic() < until,
                large,
            ),
            2 * count,
        )
    return census


def _run(
    pool: ProcessPoolExecutor, census: Census, tasks: Iterator[Task], ahead: int
) -> None:
    """Keep *ahead* tasks under way until there are no more."""
    running: set[Future[list[tuple[str, Found]]]] = set()
    while True:
        running.update(
            pool.submit(work, task)
            for task in itertools.islice(tasks, ahead - len(running))
        )
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            for write, found in future.result():
                census.add(write, found)
