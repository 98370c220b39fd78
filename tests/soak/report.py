"""
What one seed of the soak came to, in words and figures.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

import attrs

from invsvc_async import Verdict
from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.history import Reading
from tests.soak.judge import Fault, judge, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.simulator import Entry
    from tests.soak.judge import Truth
    from tests.soak.records import Sibling
    from tests.soak.soak import Soaked
    from tests.soak.world import World

__all__ = ["Report", "report_of", "table", "without_numbers"]

LINES = 10  # of the ledger that a story has of the beginning, and of the end
UNKNOWN_ALLOWED = 0.02  # of the writes that have a reader


@attrs.frozen(kw_only=True)
class Report:
    """One seed's figures; times in s."""

    seed: int
    world: str
    writes: int
    verdicts: dict[str, int]
    per_write: float  # requests
    faults: dict[str, int]  # by kind
    unknown: int
    with_reader: int
    reasons: dict[str, int]  # of the unknown ones
    # until an applied write in doubt was known: the median, by operation
    reads: dict[str, float]
    most_hooks: int
    kills: int
    virtual: float
    stories: tuple[str, ...]
    real: float = 0.0
    cpu: float = 0.0

    @property
    def share(self) -> float:
        """The share of UNKNOWN among the writes that have a reader."""
        return self.unknown / max(1, self.with_reader)

    def text(self) -> str:
        """Return the figures, then the stories of what was false."""
        verdicts = ", ".join(
            f"{count} {name}" for name, count in sorted(self.verdicts.items())
        )
        faults = (
            ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
            or "none"
        )
        reads = ", ".join(
            f"{name} {value:g}" for name, value in sorted(self.reads.items())
        )
        lines = [
            f"seed {self.seed} ({self.world}): {self.writes} writes: {verdicts}",
            f"  faults: {faults}",
            f"  unknown: {self.unknown} of {self.with_reader} that have a reader ({100 * self.share:.2f} %)",
            *(f"    {count:6} {reason}" for reason, count in self.reasons.items()),
            f"  {self.per_write:.2f} requests a write; reads after its effect until an applied one in doubt is known: {reads}",
            (
                f"  {self.virtual:.0f} virtual s, {self.real:.1f} s, {1e3 * self.cpu / max(1, self.writes):.2f} ms CPU "
                f"a write; at most {self.most_hooks} webhooks; {self.kills} kills"
            ),
        ]
        return "\n".join([*lines, *self.stories])


def report_of(seed: int, world: World, soaked: Soaked, *, stories: int) -> Report:
    """Judge *soaked*, and return its figures, with so many *stories* of each kind of fault."""
    siblings, truth = (
        [each for each in soaked.siblings if each.sent or each.heard],
        soaked.truth,
    )
    faults = judge(siblings, truth)
    faults += [
        Fault("raised", None, f"recover: {text[-400:]}", 0.0) for text in soaked.raised
    ]
    readable = [each for each in siblings if BY_NAME[each.operation].reader is not None]
    unknown = [
        each
        for each in readable
        if each.heard and each.heard[-1].verdict is Verdict.UNKNOWN
    ]
    return Report(
        seed=seed,
        world=world.name,
        writes=len(siblings),
        verdicts=dict(verdicts_of(siblings)),
        per_write=soaked.requests / max(1, len(siblings)),
        faults=dict(Counter(fault.kind for fault in faults)),
        unknown=len(unknown),
        with_reader=len(readable),
        reasons=dict(Counter(_reason(each) for each in unknown).most_common(8)),
        reads=_reads(siblings, truth),
        most_hooks=soaked.most_hooks,
        kills=soaked.kills,
        virtual=soaked.seconds,
        stories=tuple(_stories(seed, faults, truth, stories)),
    )


def _reason(sibling: Sibling) -> str:
    """Return why it is unknown."""
    outcome, run = sibling.heard[-1].outcome, sibling.heard[-1].run
    words = "?" if outcome is None else outcome.message
    return (
        f"{sibling.operation}, {run.kind} by {run.client[0]}: {without_numbers(words)}"
    )


def without_numbers(words: str) -> str:
    """Return *words* with a sign for each number, so that like reasons are counted together."""
    return " ".join(
        "…" if any(sign.isdigit() for sign in word) else word for word in words.split()
    )


def _reads(siblings: Iterable[Sibling], truth: Truth) -> dict[str, float]:
    """
    Return the median of the reads until an applied write in doubt was known, by operation.

    Counted are reads that succeeded and were started after the effect.  A thing that was already as wanted
    does not show the effect, so those writes are counted apart.
    """
    counts: dict[str, list[int]] = {}
    for sibling in siblings:
        heard = sibling.heard[0] if sibling.heard else None
        if heard is None or heard.outcome is None or heard.run.kind != "live":
            continue
        effects, outcome = truth.effects.get(sibling.key), heard.outcome
        if (
            heard.verdict is Verdict.APPLIED
            and outcome.evidence.basis != "answered"
            and effects
        ):
            since = (effects[0].applied_at or 0.0) + heard.ahead
            readings = [each for each in outcome.history if isinstance(each, Reading)]
            name = sibling.operation + (
                " (already so)" if "may have matched before" in outcome.message else ""
            )
            counts.setdefault(name, []).append(
                sum(
                    each.started >= since and each.status in (200, 404)
                    for each in readings
                )
            )
    return {name: median(found) for name, found in counts.items()}


