"""
Reasons of verdicts that processes print, and what the ledger shows about their writes.

A write is known by its key, which its body bears.  All processes of a machine share the ledger's clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from invsvc_async import Verdict
from invsvc_async.conformance.reasons import Happened, Told, contradiction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from invsvc_async import Outcome
    from invsvc_async.simulator import Entry

__all__ = ["BeingSent", "Things", "plain_of", "told_in"]


def plain_of(
    outcome: Outcome[Any],  # Any: of any operation
    *,
    asked: float = inf,
) -> dict[str, Any]:  # Any: JSON
    """Return what *outcome* tells now, as JSON; *asked* is when the run began that was told it."""
    return attrs.asdict(
        attrs.evolve(Told.of(outcome, at=time.monotonic()), asked=asked)
    )


def told_in(plain: Mapping[str, Any]) -> Told:  # Any: JSON
    """Return what `plain_of` returned, read from JSON."""
    duplicates = plain["duplicates"]
    fields = {**plain, "verdict": Verdict(plain["verdict"])}
    fields["duplicates"] = None if duplicates is None else tuple(duplicates)
    return Told(**fields)


class BeingSent(NamedTuple):
    """A write that a database stored as being sent: it may have arrived, also if its process was killed then."""

    key: str
    thing: str
    at: float


class Things:
    """
    The requests of a ledger by the key of their write, and by thing.  Nobody else writes.

    *key_of* finds the key in an entry.  *begun* has when each write may have been claimed first: what arrived
    before that is not newer.  *window* is the shortest time after a lost answer in which an effect may come.
    *being_sent* has the writes that may have arrived, though the ledger has them later or not at all.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        key_of: Callable[[Entry], str],
        *,
        begun: Mapping[str, float] | None = None,
        window: float = 0.0,
        being_sent: Iterable[BeingSent] = (),
    ) -> None:
        self._key_of = key_of
        self._begun = begun or {}
        self._window = window
        self._sends: defaultdict[str, list[Entry]] = defaultdict(list)
        self._on: defaultdict[str | None, list[Entry]] = defaultdict(list)
        for entry in entries:
            self._sends[key_of(entry)].append(entry)
            if entry.path_id is not None:
                self._on[entry.path_id].append(entry)
        self._being_sent: defaultdict[str | None, list[BeingSent]] = defaultdict(list)
        for each in being_sent:
            self._being_sent[each.thing].append(each)

    def contradiction(self, key: str, thing: str | None, told: Told) -> str | None:
        """Return why the ledger contradicts the reason that was *told* of the write *key*, or ``None``."""
        begun = self._begun.get(key, float("-inf"))
        beside = [
            entry for entry in self._on.get(thing, ()) if self._key_of(entry) != key
        ]
        sent_at = [entry.received_at for entry in beside]
        sent_at += [
            each.at for each in self._being_sent.get(thing, ()) if each.key != key
        ]
        happened = Happened(
            sends=self._sends.get(key, ()),
            newer=[at for at in sent_at if at >= begun],
            siblings=[
                entry.applied_at for entry in beside if entry.applied_at is not None
            ],
            since=begun,
            window=self._window,
        )
        why = contradiction(told, happened)
        return (
            None
            if why is None
            else f"{told.verdict}, {told.basis}, {told.cause}: {why}: {told.words}"
        )
