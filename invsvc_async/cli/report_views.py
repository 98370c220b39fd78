"""
What people are shown of a whole store: the data, and its words.

The command prints it, and the console shows it on a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.cli.output import counted
from invsvc_async.cli.store_views import TableView, as_date
from invsvc_async.reconcile.enums import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.batch.reports.summary import Report

_LIMITS = {
    "order": "one write to a resource at a time",
    "rate": "the rate",
    "concurrency": "the writes in flight",
    "adaptive limit": "what the service answers in time",
    "input": "reading the input",
}
INPUT_INCOMPLETE = "incomplete: run it again to its end"
_DISCARDED = (
    "are not stored: --no-secrets was given, or the results of the run had them"
)


def operations_table(report: Report) -> TableView:
    """Return how many writes of each operation have which verdict, as a table."""
    titles = ["operation", *map(str, Verdict)]
    found = sorted(report.operations.items())
    rows = [
        [name, *(f"{counts[verdict]:,}" for verdict in Verdict)]
        for name, counts in found
    ]
    return TableView(
        titles=titles,
        rows=rows,
        right=range(1, len(titles)),
    )


def report_in_words(report: Report) -> list[tuple[str, str]]:
    """Return names and texts of what people are shown of the whole store."""
    return [*_amounts(report), *_troubles(report), *_to_look_at(report)]


def _amounts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield how many writes and requests there were, and how fast they were."""
    summary = report.summary
    left = summary.to_do + summary.sending
    yield "writes", f"{summary.total:,}, {left:,} of them open"
    if report.first_due is not None:
        first = f"the first one at {as_date(report.first_due)}"
        yield "not due", f"{report.not_due:,}, {first}"
    if report.runs:
        rate = f"{report.rate:,.1f} a second while it ran"
        yield "rate", f"{rate}, {report.active_seconds:,.0f} s"
    median = f"median {report.quantile(0.5):.3g} s"
    yield "time to verdict", f"{median}, p99 {report.quantile(0.99):.3g} s"
    sent = counted(report.attempts, "write")
    again = f"{report.resends:,} sent again on proof"
    yield "requests", f"{sent} ({again}), {counted(report.reads, 'read')}"


def _troubles(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what went wrong or slowly."""
    if report.faults:
        found = report.faults.most_common(8)
        yield "failures", ", ".join(f"{count:,} x {kind}" for kind, count in found)
    if report.limits:
        limits = sorted(report.limits.items(), key=lambda each: -each[1])
        words = (f"{_LIMITS.get(why, why)} {seconds:.0f} s" for why, seconds in limits)
        yield "limited by", ", ".join(words)
    killed = sum(run.is_lost for run in report.runs)
    if killed:
        of = f"{killed:,} of {len(report.runs):,} processes"
        yield "killed", f"{of}, or their machines were lost"


def _to_look_at(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what a person has to look at."""
    if report.summary.open_inputs:
        yield "input", INPUT_INCOMPLETE
    if report.kind == "batch" and report.secrets_discarded:
        yield "secrets", f"{report.secrets_discarded:,} {_DISCARDED}"
    if report.duplicates or report.lost:
        lost = f"{report.lost:,} lost webhook secrets"
        yield "look at", f"{report.duplicates:,} duplicate effects, {lost}"
    if report.replaced:
        replaced = counted(report.replaced, "webhook")
        yield "replaced", f"{replaced} whose secrets were lost"
