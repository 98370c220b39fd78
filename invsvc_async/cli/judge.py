"""
Judge what a client says of its writes by what the service truly did; never by what the client saw.

Pure functions of reported verdicts, ledger entries and the final state.  Every write must carry a value of
its own: the ledger knows a write by its operation, target, team and body.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

import attrs

from invsvc_async import wire
from invsvc_async.reconcile.evidence import Verdict
from invsvc_async.simulator.records import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.reconcile.evidence import Wire
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.simulator import Entry

__all__ = ["Asked", "Judgement", "Report", "Wrong", "judge"]


@attrs.frozen(kw_only=True)
class Asked:
    """One write as the ledger can know it: ``team`` is where it acts, ``path_id`` what it changes."""

    operation: str
    path_id: str | None
    team: str | None
    body: str  # canonical JSON

    @classmethod
    def of(cls, intent: Intent, *, home: str) -> Asked:
        """Tell what *intent* asks for; *home* is the team of the credential."""
        path_id = next(reversed(intent.path.values()), None) if intent.path else None
        body = intent.body if intent.has_body else None
        return cls(
            operation=intent.operation, path_id=path_id, team=intent.scope.team or home, body=canonical(body)
        )


@attrs.frozen(kw_only=True)
class Report:
    """What a client believes happened to one write, why in its words, and how it knows, where it tells."""

    key: str
    asked: Asked
    verdict: Verdict
    reason: str = ""
    story: str = ""


@attrs.frozen(kw_only=True)
class Wrong:
    """A verdict that the ledger contradicts."""

    report: Report
    why: str


@attrs.frozen(kw_only=True)
class Judgement:
    """
    What one run came to, by the service's own record.

    ``duplicates`` counts second effects of a write (third ones too); ``lost`` the writes called applied
    that neither ledger nor state shows, which are among ``wrong``; ``unasked`` effects that belong to no
    write; ``sends`` the requests to write that arrived.
    """

    asked: int
    effects: int
    duplicates: int
    unasked: int
    sends: int
    lost: tuple[Report, ...]
    wrong: tuple[Wrong, ...]
    verdicts: dict[Verdict, int]
    unknown_reasons: dict[str, int]


def judge(reports: Iterable[Report], ledger: Sequence[Entry], state: Mapping[str, Wire]) -> Judgement:
    """
    Compare *reports* with *ledger*, all late effects landed, and the final *state* (things by id).

    Raises:
        ValueError: Two writes are alike, so that the ledger cannot tell them apart.

    """
    reports = list(reports)
    entries = _by_write(ledger)
    _refuse_twins(reports)
    told = {report.asked for report in reports}
    applied = {asked: [each for each in entries[asked] if each.applied_at is not None] for asked in told}
    wrong = [
        Wrong(report=report, why=why) for report in reports if (why := _wrong(report, entries, ledger, state))
    ]
    lost = tuple(each.report for each in wrong if each.report.verdict is Verdict.APPLIED)
    ours = [each for each in ledger if each.by == "client"]
    effects = sum(each.applied_at is not None for each in ours)
    return Judgement(
        asked=len(reports),
        effects=effects,
        duplicates=sum(max(0, len(each) - 1) for each in applied.values()),
        unasked=effects - sum(map(len, applied.values())),
        sends=len(ours),
        lost=lost,
        wrong=tuple(wrong),
        verdicts=Counter(report.verdict for report in reports),
        unknown_reasons=Counter(report.reason for report in reports if report.verdict is Verdict.UNKNOWN),
    )


def canonical(body: Wire) -> str:
    """Write *body* so that equal ones are equal texts: the order of keys is nothing, and 1 is 1.0."""
    return wire.dumps(_plain(body)).decode()


def _plain(value: Wire) -> Wire:
    if is_object(value):
        return {name: _plain(value[name]) for name in sorted(value)}
    if is_array(value):
        return [_plain(each) for each in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(str(value)).normalize()
    return value


def _by_write(ledger: Iterable[Entry]) -> defaultdict[Asked, list[Entry]]:
    entries: defaultdict[Asked, list[Entry]] = defaultdict(list)
    for each in ledger:
        if each.by == "client":
            entries[_asked_by(each)].append(each)
    return entries


def _asked_by(entry: Entry) -> Asked:
    return Asked(
        operation=entry.operation, path_id=entry.path_id, team=entry.team, body=canonical(entry.body)
    )


def _refuse_twins(reports: Sequence[Report]) -> None:
    seen: dict[Asked, str] = {}
    for report in reports:
        first = seen.setdefault(report.asked, report.key)
        if first != report.key:
            raise ValueError(
                f"{report.key} and {first} are the same write: the ledger cannot tell them apart"
            )


def _wrong(
    report: Report,
    entries: Mapping[Asked, Sequence[Entry]],
    ledger: Sequence[Entry],
    state: Mapping[str, Wire],
) -> str | None:
    arrived = entries[report.asked]
    applied = any(each.applied_at is not None for each in arrived)
    if report.verdict is Verdict.APPLIED and not applied and not _shown(report.asked, state):
        return "called applied, and neither ledger nor state shows it"
    if report.verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) and applied:
        return f"called {report.verdict}, and the ledger applied it"
    if report.verdict is Verdict.SUPERSEDED and not _changed_by_others(report.asked, arrived, ledger):
        return "called superseded, and nobody else changed that thing since the send"
    return None


def _shown(asked: Asked, state: Mapping[str, Wire]) -> bool:
    """Tell whether the final state is as *asked* wanted it."""
    if asked.operation == "webhooks.delete":
        return asked.path_id not in state
    sent: dict[str, Wire] = wire.loads(asked.body.encode()) or {}
    things: list[Wire] = [state.get(asked.path_id)] if asked.path_id else list(state.values())
    return any(thing is not None and _holds(thing, sent) for thing in things)


def _holds(thing: Mapping[str, Wire], sent: Mapping[str, Wire]) -> bool:
    return all(canonical({name: thing.get(name)}) == canonical({name: value}) for name, value in sent.items())


def _changed_by_others(asked: Asked, arrived: Sequence[Entry], ledger: Sequence[Entry]) -> bool:
    since = min((each.received_at for each in arrived), default=0.0)
    return any(
        each.applied_at is not None
        and each.applied_at >= since
        and each.target == asked.path_id
        and (each.by == "other" or _asked_by(each) != asked)
        for each in ledger
    )
