"""
Walk the scenes of batches from the command line, and print what was found; exit 1 if a rule is broken.

    python -m tests.exhaustive.batches [PART OF A NAME …] [--bound 2] [--most 5000]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.exhaustive.batches.play import play
from tests.exhaustive.batches.scenes import SCENES
from tests.interleavings.walk import walk


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.exhaustive.batches", description=__doc__
    )
    parser.add_argument("scenes", nargs="*", help="parts of names; default: all")
    parser.add_argument(
        "--bound", type=int, default=None, help="how far from the default"
    )
    parser.add_argument(
        "--most", type=int, default=10**9, help="executions of each scene"
    )
    options = parser.parse_args(arguments)
    # each pause of a batch is a warning
    logging.getLogger("invsvc_async").setLevel(logging.ERROR)
    worst, walked = 0, 0
    for scene in SCENES:
        if options.scenes and not any(part in scene.name for part in options.scenes):
            continue
        begun = time.monotonic()
        found = walk(scene, bound=options.bound, most=options.most, play=play)
        sys.stdout.write(f"[{time.monotonic() - begun:.1f} s] {found}\n")
        sys.stdout.flush()
        walked += found.walked
        worst = max(worst, bool(found.broken))
    sys.stdout.write(f"{walked:,} executions of batches\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
