"""
Run tests that take too long for every run, and report their results.

    python -m tests.support.suites fuzz [EXAMPLES]
    python -m tests.support.suites secrets [ARGUMENTS OF PYTEST, in place of its own choice]

What the tests say goes to standard error as it comes, the figures to standard output.  A suite runs in this
environment, so ``lowest`` belongs into that of ``nox -s lowest``.
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
EXAMPLES = "400"


def _words(name: str, given: list[str]) -> list[str]:
    """Return the arguments of pytest for a suite; *given* go before its own choice."""
    match name:
        case "fuzz":
            return ["-n", "2", "-m", "fuzz"]
        case "secrets":
            apart = ["-m", "not (exhaustive or whole or types or no_secret_scan)"]
            return ["-n", "3", "-p", "tests.secrets.search_plugin", *(given or apart)]
        case "lowest":
            return ["-n", "3", *(given or ["-m", "not (exhaustive or whole)"])]
        case "hostile":
            return [
                "tests/transport/test_hostile_server.py",
                "-p",
                "tests.support.peaks",
            ]
    raise SystemExit(f"no such suite: {name}")


def _run(words: list[str], examples: str) -> str:
    """Run pytest, show what it says, and give it; its failure is this program's."""
    said: list[str] = []
    command = [sys.executable, "-m", "pytest", "-q", *words]
    environment = {**os.environ, "FUZZ_EXAMPLES": examples}
    with subprocess.Popen(  # noqa: S603 - our own arguments
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    ) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            sys.stderr.write(line)
            said.append(line)
    if tests.returncode:
        sys.exit(tests.returncode)
    return "".join(said)


def main() -> None:
    """Run the suite that was asked for, and print its figures as JSON."""
    name, *given = sys.argv[1:]
    examples = given[0] if name == "fuzz" and given else EXAMPLES
    began = time.monotonic()
    said = _run(_words(name, given), examples)
    figures: dict[str, object] = {
        f"tests that {what}": int(many)
        for many, what in re.findall(r"(\d+) (passed|skipped)", said.splitlines()[-1])
    }
    if name == "fuzz":
        figures["examples in each"] = int(examples)
    if name == "lowest":
        figures["with"] = {each: version(each) for each in NEEDED}
    for line in re.findall(r"^worst (.+): ([\d.]+)$", said, re.MULTILINE):
        figures[line[0]] = float(line[1]) if "." in line[1] else int(line[1])
    figures["seconds"] = round(time.monotonic() - began, 1)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
