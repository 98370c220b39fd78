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
    from invsvc_async.batch.reports.summary import Report

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
    return TableView(titles=titles, rows=rows, right=range(1, len(titles)))


def report_in_words(report: Report) -> list[tuple[str, str]]:
    """Return names and texts of what people are shown of the whole store."""
    facts = _facts(report)
    return [(name, text) for name, text in facts.items() if isinstance(text, str)]


def _facts(report: Report) -> dict[str, object]:
    summary = report.summary
    left = report.summary.to_do + report.summary.sending
    sent = (
        f"{counted(report.attempts, 'write')} ({report.resends:,} sent again on proof)"
    )
    limits = sorted(report.limits.items(), key=lambda each: -each[1])
    faults = ", ".join(
        f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)
    )
    killed = sum(run.is_lost for run in report.runs)
    discarded = report.secrets_discarded if report.kind == "batch" else 0
    lost = f"{report.lost:,} lost webhook secrets"
    return {
        "writes": f"{summary.total:,}, {left:,} of them open",
        "not due": report.first_due is not None
        and f"{report.not_due:,}, the first one at {as_date(report.first_due)}",
        "rate": report.runs
        and f"{report.rate:,.1f} a second while it ran, {report.active_seconds:,.0f} s",
        "time to verdict": f"median {report.quantile(0.5):.3g} s, p99 {report.quantile(0.99):.3g} s",
        "requests": f"{sent}, {counted(report.reads, 'read')}",
        "failures": faults or None,
        "limited by": limits
        and ", ".join(f"{why} {seconds:.0f} s" for why, seconds in limits),
        "killed": killed
        and f"{killed:,} of {len(report.runs):,} processes, or their machines were lost",
        "input": summary.open_inputs and INPUT_INCOMPLETE,
        "secrets": discarded and f"{discarded:,} {_DISCARDED}",
        "look at": (report.duplicates or report.lost)
        and f"{report.duplicates:,} duplicate effects, {lost}",
        "replaced": report.replaced
        and f"{counted(report.replaced, 'webhook')} with lost secrets, by others",
    }
