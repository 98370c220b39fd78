"""A report as one page of HTML, which loads nothing and runs no script."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.reports.markup import (
    Html,
    filled,
    filled_if_any,
    filled_with_each,
    moment_of,
)
from invsvc_async.batch.reports.not_applied import (
    LOST_SECRETS,
    NO_ID,
    REPLACED,
    SECOND_EFFECTS,
    Group,
    replacement,
    words_of,
)
from invsvc_async.batch.reports.timeline import COLOURS, timeline_of
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.batch.reports.summary import Report
    from invsvc_async.batch.result import Result


PLAIN = "var(--soft)"  # the colour of what is no verdict
_WHOLE = re.compile(r"[\w.:+-]{1,40}")  # an id, a time, a number
_OPTION = re.compile(r"--\w[\w-]*")


def page_of(report: Report) -> str:
    """Return the page."""
    summary = report.summary
    tiles = [
        _tile(each, summary.verdicts.get(each, 0), colour)
        for each, colour in COLOURS.items()
    ]
    tiles += [
        _tile("secrets lost", report.lost),
        _tile("overtaken", summary.overtaken),
    ]
    tiles += [_tile("duplicates", report.duplicates)]
    left = summary.to_do + summary.sending
    faults = ", ".join(
        f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)
    )
    if report.runs:
        ran = f" while it ran: {report.active_seconds:,.0f} s of {report.whole_seconds:,.0f} s"
    else:
        ran = ""
    quantiles = {"median": 0.5, "p99": 0.99, "most": 1.0}
    return filled(
        "page",
        head=filled("head", title=f"{report.kind.capitalize()} {report.name}"),
        tiles=tiles,
        open=f", {left:,} of them still open" if left else "",
        period=_period_of(report),
        verdicts=filled_with_each("heading", COLOURS),
        operations=_operations_of(report),
        labels=_labels("by", ["Operation", *map(str, COLOURS)]),
        timeline=timeline_of(report),
        throughput=f"{report.rate:,.0f} a second{ran}" if report.rate else "none",
        faults=faults or "none",
        failed="" if report.groups else "None: all finished writes are applied.",
        groups=[_group(each, report) for each in report.groups],
        duplicates=_duplicates(report),
        lost=_lost(report),
        replaced=_replaced(report),
        total=summary.total,
        **{name: getattr(report, name) for name in ("attempts", "resends", "reads")},
        **{name: f"{report.quantile(part):.3g}" for name, part in quantiles.items()},
    )


def _period_of(report: Report) -> Html | str:
    if not report.slices:
        return ""
    begun = report.slices[0].begun
    end = report.slices[-1].begun + report.width
    return filled("period", begun=moment_of(begun), end=moment_of(end))


def _operations_of(report: Report) -> list[Html]:
    """Return a row of the table for each operation, with its number of writes by verdict."""
    return [
        filled(
            "operation",
            name=name,
            counts=filled_with_each("number", (counts[each] for each in COLOURS)),
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
    cells = [filled("row", cells=[*map(_cell, row)]) for row in rows]
    boxes = [_tile(*each) for each in tiles]
    head = filled("head", title=title)
    return filled(
        "listing",
        head=head,
        words=words,
        tiles=boxes,
        titles=filled_with_each("title", titles),
        labels=_labels("list", titles),
        rows=cells,
    )


def _cell(text: str) -> Html:
    """Return a cell, in which an id, a time or a number stays on one line."""
    return filled("whole" if _WHOLE.fullmatch(text) else "cell", text=text)


def _labels(table: str, titles: Sequence[str]) -> Html:
    """Return the rules that put the titles of columns into the cells of a table's class, on a phone."""
    rules = [
        filled(
            "label",
            table=table,
            number=number,
            title=title,
        )
        for number, title in enumerate(titles[1:], 2)
    ]
    return filled("labels", rules=rules)


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
    tiles: Iterable[tuple[str, int, str]],
    sections: Iterable[Section],
) -> str:
    """Return a page with *words*, *tiles* (a label, a number and a colour each) and sections."""
    return filled(
        "sections",
        head=filled("head", title=title),
        words=words,
        tiles=[_tile(*each) for each in tiles],
        sections=[_section(each) for each in sections],
    )


def _section(section: Section) -> Html:
    rows = [
        filled(
            "write",
            key=name,
            operation=remark,
            words=words,
            story="",
        )
        for name, remark, words in section.rows
    ]
    return filled(
        "group",
        verdict=section.kind,
        cause=section.title,
        count=section.count,
        advice=_advice(section.advice),
        command="",
        writes=rows,
        colour=section.colour,
        more="",
    )


def _advice(text: str) -> Html:
    """Return *text*, in which an option such as ``--not-applied`` stays on one line."""
    return Html(_OPTION.sub(r'<span class="option">\g<0></span>', escape(text)))


def _tile(label: str, number: int, colour: str = PLAIN) -> Html:
    return filled(
        "tile",
        number=number,
        label=label,
        colour=colour,
    )


# --- what is not applied


def _group(group: Group, report: Report) -> Html:
    rest = group.count - len(group.results)
    return filled(
        "group",
        **{name: getattr(group, name) for name in ("verdict", "cause", "count")},
        advice=_advice(group.advice),
        command=filled_if_any("command", group.command),
        writes=[*map(_write, group.results)],
        colour=COLOURS[group.verdict],
        more=_rest_of(report, rest),
    )


def _write(result: Result) -> Html:
    if result.candidates:
        candidates = f" Candidates: {', '.join(result.candidates)}."
    else:
        candidates = ""
    words = f"{words_of(result)}.{candidates}"
    story: list[Html] = []
    if result.verdict is Verdict.UNKNOWN:
        story = filled_if_any("story", result.story)
    return filled(
        "write",
        key=result.key,
        operation=result.operation,
        words=words,
        story=story,
    )


# --- applied, but to be looked at


def _lost(report: Report) -> Html | str:
    if not report.secrets_lost:
        return ""
    things = [(each.key, each.thing or NO_ID) for each in report.secrets_lost]
    return filled(
        "webhooks",
        title="Secrets lost",
        advice=_advice(LOST_SECRETS),
        command=filled_if_any("command", report.replacing),
        writes=_webhooks(things),
        more=_rest_of(report, report.lost - len(things)),
    )


def _replaced(report: Report) -> Html | str:
    if not report.secrets_replaced:
        return ""
    things = [(each.key, replacement(each)) for each in report.secrets_replaced]
    return filled(
        "webhooks",
        title="Replaced",
        advice=REPLACED,
        command="",
        writes=_webhooks(things),
        more=_rest_of(report, report.replaced - len(things)),
    )


def _webhooks(things: Sequence[tuple[str, str]]) -> list[Html]:
    """Return a line for each pair of a key and what stands beside it."""
    return [filled("webhook", key=key, thing=thing) for key, thing in things]


def _rest_of(report: Report, many: int) -> str:
    """Return how to see the *many* others."""
    if many <= 0:
        return ""
    return f"And {many:,} more: invsvc {report.kind} report {report.where} --jsonl FILE lists them all."


def _duplicates(report: Report) -> Html | str:
    if not report.second_effects:
        return ""
    shown = sum(len(each.duplicates) for each in report.second_effects)
    return filled(
        "webhooks",
        title="Duplicates",
        advice=SECOND_EFFECTS,
        command="",
        writes=[
            filled("webhook", key=each.key, thing=", ".join(each.duplicates))
            for each in report.second_effects
        ],
        more=_rest_of(report, report.duplicates - shown),
    )
