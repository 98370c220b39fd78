"""Write the table and its chart for the docs, from what was measured."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.harness import Row

__all__ = ["chart", "table", "write_page"]

_COLOURS = {"holds": "#2f7d4f", "MISSED": "#b3402e"}
_STEP, _LEFT, _WIDE = 22, 430, 260  # px


def write_page(rows: Sequence[Row], about: Mapping[str, str], folder: Path) -> None:
    """Write ``bench.md`` and ``bench.svg`` into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.svg").write_text(chart(rows), encoding="utf-8")
    (folder / "bench.md").write_text(table(rows, about), encoding="utf-8")


def table(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """Return the table as Markdown."""
    lines = ["| What | Against | Ratio | 95 % interval | Target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        sign = "≤" if row.sense == "most" else "≥"
        ratio = f"{row.ratio.median:.2f}" if row.ratio else "none"
        interval = f"{row.ratio.low:.2f} to {row.ratio.high:.2f}" if row.ratio else row.note
        lines.append(
            f"| {row.what} | {row.against} | {ratio} | {interval} | {sign} {row.limit:g} | {row.verdict} |"
        )
    words = ", ".join(f"{name} {what}" for name, what in about.items())
    return "\n".join(
        ["![Each ratio as a part of its target](bench.svg)", "", *lines, "", f"Measured with {words}.", ""]
    )


def chart(rows: Sequence[Row]) -> str:
    """Draw each ratio as a part of its target: bars that end before the line hold."""
    shown = [row for row in rows if row.ratio]
    high = _STEP * (len(shown) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + 2 * _WIDE} {high}">',
        "<style>text { font: 12px sans-serif; }</style>",
        "<title>Each ratio as a part of its target; what ends before the line holds</title>",
    ]
    for at, row in enumerate(shown):
        assert row.ratio is not None
        part = row.ratio.median / row.limit if row.sense == "most" else row.limit / row.ratio.median
        y, width = _STEP * (at + 1), min(part, 1.9) * _WIDE
        words = escape(f"{row.what} / {row.against}")
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{words}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="16" fill="{_COLOURS[row.verdict]}"/>',
            f'<text x="{_LEFT + 4}" y="{y + 12}" fill="#ffffff">{row.ratio.median:.2f}</text>',
        ]
    line = _LEFT + _WIDE
    parts.append(
        f'<path d="M{line} {_STEP - 6}V{high - _STEP + 6}" stroke="#444444" stroke-dasharray="4 3"/>'
    )
    return "\n".join([*parts, "</svg>", ""])
