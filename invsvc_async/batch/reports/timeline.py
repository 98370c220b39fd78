"""The timeline of a report: verdicts a second, failures, pauses and what happened to the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.batch.reports.axis import Axis, axis_of
from invsvc_async.batch.reports.markup import Html, filled, moment_of
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.batch.reports.summary import Report, Slice


COLOURS = {
    Verdict.APPLIED: "var(--applied)",
    Verdict.NOT_APPLIED: "var(--not-applied)",
    Verdict.REFUSED: "var(--refused)",
    Verdict.SUPERSEDED: "var(--superseded)",
    Verdict.UNKNOWN: "var(--unknown)",
}
# The drawing, in its own units: the page stretches it, and writes what is to be read beside it.
_WIDE = 1000
_HIGH = 200
_TIMES = (4, 3, 2)  # parts between the times below the timeline, at most
_SHORT = 60_000  # ms, below which parts of a second would be seen
_EVENTS = 100  # that the table of runs has, at most
_DAY = 86_400_000  # ms


def timeline_of(report: Report) -> Html | str:
    """Return the timeline of a report, if it has slices."""
    slices = report.slices
    if not slices:
        return ""
    axis = axis_of(slices[0].begun, slices[-1].begun + report.width, report.still)
    tallest = max(1, *(each.verdicts.total() for each in slices))
    seconds = report.width / 1000
    events = sorted(_events(report))
    return filled(
        "timeline",
        width=str(_WIDE),
        height=str(_HIGH),
        caption=f"Verdicts a second, in steps of {seconds:g} s; times in UTC.",
        bars=[*_bars(report, axis, tallest)],
        faults=_faults(report, axis, tallest),
        scale=[
            filled("mark", rate=f"{tallest * part / seconds:,.0f}", part=f"{part:.0%}")
            for part in (0.5, 1.0)
        ],
        times=[*_times(axis)],
        still=[*_still(report, axis)],
        narrow=", drawn narrower than the rest" if axis.is_shortened else "",
        kills=[*_kills(report, axis)],
        events=[
            filled("event", moment=moment_of(at), what=what)
            for at, what in events[:_EVENTS]
        ],
        more=f"And {len(events) - _EVENTS:,} more." if len(events) > _EVENTS else "",
    )


def _bars(
    report: Report,
    axis: Axis,
    tallest: int,
) -> Iterator[Html]:
    """Draw each slice: its verdicts on top of each other."""
    for piece in report.slices:
        x = _WIDE * axis.place_of(piece.begun)
        step = _WIDE * axis.place_of(piece.begun + report.width) - x
        seen = 0
        moment = moment_of(piece.begun)
        for verdict, colour in COLOURS.items():
            if count := piece.verdicts[verdict]:
                seen += count
                yield filled(
                    "bar",
                    x=x,
                    y=_HIGH * (1 - seen / tallest),
                    width=max(step - 0.6, 0.4),
                    height=_HIGH * count / tallest,
                    colour=colour,
                    words=f"{moment}: {count:,} {verdict}",
                )


def _faults(report: Report, axis: Axis, tallest: int) -> Html | str:
    """Draw the line of writes that had a failure, if there are any."""
    if not any(each.faults for each in report.slices):
        return ""
    points: list[str] = []
    reached = report.slices[0].begun
    for piece in report.slices:
        if piece.begun > reached:
            points.append(_point(axis, reached, 0.0))
            points.append(_point(axis, piece.begun, 0.0))
        points.append(_point(axis, _middle(piece, report), piece.faults / tallest))
        reached = piece.begun + report.width
    return filled("faults", points=" ".join(points))


def _middle(piece: Slice, report: Report) -> int:
    return piece.begun + report.width // 2


def _point(axis: Axis, at: int, part: float) -> str:
    return f"{_WIDE * axis.place_of(at):.1f},{_HIGH * (1 - part):.1f}"


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


def _still(report: Report, axis: Axis) -> Iterator[Html]:
    """Shade the times without sends: no process ran, or all running processes were paused."""
    for begun, ended in report.still:
        left = axis.place_of(begun)
        why = _why_still(report, begun, ended)
        yield filled(
            "still",
            x=100 * left,
            width=100 * (axis.place_of(ended) - left),
            words=f"{moment_of(begun)}, {(ended - begun) / 1000:,.0f} s: {why}",
        )


def _why_still(report: Report, begun: int, ended: int) -> str:
    """Return why nothing was sent from *begun* to *ended*."""
    whys = {
        each.why
        for run in report.runs
        for each in run.pauses
        if begun <= each.begun < ended
    }
    if not whys:
        return "no process ran"
    return f"paused: {', '.join(sorted(whys))}"


def _kills(report: Report, axis: Axis) -> Iterator[Html]:
    """Mark the ends of processes that went without a word."""
    for run in report.runs:
        if run.is_lost:
            yield filled(
                "kill",
                x=100 * axis.place_of(run.at),
                moment=moment_of(run.at),
                pid=str(run.pid),
            )


def _times(axis: Axis) -> Iterator[Html]:
    """Write times below the axis, with the day where the axis is longer than one."""
    span = axis.knots[-1].at - axis.knots[0].at
    parts = _parts_of(axis, span)
    for number in range(parts + 1):
        place = number / parts
        moment = moment_of(axis.time_at(place))
        if span <= _DAY:
            moment = moment[len("2026-05-01 ") :]
        yield filled("time", x=100 * place, moment=moment)


def _parts_of(axis: Axis, span: int) -> int:
    """Return into how many parts the times divide *axis*, of *span* ms: of whole seconds, if it is short."""
    if span >= _SHORT or axis.is_shortened:
        return _TIMES[0]
    for parts in _TIMES:
        if span % (1000 * parts) == 0:
            return parts
    return 1