def _stories(seed: int, faults: Sequence[Fault], truth: Truth, most: int) -> list[str]:
    told: Counter[str] = Counter()
    lines: list[str] = []
    for fault in faults:
        told[fault.kind] += 1
        if told[fault.kind] <= most:
            lines += _story(seed, fault, truth)
    return lines


def _story(seed: int, fault: Fault, truth: Truth) -> list[str]:
    sibling = fault.sibling
    lines = [f"--- FALSE: {fault.kind}: seed {seed}, {fault.why}"]
    if sibling is None:
        return lines
    sequence, place = sibling.chain
    lines.append(
        f"    write {sibling.key} (sequence {sequence}, place {place}): {sibling.operation} of {sibling.thing}, "
        f"wanted {sibling.wanted}"
    )
    lines += [
        f"    run: {run.kind} by {run.client} from {run.began:.4f}"
        for run in sibling.runs
    ]
    lines += [
        f"    raised: {line}"
        for text in sibling.raised
        for line in text.splitlines()[-8:]
    ]
    for heard in sibling.heard:
        lines.append(
            f"    heard {heard.at:.4f}: {heard.verdict} ({heard.run.kind} by {heard.run.client})"
        )
        if heard.outcome is not None:
            lines += [
                f"      | {line}" for line in heard.outcome.explain().splitlines()
            ]
            lines.append(
                f"      | {heard.outcome.evidence.basis}: {heard.outcome.message}"
            )
    return lines + _ledger(fault, truth)


def _ledger(fault: Fault, truth: Truth) -> list[str]:
    """Return the lines of the ledger about the thing, around the write."""
    sibling = fault.sibling
    assert sibling is not None
    since = (sibling.first_opened or sibling.runs[0].began) - 2.0
    lines = []
    for entry in truth.entries:
        about = _is_about(entry, sibling)
        moments = [at for at in (entry.received_at, entry.applied_at) if at is not None]
        if about and any(since <= at <= fault.at + 1.0 for at in moments):
            applied = "-" if entry.applied_at is None else f"{entry.applied_at:.4f}"
            who = "rival" if entry.by == "other" else entry.sender
            body = (
                entry.body
                if not isinstance(entry.body, dict)
                else {k: v for k, v in entry.body.items() if k != "events"}
            )
            mark = "=>" if (entry.sender or "").startswith(f"{sibling.key}@") else "  "
            lines.append(
                f"    {mark} ledger: {entry.received_at:.4f} applied {applied} {who} {entry.operation} {body} "
                f"[{entry.fault or 'pass'}] {entry.answered or ''} {entry.target or ''}{_stored(entry)}"
            )
    if len(lines) > 2 * LINES:
        own = [line for line in lines[LINES:-LINES] if line.startswith("    =>")]
        lines = [
            *lines[:LINES],
            *own,
            f"       … {len(lines) - 2 * LINES - len(own)} more",
            *lines[-LINES:],
        ]
    return lines


def _stored(entry: Entry) -> str:
    """Return what the service stored, where that is not what was sent."""
    return (
        ""
        if entry.stored in (None, "as sent")
        else f" stored {entry.stored}: {entry.fields}"
    )


def _is_about(entry: object, sibling: Sibling) -> bool:
    if sibling.operation == "webhooks.create":
        host = sibling.thing.partition(" ")[2]
        body = getattr(entry, "body", None)
        return (
            isinstance(body, dict) and f"//{host}." in str(body.get("url", "")).lower()
        )
    return (
        getattr(entry, "path_id", None) == sibling.thing
        or getattr(entry, "target", None) == sibling.thing
    )


def table(reports: Sequence[Report]) -> str:
    """Return all seeds together."""
    faults: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        verdicts.update(report.verdicts)
    writes = sum(report.writes for report in reports)
    unknown, readable = (
        sum(each.unknown for each in reports),
        sum(each.with_reader for each in reports),
    )
    lines = [
        f"{writes} writes over {len(reports)} seeds ({', '.join(str(each.seed) for each in reports)})",
        f"verdicts: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}",
        f"unknown: {unknown} of {readable} that have a reader ({100 * unknown / max(1, readable):.2f} %)",
        f"CPU: {1e3 * sum(each.cpu for each in reports) / max(1, writes):.2f} ms a write",
        *(f"  {count:6} {kind}" for kind, count in faults.most_common()),
        "FAIL" if faults else "PASS",
    ]
    return "\n".join(lines)
