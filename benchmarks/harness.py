"""
Compare ways of doing one thing by blocks that alternate in one process: ratios then hold on a busy machine.

A round runs one block of each way, in an order that is shuffled anew.  Two ways are compared by the median,
over all rounds, of the ratio of their blocks in the same round; a bootstrap over the rounds gives its 95 %
interval.  Such an interval is too narrow, because all blocks of a process share its memory layout and its
minute: the interval of several runs (``interval``) is that of their medians.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import resource
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from benchmarks import meter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = [
    "Ratio",
    "Row",
    "Samples",
    "alternate",
    "at_once",
    "interval",
    "ratio_of",
    "resident",
    "spend",
]

# cost of a call in seconds or, where they are counted, 10^9 instructions, one for each round, by way
Samples = dict[str, list[float]]

_RESAMPLED = 2000
# Student's t at 97.5 %, by degrees of freedom from 1; beyond 10, its value at 10 is a safe bound.
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@attrs.frozen
class Ratio:
    """How much one way costs against another: the median, and the bounds of its 95 % interval."""

    median: float
    low: float
    high: float


@attrs.frozen(kw_only=True)
class Row:
    """
    One line of the table.

    *limit* bounds *ratio* from above, or (``sense="least"``) from below; *reach* is what it would like to be.
    *note* says what was compared, or why nothing could be.
    """

    what: str
    against: str
    limit: float
    reach: float | None = None
    sense: Literal["most", "least"] = "most"
    ratio: Ratio | None = None
    note: str = ""
    runs: tuple[float, ...] = ()  # the median of each run, if there were several

    @property
    def holds(self) -> bool | None:
        """Whether the median keeps the target; ``None`` where nothing was measured."""
        if self.ratio is None:
            return None
        return (
            self.ratio.median <= self.limit
            if self.sense == "most"
            else self.ratio.median >= self.limit
        )

    @property
    def verdict(self) -> str:
        """One or two words for the table."""
        return {None: "not measured", True: "holds", False: "MISSED"}[self.holds]


def ratio_of(samples: Samples, way: str, base: str) -> Ratio:
    """Compare two ways of one run, round by round."""
    ratios = [
        one / other for one, other in zip(samples[way], samples[base], strict=True)
    ]
    chance = random.Random(len(ratios))
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios)))
        for _ in range(_RESAMPLED)
    )
    cut = _RESAMPLED // 40
    return Ratio(statistics.median(ratios), medians[cut], medians[-cut - 1])


def interval(runs: Sequence[float]) -> Ratio:
    """Return the median of several runs' ratios, and the 95 % interval of their geometric mean."""
    logs = [math.log(run) for run in runs]
    if len(logs) < 2:
        return Ratio(runs[0], 0.0, math.inf)
    mean, degrees = statistics.fmean(logs), len(logs) - 1
    wide = (
        _STUDENT[min(degrees, len(_STUDENT)) - 1]
        * statistics.stdev(logs)
        / math.sqrt(len(logs))
    )
    return Ratio(statistics.median(runs), math.exp(mean - wide), math.exp(mean + wide))


def alternate(
    ways: Mapping[str, Callable[[], object]], *, rounds: int, calls: int
) -> Samples:
    """Run *rounds* blocks of *calls* calls of each way; the cost is that of the meter."""
    samples: Samples = {name: [] for name in ways}
    for way in ways.values():
        way()
    for order in _orders(ways, rounds):
        for name in order:
            way = ways[name]
            gc.collect()
            meter.restart()
            for _ in range(calls):
                way()
            samples[name].append(meter.spent() / calls / 1e9)
    return samples


async def at_once(
    ways: Mapping[str, Callable[[], Awaitable[object]]],
    *,
    rounds: int,
    calls: int,
    together: int,
) -> Samples:
    """Run *rounds* blocks of *calls* calls of each way, *together* at once; the cost is that of the meter."""
    samples: Samples = {name: [] for name in ways}
    for way in ways.values():
        await spend(way, calls=calls // 2, together=together)
    for order in _orders(ways, rounds):
        for name in order:
            samples[name].append(
                await spend(ways[name], calls=calls, together=together)
            )
    return samples


async def spend(
    way: Callable[[], Awaitable[object]], *, calls: int, together: int
) -> float:
    """Return the cost of a call of *way* in one block."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await way()

    gc.collect()
    meter.restart()
    async with asyncio.TaskGroup() as group:
        for _ in range(together):
            group.create_task(worker())
    return meter.spent() / calls / 1e9


def _orders(ways: Mapping[str, object], rounds: int) -> Sequence[list[str]]:
    chance = random.Random(rounds)
    return [chance.sample(list(ways), len(ways)) for _ in range(rounds)]


def resident() -> int:
    """Return the memory of this process in bytes, as the system sees it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
