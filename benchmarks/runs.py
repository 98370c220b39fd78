"""Measure a file of benchmarks several times, each time in a process of its own, and combine the runs."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks import meter
from benchmarks.harness import Ratio, Row, interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ROOT",
    "as_plain",
    "combined",
    "commit_here",
    "compile_package",
    "counted_once",
    "measured_once",
    "named",
]

ROOT = Path(__file__).parent.parent


def compile_package(folder: Path) -> None:
    """Compile the package in *folder*, as pip does for users."""
    compileall.compile_dir(folder / "invsvc_async", quiet=2)


def counted_once(name: str) -> list[Row]:
    """Measure one file once by instructions: see :mod:`benchmarks.meter`."""
    with tempfile.TemporaryDirectory() as folder:
        beginning, env = meter.counting(Path(folder) / "counts")
        return measured_once(name, env=env, beginning=beginning)


def measured_once(
    name: str,
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    beginning: Sequence[str] = (),
) -> list[Row]:
    """
    Measure one file once, in a new process, so that no file starts with the memory of another.

    *beginning* is that of its command: a program that runs it.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "rows.json"
        command = [
            *beginning,
            sys.executable,
            "-m",
            "benchmarks",
            name,
            "--runs",
            "1",
            "--json",
            str(kept),
        ]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=cwd, env=env
        )
        if not kept.exists():
            raise subprocess.CalledProcessError(
                done.returncode, command, done.stdout, done.stderr
            )
        return [_row(plain) for plain in json.loads(kept.read_text())["rows"]]


def as_plain(row: Row) -> dict[str, Any]:
    """Return *row* as data for JSON."""
    return attrs.asdict(row) | {"verdict": row.verdict}


def _row(plain: dict[str, Any]) -> Row:
    fields = {
        name: value
        for name, value in plain.items()
        if name not in {"verdict", "ratio", "runs"}
    }
    ratio = plain["ratio"]
    return Row(
        **fields, ratio=Ratio(**ratio) if ratio else None, runs=tuple(plain["runs"])
    )


def named(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Group *rows* by what they measure, in order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.what, row.against), []).append(row)
    return found


def combined(rows: Iterable[Row]) -> list[Row]:
    """Combine the rows of several runs: each interval is that of the runs' medians, not of their blocks."""
    return [_one_of(same) for same in named(rows).values()]


def _one_of(rows: Sequence[Row]) -> Row:
    medians = tuple(row.ratio.median for row in rows if row.ratio)
    if len(rows) == 1 or not medians:
        return rows[0]
    return attrs.evolve(rows[0], ratio=interval(medians), runs=medians)


def commit_here() -> str:
    """Return the commit that is measured, with a ``+`` if files have changed since."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout.strip() or "unknown"
