"""
Run tests that are too long for every day, and say what came of them; never keep quiet about a failure.

    python -m tests.hardening.suites fuzz

A suite runs in this environment, so ``lowest`` belongs into that of ``nox -s lowest``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("aiohttp", "attrs", "msgspec", "tenacity")
EXAMPLES = "400"  # as `nox -s fuzz` has it
APART = (  # of the search for secrets, as `nox -s secrets` has it
    *("tests/exhaustive", "tests/types", "tests/faults/test_freed.py"),
    *("tests/hardening/test_leaks.py", "tests/hardening/test_marked.py"),
)
FREED = "tests/batch/test_ends.py::test_what_is_done_is_freed_at_once"
FUZZ = ("tests/events/test_events_fuzz.py", "tests/unit/test_convert_properties.py")


def _words(name: str) -> list[str]:
    """Give the arguments of pytest for a suite."""
    match name:
        case "fuzz":
            found = sorted((ROOT / "tests/hardening").glob("test_fuzz_*.py"))
            return ["-n", "2", *map(str, found), *FUZZ]
        case "secrets":
            apart = [f"--ignore={path}" for path in APART]
            return ["-n", "3", "-p", "tests.hardening.marked", *apart, f"--deselect={FREED}"]
        case "lowest":
            return ["-n", "3", "--ignore=tests/exhaustive"]
        case "hostile":
            return ["tests/hardening/test_hostile_server.py", "-p", "tests.hardening.peaks"]
    raise SystemExit(f"no such suite: {name}")


def main() -> None:
    """Run the suite that was asked for, and print its figures as JSON."""
    [name] = sys.argv[1:]
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *_words(name)]
    ran = subprocess.run(  # noqa: S603 - our own arguments
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FUZZ_EXAMPLES": EXAMPLES},
    )
    if ran.returncode:
        sys.exit(f"{ran.stdout}{ran.stderr}")
    figures: dict[str, object] = {
        f"tests that {what}": int(many)
        for many, what in re.findall(r"(\d+) (passed|skipped)", ran.stdout.splitlines()[-1])
    }
    if name == "fuzz":
        figures["examples in each"] = int(EXAMPLES)
    if name == "lowest":
        figures["with"] = {each: version(each) for each in NEEDED}
    for line in re.findall(r"^worst (.+): ([\d.]+)$", ran.stdout, re.MULTILINE):
        figures[line[0]] = float(line[1]) if "." in line[1] else int(line[1])
    figures["seconds"] = round(time.monotonic() - began, 1)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
