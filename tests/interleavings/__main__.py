"""
Walk scenes from the command line, as far as asked, and print what was found; exit 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.interleavings.scene_list import SCENES
from tests.interleavings.walk import walk


def main(arguments: list[str] | None = None) -> int:
    """Walk and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interleavings", description=__doc__
    )
    parser.add_argument("scenes", nargs="*", help="parts of names; default: all")
    parser.add_argument(
        "--bound",
        type=int,
        default=None,
        help="how far from the default (default: each scene's)",
    )
    parser.add_argument(
        "--most", type=int, default=10**9, help="executions of each scene"
    )
    parser.add_argument(
        "--first",
        type=int,
        default=None,
        help="stop a scene at the first break of this rule",
    )
    options = parser.parse_args(arguments)
    worst = 0
    for scene in SCENES:
        if options.scenes and not any(part in scene.name for part in options.scenes):
            continue
        begun = time.monotonic()
        found = walk(scene, bound=options.bound, most=options.most, first=options.first)
        sys.stdout.write(f"[{time.monotonic() - begun:.1f} s] {found}\n")
        sys.stdout.flush()
        worst = max(worst, bool(found.broken))
    return worst


if __name__ == "__main__":
    sys.exit(main())
