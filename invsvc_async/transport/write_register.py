"""The register of a client's writes: what they showed, which of them are open, and what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

import attrs
from msgspec import Raw, Struct, field

from invsvc_async.concurrency.keyed_lock import KeyedLock
from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.reconcile.own_writes import OwnWrites

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.reconcile.own_writes import LastState, Listed
    from invsvc_async.transport.journal import Journal

__all__ = ["LeftOpen", "WriteRegister"]

log: logging.Logger = logging.getLogger("invsvc_async")

UNSETTLED_KEPT = 10_000
CLAIMS_KEPT = 50_000
TAGGED_KEPT = 2_000  # of those: of creates with a unique tag, which only a later edit can hide
ENDED_KEPT = 1000


class LeftOpen(Struct, eq=False):
    """The intents with an unknown outcome: those of this client, and those that its journal had before."""

    unsettled: OrderedDict[str, Intent] = field(default_factory=OrderedDict)  # of this client, by identity
    # Others in the journal, most of them of the process before; None: the journal was not read yet.
    leftovers: dict[str, Intent] | None = None
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _by_line: dict[str, set[str]] = field(default_factory=dict)
    _lines: dict[str, str] = field(default_factory=dict)
    _in_journal: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.unsettled or self.leftovers)

    def add(self, intent: Intent, line: str | None, *, in_journal: bool) -> None:
        """Keep *intent*, and drop the oldest one if there are too many."""
        self.unsettled[intent.identity] = intent
        self.unsettled.move_to_end(intent.identity)
        self._index(intent, line, in_journal=in_journal)
        if len(self.unsettled) > UNSETTLED_KEPT:
            identity, oldest = next(iter(self.unsettled.items()))
            if identity in self._in_journal and self.leftovers is not None:
                del self.unsettled[identity]
                self.leftovers[identity] = oldest  # the journal must be told when a newer write is sent
            else:
                self.take(identity)
            log.error(
                "more than %d unsettled writes: intent %s is no longer in client.unsettled",
                UNSETTLED_KEPT,
                oldest.key,
            )

    def add_leftover(self, intent: Intent, line: str | None) -> None:
        """Keep *intent* of an earlier process."""
        if self.leftovers is None:
            self.leftovers = {}
        self.leftovers[intent.identity] = intent
        self._index(intent, line, in_journal=True)

    def _index(self, intent: Intent, line: str | None, *, in_journal: bool) -> None:
        from invsvc_async.reconcile.kinds import replaces

        if line is not None and replaces(intent.operation):
            self._lines[intent.identity] = line
            self._by_line.setdefault(line, set()).add(intent.identity)
        if in_journal:
            self._in_journal.add(intent.identity)

    def get(self, identity: str) -> Intent | None:
        """Return the newest revision of an open intent."""
        return self.unsettled.get(identity) or (self.leftovers or {}).get(identity)

    def leave_journal(self, identity: str) -> bool:
        """Note that the client's journal has an intent no longer; return whether it had it."""
        had = identity in self._in_journal
        self._in_journal.discard(identity)
        return had

    def take(self, identity: str) -> None:
        """Forget an intent, because its outcome is known, or another process settles it now."""
        self.unsettled.pop(identity, None)
        if self.leftovers:
            self.leftovers.pop(identity, None)
        self._in_journal.discard(identity)
        line = self._lines.pop(identity, None)
        if line is not None:
            self._by_line[line].discard(identity)
            if not self._by_line[line]:
                del self._by_line[line]

    def overtake(self, line: str | None, newest: str) -> list[Intent]:
        """
        Mark the open writes of *line* as overtaken by *newest*.

        Return the revised intents that the journal must store.
        """
        if line is None or line not in self._by_line:
            return []
        revised: list[Intent] = []
        for identity in self._by_line[line] - {newest}:
            for kept in (self.unsettled, self.leftovers or {}):
                intent = kept.get(identity)
                if intent is not None and intent.newest is not False:
                    kept[identity] = attrs.evolve(intent, newest=False)
                    if identity in self._in_journal:
                        revised.append(kept[identity])
        return revised

    def not_overtaken(self, line: str | None, newest: str) -> list[Intent]:
        """Return the open writes of *line* but *newest* that no newer write has overtaken."""
        if line is None or line not in self._by_line:
            return []
        intents = [self.get(identity) for identity in self._by_line[line] - {newest}]
        return [intent for intent in intents if intent is not None and intent.newest is not False]

    def reinstate(self, before: list[Intent]) -> list[Intent]:
        """
        Undo ``overtake`` of the intents *before*, because the newer write never left.

        Return those that the journal must store.
        """
        for intent in before:
            for kept in (self.unsettled, self.leftovers or {}):
                if intent.identity in kept:
                    kept[intent.identity] = intent
        return [intent for intent in before if intent.identity in self._in_journal]


