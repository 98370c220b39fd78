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

import attrs

from invsvc_async.batch.reports.not_applied import (
    LOST_SECRETS,
    SECOND_EFFECTS,
    Group,
    words_of,
)
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from invsvc_async.batch.reports.summary import Report, Slice
    from invsvc_async.batch.result import Result


_COLOURS = {
    Verdict.APPLIED: "#2f7d4f",
    Verdict.NOT_APPLIED: "#b08a1e",
    Verdict.REFUSED: "#c2571a",
    Verdict.SUPERSEDED: "#6b5ca5",
    Verdict.UNKNOWN: "#b3261e",
}
# The timeline, in its own units.
_WIDE = 900
_HIGH = 200
_LEFT = 46
_TOP = 14
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
    tiles = [
        _tile(each, summary.verdicts.get(each, 0), colour)
        for each, colour in _COLOURS.items()
    ]
    tiles += [
        _tile("secrets lost", summary.secrets_lost),
        _tile("overtaken", summary.overtaken),
    ]
    tiles += [_tile("duplicates", report.duplicates)]
    left = summary.to_do + summary.sending
    faults = ", ".join(
        f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)
    )
    ran = (
        f" while it ran: {report.active_seconds:,.0f} s of {report.seconds:,.0f} s"
        if report.runs
        else ""
    )
    quantiles = {"median": 0.5, "p99": 0.99, "most": 1.0}
    return _fill(
        "page",
        head=_fill("head", title=f"{report.kind.capitalize()} {report.name}"),
        tiles=tiles,
        open=f", {left:,} of them still open" if left else "",
        period=_period_of(report) if report.slices else "",
        verdicts=_each("heading", _COLOURS),
        operations=_operations_of(report),
        timeline=_timeline(report) if report.slices else "",
        throughput=f"{report.rate:,.0f} a second{ran}" if report.rate else "none",
        faults=faults or "none",
        failed="" if report.groups else "None: all finished writes are applied.",
        groups=[_group(each, report.kind) for each in report.groups],
        duplicates=_duplicates(report) if report.second_effects else "",
        lost=_lost(report) if report.secrets_lost else "",
        total=summary.total,
        **{name: getattr(report, name) for name in ("attempts", "resends", "reads")},
        **{name: f"{report.quantile(part):.3g}" for name, part in quantiles.items()},
    )


def _period_of(report: Report) -> str:
    begun = report.slices[0].begun
    end = report.slices[-1].begun + report.width
    return f", {_moment(begun)} to {_moment(end)} (UTC)"


def _operations_of(report: Report) -> list[_Html]:
    """Return a row of the table for each operation, with its number of writes by verdict."""
    return [
        _fill(
            "operation",
            name=name,
            counts=_each("number", (counts[each] for each in _COLOURS)),
        )
        for name, counts in sorted(report.operations.items())
    ]


