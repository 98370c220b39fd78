"""
A soak of writes to few things in virtual time: each verdict is held against the effects of its own write.

    python -m tests.soak.siblings [--writes 1000000] [--seeds 20] [--processes 2] [--tls]
    python -m tests.soak.siblings --seed 7 [--writes 50000] [--world NAME] [--tls]
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import attrs

from tests.soak.report import Report, report_of, table
from tests.soak.soak import soak
from tests.soak.world import WORLDS, world_of
from tests.support.virtual_time import run_jumping

STORIES = 3  # of each kind of fault that are told in full


def one_seed(
    seed: int, *, writes: int, world: str | None = None, tls: bool = False
) -> Report:
    """Run one seed, and judge it."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 20, 50)
    try:
        return _one_seed(seed, writes, world, tls=tls)
    finally:
        gc.set_threshold(*usual)
        gc.collect()  # what a seed leaves would be gigabytes after some seeds


def _one_seed(seed: int, writes: int, world: str | None, *, tls: bool) -> Report:
    chosen = (
        world_of(seed)
        if world is None
        else next(each for each in WORLDS if each.name == world)
    )
    cpu, begun = time.process_time(), time.monotonic()
    soaked = run_jumping(
        lambda loop: soak(loop, chosen, seed=seed, writes=writes, tls=tls)
    )
    cpu = time.process_time() - cpu
    report = report_of(seed, chosen, soaked, stories=STORIES)
    return attrs.evolve(report, cpu=cpu, real=time.monotonic() - begun)


def main() -> None:
    """Run the seeds that were asked for; the exit code is 1 if there was any fault."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument(
        "--writes", type=int, default=None, help="of all seeds together"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--world", choices=[each.name for each in WORLDS])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tls", action="store_true", help="serve over TLS")
    asked = parser.parse_args()
    if asked.seed is not None:
        reports = [
            one_seed(
                asked.seed,
                writes=asked.writes or 50_000,
                world=asked.world,
                tls=asked.tls,
            )
        ]
        _tell(reports[0])
    else:
        each = -(-(asked.writes or 1_000_000) // asked.seeds)
        seeds = range(asked.first, asked.first + asked.seeds)
        reports = []
        with ProcessPoolExecutor(
            asked.processes, mp_context=get_context("spawn")
        ) as pool:
            for report in pool.map(
                partial(one_seed, writes=each, world=asked.world, tls=asked.tls), seeds
            ):
                _tell(report)
                reports.append(report)
    sys.stdout.write(table(reports) + "\n")
    sys.exit(any(report.faults for report in reports))


def _tell(report: Report) -> None:
    sys.stdout.write(report.text() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
