"""
Measure every row and print the table.

    python -m benchmarks                    all rows, three runs of each
    python -m benchmarks call page          some of them
    python -m benchmarks --runs 5           more runs: narrower intervals
    python -m benchmarks --against COMMIT   this tree and another commit side by side: what changed
    python -m benchmarks --instructions     count instructions, with valgrind, in one run
    python -m benchmarks --json found.json  store the result
    python -m benchmarks --page             write the table and its chart for the docs (also with --against)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.meter import IS_COUNTED
from benchmarks.page import write_page
from benchmarks.runs import (
    ROOT,
    as_plain,
    combined,
    commit_here,
    compile_package,
    counted_once,
    measured_once,
)

if TYPE_CHECKING:
    from benchmarks.against import Change
    from benchmarks.harness import Row

_PLACE = ROOT / "docs" / "_generated"
FILES = (
    "call",
    "page",
    "flight",
    "walk",
    "import",
    "events",
    "journal",
    "doubt",
)
_ROUNDS = 2  # where instructions are counted, which hardly vary
_MORE = ("peers", "aims")  # which have tables of their own
_COUNTED = ("call", "page", "import", "events", "aims")


def main() -> int:
    """Measure and print.  The exit status is 1 if a target is missed, or if a row became worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure what the package costs."
    )
    parser.add_argument(
        "files",
        nargs="*",
        choices=[[], *FILES, *_MORE],
        help=f"which rows (default: all but {', '.join(_MORE)})",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        help="processes that measure each file (default: 3)",
    )
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare this tree with another commit"
    )
    parser.add_argument(
        "--instructions",
        action="store_true",
        help=f"count instructions, with valgrind, in one run: {', '.join(_COUNTED)}",
    )
    parser.add_argument("--json", type=Path, help="store the rows in this file")
    parser.add_argument(
        "--page", action="store_true", help="write the table and its chart for the docs"
    )
    arguments = parser.parse_args()
    files = arguments.files or FILES
    about = _about()
    if arguments.against:
        return _compared(
            arguments.against, files, arguments.runs, about if arguments.page else None
        )
    if arguments.instructions:
        found = [
            row for name in files if name in _COUNTED for row in counted_once(name)
        ]
    else:
        found = _rows(files, arguments.runs)
    for row in found:
        print(_line(row), flush=True)
    if arguments.json:
        plain = {"about": about, "rows": [as_plain(row) for row in found]}
        arguments.json.write_text(json.dumps(plain, indent=1) + "\n")
    if arguments.page:
        write_page(found, about, _PLACE)
    missed = [row for row in found if row.holds is False]
    if len(found) > 1:
        print(
            f"{sum(row.holds is True for row in found)} of {len(found)} targets hold, {len(missed)} missed"
        )
    return 1 if missed else 0


def _rows(files: list[str] | tuple[str, ...], runs: int) -> list[Row]:
    """Measure each file *runs* times, in a process each; a single run of one file, in this process."""
    if len(files) == 1 and runs == 1:
        module = import_module(f"benchmarks.bench_{files[0]}")
        settings = {"rounds": _ROUNDS} if IS_COUNTED else {}
        found: list[Row] = module.rows(**settings)
        return found
    compile_package(ROOT)
    rows: list[Row] = []
    for run in range(runs):
        for name in files:
            started = time.monotonic()
            rows += measured_once(name)
            print(
                f"run {run + 1} of {runs}: {name}, {time.monotonic() - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return combined(rows)


def _compared(
    commit: str,
    files: list[str] | tuple[str, ...],
    runs: int,
    page: dict[str, str] | None,
) -> int:
    """Print what changed between *commit* and this tree; write the table of *page*, which is about them."""
    from benchmarks.against import changes, compare

    before, after = compare(commit, files, runs=runs)
    if page is not None:
        write_page(
            combined(after), page | {"before": commit}, _PLACE, before=combined(before)
        )
    found = changes(before, after)
    print(
        f"{commit} against {commit_here()}, {runs} runs; the change has its 95 % interval"
    )
    for change in found:
        print(_change(change))
    return 1 if any(change.verdict == "worse" for change in found) else 0


def _change(change: Change) -> str:
    words = f"{change.row.what} / {change.row.against}"
    ratio = (
        f"{change.ratio.median:.3f} [{change.ratio.low:.3f}, {change.ratio.high:.3f}]"
    )
    return f"{words:<66} {change.before:6.3f} -> {change.after:6.3f}  {ratio}  {change.verdict}"


def _line(row: Row) -> str:
    found = (
        f"{row.ratio.median:6.3f} [{row.ratio.low:.3f}, {row.ratio.high:.3f}]"
        if row.ratio
        else row.note
    )
    sign = "<=" if row.sense == "most" else ">="
    return f"{row.what:<32} {row.against:<34} {found:<23} {sign} {row.limit:<5g} {row.verdict}"


def _about() -> dict[str, str]:
    about = {
        "commit": commit_here(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    for name in ("invsvc-async", "aiohttp", "msgspec", "pydantic", "openai", "stripe"):
        try:
            about[name] = version(name)
        except PackageNotFoundError:
            continue
    return about


if __name__ == "__main__":
    sys.exit(main())
