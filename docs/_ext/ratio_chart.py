"""A chart of the table of ratios: bars on one scale, with an axis, a legend, and each target as a mark."""

from __future__ import annotations

import re
from html import escape
from math import ceil
from typing import NamedTuple

__all__ = ["Ratio", "chart", "ratios_in"]

_BEFORE = r"(?:(?:[\d.]+|none) \| )?"  # the column is there if another commit was measured, too
ROW = re.compile(
    rf"^\| (.+?) \| (.+?) \| {_BEFORE}([\d.]+) \| ([\d.]+) to ([\d.]+) \| ([≤≥]) ([\d.]+) \| (\w+) \|$"
)
STEPS = 6  # parts of the axis, about
LEGEND = """<p class="ratio-legend"><span><i class="holds"></i>ratio, target met</span>
<span><i class="missed"></i>ratio, target missed</span> <span><i class="target"></i>target</span>
<span><i class="interval"></i>95 % interval</span></p>"""


class Ratio(NamedTuple):
    """One row of the table."""

    what: str
    against: str
    median: float
    low: float
    high: float
    sense: str
    target: float
    holds: bool


def ratios_in(table: str) -> list[Ratio]:
    """Return the rows of the table that were measured."""
    found = [ROW.match(line) for line in table.splitlines()]
    return [
        Ratio(
            each[1],
            each[2],
            *map(float, each.group(3, 4, 5)),
            each[6],
            float(each[7]),
            each[8] == "holds",
        )
        for each in found
        if each
    ]


def chart(ratios: list[Ratio]) -> str:
    """Return the chart as HTML, which also fits a phone: the words of a bar then stand above it."""
    top = max(max(each.high, each.target) for each in ratios)
    step = next(
        each
        for each in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, top)
        if top / each <= STEPS
    )
    end = ceil(top / step) * step
    ticks = [step * number for number in range(round(end / step) + 1)]
    marks = "".join(
        f'<span style="left:{100 * tick / end:.4g}%">{tick:g}</span>' for tick in ticks
    )
    grid = f"--grid:{100 * step / end:.4g}%"
    rows = "\n".join(_row(each, end) for each in ratios)
    words = "ratio, in CPU time unless marked “wall”"
    return f"""<div class="ratios" style="{grid}">
{LEGEND}
{rows}
<div class="ratio"><span class="words">{words}</span><span class="axis">{marks}</span></div>
</div>"""


def _row(each: Ratio, end: float) -> str:
    def part(value: float) -> str:
        return f"{100 * value / end:.4g}%"

    sign = "at most" if each.sense == "≤" else "at least"
    said = f"{each.median:.2f}; target: {sign} {each.target:g}"
    return (
        f'<div class="ratio"><span class="words">{escape(each.what)} <small>against {escape(each.against)}'
        f'</small></span><span class="track" role="img" aria-label="{said}">'
        f'<span class="{"holds" if each.holds else "missed"}" style="width:{part(each.median)}"></span>'
        f'<span class="interval" style="left:{part(each.low)};width:{part(each.high - each.low)}"></span>'
        f'<span class="target" style="left:{part(each.target)}"></span></span>'
        f'<span class="number">{each.median:.2f} <small>{each.sense} {each.target:g}</small></span></div>'
    )
