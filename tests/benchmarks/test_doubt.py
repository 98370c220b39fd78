"""The benchmark of verdicts compares a batch with faults with the same batch without."""

from __future__ import annotations

import pytest

from benchmarks import bench_doubt
from benchmarks.bench_doubt import Spent

pytestmark = pytest.mark.one_python


def test_batch_with_faults_against_the_same_without(monkeypatch):
    """Requests and CPU time are compared, those with faults by those without."""

    async def batch(writes, faults):
        spent = (
            {"requests": 1288, "cpu": 26.0}
            if faults
            else {"requests": 1000, "cpu": 20.0}
        )
        return Spent(wall=9.0, applied=writes, **spent)

    monkeypatch.setattr(bench_doubt, "_batch", batch)
    requests, cpu = bench_doubt.batch_rows()
    assert (requests.what, requests.ratio.median) == (
        "a batch of 10,000 writes, 5 % faults, requests",
        1.288,
    )
    assert (cpu.what, cpu.ratio.median) == (
        "a batch of 10,000 writes, 5 % faults, CPU",
        1.3,
    )
    assert requests.against == cpu.against == "the same without"


def test_batch_that_is_not_whole_without_faults(monkeypatch):
    """If the batch without faults did not apply all its writes, nothing is compared."""

    async def batch(writes, _):
        return Spent(wall=9.0, cpu=20.0, requests=1000, applied=writes - 1)

    monkeypatch.setattr(bench_doubt, "_batch", batch)
    with pytest.raises(AssertionError, match="applied=9999"):
        bench_doubt.batch_rows()
