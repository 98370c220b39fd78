"""Print what a batch came to, and each outcome as a line of JSON; never a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.reports.summary import advice_for
from invsvc_async.batch.result import Result
from invsvc_async.cli.output import console, print_facts, table
from invsvc_async.codec import envelope
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.reports.summary import Report
    from invsvc_async.batch.result import Summary

__all__ = ["counts_of", "line_of", "plain", "show"]

_SHOWN = 20  # unknown writes on a terminal


def line_of(result: Result) -> bytes:
    """Give *result* as one line of JSON."""
    return envelope.dumps(_told(result)) + b"\n"


def _told(result: Result) -> dict[str, Any]:  # Any: JSON as Python values
    names = [field.name for field in attrs.fields(Result) if field.name != "outcome"]
    told: dict[str, Any] = {name: getattr(result, name) for name in names}
    told |= {
        "verdict": str(result.verdict),
        "candidates": [*result.candidates],
        "duplicates": [*result.duplicates],
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def plain(report: Report) -> dict[str, Any]:  # Any: JSON as Python values
    """Give the report as one object; times in seconds."""
    return counts_of(report.summary) | {
        "operations": {name: _named(counts) for name, counts in sorted(report.operations.items())},
        "seconds": report.seconds,
        "seconds_to_verdict": {"median": report.quantile(0.5), "p99": report.quantile(0.99)},
        "attempts": report.attempts,
        "resends": report.resends,
        "reads": report.reads,
        "failures": dict(report.faults.most_common()),
        "second_effects": report.duplicates,
        "unknowns": [_told(each) | {"advice": advice_for(each)} for each in report.unknowns],
    }


def counts_of(summary: Summary) -> dict[str, Any]:  # Any: JSON as Python values
    """Give how a whole batch stands as one object."""
    return {
        "total": summary.total,
        "to_do": summary.to_do,
        "sending": summary.sending,
        "verdicts": _named(summary.verdicts),
        "secrets_lost": summary.secrets_lost,
    }


def _named(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {str(verdict): count for verdict, count in counts.items()}


def show(report: Report) -> None:
    """Print the report."""
    titles = ["operation", *map(str, Verdict)]
    rows = [
        [name, *(f"{counts[verdict]:,}" for verdict in Verdict)]
        for name, counts in sorted(report.operations.items())
    ]
    table(titles, rows, right=range(1, len(titles)))
    print_facts(console(), _facts(report))
    for result in report.unknowns[:_SHOWN]:
        out = console()
        out.print(f"\n{result.key} ({result.operation}): {result.message}", markup=False)
        out.print(f"  {advice_for(result)}", markup=False)
    if (more := report.summary.unknown - _SHOWN) > 0:
        console().print(f"\nand {more:,} more unknown ones: --html or --jsonl shows them")


def _facts(report: Report) -> list[tuple[str, str]]:
    middle, late = report.quantile(0.5), report.quantile(0.99)
    facts = [
        (
            "writes",
            f"{report.summary.total:,}, {report.summary.to_do + report.summary.sending:,} of them open",
        ),
        ("time to verdict", f"{middle:.3g} s in the middle, {late:.3g} s for 99 of 100"),
        (
            "requests",
            f"{report.attempts:,} of writes ({report.resends:,} sent again on proof), {report.reads:,} reads",
        ),
    ]
    if report.faults:
        facts.append(
            ("failures met", ", ".join(f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)))
        )
    if report.duplicates or report.summary.secrets_lost:
        lost = report.summary.secrets_lost
        facts.append(("look at", f"{report.duplicates:,} second effects, {lost:,} lost secrets of webhooks"))
    return facts
