"""The benchmark of a batch that goes on makes a journal and a file that the batch accepts."""

from __future__ import annotations

import pytest

from benchmarks import bench_resume

pytestmark = [pytest.mark.one_python, pytest.mark.untraced]


async def test_batch_that_goes_on_after_generated_writes(capsys):
    """The one write that is left is sent, and the line for the figures is printed."""
    await bench_resume.main(300)

    assert capsys.readouterr().out.startswith("300 finished writes (")
