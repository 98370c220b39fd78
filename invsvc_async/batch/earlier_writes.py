"""The earlier writes to the things that a batch or outbox is about to change."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.late_places import LatePlaces
from invsvc_async.durable.intents import (
    may_be_unsent,
    was_seen_undone,
    without_lost_sends,
)
from invsvc_async.durable.last_writes import learn, take_claims
from invsvc_async.durable.records import intent_of
from invsvc_async.durable.store.order import (
    in_flight_of,
    unknown_of,
    waiting_of_copy,
)
from invsvc_async.durable.store.states import last_writes
from invsvc_async.durable.unknown_writes import UnknownWrites
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.kinds import is_created
from invsvc_async.writes.line_names import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.batch.item import Item
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.intent import Intent


_THINGS_KNOWN = 10_000  # things whose older writes were looked up once


class _SentPlaces:
    """
    The last places of writes that are not done, by thing: of those that were sent, and that perhaps were.

    Begins with the last *places* of some that were sent.
    """

    def __init__(self, places: Mapping[str, int] | None = None) -> None:
        self.surely = LatePlaces(places)
        self.perhaps = LatePlaces()

    def note(self, thing: str, place: int, intent: Intent) -> None:
        """Note a write to *thing* at *place*, if *intent* may have been sent, and is none of a create."""
        if not replaces(intent):
            return
        if was_seen_undone(intent):
            return
        if not any(each.may_have_effect for each in intent.sent):
            return
        found = self.perhaps if may_be_unsent(intent) else self.surely
        found.note(thing, place)

    def has_later(self, thing: str, place: int) -> bool:
        """Return whether one of the writes is later than that to *thing* at *place*."""
        return self.surely.has_later(thing, place) or self.perhaps.has_later(
            thing, place
        )


class EarlierWrites:
    """
    The earlier writes in a store.

    ``has_any`` is whether others than this process may have made some, so that new writes must be looked up,
    too.
    """

    def __init__(self, sending: Sending, store: Store) -> None:
        self._sending = sending
        self._store = store
        self._known: set[str] = set()  # things that were looked up
        self._unknown = UnknownWrites(store, self._intent_in)
        self._begun = sending.core.clock.now()  # local s; a file was opened before
        # Whether earlier writes may be finished; ``False`` if the journal had none when the run began.
        self.has_any: bool = True

    async def _intent_in(self, entry: Entry) -> Intent:
        return intent_of(entry, self._store.commons)

    def forget(self) -> None:
        """Look everything up again: other processes may have written."""
        self._known.clear()
        self.has_any = True

    async def _look_up(self, things: Sequence[str]) -> Mapping[str, int]:
        """
        Learn how earlier writes left *things*, and which writes may still land.

        Return the place of the last one that is done, for each thing.
        """
        if not things:
            return {}
        fresh = [thing for thing in things if thing not in self._known]
        if len(self._known) > _THINGS_KNOWN:
            self._known.clear()
        self._known.update(fresh)
        if fresh:
            await self._look_up_fresh(fresh)
        rows = await last_writes(self._store, things)
        learn(self._sending.options, rows)
        if self._sending.restored is not None:
            for row in rows:
                self._sending.restored.learn(row)
        return {row.thing: row.place for row in rows}

    async def _look_up_fresh(self, things: Sequence[str]) -> None:
        """Learn of *things* not looked up before: the writes that may still land, and the URLs in use."""
        unknown = await unknown_of(self._store, things)
        since = inf if self._store.is_shared else self._begun
        await self._unknown.close_lines(unknown, self._sending.options, since=since)
        urls = [*filter(is_created, things)]
        if urls:
            await take_claims(self._sending.core.writes, self._store, urls)

    async def mark(self, items: Sequence[Item], *, is_part: bool) -> None:
        """
        Mark the stored, open *items* that a later write has overtaken, or has perhaps.

        Perhaps, because after a copy of the journal was put back, a later write may have been sent or not.
        *is_part* is whether the store may have more that are not done, so that it is asked for them.
        """
        placed = [
            (item, name, item.entry.place)
            for item in items
            if (name := item.entry.thing) is not None
        ]
        things = sorted({thing for _, thing, _ in placed})
        sent = _SentPlaces(await in_flight_of(self._store, things) if is_part else None)
        await self._note_waiting_of_copy(sent, things)
        for item, thing, place in placed:
            sent.note(thing, place, item.intent)
        done = LatePlaces(await self._look_up(things))
        for item, thing, place in placed:
            is_outdated = done.has_later(thing, place)
            if is_outdated:
                # the state that the journal knows is that of a later write
                item.restored = None
            if is_outdated or sent.surely.has_later(thing, place):
                item.intent = attrs.evolve(item.intent, newest=False)
                item.spec = None
            elif sent.perhaps.has_later(thing, place) or item.lacks_later:
                item.mark_perhaps_overtaken()
            else:
                item.intent = without_lost_sends(item.intent)

    async def _note_waiting_of_copy(
        self, sent: _SentPlaces, things: Sequence[str]
    ) -> None:
        """
        Note in *sent* the writes to *things* that wait in a restored store, and perhaps were sent since.

        Some may be aside, so they are not among the items of a lane that was read to its end.
        """
        restored = self._sending.restored
        if restored is None:
            return
        for entry in await waiting_of_copy(self._store, things, restored.through):
            thing, place = entry.thing or "", entry.place
            if sent.has_later(thing, place):
                continue
            try:
                intent = await self._intent_in(entry)
            except JournalError:  # This version cannot read it.
                sent.perhaps.note(thing, place)
                continue
            sent.note(thing, place, restored.of_entry(entry.seq, intent))

    async def overtaken(self, items: Sequence[Item]) -> set[int]:
        """Return the numbers of the *items* that a later write has overtaken, by what is done."""
        things = sorted({item.entry.thing or "" for item in items})
        rows = await last_writes(self._store, things)
        done = LatePlaces({row.thing: row.place for row in rows})
        return {
            item.entry.seq
            for item in items
            if done.has_later(item.entry.thing or "", item.entry.place)
        }
