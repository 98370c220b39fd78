"""
Lay a report out as one page of HTML that needs nothing else; never any script, nor an address to load from.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from invsvc_async.batch.reports.summary import advice_for
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.batch.reports.summary import Report, Slice
    from invsvc_async.batch.result import Result

__all__ = ["page_of"]

_COLOURS = {
    Verdict.APPLIED: "#2f7d4f",
    Verdict.NOT_APPLIED: "#b08a1e",
    Verdict.REFUSED: "#c2571a",
    Verdict.SUPERSEDED: "#6b5ca5",
    Verdict.UNKNOWN: "#b3261e",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667; --line: #d9dce1; --paper: #fff; --box:
#f6f7f9 } @media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa0a6; --line: #3c4043; --paper: #17181a; --box: #202124 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p, .soft { color: var(--soft) } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0 }
.tile { background: var(--box); border-radius: .5rem; padding: .6rem 1rem; min-width: 7rem }
.tile b { display: block; font-size: 1.4rem; font-variant-numeric: tabular-nums }
.dot { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .4rem }
svg { width: 100%; height: auto; background: var(--box); border-radius: .5rem } svg text { fill:
var(--soft); font: 11px sans-serif } pre { background: var(--box); padding: .6rem; border-radius: .4rem;
overflow-x: auto; font-size: 12px }
"""
_WIDE, _HIGH, _LEFT, _TOP = 900, 200, 46, 14  # of the timeline, in its own units


def page_of(report: Report) -> str:
    """Give the page."""
    parts = [
        _head(report), _tiles(report), _operations(report), _timeline(report), _spent(report),
        _unknowns(report),
    ]  # fmt: skip
    title = f"Batch {escape(report.name)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _head(report: Report) -> str:
    left = report.summary.to_do + report.summary.sending
    words = f"{report.summary.total:,} writes" + (f", {left:,} of them still open" if left else "")
    if report.slices:
        words += (
            f", {_moment(report.slices[0].begun)} to {_moment(report.slices[-1].begun + report.width)} (UTC)"
        )
    return f"<h1>Batch {escape(report.name)}</h1><p>{words}</p>"


def _tiles(report: Report) -> str:
    tiles = [
        (f"{report.summary.verdicts.get(verdict, 0):,}", str(verdict), colour)
        for verdict, colour in _COLOURS.items()
    ]
    tiles.append((f"{report.summary.secrets_lost:,}", "secrets lost", "var(--soft)"))
    tiles.append((f"{report.duplicates:,}", "second effects", "var(--soft)"))
    shown = (
        f'<div class="tile"><b>{number}</b><span class="dot" style="background:{colour}"></span>{words}</div>'
        for number, words, colour in tiles
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def _operations(report: Report) -> str:
    rows = (
        [escape(name), *(f"{counts[verdict]:,}" for verdict in _COLOURS)]
        for name, counts in sorted(report.operations.items())
    )
    return f"<h2>By operation</h2>{_table(['Operation', *map(str, _COLOURS)], rows)}"


def _timeline(report: Report) -> str:
    if not report.slices:
        return ""
    tallest = max(1, *(piece.verdicts.total() for piece in report.slices))
    step = (_WIDE - _LEFT) / len(report.slices)
    bars = "".join(_bar(piece, _LEFT + step * n, step, tallest) for n, piece in enumerate(report.slices))
    faults = " ".join(
        f"{_LEFT + step * (n + 0.5):.1f},{_y(piece.faults / tallest):.1f}"
        for n, piece in enumerate(report.slices)
    )
    line = ""
    if any(piece.faults for piece in report.slices):
        line = f'<polyline points="{faults}" fill="none" stroke="#b3261e" stroke-width="1.5"/>'
    per = report.width / 1000
    marks = "".join(
        f'<text x="4" y="{_y(part) + 4:.0f}">{tallest * part / per:,.0f}/s</text>' for part in (0.5, 1.0)
    )
    base = f'<line x1="{_LEFT}" x2="{_WIDE}" y1="{_y(0)}" y2="{_y(0)}" stroke="#9995"/>'
    words = f"Verdicts a second, in steps of {per:g} s; the line is writes that met a failure on the way."
    return (
        f'<h2>Timeline</h2><svg viewBox="0 0 {_WIDE} {_HIGH + _TOP + 6}" role="img" aria-label="{words}">'
        f"{bars}{line}{base}{marks}</svg><p>{words}</p>"
    )


def _bar(piece: Slice, x: float, width: float, tallest: int) -> str:
    drawn: list[str] = []
    seen = 0
    for verdict, colour in _COLOURS.items():
        count = piece.verdicts[verdict]
        if count:
            top, bottom = _y((seen + count) / tallest), _y(seen / tallest)
            drawn.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(width - 0.6, 0.4):.1f}" '
                f'height="{bottom - top:.1f}" '
                f'fill="{colour}"><title>{_moment(piece.begun)}: {count:,} {verdict}</title></rect>'
            )
            seen += count
    return "".join(drawn)


def _y(part: float) -> float:
    return _TOP + _HIGH * (1 - part)


def _spent(report: Report) -> str:
    seconds = report.seconds
    middle, late, most = (f"{report.quantile(part):.3g} s" for part in (0.5, 0.99, 1.0))
    pace = f"{report.summary.done / seconds:,.0f} a second over {seconds:,.0f} s" if seconds else "none"
    faults = ", ".join(f"{count:,} x {escape(kind)}" for kind, count in report.faults.most_common(8))
    rows = [
        ("Time to the verdict", f"{middle} in the middle, {late} for 99 of 100, {most} at most"),
        ("Throughput", pace),
        (
            "Requests of writes",
            f"{report.attempts:,}, {report.resends:,} of them sent again on proof of absence",
        ),
        ("Reads spent", f"{report.reads:,}"),
        ("Failures met", faults or "none"),
    ]
    body = "".join(f"<tr><th>{name}</th><td>{words}</td></tr>" for name, words in rows)
    return f"<h2>What it took</h2><table>{body}</table>"


def _unknowns(report: Report) -> str:
    count = report.summary.unknown
    if not count:
        return "<h2>Unknown</h2><p>None: the fate of every write that is done is known.</p>"
    cut = f" The first {len(report.unknowns):,} are shown." if count > len(report.unknowns) else ""
    return f"<h2>Unknown</h2><p>{count:,} in all.{cut}</p>{''.join(map(_unknown, report.unknowns))}"


def _unknown(result: Result) -> str:
    candidates = f" Candidates: {escape(', '.join(result.candidates))}." if result.candidates else ""
    return (
        f"<h3>{escape(result.key)} <span class='soft'>{escape(result.operation)}</span></h3>"
        f"<p>{escape(result.message)}.{candidates}</p><p><b>To do:</b> {escape(advice_for(result))}</p>"
        f"<pre>{escape(result.story or '')}</pre>"
    )


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first, *others = titles
    head = f"<th>{first}</th>" + "".join(f'<th class="n">{title}</th>' for title in others)
    body = ""
    for name, *numbers in rows:
        body += (
            f"<tr><td>{name}</td>" + "".join(f'<td class="n">{number}</td>' for number in numbers) + "</tr>"
        )
    return f"<table><tr>{head}</tr>{body}</table>"


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
