"""The harness of the benchmarks tells ratios and whether targets hold."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.harness import Ratio, Row, alternate, at_once, ratio_of
from benchmarks.page import table

pytestmark = pytest.mark.one_python


def test_ratio_of_blocks_of_the_same_rounds():
    """It is the median of the rounds' own ratios, so that a slow round weighs on neither way."""
    ratio = ratio_of({"way": [2.0, 20.0, 2.2], "base": [1.0, 10.0, 1.0]}, "way", "base")
    assert ratio.median == 2.0
    assert ratio.low == 2.0
    assert ratio.high == pytest.approx(2.2)


def test_interval_of_rounds_that_agree():
    """Where all rounds agree, the interval is a point."""
    assert ratio_of({"way": [3.0] * 9, "base": [2.0] * 9}, "way", "base") == Ratio(
        1.5, 1.5, 1.5
    )


@pytest.mark.parametrize(
    ("sense", "median", "verdict"),
    [
        ("most", 1.2, "holds"),
        ("most", 1.21, "MISSED"),
        ("least", 1.2, "holds"),
        ("least", 1.19, "MISSED"),
    ],
)
def test_row_at_its_limit(sense, median, verdict):
    """The median decides, the limit itself holds."""
    row = Row(
        what="a", against="b", limit=1.2, sense=sense, ratio=Ratio(median, 0.1, 9.0)
    )
    assert row.verdict == verdict


def test_row_that_was_not_measured():
    """It neither holds nor is missed."""
    row = Row(what="a", against="a peer", limit=1.2, note="not installed")
    assert (row.holds, row.verdict) == (None, "not measured")


def test_blocks_that_alternate():
    """Each way runs once to warm up and then its calls in every round, and never twice in a row over a whole run."""
    ran = []
    samples = alternate(
        {name: lambda name=name: ran.append(name) for name in "ab"}, rounds=6, calls=3
    )
    assert {name: len(costs) for name, costs in samples.items()} == {"a": 6, "b": 6}
    assert (ran.count("a"), ran.count("b")) == (19, 19)
    assert all(set(ran[2 + 6 * at : 8 + 6 * at]) == {"a", "b"} for at in range(6))


async def test_calls_at_once():
    """No more than asked for are under way, and all are made."""
    now, most, made = 0, 0, 0

    async def call():
        nonlocal now, most, made
        now, made = now + 1, made + 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    samples = await at_once({"call": call}, rounds=3, calls=40, together=8)
    assert (most, made, len(samples["call"])) == (8, 20 + 3 * 40, 3)


ROWS = [
    Row(what="a", against="b", limit=1.2, ratio=Ratio(0.6, 0.5, 0.7)),
    Row(
        what="c & d", against="e", limit=0.8, sense="least", ratio=Ratio(0.4, 0.3, 0.5)
    ),
    Row(what="f", against="a peer", limit=0.5, note="not installed"),
]


def test_table_of_the_docs():
    """Every row is there with its verdict."""
    lines = table(ROWS, {"python": "3.11"}).splitlines()
    assert "| a | b | 0.60 | 0.50 to 0.70 | ≤ 1.2 | holds |" in lines
    assert "| c & d | e | 0.40 | 0.30 to 0.50 | ≥ 0.8 | MISSED |" in lines
    assert "| f | a peer | none | not installed | ≤ 0.5 | not measured |" in lines
