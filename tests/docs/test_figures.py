"""Figures of the pages: each has a command that makes it, and none is changed on the way."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from docs._ext.ratio_chart import chart, ratios_in
from docs.make_figures import COMMANDS, fragment
from tests.docs.pages import ROOT
from tests.docs.test_facts import PAGES

pytestmark = pytest.mark.untraced

SHOWN = re.compile(r"^```\{figures\} (\w+) python (.+)$", re.MULTILINE)
WANTED = sorted({found for page in PAGES for found in SHOWN.findall(page.read_text())})


@pytest.mark.parametrize(("name", "command"), WANTED, ids=[name for name, _ in WANTED])
def test_command_of_figures(name, command) -> None:
    """It is there: a module or a file, and of the maker of figures one of its names."""
    first, *rest = command.split()

    assert find_spec(rest[0]) if first == "-m" else (ROOT / first).is_file()
    if first == "docs/make_figures.py":
        assert rest == [name]
        assert find_spec(COMMANDS[name].split()[0])


def test_figures_of_every_command_are_shown() -> None:
    """What the maker of figures can make has its place on a page."""
    assert set(COMMANDS) <= {name for name, _ in WANTED}


def test_fragment_of_json() -> None:
    """It is a table, with what was said after it; lists of where memory grew are left out."""
    told = fragment(
        '{"writes": 1000, "verdicts": {"applied": 999}, "leaks": [], "grown": ["x"], "seconds": 1.26}\nPASS\n'
    )

    assert told.splitlines() == [
        "| What | Count |", "| --- | --- |", "| writes | 1,000 |", "| verdicts | applied: 999 |",
        "| leaks | none |", "| seconds | 1.3 |", "", "- PASS",
    ]  # fmt: skip


def test_fragment_of_columns() -> None:
    """Each line of them is a row, a short one filled before its last figures; any other line follows below."""
    told = fragment(
        "distinct histories   applied    all\nteams.create         1,200   1,300\nall   1,300\n9 in 2 s\n"
    )

    assert told.splitlines() == [
        "| distinct histories | applied | all |", "| --- | --: | --: |", "| teams.create | 1,200 | 1,300 |",
        "| all |  | 1,300 |", "", "- 9 in 2 s",
    ]  # fmt: skip


def test_fragment_of_sentences() -> None:
    """They are a list."""
    assert fragment("outage of 2 s\nPASS\n") == "- outage of 2 s\n- PASS\n"


def test_counts_in_a_sentence() -> None:
    """They are in words, not a dictionary of Python."""
    told = fragment(
        "9 kills, {'retries': 47, '5xx in a row': 1}: {'applied': 9}, all right\n"
    )

    assert told == "- 9 kills, (retries 47, 5xx in a row 1): (applied 9), all right\n"


@pytest.mark.parametrize(
    ("cells", "side"),
    [
        (["1,000", "+2.9 s", "1.11 (1.08 to 1.13)", "none", "-", ""], "--:"),
        (["1", "raw aiohttp"], "---"),
    ],
)
def test_side_of_a_column(cells, side) -> None:
    """Figures are aligned at the right; words are not."""
    told = fragment(
        "\n".join(["What  found", *(f"row  {cell}".rstrip() for cell in cells)])
    )

    assert told.splitlines()[1] == f"| --- | {side} |"


@pytest.mark.parametrize(("before", "unknown"), [("", ""), ("| 3.00 ", "| none ")])
def test_chart_of_ratios(before, unknown) -> None:
    """Bars, intervals and targets have one scale; what was not measured has no bar; words are escaped."""
    table = f"""
| a & b | c {before}| 1.00 | 0.90 to 1.20 | ≤ 2 | holds |
| d | e {unknown}| 0.40 | 0.30 to 0.50 | ≥ 0.8 | MISSED |
| f | a peer | none | not installed | ≤ 0.5 | not measured |
"""
    drawn = chart(ratios_in(table))

    assert len(ratios_in(table)) == 2
    assert 'class="holds" style="width:50%"' in drawn
    assert 'class="missed" style="width:20%"' in drawn
    assert 'class="target" style="left:100%"' in drawn
    assert 'class="target" style="left:40%"' in drawn
    assert 'class="interval" style="left:45%;width:15%"' in drawn
    assert re.findall(r'style="left:[\d.]+%">([\d.]+)<', drawn) == [
        "0",
        "0.5",
        "1",
        "1.5",
        "2",
    ]
    assert "a &amp; b" in drawn