class WriteRegister(Struct, kw_only=True, eq=False):
    """
    What one client knows of its writes, shared by all its views.

    ``is_of_one_mode`` is whether all answers are of one data mode. If they are not, no states are kept,
    because a later read may show other data.
    """

    is_of_one_mode: bool
    journal: Journal | None = None
    own: OwnWrites = field(default_factory=OwnWrites)
    lines: KeyedLock = field(default_factory=KeyedLock)
    left_open: LeftOpen = field(default_factory=LeftOpen)
    # By webhook id: the identity of the write that made it, and whether an answer said so or only a match.
    claims: OrderedDict[str, tuple[str, bool]] = field(default_factory=OrderedDict)
    _tagged: deque[str] = field(default_factory=deque)  # the ids of those with a unique tag
    ended: OrderedDict[str, Outcome[Any]] = field(default_factory=OrderedDict)  # once in doubt, by identity
    listings: SingleFlight = field(default_factory=SingleFlight)

    def __repr__(self) -> str:
        return object.__repr__(self)

    def knows(self, identity: str) -> bool:
        """Return whether this client has left the write open, or has settled it after doubt."""
        return identity in self.left_open.unsettled or identity in self.ended

    def learn_state(
        self,
        team: str | None,
        line: str,
        state: Wire | Raw,
        started: float,
        ended: float,
        *,
        stamp: int | None = None,
        weight: int = 0,
        written: bool = False,
    ) -> None:
        """Keep the state of the thing in *line* that an answer showed, as ``OwnWrites.learn``."""
        if self.is_of_one_mode:
            self.own.learn(
                line, state, started, ended, stamp=stamp, weight=weight, written=written, team=team
            )

    def last_state(self, team: str | None, line: str) -> LastState | None:
        """Return the last known state of the thing in *line*."""
        return self.own.last(line, team)

    def forget_state(self, line: str) -> None:
        """Forget the state of the thing in *line*, because an open write may have changed it."""
        self.own.forget(line)

    def learn_list(self, read: str, team: str | None, items: list[Wire]) -> None:
        """Keep the last list that the operation *read* has shown of the *team*."""
        if self.is_of_one_mode:
            self.own.listed((read, team), items)

    def last_list(self, read: str, team: str | None) -> Listed | None:
        """Return the last list that the operation *read* has shown of the *team*."""
        return self.own.last_list((read, team))

    def learn_created(self, line: str, webhook_id: str, created_at: int | None) -> None:
        """Keep the id that an answer gave to an untagged create, and its time of creation (server ms)."""
        if self.is_of_one_mode:
            self.own.created(line, webhook_id, created_at)

    def claim(
        self, webhook_id: str, identity: str, *, is_certain: bool, has_unique_tag: bool = False
    ) -> None:
        """
        Note which write made a webhook, so that no other write takes it for its own.

        It is certain if an answer or a unique tag said so, and a guess if the webhook was found by a match.
        """
        if has_unique_tag and webhook_id not in self.claims:
            self._tagged.append(webhook_id)
        if is_certain or webhook_id not in self.claims:
            self.claims[webhook_id] = identity, is_certain
        if len(self._tagged) > TAGGED_KEPT:
            self.claims.pop(self._tagged.popleft(), None)
        if len(self.claims) > CLAIMS_KEPT:
            self.claims.popitem(last=False)

    def keep_ended(self, outcome: Outcome[Any]) -> None:
        """Keep the outcome of a write that was in doubt, in case its intent is settled or resumed again."""
        identity = outcome.started_as.identity
        self.ended[identity] = outcome
        self.ended.move_to_end(identity)
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
