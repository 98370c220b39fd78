"""
Comparison of a client's reported verdicts with the service's ledger.

Pure functions of reports, ledger entries and states.  A write is judged by *its own* effects: those of
requests with its key in the header ``X-Write-Id``, or, if the client sent no such header, those with its
operation, target, team and body.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import inf
from typing import TYPE_CHECKING

import attrs

from invsvc_async.codec import envelope
from invsvc_async.conformance.reasons import TICK
from invsvc_async.conformance.reported_reasons import untrue
from invsvc_async.conformance.reports import (
    RequestedWrite,
    WriteReport,
    canonical,
    sender_of,
)
from invsvc_async.conformance.states import States, effect_at
from invsvc_async.reconcile.compare import same, tidied
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.simulator import Entry

_NO = (Verdict.NOT_APPLIED, Verdict.REFUSED)


@attrs.frozen(kw_only=True)
class Wrong:
    """A verdict that contradicts the ledger, or an effect that came after the effect of a newer write."""

    report: WriteReport
    why: str


@attrs.frozen(kw_only=True)
class Judgement:
    """
    Counts of one run, according to the service's ledger.

    ``duplicates`` counts additional effects of a write, and ``repeated`` has those writes; ``lost`` has the
    writes reported applied that had no effect, and ``inverted`` counts those whose effect came after that of
    a newer write to the same thing (both are also in ``wrong``); ``unasked`` counts effects that belong to no
    write; ``sends`` counts the write requests received; ``already`` counts the writes reported applied that
    needed no effect of their own, because the state was as requested; ``false_reasons`` counts those of
    ``wrong`` whose verdict is right, but not its reason.
    """

    asked: int
    effects: int
    duplicates: int
    unasked: int
    sends: int
    lost: tuple[WriteReport, ...]
    wrong: tuple[Wrong, ...]
    verdicts: dict[Verdict, int]
    unknown_reasons: dict[str, int]
    inverted: int = 0
    already: int = 0
    false_reasons: int = 0
    repeated: tuple[WriteReport, ...] = ()

    @property
    def effective(self) -> int:
        """How many of the requested writes took effect, once or more often."""
        return self.effects - self.duplicates - self.unasked


def judge(
    reports: Iterable[WriteReport],
    ledger: Sequence[Entry],
    before: Mapping[str, Wire],
) -> Judgement:
    """
    Compare *reports* with *ledger*, which must contain all late effects.

    Reports of one thing are in the order of its writes.  *before* has the things by id, at the start.
    """
    reports = list(reports)
    states = States(ledger, before)
    own = _Own(reports, ledger, states)
    false = _false_verdicts(reports, own, states, ledger)
    # Of equal writes whose requests do not name their sender, nobody knows whose request arrived.
    judged = [each for each in reports if each.key not in own.shared]
    misled = untrue(judged, own.sends, states, ledger)
    inverted = _inverted(reports, own)
    why = {**misled, **inverted, **false}
    ours = [each for each in ledger if each.by == "client"]
    unknown = [each for each in reports if each.verdict is Verdict.UNKNOWN]
    wrong: list[Wrong] = []
    lost: list[WriteReport] = []
    repeated: list[WriteReport] = []
    already = 0
    for each in reports:
        if _duplicates(own.effects.get(each.key, ())):
            repeated.append(each)
        if each.key in why:
            wrong.append(Wrong(report=each, why=why[each.key]))
        if each.verdict is not Verdict.APPLIED:
            continue
        if each.key in false:
            lost.append(each)
        elif not own.effects.get(each.key):
            already += 1
    return Judgement(
        asked=len(reports),
        effects=sum(each.applied_at is not None for each in ours),
        duplicates=sum(map(_duplicates, own.effects.values())),
        unasked=own.unasked,
        sends=len(ours),
        lost=tuple(lost),
        wrong=tuple(wrong),
        verdicts=Counter(report.verdict for report in reports),
        unknown_reasons=Counter(report.reason for report in unknown),
        inverted=len(inverted),
        already=already,
        false_reasons=len(misled.keys() - false.keys() - inverted.keys()),
        repeated=tuple(repeated),
    )


def _duplicates(effects: Sequence[Entry]) -> int:
    """Count the further effects of one write.  An update that was stored in part may be repeated."""
    whole = sum(each.stored != "in part" for each in effects)
    return max(whole - 1, 0)


class _Own:
    """
    Effects of each write.

    ``effects`` has them by the key of the write, and ``sends`` all requests.  Equal writes whose requests do
    not name their sender share effects in the way that suits their reports best; ``shared`` are their keys.
    """

    def __init__(
        self,
        reports: Sequence[WriteReport],
        ledger: Iterable[Entry],
        states: States,
    ) -> None:
        self.effects: defaultdict[str, list[Entry]] = defaultdict(list)
        self.sends: defaultdict[str, list[Entry]] = defaultdict(list)
        self.shared: set[str] = set()
        self.unasked = 0
        by_sender = {sender_of(report.key): report for report in reports}
        by_asked = _by_asked(reports)
        # Effects whose sender is not known.
        rest: defaultdict[RequestedWrite, list[Entry]] = defaultdict(list)
        ours = (each for each in ledger if each.by == "client")
        for each in ours:
            asked = RequestedWrite(
                each.operation, each.path_id, each.team, canonical(each.body)
            )
            named = by_sender.get(each.sender or "")
            if named is None:
                self._note_send(each, by_asked.get(asked, []))
            else:
                self._note_send(each, [named])
            if each.applied_at is None:
                continue
            if named is None:
                rest[asked].append(each)
            else:
                self._note_effect(each, named, asked)
        for asked, entries in rest.items():
            wanting = by_asked.get(asked, [])
            self._share(entries, sorted(wanting, key=lambda each: _need(each, states)))

    def _note_send(self, entry: Entry, senders: Sequence[WriteReport]) -> None:
        """Note the request of *entry*, which one of *senders* has sent."""
        for report in senders:
            self.sends[report.key].append(entry)
        if len(senders) > 1:
            self.shared.update(report.key for report in senders)

    def _note_effect(
        self,
        entry: Entry,
        named: WriteReport,
        asked: RequestedWrite,
    ) -> None:
        """Note an effect of the write *named*, or one that nobody requested."""
        if named.asked == asked:
            self.effects[named.key].append(entry)
        else:
            self.unasked += 1

    def _share(self, entries: Sequence[Entry], wanting: Sequence[WriteReport]) -> None:
        """Assign *entries*, the effects of equal requests, to the writes that need an effect most."""
        if not wanting:
            self.unasked += len(entries)
            return
        for index, each in enumerate(entries):
            # If there are more effects than writes, the rest are further effects of the first one.
            place = index if index < len(wanting) else 0
            self.effects[wanting[place].key].append(each)


def _by_asked(
    reports: Iterable[WriteReport],
) -> Mapping[RequestedWrite, list[WriteReport]]:
    found: defaultdict[RequestedWrite, list[WriteReport]] = defaultdict(list)
    for report in reports:
        found[report.asked].append(report)
    return found


def _need(report: WriteReport, states: States) -> int:
    """Return how much *report* depends on having an effect; 0 is the most."""
    if report.verdict is Verdict.APPLIED:
        return int(_was_so(report, states))
    if report.verdict in _NO:
        return 3
    return 2


def _false_verdicts(
    reports: Iterable[WriteReport],
    own: _Own,
    states: States,
    ledger: Sequence[Entry],
) -> dict[str, str]:
    """Return why the ledger contradicts a verdict, by the key of the write."""
    found: dict[str, str] = {}
    for each in reports:
        why = _false(each, own, states, ledger)
        if why is not None:
            found[each.key] = why
    return found


def _false(
    report: WriteReport,
    own: _Own,
    states: States,
    ledger: Iterable[Entry],
) -> str | None:
    """Return why the ledger contradicts a verdict, or ``None``."""
    effects = own.effects.get(report.key, [])
    if report.verdict is Verdict.APPLIED:
        return _falsely_applied(report, effects, states)
    if report.verdict in _NO and effects:
        return f"reported {report.verdict}, but the ledger shows its effect"
    if report.verdict is Verdict.SUPERSEDED and not _had_rival(report, effects, ledger):
        return "reported superseded, but nobody else changed that thing since the send"
    return None


def _falsely_applied(
    report: WriteReport,
    effects: Sequence[Entry],
    states: States,
) -> str | None:
    """Return why the verdict "applied" is false, or ``None``."""
    if not any(effect_at(each) <= report.ended + TICK for each in effects):
        if _was_so(report, states):
            return None
        return "reported applied, but the ledger has no effect of it"
    if report.made is not None and all(each.target != report.made for each in effects):
        return f"reported applied, but {report.made} is not what it created"
    is_in_part = all(each.stored == "in part" for each in effects)
    if is_in_part and not _was_so(report, states):
        return "reported applied, but the ledger shows only a part of it"
    return None


def _had_rival(
    report: WriteReport,
    effects: Sequence[Entry],
    ledger: Iterable[Entry],
) -> bool:
    """Return whether somebody else changed the thing after the write was sent."""
    arrived = min((each.received_at for each in effects), default=-inf)
    since = max(report.began - TICK, arrived)
    for each in ledger:
        if each.by != "other" or each.target != report.asked.path_id:
            continue
        if since <= effect_at(each) < inf:
            return True
    return False


def _was_so(report: WriteReport, states: States) -> bool:
    """Return whether the thing matched while the write was in flight, no matter who changed it."""
    asked = report.asked
    if asked.path_id is None:
        return False
    seen = states.between(asked.path_id, report.began - TICK, report.ended + TICK)
    if asked.operation.endswith(".delete"):
        return None in seen
    sent: dict[str, Wire] = envelope.loads(asked.body.encode()) or {}
    wanted = _tidied_fields(sent)
    for thing in seen:
        if thing is None:
            continue
        if same(_tidied_fields({name: thing.get(name) for name in sent}), wanted):
            return True
    return False


def _tidied_fields(fields: Mapping[str, Wire]) -> Wire:
    """Return *fields* for comparison: an empty text is as good as none, and events have no order."""
    events = fields.get("events")
    if isinstance(events, list):
        return tidied({**fields, "events": sorted(map(str, events))})
    return tidied(dict(fields))


def _inverted(reports: Iterable[WriteReport], own: _Own) -> dict[str, str]:
    """Return the writes with an effect after one of a newer write to the same thing."""
    found: dict[str, str] = {}
    # The earliest effect of newer writes, by thing.
    first: dict[tuple[str, str], tuple[float, str]] = {}
    judged = [each for each in reports if each.key not in own.shared]
    for report in reversed(judged):
        thing = report.asked.thing
        effects = own.effects.get(report.key)
        if thing is None or not effects:
            continue
        at, newer = first.get(thing, (inf, ""))
        if max(map(effect_at, effects)) > at:
            found[report.key] = f"its effect came after that of the newer write {newer}"
        first[thing] = min((at, newer), (min(map(effect_at, effects)), report.key))
    return found
