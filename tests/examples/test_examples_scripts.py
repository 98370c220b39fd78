"""The example scripts, run as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]


def run(name, *arguments):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_batch_job_run_twice(service):
    """The second run of the job finds everything done and sends nothing."""
    journeys = [service.seed_journey()["id"] for _ in range(3)]
    Path("rows.csv").write_text("".join(f"{journey},Renamed {journey}\n" for journey in journeys))

    first, second = run("batch_job.py", "rows.csv", "run.db"), run("batch_job.py", "rows.csv", "run.db")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert service.arrivals("journeys.update") == 3


def test_batch_job_with_a_refusal(service):
    """A journey that is not there is named, and the exit code is 1."""
    Path("rows.csv").write_text("nowhere,Renamed\n")

    ran = run("batch_job.py", "rows.csv", "run.db")

    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.startswith("nowhere refused")
