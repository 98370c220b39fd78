"""Output of what became of the writes in a store."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import attrs

from invsvc_async.cli.output import (
    counted,
    note,
    print_facts,
    print_hanging,
    say,
    table,
)
from invsvc_async.cli.progress import progress
from invsvc_async.cli.report_views import operations_table, report_in_words
from invsvc_async.cli.store_views import as_date
from invsvc_async.storage.private_file import create_private, errors_naming

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.batch.reports.summary import Report
    from invsvc_async.batch.result import Result, Summary
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entries import Entries

_SHOWN = 20  # writes of one group, or without arguments, that are listed


async def write_results(entries: Entries, path: Path) -> None:
    """Write each result to *path* as a line of JSON, and note how many there were."""
    from invsvc_async.batch.entries import results_of
    from invsvc_async.batch.reports.not_applied import plain_result

    is_file = str(path) != "-"
    count = 0
    with (
        _file(path) as file,
        progress("results written", shown=is_file) as advance,
    ):
        async for result in results_of(entries):
            file.write(_line(plain_result(result)))
            count += 1
            advance()
    if is_file:
        note(f"wrote {path}: {counted(count, 'result')}")


async def write_failed(entries: Entries, path: Path) -> None:
    """Write the writes that are not applied to *path*, and note what the file lacks."""
    from invsvc_async.batch.reports.not_applied import failed_writes

    count = checks = lacking = 0
    with _file(path) as file:
        async for key, line, missing in failed_writes(entries):
            lacking += bool(missing)
            if missing and lacking <= _SHOWN:
                note(f"{key}: {missing}")
            if line is not None:
                file.write(_line(line))
                count, checks = count + 1, checks + ("check" in line)
    note(
        f"not applied: {counted(count, 'write')}, {checks:,} of them to check before a run"
    )
    if lacking > _SHOWN:
        note(f"and {lacking - _SHOWN:,} more lack something")


@contextmanager
def _file(path: Path) -> Generator[BinaryIO]:
    if str(path) == "-":
        with errors_naming("stdout"):
            yield sys.stdout.buffer
    else:
        with errors_naming(path), create_private(path) as file:
            yield file


def _line(plain: WireObject) -> bytes:
    from invsvc_async.codec import envelope

    return envelope.dumps(plain) + b"\n"


def plain(report: Report) -> WireObject:
    """Return the report as JSON values; times in seconds."""
    found = counts_of(report.summary) | {
        "operations": dict(sorted(report.operations.items())),
        "seconds": report.seconds,
        "active_seconds": report.active_seconds,
        "per_second": round(report.rate, 3),
        "seconds_to_verdict": {
            "median": report.quantile(0.5),
            "p99": report.quantile(0.99),
        },
        "attempts": report.attempts,
        "resends": report.resends,
        "reads": report.reads,
        "failures": dict(report.faults.most_common()),
        "limited_by": report.limits,
        "second_effects": report.duplicates,
        "duplicates": [
            {"key": each.key, "webhooks": list(each.duplicates)}
            for each in report.second_effects
        ],
        "not_applied": [group.plain() for group in report.groups],
        "secrets_not_stored": report.secrets_discarded,
        "secrets_lost": report.lost,
        "secrets_replaced": report.replaced,
        "lost_secrets": [
            {"key": each.key, "webhook": each.thing} for each in report.secrets_lost
        ],
        "replaced_secrets": [
            {"key": each.key, "webhook": each.thing, "replaced_by": each.replaced_by}
            for each in report.secrets_replaced
        ],
    }
    return found | _times_of(report)


def _times_of(report: Report) -> WireObject:
    """Return how many writes wait for their time, if any do, and when the first of them is due."""
    if report.first_due is None:
        return {}
    return {"not_due": report.not_due, "first_due": as_date(report.first_due)}


def counts_of(summary: Summary) -> WireObject:
    """Return a summary as JSON values."""
    return {"total": summary.total, **attrs.asdict(summary, recurse=False)}


def show(report: Report) -> None:
    """Print the report."""
    titles, rows, right = operations_table(report)
    table(titles, rows, right=right)
    print_facts(dict(report_in_words(report)))
    show_groups(report.groups, report.where, report.kind)
    from invsvc_async.batch.reports.not_applied import (
        LOST_SECRETS,
        NO_ID,
        REPLACED,
        SECOND_EFFECTS,
        replacement,
    )

    if report.second_effects:
        _show_heading(f"duplicates: {report.duplicates:,}", SECOND_EFFECTS)
        lines = [(each, ", ".join(each.duplicates)) for each in report.second_effects]
        _show_webhooks(report, lines)
    if report.secrets_lost:
        _show_heading(f"secrets lost: {report.lost:,}", LOST_SECRETS)
        if report.replacing is not None:
            say(f"  $ {report.replacing}")
        lines = [(each, each.thing or NO_ID) for each in report.secrets_lost]
        _show_webhooks(report, lines, many=report.lost)
    if report.secrets_replaced:
        _show_heading(f"replaced: {report.replaced:,}", REPLACED)
        lines = [(each, replacement(each)) for each in report.secrets_replaced]
        _show_webhooks(report, lines, many=report.replaced)


def _show_heading(
    words: str,
    advice: str,
    style: str = "bold",
) -> None:
    """Print the heading of a group, and its advice."""
    say("")
    print_hanging(words, style=style)
    print_hanging(f"  {advice}", hanging=0)


def _show_webhooks(
    report: Report,
    lines: list[tuple[Result, str]],
    *,
    many: int = 0,
) -> None:
    """Print writes with webhooks that a person has to look at; there are *many*, or these."""
    for result, webhooks in lines[:_SHOWN]:
        say(f"  - {result.key} ({result.operation}): {webhooks}")
    if (more := max(many, len(lines)) - _SHOWN) > 0:
        words = f"invsvc {report.kind} report {report.where} --jsonl FILE"
        say(f"  and {more:,} more: {words} has them all")


def show_groups(
    groups: list[Group],
    where: str,
    kind: str = "batch",
) -> None:
    """
    Print the groups of writes that are not applied: cause, advice, command, and the first writes.

    *where* are the words of a command that name the store.
    """
    from invsvc_async.cli.terminal_table import STYLES

    for group in groups:
        heading = f"{group.verdict}: {group.cause}: {group.count:,}"
        _show_heading(heading, group.advice, f"bold {STYLES[group.verdict]}")
        if group.command is not None:
            say(f"  $ {group.command}")  # whole, so that it can be copied
        for keys, words in _told_alike(group.results[:_SHOWN]):
            print_hanging(f"  - {', '.join(keys)} {words}")
        if (more := group.count - _SHOWN) > 0:
            words = f"invsvc {kind} report {where} --jsonl FILE"
            say(f"  and {more:,} more: {words} lists them all")


def _told_alike(results: Iterable[Result]) -> Iterable[tuple[list[str], str]]:
    """Return the texts about *results*, each once, with the keys of its results."""
    from invsvc_async.batch.reports.not_applied import words_of

    found = dict[str, list[str]]()
    for result in results:
        words = f"({result.operation}): {words_of(result)}".replace("\n", " ")
        found.setdefault(words, []).append(result.key)
    return [(keys, words) for words, keys in found.items()]
