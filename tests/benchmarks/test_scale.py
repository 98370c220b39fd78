"""The benchmark of long journals generates entries that a batch accepts."""

from __future__ import annotations

import pytest

from benchmarks import bench_scale

pytestmark = pytest.mark.one_python


async def test_writes_after_generated_ones(capsys, monkeypatch):
    """New writes are applied in a journal of generated entries, and a line of the table is printed."""
    monkeypatch.setattr(bench_scale, "_FIRST", 5)
    monkeypatch.setattr(bench_scale, "_NEW", 5)

    await bench_scale.journal((300,))

    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "finished"
    assert line.split()[0] == "300"
