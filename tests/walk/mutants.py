"""
Wrong lines of the package, each with the rule that a walk must find broken, and what is walked for it.

    python -m tests.walk.mutants [PART OF A NAME …]

A line of the list is ``NAME | FILE | RULES | JOURNALS | USES | WITHOUT``, each of the last four with commas.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.mutation import in_process, judge, mutants_in
from tests.walk.__main__ import quiet
from tests.walk.walk import Asked, walk

if TYPE_CHECKING:
    from tests.support.mutation import Mutant

SECONDS = 600.0  # of walking until it counts as not noticed
MUTANTS = mutants_in(Path(__file__).with_name("mutants.patches"))


def caught(mutant: Mutant, *, seconds: float = SECONDS, most: int = 10**9) -> str | None:
    """Return what was found broken with *mutant*, and in which history, or ``None``."""
    rules, journals, uses, without = (
        tuple(part for part in text.split(",") if part) for text in mutant.where
    )
    asked = Asked(journals=journals, uses=uses, without=without, rules=rules)  # type: ignore[arg-type]
    with in_process(mutant):
        found = walk(asked, 1, seconds=seconds, most=most, stop_at=1)
    if not found.broken:
        return None
    broken = found.broken[0]
    return f"{broken.words} (history {found.histories:,}, seed {broken.seed})"


if __name__ == "__main__":
    quiet()
    sys.exit(judge(MUTANTS, sys.argv[1:], caught))