def listing_page(
    title: str,
    words: str,
    tiles: Iterable[tuple[str, int]],
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> str:
    """Return a page with *words*, *tiles* (a label and a number each) and a table."""
    cells = [_fill("row", cells=_each("cell", row)) for row in rows]
    boxes = [_tile(*each) for each in tiles]
    head = _fill("head", title=title)
    return _fill(
        "listing",
        head=head,
        words=words,
        tiles=boxes,
        titles=_each("title", titles),
        rows=cells,
    )


@attrs.frozen(kw_only=True)
class Section:
    """
    A part of a page that is opened by a click: what it is about, what to do, and ``rows``.

    A row has the name of a thing, a short remark on it, and words.
    """

    kind: str
    title: str
    colour: str
    count: int
    advice: str
    rows: Sequence[tuple[str, str, str]]


def page_of_sections(
    title: str,
    words: str,
    tiles: Iterable[tuple[str, int]],
    sections: Iterable[Section],
) -> str:
    """Return a page with *words*, *tiles* (a label and a number each) and sections."""
    return _fill(
        "sections",
        head=_fill("head", title=title),
        words=words,
        tiles=[_tile(*each) for each in tiles],
        sections=[_section(each) for each in sections],
    )


def _section(section: Section) -> _Html:
    rows = [
        _fill("write", key=name, operation=remark, words=words, story="")
        for name, remark, words in section.rows
    ]
    return _fill(
        "group",
        verdict=section.kind,
        cause=section.title,
        count=section.count,
        advice=section.advice,
        command="",
        writes=rows,
        colour=section.colour,
        more="",
    )


def _tile(label: str, number: int, colour: str = "var(--soft)") -> _Html:
    return _fill("tile", number=number, label=label, colour=colour)


@cache
def _parts() -> dict[str, Template]:
    """Return the parts of the template by name."""
    text = (
        files("invsvc_async.batch.reports")
        .joinpath("report.html")
        .read_text(encoding="utf-8")
    )
    _, *parts = _PART.split(text)
    return {
        name: Template(part) for name, part in zip(parts[::2], parts[1::2], strict=True)
    }


def _fill(part: str, **values: object) -> _Html:
    """Fill a part of the template; every value is escaped that is not markup, or a list of it."""
    return _Html(
        _parts()[part].substitute(
            {name: _markup(value) for name, value in values.items()}
        )
    )


def _each(part: str, texts: Iterable[object]) -> list[_Html]:
    return [_fill(part, text=text) for text in texts]


def _markup(value: object) -> str:
    match value:
        case _Html():
            return value
        case list():
            return "".join(map(_markup, value))
        case int():
            return f"{value:,}"
        case float():  # of the timeline
            return f"{value:.1f}"
        case _:
            return escape(str(value))


# --- the timeline


def _timeline(report: Report) -> _Html:
    slices = report.slices
    seconds = report.width / 1000
    tallest = max(1, *(piece.verdicts.total() for piece in slices))
    step = (_WIDE - _LEFT) / len(slices)
    points = " ".join(
        f"{_LEFT + step * (n + 0.5):.1f},{_y(piece.faults / tallest):.1f}"
        for n, piece in enumerate(slices)
    )
    events = sorted(_events(report))
    kills = [
        _fill(
            "kill",
            x=_x(report, run.at),
            top=_TOP,
            base=_y(0),
            moment=_moment(run.at),
            pid=str(run.pid),
        )
        for run in report.runs
        if run.is_lost
    ]
    return _fill(
        "timeline",
        width=_WIDE,
        height=_HIGH + _TOP + _BELOW,
        left=_LEFT,
        base=_y(0),
        caption=f"Verdicts a second, in steps of {seconds:g} s; times in UTC.",
        bars=[*_bars(slices, step, tallest)],
        faults=_fill("faults", points=points)
        if any(piece.faults for piece in slices)
        else "",
        scale=[
            _fill("mark", y=_y(n) + 4, rate=f"{tallest * n / seconds:,.0f}")
            for n in (0.5, 1.0)
        ],
        times=[*_times(report)],
        still=[*_still(report)],
        kills=kills,
        events=[
            _fill("event", moment=_moment(at), what=what)
            for at, what in events[:_EVENTS]
        ],
        more=f"And {len(events) - _EVENTS:,} more." if len(events) > _EVENTS else "",
    )


def _bars(slices: Sequence[Slice], step: float, tallest: int) -> Iterator[_Html]:
    """Draw each slice: its verdicts on top of each other."""
    width = max(step - 0.6, 0.4)
    for number, piece in enumerate(slices):
        x = _LEFT + step * number
        seen = 0
        moment = _moment(piece.begun)
        for verdict, colour in _COLOURS.items():
            if count := piece.verdicts[verdict]:
                top = _y((seen + count) / tallest)
                height = _HIGH * count / tallest
                words = f"{moment}: {count:,} {verdict}"
                yield _fill(
                    "bar",
                    x=x,
                    y=top,
                    width=width,
                    height=height,
                    colour=colour,
                    words=words,
                )
                seen += count


def _events(report: Report) -> Iterator[tuple[int, str]]:
    """Yield what happened to the processes that sent the batch, and when (epoch ms)."""
    for run in report.runs:
        who = f"{run.host}, process {run.pid}"
        yield run.begun, f"began: {who}"
        for pause in run.pauses:
            yield (
                pause.begun,
                f"paused for {(pause.ended - pause.begun) / 1000:,.0f} s: {pause.why} ({who})",
            )
        if run.ended:
            yield run.at, f"ended: {who}"
        elif run.is_lost:
            yield run.at, f"ended without saying so, killed or with its machine: {who}"


def _still(report: Report) -> Iterator[_Html]:
    """Shade the times without sends: no process ran, or all running processes were paused."""
    for (_, begun), (ended, _) in pairwise(report.active):
        x = _x(report, begun)
        right = _x(report, ended)
        whys = {
            each.why
            for run in report.runs
            for each in run.pauses
            if begun <= each.begun < ended
        }
        why = f"paused: {', '.join(sorted(whys))}" if whys else "no process ran"
        words = f"{_moment(begun)}, {(ended - begun) / 1000:,.0f} s: {why}"
        yield _fill(
            "still", x=x, width=max(right - x, 1.0), top=_TOP, height=_HIGH, words=words
        )


def _times(report: Report) -> Iterator[_Html]:
    """Write times below the axis, with the day where the axis is longer than one."""
    begun = report.slices[0].begun
    span = len(report.slices) * report.width
    for number in range(_TIMES + 1):
        at = begun + span * number // _TIMES
        side = "end" if number == _TIMES else "start" if number == 0 else "middle"
        moment = _moment(at)[0 if span > 86_400_000 else len("2026-05-01 ") :]
        yield _fill(
            "time", x=_x(report, at), y=_y(0) + _BELOW - 6, side=side, moment=moment
        )


def _x(report: Report, at: int) -> float:
    """Return the place of a time (epoch ms) on the axis; times outside are at its ends."""
    part = (at - report.slices[0].begun) / (len(report.slices) * report.width)
    return _LEFT + (_WIDE - _LEFT) * min(max(part, 0.0), 1.0)


def _y(part: float) -> float:
    return _TOP + _HIGH * (1 - part)


# --- what is not applied


def _group(group: Group, kind: str) -> _Html:
    rest = group.count - len(group.results)
    return _fill(
        "group",
        **{
            name: getattr(group, name)
            for name in ("verdict", "cause", "count", "advice")
        },
        command=_each("command", [group.command] if group.command else []),
        writes=[*map(_write, group.results)],
        colour=_COLOURS[group.verdict],
        more=f"And {rest:,} more: invsvc {kind} report --jsonl FILE lists them all."
        if rest
        else "",
    )


def _write(result: Result) -> _Html:
    is_told = result.verdict is Verdict.UNKNOWN and result.story
    candidates = (
        f" Candidates: {', '.join(result.candidates)}." if result.candidates else ""
    )
    words = f"{words_of(result)}.{candidates}"
    story = _each("story", [result.story] if is_told else [])
    return _fill(
        "write", key=result.key, operation=result.operation, words=words, story=story
    )


# --- applied, but to be looked at


def _lost(report: Report) -> _Html:
    rest = report.summary.secrets_lost - len(report.secrets_lost)
    more = (
        f"And {rest:,} more: invsvc {report.kind} report --jsonl FILE lists them all."
    )
    return _fill(
        "webhooks",
        title="Secrets lost",
        advice=LOST_SECRETS,
        writes=[
            _fill("webhook", key=each.key, thing=each.thing or "")
            for each in report.secrets_lost
        ],
        more=more if rest > 0 else "",
    )


def _duplicates(report: Report) -> _Html:
    shown = sum(len(each.duplicates) for each in report.second_effects)
    more = f"And {report.duplicates - shown:,} more: invsvc {report.kind} report --jsonl FILE lists them all."
    return _fill(
        "webhooks",
        title="Duplicates",
        advice=SECOND_EFFECTS,
        writes=[
            _fill("webhook", key=each.key, thing=", ".join(each.duplicates))
            for each in report.second_effects
        ],
        more=more if report.duplicates > shown else "",
    )


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
