"""Output of a batch's report, and of each outcome as a line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.reports.not_applied import commands_for
from invsvc_async.batch.result import Result
from invsvc_async.cli.output import console, counted, note, print_facts, print_hanging, table
from invsvc_async.codec import envelope
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from invsvc_async.batch.reports.not_applied import FailedWrite, Group
    from invsvc_async.batch.reports.summary import Report
    from invsvc_async.batch.result import Summary

__all__ = [
    "INPUT_INCOMPLETE",
    "counts_of",
    "failed_line_of",
    "line_of",
    "note_missing",
    "plain",
    "plain_groups",
    "show",
    "show_groups",
]

INPUT_INCOMPLETE = "input", "incomplete: run it again to its end, or use `invsvc batch close`"
_ADVICE = (
    "The journal has seen no answer with the secret. If a kill came just after the answer, or the journal "
    "is a restored copy, the file of --secrets-to has it. Otherwise delete the webhook, and create it again "
    "with another key."
)
_SHOWN = 20  # writes of one group listed on a terminal
_MISSING_SHOWN = 20  # writes that a file of failed ones lacks


def line_of(result: Result) -> bytes:
    """Return *result* as one line of JSON."""
    return envelope.dumps(_plain_result(result)) + b"\n"


def _plain_result(result: Result) -> dict[str, Any]:  # Any: JSON values
    names = [field.name for field in attrs.fields(Result) if field.name != "outcome"]
    fields: dict[str, Any] = {name: getattr(result, name) for name in names}
    fields |= {
        "verdict": str(result.verdict),
        "secret_lost": result.secret_lost,
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
        "limited_by": report.limits,
        "second_effects": report.duplicates,
        "not_applied": plain_groups(report.groups, report.name),
        "lost_secrets": [{"key": each.key, "webhook": each.thing} for each in report.secrets_lost],
        "unknowns": list(_plain_unknowns(report)),
    }


def _plain_unknowns(report: Report) -> Iterator[dict[str, Any]]:  # Any: JSON values
    for group in report.groups:
        for each in group.results:
            if each.verdict is Verdict.UNKNOWN:
                yield _plain_result(each) | {"advice": group.advice}


def plain_groups(groups: list[Group], journal: str) -> list[dict[str, Any]]:  # Any: JSON values
    """Return the groups of writes that are not applied in *journal*, each with the first of its writes."""
    return [
        {
            "verdict": str(group.verdict),
            "cause": group.cause,
            "count": group.count,
            "advice": group.advice,
            "command": command,
            "writes": [_plain_result(each) for each in group.results],
        }
        for group, command in zip(groups, commands_for(groups, journal), strict=True)
    ]


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
    show_groups(report.groups, report.name)
    _show_lost(report)


def _show_lost(report: Report) -> None:
    """Print which webhooks have no secret, and what to do about them."""
    if not report.secrets_lost:
        return
    out = console()
    print_hanging(out, f"\nsecrets lost: {report.summary.secrets_lost:,}\n  {_ADVICE}")
    for result in report.secrets_lost[:_SHOWN]:
        out.print(f"  - {result.key} ({result.operation}): {result.thing}", markup=False)
    if (more := report.summary.secrets_lost - _SHOWN) > 0:
        out.print(f"  and {more:,} more: invsvc batch report --jsonl FILE has them all", markup=False)


def show_groups(groups: list[Group], journal: str) -> None:
    """Print the groups of writes that are not applied: cause, advice, command, and the first writes."""
    out = console()
    for group, command in zip(groups, commands_for(groups, journal), strict=True):
        print_hanging(out, f"\n{group.verdict}: {group.cause}: {group.count:,}\n  {group.advice}")
        if command is not None:
            out.print(f"  $ {command}", markup=False, soft_wrap=True)  # whole, so that it can be copied
        for result in group.results[:_SHOWN]:
            words = result.message
            if result.verdict is Verdict.REFUSED and result.error:
                words = result.error
            print_hanging(out, f"  - {result.key} ({result.operation}): {words}".replace("\n", " "))
        if (more := group.count - _SHOWN) > 0:
            out.print(f"  and {more:,} more: invsvc batch report --failed FILE lists them all", markup=False)


def failed_line_of(write: FailedWrite) -> bytes:
    """Return a write that is not applied as one line of input."""
    return envelope.dumps(write.line) + b"\n"


def note_missing(missing: Mapping[str, str]) -> None:
    """Name the writes, by key, of which a file of failed ones lacks something."""
    for key, what in list(missing.items())[:_MISSING_SHOWN]:
        note(f"{key}: {what}")
    if (more := len(missing) - _MISSING_SHOWN) > 0:
        note(f"and {more:,} more")


def _facts(report: Report) -> list[tuple[str, str]]:
    reads = counted(report.reads, "read")
    median, p99 = report.quantile(0.5), report.quantile(0.99)
    facts = [
        (
            "writes",
            f"{report.summary.total:,}, {report.summary.to_do + report.summary.sending:,} of them open",
        ),
        ("time to verdict", f"median {median:.3g} s, p99 {p99:.3g} s"),
        (
            "requests",
            f"{counted(report.attempts, 'write')} ({report.resends:,} sent again on proof), {reads}",
        ),
    ]
    if report.faults:
        facts.append(
            ("failures", ", ".join(f"{count:,} x {kind}" for kind, count in report.faults.most_common(8)))
        )
    if report.limits:
        limits = sorted(report.limits.items(), key=lambda each: -each[1])
        facts.append(("limited by", ", ".join(f"{why} {seconds:.0f} s" for why, seconds in limits)))
    if report.summary.open_inputs:
        facts.append(INPUT_INCOMPLETE)
    if report.duplicates or report.summary.secrets_lost:
        lost = report.summary.secrets_lost
        facts.append(("look at", f"{report.duplicates:,} duplicate effects, {lost:,} lost webhook secrets"))
    return facts
