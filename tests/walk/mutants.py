"""
Wrong lines of the package, each of which the walk must notice.

    python -m tests.walk.mutants [--seconds N] [--seed S] [--store FOLDER] [PART OF A NAME …]

walks until each is noticed, prints how long that took, and stores the shortest program that shows it.  The
tests play the stored programs alone.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.mutation import in_process, judge, mutants_in
from tests.walk.__main__ import TO_SHRINK, quiet
from tests.walk.play import play
from tests.walk.program import read
from tests.walk.walk import Asked, as_text, smallest, walk

if TYPE_CHECKING:
    from tests.support.mutation import Mutant

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
MUTANTS = mutants_in(HERE / "mutants.patches")


def shown(mutant: Mutant) -> list[str]:
    """Return what the stored program of *mutant* breaks with it."""
    program = read(PROGRAMS / f"{mutant.where[0]}.json")
    with in_process(mutant):
        _, wrong = play(program)
    return wrong


def noticed(
    mutant: Mutant, *, seconds: float, seed: int, store: Path | None
) -> str | None:
    """Walk until *mutant* breaks a rule, and store the shortest program; return what it breaks, or ``None``."""
    name, journal, use, *rules = mutant.where
    asked = Asked(journals=(journal,), uses=(use,), rules=tuple(rules))  # type: ignore[arg-type]
    with in_process(mutant):
        found = walk(asked, seed * 10**7, seconds=seconds, stop_at=1)
        if not found.broken:
            return None
        program, _ = smallest(found.broken[0], within=TO_SHRINK)
    if store is not None:
        (store / f"{name}.json").write_text(as_text(program), encoding="utf-8")
    return f"{found.broken[0].words:.70} after {found.histories:,} histories, {found.seconds:.0f} s"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.walk.mutants")
    parser.add_argument("--seconds", type=float, default=600.0, help="to notice each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--store", type=Path, default=None, help="a folder for the shortest programs"
    )
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args(arguments)
    quiet()
    by_walk = partial(
        noticed, seconds=options.seconds, seed=options.seed, store=options.store
    )
    return judge(MUTANTS, options.parts, by_walk)


if __name__ == "__main__":
    sys.exit(main())
