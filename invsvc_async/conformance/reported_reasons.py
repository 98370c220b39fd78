"""The reasons of reports, each compared with what the ledger shows about its write."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from invsvc_async.codec import envelope
from invsvc_async.conformance.reasons import (
    TICK,
    Happened,
    UnknownReasonError,
    contradiction,
)
from invsvc_async.conformance.states import effect_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.conformance.reports import WriteReport
    from invsvc_async.conformance.states import States
    from invsvc_async.simulator import Entry

    Sends = Mapping[str, Sequence[Entry]]  # by the key of the write


def untrue(
    reports: Sequence[WriteReport],
    sends: Sends,
    states: States,
    ledger: Sequence[Entry],
) -> dict[str, str]:
    """Return the *reports* with a reason that the ledger contradicts, by key, and why."""
    found: dict[str, str] = {}
    others = _effects_of_others(ledger)
    beside = _WritesBeside(reports, sends)
    for report in reports:
        if report.told is None:
            continue
        happened = _happened(
            report, sends, states, beside, others[report.asked.path_id]
        )
        try:
            why = contradiction(report.told, happened)
        except UnknownReasonError as error:
            why = str(error)
        if why is not None:
            found[report.key] = why
    return found


def _effects_of_others(ledger: Iterable[Entry]) -> Mapping[str | None, list[float]]:
    """Return when somebody else changed each thing, by its id."""
    found: defaultdict[str | None, list[float]] = defaultdict(list)
    for each in ledger:
        if each.by == "other" and each.applied_at is not None:
            found[each.target].append(each.applied_at)
    return found


class _WritesBeside:
    """The writes to each thing, in the order of their reports, and when they arrived and took effect."""

    def __init__(self, reports: Iterable[WriteReport], sends: Sends) -> None:
        self._sends = sends
        self._by_thing: defaultdict[tuple[str, str] | None, list[str]] = defaultdict(
            list
        )
        for report in reports:
            self._by_thing[report.asked.thing].append(report.key)

    def arrivals_after(self, report: WriteReport) -> list[float]:
        """Return when writes to the same thing arrived that are newer than that of *report*."""
        keys = self._keys(report)
        newer = keys[keys.index(report.key) + 1 :] if keys else []
        return [each.received_at for key in newer for each in self._sends.get(key, ())]

    def effects_beside(self, report: WriteReport) -> list[float]:
        """Return when other writes to the same thing took effect."""
        others = (key for key in self._keys(report) if key != report.key)
        return [effect_at(each) for key in others for each in self._sends.get(key, ())]

    def _keys(self, report: WriteReport) -> list[str]:
        if report.asked.thing is None:
            return []
        return self._by_thing[report.asked.thing]


def _happened(
    report: WriteReport,
    sends: Sends,
    states: States,
    beside: _WritesBeside,
    others: Sequence[float],
) -> Happened:
    asked = report.asked
    seen: Sequence[Mapping[str, Any] | None] = ()
    if asked.path_id is not None:
        since = report.began - TICK
        seen = states.between(asked.path_id, since, report.ended + TICK)
    return Happened(
        sends=sends.get(report.key, ()),
        newer=beside.arrivals_after(report),
        others=others,
        siblings=beside.effects_beside(report),
        states=seen,
        wanted=envelope.loads(asked.body.encode()) or None,
        since=report.began,
    )
