"""A report as one page of HTML, which loads nothing and runs no script."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import TYPE_CHECKING

from invsvc_async.batch.reports.not_applied import words_of
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.batch.reports.summary import Report, Slice
    from invsvc_async.batch.result import Result

__all__ = ["listing_page", "page_of"]

_COLOURS = {
    Verdict.APPLIED: "#2f7d4f",
    Verdict.NOT_APPLIED: "#b08a1e",
    Verdict.REFUSED: "#c2571a",
    Verdict.SUPERSEDED: "#6b5ca5",
    Verdict.UNKNOWN: "#b3261e",
}
_WIDE, _HIGH, _LEFT, _TOP = 900, 200, 46, 14  # of the timeline, in its own units
_BELOW = 22  # for the times below it
_TIMES = 5  # below the timeline
_EVENTS = 100  # that the table of runs has, at most
_PART = re.compile(r"<!-- part: (\w+) -->\n")


class _Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def page_of(report: Report) -> str:
    """Return the page."""
    summary = report.summary
    tiles = [_tile(each, summary.verdicts.get(each, 0), colour) for each, colour in _COLOURS.items()]
    tiles += [_tile("secrets lost", summary.secrets_lost), _tile("overtaken", summary.overtaken)]
    tiles += [_tile("duplicates", report.duplicates)]
    left = summary.to_do + summary.sending
    faults = ", ".join(f"{count:,} x {kind}" for kind, count in report.faults.most_common(8))
    ran = f" while it ran: {report.active_seconds:,.0f} s of {report.seconds:,.0f} s" if report.runs else ""
    return _fill(
        "page", head=_fill("head", title=f"{report.kind.capitalize()} {report.name}"),
        total=f"{summary.total:,}",
        tiles=tiles, open=f", {left:,} of them still open" if left else "", period=_period(report),
        verdicts=[_fill("heading", text=verdict) for verdict in _COLOURS],
        operations=[
            _fill("operation", name=name, counts=[
                _fill("number", text=f"{counts[each]:,}") for each in _COLOURS
            ])
            for name, counts in sorted(report.operations.items())
        ],
        timeline=_timeline(report) if report.slices else "", median=f"{report.quantile(0.5):.3g}",
        p99=f"{report.quantile(0.99):.3g}", most=f"{report.quantile(1.0):.3g}",
        throughput=f"{report.rate:,.0f} a second{ran}" if report.rate else "none",
        attempts=f"{report.attempts:,}", resends=f"{report.resends:,}", reads=f"{report.reads:,}",
        faults=faults or "none", failed="" if report.groups else "None: all finished writes are applied.",
        groups=[_group(each, report.kind) for each in report.groups],
    )  # fmt: skip


def listing_page(
    title: str, words: str, tiles: Iterable[tuple[str, int]], titles: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> str:  # fmt: skip
    """Return a page with *words*, *tiles* (a label and a number each) and a table."""
    return _fill(
        "listing", head=_fill("head", title=title), words=words, tiles=[_tile(*each) for each in tiles],
        titles=[_fill("title", text=each) for each in titles],
        rows=[_fill("row", cells=[_fill("cell", text=text) for text in row]) for row in rows],
    )  # fmt: skip


def _tile(label: str, number: int, colour: str = "var(--soft)") -> _Html:
    return _fill("tile", number=f"{number:,}", label=label, colour=colour)


@cache
def _parts() -> dict[str, Template]:
    """Return the parts of the template by name."""
    text = files("invsvc_async.batch.reports").joinpath("report.html").read_text(encoding="utf-8")
    _, *parts = _PART.split(text)
    return {name: Template(part) for name, part in zip(parts[::2], parts[1::2], strict=True)}


def _fill(part: str, **values: object) -> _Html:
    """Fill a part of the template; every value is escaped that is not markup, or a list of it."""
    return _Html(_parts()[part].substitute({name: _markup(value) for name, value in values.items()}))


def _markup(value: object) -> str:
    if isinstance(value, list):
        return "".join(map(_markup, value))
    return value if isinstance(value, _Html) else escape(str(value))


def _period(report: Report) -> str:
    if not report.slices:
        return ""
    end = report.slices[-1].begun + report.width
    return f", {_moment(report.slices[0].begun)} to {_moment(end)} (UTC)"


# --- the timeline


def _timeline(report: Report) -> _Html:
    slices, seconds = report.slices, report.width / 1000
    tallest = max(1, *(piece.verdicts.total() for piece in slices))
    step = (_WIDE - _LEFT) / len(slices)
    points = " ".join(
        f"{_LEFT + step * (n + 0.5):.1f},{_y(piece.faults / tallest):.1f}" for n, piece in enumerate(slices)
    )
    events = sorted(_events(report))
    return _fill(
        "timeline", width=_WIDE, height=_HIGH + _TOP + _BELOW, left=_LEFT, base=_y(0), top=_TOP,
        caption=f"Verdicts a second, in steps of {seconds:g} s; times in UTC.",
        bars=[_bar(piece, _LEFT + step * n, step, tallest) for n, piece in enumerate(slices)],
        faults=_fill("faults", points=points) if any(piece.faults for piece in slices) else "",
        scale=[
            _fill("mark", y=f"{_y(part) + 4:.0f}", rate=f"{tallest * part / seconds:,.0f}")
            for part in (0.5, 1.0)
        ],
        times=[*_times(report)], still=[*_still(report)], kills=[*_kills(report)],
        events=[_fill("event", moment=_moment(at), what=what) for at, what in events[:_EVENTS]],
        more=f"And {len(events) - _EVENTS:,} more." if len(events) > _EVENTS else "",
    )  # fmt: skip


def _bar(piece: Slice, x: float, width: float, tallest: int) -> list[_Html]:
    """Draw one slice: its verdicts on top of each other."""
    drawn: list[_Html] = []
    seen = 0
    for verdict, colour in _COLOURS.items():
        if count := piece.verdicts[verdict]:
            top, bottom = _y((seen + count) / tallest), _y(seen / tallest)
            drawn.append(_fill(
                "bar", x=f"{x:.1f}", y=f"{top:.1f}", width=f"{max(width - 0.6, 0.4):.1f}",
                height=f"{bottom - top:.1f}", colour=colour, moment=_moment(piece.begun), count=f"{count:,}",
                verdict=verdict,
            ))  # fmt: skip
            seen += count
    return drawn


def _events(report: Report) -> Iterator[tuple[int, str]]:
    """Yield what happened to the processes that sent the batch, and when (epoch ms)."""
    for run in report.runs:
        who = f"{run.host}, process {run.pid}"
        yield run.begun, f"began: {who}"
        for pause in run.pauses:
            yield pause.begun, f"paused for {(pause.ended - pause.begun) / 1000:,.0f} s: {pause.why} ({who})"
        if run.ended:
            yield run.at, f"ended: {who}"
        elif run.is_lost:
            yield run.at, f"ended without saying so, killed or with its machine: {who}"


def _still(report: Report) -> Iterator[_Html]:
    """Shade the times in which nothing was sent: no process ran, or those that ran were paused."""
    active = report.active
    for (_, begun), (ended, _) in pairwise(active):
        x, right = _x(report, begun), _x(report, ended)
        whys = {each.why for run in report.runs for each in run.pauses if begun <= each.begun < ended}
        why = f"paused: {', '.join(sorted(whys))}" if whys else "no process ran"
        words = f"{_moment(begun)}, {(ended - begun) / 1000:,.0f} s: {why}"
        yield _fill(
            "still", x=f"{x:.1f}", width=f"{max(right - x, 1):.1f}", top=_TOP, height=_HIGH, words=words
        )


def _kills(report: Report) -> Iterator[_Html]:
    for run in report.runs:
        if run.is_lost:
            words = f"{_moment(run.at)}: process {run.pid} was killed, or lost its machine"
            yield _fill("kill", x=f"{_x(report, run.at):.1f}", top=_TOP, base=_y(0), words=words)


def _times(report: Report) -> Iterator[_Html]:
    """Write times below the axis, with the day where the axis is longer than one."""
    begun, span = report.slices[0].begun, len(report.slices) * report.width
    for number in range(_TIMES + 1):
        at = begun + span * number // _TIMES
        side = "end" if number == _TIMES else "start" if number == 0 else "middle"
        yield _fill(
            "time", x=f"{_x(report, at):.1f}", y=_y(0) + _BELOW - 6, side=side,
            moment=_moment(at)[0 if span > 86_400_000 else len("2026-05-01 ") :],
        )  # fmt: skip


def _x(report: Report, at: int) -> float:
    """Return the place of a time (epoch ms) on the axis; what is outside of it is at its end."""
    part = (at - report.slices[0].begun) / (len(report.slices) * report.width)
    return _LEFT + (_WIDE - _LEFT) * min(max(part, 0.0), 1.0)


def _y(part: float) -> float:
    return _TOP + _HIGH * (1 - part)


# --- what is not applied


def _group(group: Group, kind: str) -> _Html:
    rest = group.count - len(group.results)
    return _fill(
        "group", verdict=group.verdict, cause=group.cause, count=f"{group.count:,}", advice=group.advice,
        command="" if group.command is None else _fill("command", text=group.command),
        writes=[*map(_write, group.results)], colour=_COLOURS[group.verdict],
        more=f"And {rest:,} more: invsvc {kind} report --jsonl FILE lists them all." if rest else "",
    )  # fmt: skip


def _write(result: Result) -> _Html:
    is_told = result.verdict is Verdict.UNKNOWN and result.story
    return _fill(
        "write", key=result.key, operation=result.operation, words=words_of(result),
        candidates=f" Candidates: {', '.join(result.candidates)}." if result.candidates else "",
        story=_fill("story", text=result.story) if is_told else "",
    )  # fmt: skip


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
