"""Print what a batch came to, and each outcome as a line of JSON; never a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import wire
from invsvc_async.batch.report import advice_for
from invsvc_async.batch.results import Result
from invsvc_async.cli.output import console, print_facts, table
from invsvc_async.reconcile.evidence import Verdict

if TYPE_CHECKING:
    from invsvc_async.batch.report import Report

__all__ = ["line_of", "show"]

_SHOWN = 20  # unknown writes on a terminal


def line_of(result: Result) -> bytes:
    """Give *result* as one line of JSON."""
    names = [field.name for field in attrs.fields(Result) if field.name != "outcome"]
    told: dict[str, Any] = {name: getattr(result, name) for name in names}  # Any: JSON as Python values
    told |= {
        "verdict": str(result.verdict),
        "candidates": [*result.candidates],
        "duplicates": [*result.duplicates],
    }
    return wire.dumps({name: value for name, value in told.items() if value not in (None, [])}) + b"\n"


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
