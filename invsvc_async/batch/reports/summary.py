"""A summary of a store of writes, made in constant memory and without bodies."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil, log10
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.entries import pages_of, summary_of
from invsvc_async.batch.reports.not_applied import (
    SHOWN,
    Group,
    Groups,
    command_for_lost,
    where_for,
    where_of,
)
from invsvc_async.batch.run_status import RUN, Status, statuses_in
from invsvc_async.durable.entries import not_due
from invsvc_async.reconcile.history import Verdict
from invsvc_async.resources.lost_secrets import first_key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.result import Result, Summary
    from invsvc_async.durable.entries import Entries


_COLUMNS = 120  # of the timeline, while something was sent
_MOST_SLICES = 3 * _COLUMNS
_MOST_COUNTED = 100_000  # writes that are not due
_FIRST_ERROR = 400  # the first HTTP status of an error
_STEPS = 10  # of the logarithmic scale of times, for each factor of ten


@attrs.define
class Slice:
    """The verdicts of one interval."""

    begun: int  # epoch ms
    verdicts: Counter[Verdict] = attrs.field(factory=Counter[Verdict])
    faults: int = 0  # writes that had a failure


@attrs.define(kw_only=True)
class Report:
    """The counts and times (in seconds) of a store, and its writes that are not applied."""

    name: str
    kind: str = "batch"  # the command that it is for
    where: str = "PLACE"  # the words of a command that name the store
    summary: Summary
    operations: dict[str, Counter[Verdict]] = attrs.field(
        factory=dict[str, Counter[Verdict]]
    )
    slices: list[Slice] = attrs.field(factory=list[Slice])
    width: int = 1000  # of a slice, in ms
    # steps of a logarithmic scale
    times: Counter[int] = attrs.field(factory=Counter[int])
    attempts: int = 0
    resends: int = 0
    reads: int = 0
    duplicates: int = 0
    faults: Counter[str] = attrs.field(factory=Counter[str])
    # what limited its runs for how many s
    limits: dict[str, float] = attrs.field(factory=dict[str, float])
    # of the processes that sent it, in their order
    runs: list[Status] = attrs.field(factory=list[Status])
    secrets_discarded: int = 0
    # writes that wait for their time, or behind such ones; when the first is due (epoch ms)
    not_due: int = 0
    first_due: int | None = None
    # of the writes that are not applied
    groups: list[Group] = attrs.field(factory=list)
    lost: int = 0  # secrets, of webhooks that were not replaced
    replaced: int = 0  # webhooks whose secrets were lost
    secrets_lost: list[Result] = attrs.field(factory=list)  # the first of them
    secrets_replaced: list[Result] = attrs.field(factory=list)  # the first of them
    replacing: str | None = (
        None  # the command that replaces those whose secrets are lost
    )
    # keys of the creates whose secrets were lost, replaced or not
    lost_keys: set[str] = attrs.field(factory=set[str], repr=False)
    # the first writes that had more than one
    second_effects: list[Result] = attrs.field(factory=list)

    def quantile(self, part: float) -> float:
        """Return the time, in seconds, within which *part* of the writes had their verdict."""
        wanted = part * self.times.total()
        seen = 0
        for step in sorted(self.times):
            seen += self.times[step]
            if seen >= wanted:
                return float(10 ** (step / _STEPS))
        return 0.0

    @property
    def seconds(self) -> float:
        """The time from the first verdict to the last."""
        if not self.slices:
            return 0.0
        return float(self.slices[-1].begun + self.width - self.slices[0].begun) / 1000

    @property
    def active(self) -> list[tuple[int, int]]:
        """The times (epoch ms) in which a process ran and was not paused, in their order."""
        parts: list[tuple[int, int]] = []
        for run in self.runs:
            begun = run.begun
            for pause in run.pauses:
                parts.append((begun, pause.begun))
                begun = pause.ended
            parts.append((begun, run.at))
        merged: list[tuple[int, int]] = []
        for begun, ended in sorted(parts):
            if merged and begun <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(ended, merged[-1][1])
            else:
                merged.append((begun, ended))
        return merged

    @property
    def still(self) -> list[tuple[int, int]]:
        """The times (epoch ms) between ``active`` ones: no process ran, or all that ran were paused."""
        return [(begun, ended) for (_, begun), (ended, _) in pairwise(self.active)]

    @property
    def active_seconds(self) -> float:
        """How long a process ran and was not paused, or ``seconds`` if that is not known."""
        return sum(ended - begun for begun, ended in self.active) / 1000 or self.seconds

    @property
    def whole_seconds(self) -> float:
        """The time from the beginning of the first process to the end of the last, at least ``seconds``."""
        if not self.runs:
            return self.seconds
        last = max(each.at for each in self.runs)
        first = min(each.begun for each in self.runs)
        return max(self.seconds, (last - first) / 1000)

    @property
    def rate(self) -> float:
        """The writes finished per second of ``active_seconds``."""
        if self.active_seconds:
            return self.summary.done / self.active_seconds
        return 0.0


async def report_of(
    entries: Entries,
    name: str,
    kind: str = "batch",
    profile: str | None = None,
) -> Report:
    """Read the whole store once and summarise it. Its commands are given the *profile*."""
    report = Report(
        name=name,
        kind=kind,
        summary=await summary_of(entries),
    )
    report.runs = sorted(
        statuses_in(await entries.facts.beginning(RUN)), key=lambda each: each.begun
    )
    report.not_due, report.first_due = await not_due(entries, _MOST_COUNTED)
    for each in report.runs:
        for why, lasted in each.seconds.items():
            report.limits[why] = report.limits.get(why, 0.0) + lasted
    seconds: dict[int, Slice] = {}  # by their beginnings
    groups = Groups()
    async for page in pages_of(entries):
        for result in await groups.add_page(entries, page):
            _count(report, result)
            if result.done_at is not None:
                begun = result.done_at // 1000 * 1000
                piece = seconds.setdefault(begun, Slice(begun))
                piece.verdicts[result.verdict] += 1
                piece.faults += result.error is not None
    report.groups = groups.sorted(name, kind, profile)
    report.where = where_for(kind, name, profile)
    if report.lost:
        keys = [each.key for each in report.secrets_lost]
        where = where_of(name, profile)
        report.replacing = command_for_lost(keys, report.lost, where, kind)
    if not seconds:
        return report
    report.slices = slices_of(report, seconds)
    return report


def slices_of(report: Report, seconds: Mapping[int, Slice]) -> list[Slice]:
    """
    Merge *seconds* into slices of equal width, few enough for the timeline, and set that width.

    Times without sends are narrow there, so that the width is chosen for the others.  Slices without a
    verdict are left out.
    """
    first = min(seconds)
    span = max(seconds) - first + 1000
    sent_for = sum(ended - begun for begun, ended in report.active) or span
    report.width = max(1000, -(-min(sent_for, span) // _COLUMNS))
    merged = _merged(seconds, first, report.width)
    if len(merged) > _MOST_SLICES:  # verdicts while nothing was said to be sent
        report.width = max(1000, -(-span // _COLUMNS))
        merged = _merged(seconds, first, report.width)
    return merged


def _merged(
    seconds: Mapping[int, Slice],
    first: int,
    width: int,
) -> list[Slice]:
    slices: dict[int, Slice] = {}
    for begun, piece in sorted(seconds.items()):
        number = (begun - first) // width
        into = slices.setdefault(number, Slice(first + number * width))
        into.verdicts.update(piece.verdicts)
        into.faults += piece.faults
    return [*slices.values()]


def _count(report: Report, result: Result) -> None:
    report.operations.setdefault(result.operation, Counter())[result.verdict] += 1
    report.attempts += result.attempts
    report.resends += result.resends
    report.reads += result.reads
    report.duplicates += len(result.duplicates)
    if result.duplicates and len(report.second_effects) < SHOWN:
        report.second_effects.append(result)
    report.times[ceil(log10(max(result.seconds, 0.0001)) * _STEPS)] += 1
    if result.secret_lost:
        _count_lost(report, result)
    report.secrets_discarded += result.secret == "not stored"
    if (failure := failure_of(result)) is not None:
        report.faults[failure] += 1


def _count_lost(report: Report, result: Result) -> None:
    """
    Count *result*, whose secret was lost: as replaced, if another webhook stands in its place.

    What was made in the place of one that is counted is not counted again: it is replaced with that.
    """
    report.lost_keys.add(result.key)
    first_key = first_key_of(result.key)
    if first_key != result.key and first_key in report.lost_keys:
        return
    if result.replaced_by is None:
        report.lost += 1
        shown = report.secrets_lost
    else:
        report.replaced += 1
        shown = report.secrets_replaced
    if len(shown) < SHOWN:
        shown.append(result)


def failure_of(result: Result) -> str | None:
    """Return what failed last in a write, in a word or two; ``None`` if nothing did."""
    if result.error is None:
        return None
    kind = result.error.partition(":")[0]
    if not result.status:
        return kind
    # otherwise the answer itself was not usable
    is_refusal = result.status >= _FIRST_ERROR
    if is_refusal:
        return f"HTTP {result.status}"
    return f"{kind} (HTTP {result.status})"
