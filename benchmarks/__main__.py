"""
Measure every row and print the table.

    python -m benchmarks                    all rows, in less than ten minutes
    python -m benchmarks call page          some of them
    python -m benchmarks --json found.json  keep what was found
    python -m benchmarks --page             write the table and its chart for the docs
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

from benchmarks.harness import Ratio, Row
from benchmarks.page import write_page

FILES = ("call", "page", "flight", "walk", "import", "events", "journal", "oracle")
_DOCS = Path(__file__).parent.parent / "docs" / "_generated"


def main() -> int:
    """Measure, print and keep; the exit status is 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure what the package costs."
    )
    parser.add_argument("files", nargs="*", choices=[[], *FILES], help="which rows (default: all)")
    parser.add_argument("--json", type=Path, help="keep what was found in this file")
    parser.add_argument("--page", action="store_true", help="write the table and its chart for the docs")
    arguments = parser.parse_args()
    if len(arguments.files) == 1:
        found = import_module(f"benchmarks.bench_{arguments.files[0]}").rows()
    else:
        found = _each_alone(arguments.files or FILES)
    for row in found:
        print(_line(row), flush=True)
    about = _about()
    if arguments.json:
        plain = {"about": about, "rows": [attrs.asdict(row) | {"verdict": row.verdict} for row in found]}
        arguments.json.write_text(json.dumps(plain, indent=1) + "\n")
    if arguments.page:
        write_page(found, about, _DOCS)
    missed = [row for row in found if row.holds is False]
    if len(found) > 1:
        print(f"{sum(row.holds is True for row in found)} of {len(found)} targets hold, {len(missed)} missed")
    return 1 if missed else 0


def _each_alone(files: list[str] | tuple[str, ...]) -> list[Row]:
    """Measure each file in a process of its own, so that none starts with the memory of another."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in files:
            kept, started = Path(folder) / f"{name}.json", time.monotonic()
            command = [sys.executable, "-m", "benchmarks", name, "--json", str(kept)]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent.parent)
            rows += [_row(plain) for plain in json.loads(kept.read_text())["rows"]]
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rows


def _row(plain: dict[str, object]) -> Row:
    del plain["verdict"]
    ratio = plain.pop("ratio")
    return Row(**plain, ratio=Ratio(**ratio) if isinstance(ratio, dict) else None)  # type: ignore[arg-type]


def _line(row: Row) -> str:
    found = f"{row.ratio.median:6.3f} [{row.ratio.low:.3f}, {row.ratio.high:.3f}]" if row.ratio else row.note
    sign = "<=" if row.sense == "most" else ">="
    return f"{row.what:<32} {row.against:<34} {found:<23} {sign} {row.limit:<5g} {row.verdict}"


def _about() -> dict[str, str]:
    about = {
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
