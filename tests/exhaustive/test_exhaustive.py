"""Histories of many small worlds, through the decide that ships; ``nox -s exhaustive`` walks all of them."""

from __future__ import annotations

import math
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from invsvc_async.reconcile.history import Tick
from tests.exhaustive.__main__ import main
from tests.exhaustive.count_histories import Task, work
from tests.exhaustive.describe import tell
from tests.exhaustive.judge import Broken
from tests.exhaustive.walk import Found, Walk, shipped
from tests.exhaustive.world_list import LARGE, SMALL

pytestmark = [pytest.mark.exhaustive, pytest.mark.untraced]

# Histories of each world: with so many, the walk notices four of five wrong lines of `test_mutants`.
SAMPLE = 40
PARTS = 4
SETUPS = {setup.name: setup for setup in (*SMALL, *LARGE)}


@pytest.mark.parametrize("part", range(PARTS))
def test_sample_of_every_small_world(part):
    """No invariant breaks in the first histories that a seed draws of each; ``nox -s exhaustive`` walks all."""
    broken = []
    for setup in SMALL[part::PARTS]:
        walk = Walk(setup, shipped())
        found = walk.cut(1, until=math.inf, most=SAMPLE, first=True)
        broken += [tell(*each) for each in found.broken]

    assert broken == []


def test_names_of_the_worlds():
    """No two worlds share a name, so that a history found can be placed."""
    assert len(SETUPS) == len(SMALL) + len(LARGE)


@pytest.mark.parametrize("setup", LARGE, ids=lambda setup: setup.name)
def test_walk_cut_short_in_a_larger_world(setup):
    """The first histories by two seeds, and some drawn one by one, break no invariant."""
    walk, until = Walk(setup, shipped()), time.monotonic() + 60.0

    found = [walk.cut(seed, until=until, most=150) for seed in (1, 2)] + [
        walk.at_random(3, until=until, most=15)
    ]

    assert [each.broken for each in found] == [[], [], []]
    assert all(
        each.walked >= most for each, most in zip(found, (150, 150, 15), strict=True)
    )


def test_walk_in_another_process():
    """A history has the same signature everywhere, so that it is counted once."""
    here = Walk(SETUPS["webhooks.create: limited"], shipped()).whole()

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        [(_, there)] = pool.submit(
            work, Task(small=(SMALL.index(SETUPS["webhooks.create: limited"]),))
        ).result()

    assert here.signs == there.signs


def test_walk_twice():
    """The same world gives the same histories, and one seed always draws the same."""
    walk, until = (
        Walk(SETUPS["webhooks.create: again"], shipped()),
        time.monotonic() + 60.0,
    )

    assert walk.whole().signs == walk.whole().signs
    assert (
        walk.at_random(5, until=until, most=50).signs
        == walk.at_random(5, until=until, most=50).signs
    )


def test_signature_of_another_world():
    """Histories that begin with another known clock are not counted as the same ones."""
    narrow, unknown = (
        Walk(SETUPS[f"journeys.update: {name}"], shipped()).whole()
        for name in ("again", "killed, wide")
    )

    assert not set(narrow.signs["applied"]) & set(unknown.signs["applied"])


def test_shortest_history_of_a_broken_rule():
    """Of the histories that break a rule in the same way, the shortest is kept."""
    found, setup, error = Found(), SMALL[0], Broken(1, "words")

    for length in (3, 1, 2):
        found.add(setup, error, (Tick(0.0),) * length)

    assert [len(history) for *_, history in found.broken] == [1]


def test_command_line_that_reaches_too_little(monkeypatch, capsys):
    """Fewer histories than were asked for is a failure, and the table is printed all the same."""
    monkeypatch.setattr("tests.exhaustive.count_histories.BUNDLES", 1)
    monkeypatch.setattr("tests.exhaustive.count_histories.SMALL", SMALL[:1])

    assert (
        main(["--histories", "1000000000", "--seconds", "0", "--processes", "1"]) == 1
    )
    assert "distinct histories" in capsys.readouterr().out
