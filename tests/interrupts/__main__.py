"""
Interrupt keyed writes at every place, or at each *STEP*-th, and print what is wrong.

    python -m tests.interrupts [--step N] [--journal file|database] [--kind create|update]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.interrupts.program import World
from tests.interrupts.trial import KINDS, Trials, watched


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--most", type=int, default=10**9)
    parser.add_argument("--journal", choices=["file", "database"])
    parser.add_argument("--kind", choices=["create", "update"])
    asked = parser.parse_args()
    found = 0
    for journal in [asked.journal] if asked.journal else ["file", "database"]:
        for kind in [asked.kind] if asked.kind else ["create", "update"]:
            for goes_on in (False, True):
                for was_sent in (False, True):
                    found += _walk(
                        journal, kind, asked, goes_on=goes_on, was_sent=was_sent
                    )
    return int(found > 0)


def _walk(journal: str, kind: str, asked: argparse.Namespace, **how: bool) -> int:
    begun, found = time.monotonic(), 0
    world = World(in_real_time=journal == "database")
    with tempfile.TemporaryDirectory() as folder, watched():
        if journal == "database":
            from tests.support.database import database

            def address(_):
                return database().at(journal=f"interrupts_{kind}", silence=1)
        else:

            def address(number):
                return Path(folder) / f"{number}.db"

        trials = Trials(world, address, kind, **how)
        places = trials.places()
        for place in range(asked.first, min(places, asked.most) + 1, asked.step):
            for error in KINDS:
                for wrong in trials.at(place, error):
                    found += 1
                    sys.stdout.write(f"{wrong}\n")
                    sys.stdout.flush()
    world.close()
    sys.stdout.write(
        f"{journal} {kind} {how}: {places} places, {found} wrong, {time.monotonic() - begun:.0f} s\n"
    )
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    sys.exit(main())
