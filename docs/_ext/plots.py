"""Sphinx directive for plots: bars, whose numbers come from the files of the measurements."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx

__all__ = ["PLOTS", "Bar", "bars_as_html"]

MADE = Path(__file__).parents[1] / "_generated"


class Bar(NamedTuple):
    """A bar: what it is about, how long it is, the number as it is shown, and whether it should be 0."""

    what: str
    value: float
    shown: str
    is_wrong: bool = False


def _fragment(name: str) -> str:
    return (MADE / f"{name}.md").read_text(encoding="utf-8")


def _rows(name: str) -> list[list[str]]:
    """Return the cells of the table in a fragment, the heading first."""
    lines = [line for line in _fragment(name).splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if "--" not in line
    ]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _sum_of(name: str, column: str) -> int:
    """Return the sum of a column of the table in a fragment."""
    heading, *rows = _rows(name)
    at = heading.index(column)
    return sum(_number(row[at]) for row in rows)


def _counts(name: str) -> dict[str, str]:
    """Return the two columns of a fragment's table."""
    return {row[0]: row[1] for row in _rows(name)}


def _across(name: str) -> dict[str, list[str]]:
    """Return the rows of a fragment's table that has a column for each engine."""
    return {row[0]: row[1:] for row in _rows(name)}


def _bar(what: str, value: float) -> Bar:
    return Bar(what, value, f"{value:,}")


def _wrong(what: str, value: float) -> Bar:
    """Return a bar of what should not happen."""
    return Bar(what, value, f"{value:,}", is_wrong=True)


def ordinary() -> list[Bar]:
    """Return what an ordinary client and this one did wrong in the same writes."""
    found = {row[0]: row[1:] for row in _rows("demo")}
    kinds = ("duplicate effects", "wrong verdicts", "unknown")
    return [
        _wrong(f"{kind}, {client}", _number(found[kind][at]))
        for kind in kinds
        for at, client in enumerate(("an ordinary client", "this one"))
    ]


def chaos() -> list[Bar]:
    """Return what was wrong in the writes with all faults."""
    found = _counts("chaos")
    wrong = ("duplicate effects", "wrong verdicts", "effects without a write")
    writes = _bar("writes", _number(found["writes"]))
    return [writes, *(_wrong(kind, _number(found[kind])) for kind in wrong)]


def engines() -> list[Bar]:
    """Return how many tasks had two effects."""
    return [
        _bar("tasks", _sum_of("engines", "tasks")),
        _wrong("twice, without a key", _sum_of("engines", "naive: twice")),
        _wrong("twice, under a key", _sum_of("engines", "twice")),
    ]


def tables() -> list[Bar]:
    """Return what was wrong in the tables that engines wrote while their workers were killed."""
    found = _across("tables")
    wrong = ("twice", "out of order", "wrong", "no result")
    words = ("twice", "out of order", "with a wrong result", "without a result")
    return [
        _bar("rows applied", sum(_number(row) for row in found["applied"])),
        _bar("lost answers", sum(_number(lost) for lost in found["lost answers"])),
        _bar("kills", sum(_number(killed) for killed in found["kills"])),
        *(
            _wrong(shown, sum(_number(row) for row in found[what]))
            for what, shown in zip(wrong, words, strict=True)
        ),
    ]


def table_rates() -> list[Bar]:
    """Return the rates of engines, for each 100 rows of a batch."""
    found = _across("tables")
    calm, killed = found["against Batch"], found["against Batch, killed"]
    return [
        Bar(f"{engine}{words}", 100 * float(rate), f"{100 * float(rate):.0f} %")
        for words, rates in ((", calm", calm), (", with kills", killed))
        for engine, rate in zip(found["engine"], rates, strict=True)
    ]


def keys() -> list[Bar]:
    """Return what became of keys for which processes race."""
    return [
        _bar("keys", _sum_of("keys", "keys")),
        _bar("kills and stops", _sum_of("keys", "kills") + _sum_of("keys", "stops")),
        _wrong("keys with two effects", _sum_of("keys", "keys with two effects")),
        _wrong("wrong verdicts", _sum_of("keys", "wrong verdicts")),
    ]


def kills() -> list[Bar]:
    """Return what was lost, doubled or out of order in batches and stores."""
    batches = re.findall(r"([\d,]+) writes, (\d+) kills.*?; (.+)", _fragment("killing"))
    stores = re.search(
        r"(\d+) kills, ([\d,]+) events.*; (\d+) wrong", _fragment("kills")
    )
    assert batches
    assert stores is not None
    judged = "no duplicate, none lost, all in order, every verdict right"
    wrong = sum(words != judged for _, _, words in batches)
    return [
        _bar("writes of batches", sum(_number(writes) for writes, _, _ in batches)),
        _bar("events of receivers", _number(stores[2])),
        _bar("kills", sum(int(count) for _, count, _ in batches) + int(stores[1])),
        _wrong("lost, twice or out of order", wrong + int(stores[3])),
    ]


def unknown() -> list[Bar]:
    """Return how many writes ended UNKNOWN, of all and of those that have a read."""
    found = _counts("chaos")
    verdicts = dict(
        re.findall(r"([a-z ]+?): ([\d,]+)", found["verdicts"].replace("; ", " "))
    )
    total = {name.strip(): _number(count) for name, count in verdicts.items()}
    return [
        _bar("writes", _number(found["writes"])),
        _wrong("unknown", total["unknown"]),
        _wrong(
            "unknown, though there is a read", _number(found["unknown, with a reader"])
        ),
    ]


def doubt() -> list[Bar]:
    """Return how many seconds the verdict takes, by what had become of the write."""
    _, *rows = _rows("doubt")
    words = {
        "applied": "it had happened",
        "late": "it happened half a second later",
        "absent": "it had not happened: it is sent again",
    }
    found = {row[1]: float(row[5]) for row in rows if row[0] == "journeys.update"}
    return [Bar(words[loss], found[loss], f"{found[loss]:.3g} s") for loss in words]


PLOTS: dict[str, Callable[[], list[Bar]]] = {
    plot.__name__: plot
    for plot in (
        ordinary,
        chaos,
        engines,
        tables,
        table_rates,
        keys,
        kills,
        unknown,
        doubt,
    )
}


def bars_as_html(bars: list[Bar]) -> str:
    """Return *bars* as HTML, on one scale; one that is not 0 can be seen."""
    most = max(bar.value for bar in bars) or 1.0
    rows = "\n".join(_row(bar, most) for bar in bars)
    return f'<div class="ratios" style="--grid:100%">\n{rows}\n</div>'


def _row(bar: Bar, most: float) -> str:
    least = 0.3 if bar.value else 0.0
    width = max(100 * bar.value / most, least)
    colour = "missed" if bar.is_wrong else "tried"
    number = "number none" if bar.is_wrong and not bar.value else "number"
    return (
        f'<div class="ratio"><span class="words">{escape(bar.what)}</span>'
        f'<span class="track" role="img" aria-label="{escape(bar.shown)}">'
        f'<span class="{colour}" style="width:{width:.4g}%"></span></span>'
        f'<span class="{number}">{escape(bar.shown)}</span></div>'
    )


class Plot(SphinxDirective):
    """``{plot} NAME``: one of the plots above."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Insert the bars."""
        bars = PLOTS[self.arguments[0]]()
        return [nodes.raw("", bars_as_html(bars), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("plot", Plot)
    return {"parallel_read_safe": True}
