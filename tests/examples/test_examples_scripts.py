"""The example scripts, run as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from docs.blocks import blocks_of
from tests.examples.serving import ROOT, ran

pytestmark = pytest.mark.untraced


def test_batch_job_run_twice(service):
    """The second run of the job finds everything done and sends nothing."""
    journeys = [service.seed_journey()["id"] for _ in range(3)]
    Path("rows.csv").write_text(
        "".join(f"{journey},Renamed {journey}\n" for journey in journeys)
    )

    first, second = [ran("batch_job.py", "rows.csv", "run.db") for _ in range(2)]

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert service.arrivals("journeys.update") == 3


def test_batch_job_with_a_refusal(service):
    """A journey that is not there is named, and the exit code is 1."""
    Path("rows.csv").write_text("nowhere,Renamed\n")

    job = ran("batch_job.py", "rows.csv", "run.db")

    assert job.returncode == 1, job.stderr
    assert job.stdout.startswith("nowhere refused")


def test_batch_job_with_bad_lines(service):
    """They are named, the others are written, and the exit code is 1."""
    journey = service.seed_journey()["id"]
    Path("rows.csv").write_text(f"no name\n{journey},\n{journey},Renamed\n")

    job = ran("batch_job.py", "rows.csv", "run.db")

    assert job.returncode == 1, job.stderr
    assert [text[:7] for text in job.stdout.splitlines()[:2]] == ["line 1:", "line 2:"]
    assert service.arrivals("journeys.update") == 1


@pytest.mark.parametrize("name", ["batch_job.py", "sync_script.py"])
def test_script_without_arguments(name):
    """It says which it needs."""
    script = ran(name)

    assert script.returncode == 1
    assert script.stderr.startswith("arguments: are missing. Pass ")


def test_template_of_a_ci(tmp_path, monkeypatch):
    """Its commands, without the installation, succeed in a project with the test of the page and README's program."""
    monkeypatch.chdir(tmp_path)
    for name in ("INVSVC_BASE_URL", "INVSVC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    page = ROOT / "docs/how-to/test-your-code.md"
    (test,) = [
        block.code
        for block in blocks_of(page, "python")
        if "# test_subscribe.py" in block.code
    ]
    (settings,) = [block.code for block in blocks_of(page, "toml")]
    (program,) = [
        block.code
        for block in blocks_of(ROOT / "README.md", "python")
        if "Client.from_env(" in block.code and "journal" in block.code
    ]
    for name, text in {
        "test_subscribe.py": test,
        "pyproject.toml": settings,
        "first.py": program,
    }.items():
        Path(name).write_text(text)
    for name, module in {"python": "", "invsvc": "-m invsvc_async.cli"}.items():
        Path(name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        Path(name).chmod(0o755)
    steps = re.findall(
        r"^ +run: (?:\|\n((?: {10}.*\n)+)|(.*)\n)",
        (ROOT / "examples/ci.yml").read_text(),
        re.MULTILINE,
    )
    install, *others = [textwrap.dedent(block) or line for block, line in steps]
    ci = subprocess.run(  # noqa: S603
        ["/bin/sh", "-euc", "\n".join(["trap 'kill $!' EXIT", *others])],
        capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert ci.returncode == 0, ci.stdout + ci.stderr
    # not by its name, which an index may give to others
    assert '"${WHEEL}[cli]"' in install
    assert "3 passed" in ci.stdout
    assert "applied sent" in ci.stdout
