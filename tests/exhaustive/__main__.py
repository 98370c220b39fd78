"""
Walk histories from the command line and print how many there were; exit 1 where a rule is broken.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.exhaustive.count_histories import take
from tests.exhaustive.describe import tell


def main(arguments: list[str] | None = None) -> int:
    """Walk, print, and tell whether every rule held and enough was walked."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.exhaustive", description=__doc__
    )
    parser.add_argument(
        "--histories",
        type=int,
        default=0,
        help="distinct histories to reach in larger worlds",
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="time for the larger worlds"
    )
    parser.add_argument(
        "--processes", type=int, default=None, help="default: one a core"
    )
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    census = take(
        histories=options.histories,
        seconds=options.seconds,
        processes=options.processes,
    )
    say = sys.stdout.write
    say(f"{census.table()}\n")
    say(
        f"{census.walked:,} histories walked in {time.monotonic() - begun:.0f} s, {census.whole} worlds whole"
    )
    for setup, rule, history in census.broken:
        say(f"{tell(setup, rule, history)}\n")
    return 1 if census.broken or census.distinct < options.histories else 0


if __name__ == "__main__":
    sys.exit(main())
