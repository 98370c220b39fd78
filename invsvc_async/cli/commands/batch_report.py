"""Output of a batch's report, and of each outcome as a line of JSON."""

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

__all__ = ["INPUT_INCOMPLETE", "counts_of", "line_of", "plain", "show"]

INPUT_INCOMPLETE = "input", "incomplete: run it again to its end, or use `invsvc batch close`"
_SHOWN = 20  # unknown writes listed on a terminal


def line_of(result: Result) -> bytes:
    """Return *result* as one line of JSON."""
    return envelope.dumps(_plain_result(result)) + b"\n"


def _plain_result(result: Result) -> dict[str, Any]:  # Any: JSON values
    names = [field.name for field in attrs.fields(Result) if field.name != "outcome"]
    fields: dict[str, Any] = {name: getattr(result, name) for name in names}
    fields |= {
        "verdict": str(result.verdict),
        "candidates": [*result.candidates],
        "duplicates": [*result.duplicates],
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def plain(report: Report) -> dict[str, Any]:  # Any: JSON values
    """Return the report as JSON values; times in seconds."""
    return counts_of(report.summary) | {
        "operations": {name: _named(counts) for name, counts in sorted(report.operations.items())},
        "seconds": report.seconds,
        "seconds_to_verdict": {"median": report.quantile(0.5), "p99": report.quantile(0.99)},
        "attempts": report.attempts,
        "resends": report.resends,
        "reads": report.reads,
        "failures": dict(report.faults.most_common()),
        "second_effects": report.duplicates,
        "unknowns": [_plain_result(each) | {"advice": advice_for(each)} for each in report.unknowns],
    }


def counts_of(summary: Summary) -> dict[str, Any]:  # Any: JSON values
    """Return a summary of the whole batch as JSON values."""
    return {
        "total": summary.total,
        "to_do": summary.to_do,
        "sending": summary.sending,
        "verdicts": _named(summary.verdicts),
        "secrets_lost": summary.secrets_lost,
        "overtaken": summary.overtaken,
        "open_inputs": summary.open_inputs,
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
        console().print(f"\nand {more:,} more unknown: use --html or --jsonl to see them")


def _facts(report: Report) -> list[tuple[str, str]]:
    median, p99 = report.quantile(0.5), report.quantile(0.99)
    facts = [
        (
            "writes",
            f"{report.summary.total:,}, {report.summary.to_do + report.summary.sending:,} of them open",
        ),
        ("time to verdict", f"median {median:.3g} s, p99 {p99:.3g} s"),
        (
            "requests",
            f"{report.attempts:,} writes ({report.resends:,} sent again on proof), {report.reads:,} reads",
        ),
    ]
    if report.faults:
        facts.append(
            ("failures", ", ".join(f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)))
        )
    if report.summary.overtaken:
        words = "not applied, because newer writes to the same resources were sent (retry --force sends them)"
        facts.append(("overtaken", f"{report.summary.overtaken:,} {words}"))
    if report.summary.open_inputs:
        facts.append(INPUT_INCOMPLETE)
    if report.duplicates or report.summary.secrets_lost:
        lost = report.summary.secrets_lost
        facts.append(("look at", f"{report.duplicates:,} duplicate effects, {lost:,} lost webhook secrets"))
    return facts
