"""
Wrong lines of batches, each with the scenes that must notice it, and the rule that it breaks.

    python -m tests.exhaustive.batches.mutants [PART OF A NAME, OR OF A SCENE'S …]
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.exhaustive.batches.play import play
from tests.exhaustive.batches.scenes import SCENES
from tests.interleavings.walk import walk
from tests.support.mutation import in_process, judge, mutants_in

if TYPE_CHECKING:
    from tests.support.mutation import Mutant

MOST = 400  # executions of a scene, at most
MUTANTS = mutants_in(Path(__file__).with_name("mutants.patches"))


def caught(mutant: Mutant, most: int = MOST) -> str | None:
    """Return the name of a scene that notices *mutant*, or ``None``."""
    where, rule = mutant.where
    scenes = [scene for scene in SCENES if scene.name.startswith(where)]
    if not scenes:
        raise LookupError(f"{mutant.name}: there is no scene {where!r}")
    with in_process(mutant):
        for scene in scenes:
            if walk(scene, bound=1, most=most, first=int(rule), play=play).broken:
                return scene.name
    return None


if __name__ == "__main__":
    logging.getLogger("invsvc_async").setLevel(logging.CRITICAL)
    sys.exit(judge(MUTANTS, sys.argv[1:], caught))
