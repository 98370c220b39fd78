"""The benchmark of lost answers in services of many kinds: its rows, and their comparison."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import bench_doubt_worlds
from benchmarks.bench_doubt_worlds import (
    HEAD,
    NEW,
    OLD,
    World,
    doubts_of,
    main,
    rows_in,
)
from invsvc_async import Verdict
from invsvc_async.simulator.own_words import WORDS
from tests.support.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.one_python


def test_every_word_has_a_world():
    """Each of the service's words has a row of its own; names are unique."""
    names = [world.name for world in (*OLD, *NEW)]
    assert set(WORDS) < set(names)
    assert len(names) == len(set(names))


def test_doubts_of_a_world(monkeypatch):
    """Each write has its verdict, its requests and its seconds, and webhooks that were made twice are counted."""
    monkeypatch.setattr(bench_doubt_worlds, "WRITES", 3)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        doubts, twice = runner.run(doubts_of(OLD[0], "webhooks.create", 1))
    assert [each.verdict for each in doubts] == [Verdict.APPLIED] * 3
    assert all(each.requests > 1 for each in doubts)
    assert all(each.seconds < 16 for each in doubts)
    assert twice == 0


def test_rows_that_are_compared(monkeypatch, capsys, tmp_path):
    """What is printed can be read, and compared with what was printed before."""
    monkeypatch.setattr(bench_doubt_worlds, "WRITES", 2)
    monkeypatch.setattr(bench_doubt_worlds, "ROUNDS", 1)
    main([World(name="plain", plain=True, operations=("webhooks.delete",))])
    printed = capsys.readouterr().out
    (row,) = rows_in(printed).values()
    assert [row[name] for name in ("writes", "unknown", "in s", "verdicts")] == [
        "2",
        "0.0%",
        "-",
        "applied 2",
    ]
    assert list(row) == list(HEAD)

    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text(printed)
    after.write_text(printed.replace("0.0%", "9.9%"))
    bench_doubt_worlds.compare(before, after)
    compared = capsys.readouterr().out.splitlines()[1].split()
    assert compared[:4] == ["plain", "webhooks.delete", "0.0%", "9.9%"]
