"""The meter counts instructions in a process that valgrind runs, and CPU time in any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import meter
from benchmarks.runs import ROOT

pytestmark = pytest.mark.one_python

BLOCKS = """
import os
from benchmarks import meter

def run(calls):
    os.getppid()
    meter.restart()
    for number in range(calls):
        str(number)
    os.getppid()
    return meter.spent()

print(run(1), run(2_000), run(4_000))
"""


@pytest.mark.skipif(not meter.can_count(), reason="valgrind is not installed")
def test_instructions_of_blocks(tmp_path):
    """Each block has its own, twice as many for twice as many calls, whatever else asks for the parent process."""
    command, env = meter.counting(tmp_path / "counts")
    done = subprocess.run(  # noqa: S603 - our own command
        [*command, sys.executable, "-c", BLOCKS],
        check=True, capture_output=True, text=True, cwd=ROOT, env=env,
    )  # fmt: skip
    least, some, more = map(int, done.stdout.split())
    assert some - least > 2_000
    assert more - least == pytest.approx(2 * (some - least), rel=0.25)


def test_time_of_a_block():
    """It is the CPU time since the block began."""
    assert not meter.IS_COUNTED
    meter.restart()
    assert sum(range(100_000)) > 0
    first = meter.spent()
    meter.restart()
    assert 0 <= meter.spent() < first
