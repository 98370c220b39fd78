"""
Draw programs of writes, batches and outboxes at random, play them in virtual time, and judge them.

    python -m tests.walk --seconds N --seed S [--journals file,database] [--uses keys,batch,outbox,writes]
        [--without signals,clocks] [--rules reason,order] [--stop-at 1] [--store FOLDER]
    python -m tests.walk --replay FILE

It prints the histories and worlds, and of each broken rule the shortest program, shrunk, with what happened in it.
The exit code is 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

from tests.walk.draw import EVENTS
from tests.walk.play import play, told
from tests.walk.program import read
from tests.walk.walk import Asked, as_text, smallest, walk

TO_SHRINK = 60.0  # s for each


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journals", default="file,database")
    parser.add_argument("--uses", default="keys,batch,outbox,writes")
    parser.add_argument(
        "--without",
        default="",
        help="some of: " + ", ".join(EVENTS),
    )
    parser.add_argument("--rules", default="", help="those that count; default: all")
    parser.add_argument(
        "--stop-at", type=int, default=10**9, help="so many broken histories"
    )
    parser.add_argument(
        "--store", type=Path, default=None, help="a folder for broken programs"
    )
    parser.add_argument(
        "--replay", type=Path, default=None, help="a file with a program"
    )
    options = parser.parse_args(arguments)
    quiet()
    if options.replay is not None:
        return replay(options.replay)
    asked = Asked(
        **{
            name: _parts(getattr(options, name))
            for name in ("journals", "uses", "without", "rules")
        }
    )
    found = walk(
        asked, options.seed * 10**7, seconds=options.seconds, stop_at=options.stop_at
    )
    _print(str(found))
    for rule in found.rules:
        broken = min(
            (each for each in found.broken if each.rule == rule),
            key=lambda each: each.program.size,
        )
        program, lines = smallest(broken, within=TO_SHRINK)
        _print(
            f"\n{rule}: seed {broken.seed}, {found.rules[rule]:,} times: {broken.words}",
            as_text(program),
            *lines,
        )
        if options.store is not None:
            options.store.mkdir(parents=True, exist_ok=True)
            file = options.store / f"{rule}-{broken.seed}.json"
            file.write_text(as_text(program), encoding="utf-8")
            _print(f"python -m tests.walk --replay {file}")
    return int(bool(found.rules))


def replay(file: Path) -> int:
    """Play the program in *file*, and print what happened."""
    stage, wrong = play(read(file))
    _print(*told(stage), *(wrong or ["nothing is broken"]))
    return int(bool(wrong))


def quiet() -> None:
    """Let the package log nothing: what happens to a process makes it say much."""
    logging.getLogger("invsvc_async").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None  # of the coroutines of dead processes


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
