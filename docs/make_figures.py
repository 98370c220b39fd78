"""
Store the output of a long command for the pages: ``python docs/make_figures.py chaos [ARGUMENT …]``.

JSON and columns become tables, other lines a list.  If the command fails, nothing is stored.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMANDS = {
    "exhaustive": "tests.exhaustive",
    "mutants": "tests.mutants",
    "load": "tests.soak.load",
    "chaos": "tests.soak.chaos",
    "leaks": "tests.soak.leaks",
    "kills": "tests.soak.kills",
    "killing": "tests.batch.killing",
    "million": "tests.batch.million",
    "workers": "benchmarks.bench_journal workers",
    "postgres": "benchmarks.bench_journal postgres",
    "large_postgres": "benchmarks.bench_large_postgres",
    "doubt": "benchmarks.bench_doubt",
    "doubt_worlds": "benchmarks.bench_doubt_worlds new",
    "doubt_batch": "benchmarks.bench_doubt batch",
    "aims": "benchmarks.bench_aims",
    "peers": "benchmarks.bench_peers",
    "flight": "benchmarks.bench_scale flight",
    "day": "benchmarks.bench_scale day",
    "processes": "benchmarks.bench_scale processes",
    "sqlite_journal": "benchmarks.bench_scale journal",
    "postgres_journal": "benchmarks.bench_scale journal postgres",
    "limits": "benchmarks.bench_limits store",
    "windows": "benchmarks.bench_limits windows",
    "many_webhooks": "benchmarks.bench_limits webhooks",
    "install": "benchmarks.bench_install",
    "resume": "benchmarks.bench_resume",
    "receive": "benchmarks.bench_receive",
    "large_events": "benchmarks.bench_large_events 10000000",
    "receivers": "tests.soak.receivers",
    "servers": "tests.soak.servers",
    "flood": "tests.soak.flood",
    "engines": "tests.soak.engines",
    "tables": "tests.soak.tables",
    "key_cost": "benchmarks.bench_key",
    "keys": "tests.soak.keys 1000 3 1 20",
    "audit": "tests.support.audit",
    "fuzz": "tests.support.suites fuzz",
    "hostile": "tests.support.suites hostile",
    "secrets": "tests.support.suites secrets",
    "lowest": "tests.support.suites lowest",
}
WORDS = {
    "at_once": "in flight at once", "cancelled_in_doubt": "cancelled with bytes sent",
    "duplicates": "duplicate effects", "false_reasons": "true verdicts for a false reason",
    "resident": "growth of the process, bytes",
    "sends": "requests that arrived", "traced": "growth of Python objects, bytes",
    "unasked": "effects without a write", "unknown_reasons": "unknown, and why",
    "unknown_with_reader": "unknown, with a reader", "with_reader": "writes with a reader",
    "wrong": "wrong verdicts",
}  # fmt: skip
LEFT_OUT = {"grown"}  # where memory grew: only for debugging
FIGURE = re.compile(r"[<>≤≥+-]? ?\d.{0,20}|none|-|")
COUNTS = re.compile(r"\{('[^{}]+)\}")  # as Python shows a dictionary of counts


def fragment(printed: str) -> str:
    """Return *printed* as a table or a list; figures are not changed."""
    if printed.startswith("{"):
        figures, end = json.JSONDecoder().raw_decode(printed)
        return _table(["What", "Count"], _rows(figures)) + _list(
            printed[end:].splitlines()
        )
    lines = printed.splitlines()
    head, *rows = [
        cells for line in lines if len(cells := re.split(r"\s{2,}", line.strip())) > 1
    ] or [[]]
    filled = [[row[0], *[""] * (len(head) - len(row)), *row[1:]] for row in rows]
    rest = [line for line in lines if len(re.split(r"\s{2,}", line.strip())) == 1]
    return (_table(head, filled) if head else "") + _list(rest)


def _rows(figures: dict[str, Any]) -> list[list[str]]:
    return [
        [WORDS.get(name, name.replace("_", " ")), _shown(value)]
        for name, value in figures.items()
        if name not in LEFT_OUT
    ]


def _shown(value: Any) -> str:
    match value:
        case dict():
            return (
                "; ".join(f"{name}: {_shown(each)}" for name, each in value.items())
                or "none"
            )
        case list():
            return "; ".join(map(str, value)) or "none"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
    return str(value)


def _table(head: list[str], rows: list[list[str]]) -> str:
    sides = ["---", *(_side([row[at] for row in rows]) for at in range(1, len(head)))]
    lines = [head, sides, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"


def _side(cells: list[str]) -> str:
    """Return the mark of a column: figures are aligned at the right, and words at the left."""
    return "--:" if all(map(FIGURE.fullmatch, cells)) else "---"


def _list(lines: list[str]) -> str:
    return "".join(f"- {_in_words(line.strip())}\n" for line in lines if line.strip())


def _in_words(line: str) -> str:
    """Return *line* with counts as in a sentence."""
    return COUNTS.sub(_counts_in_words, line)


def _counts_in_words(found: re.Match[str]) -> str:
    words = found[1].replace("'", "").replace(": ", " ")
    return f"({words})"


def _where(arguments: list[str]) -> str:
    given = f"`{' '.join(arguments)}`, " if arguments else ""
    versions = f"Python {platform.python_version()}, aiohttp {version('aiohttp')}"
    return f"\nMeasured with {given}{versions}, {platform.machine()}, {os.cpu_count()} cores.\n"


def main() -> None:
    """Run the requested command with the remaining arguments."""
    name, *arguments = sys.argv[1:]
    command = [sys.executable, "-m", *COMMANDS[name].split(), *arguments]
    ran = subprocess.run(  # noqa: S603
        command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=False
    )
    if ran.returncode:
        sys.exit(
            f"{ran.stdout}nothing stored: {' '.join(command[1:])} exited with {ran.returncode}"
        )
    kept = fragment(ran.stdout) + _where(arguments)
    (HERE / "_generated" / f"{name}.md").write_text(kept, encoding="utf-8")


if __name__ == "__main__":
    main()
