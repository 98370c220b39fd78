"""
An event store in memory, of limited size.

For tests, and for applications that may lose unhandled events when the process ends.
"""

from __future__ import annotations

import time
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from invsvc_async.errors import JournalError
from invsvc_async.events.event import CAUGHT_UP_KEY
from invsvc_async.events.stores import (
    COUNTED,
    STATES,
    Backlog,
    CatchUpStore,
    Delivery,
    Entry,
    Standing,
    State,
    StateStats,
    StoredEvent,
    made_up_key,
    shown_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


@attrs.define(kw_only=True, eq=False)
class _Record:
    id: int
    name: str  # the event's key, or one that was made up
    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    received_at: float
    due: float  # by the steady clock; of handled and dead ones, when they ended
    state: State = "open"
    token: str = ""  # of its last lease, until that is given back
    attempts: int = 0
    reason: str = ""
    handler: str = ""
    ordering_key: str | None = None
    subject: str | None = None
    as_of: float | None = None

    @property
    def is_claim(self) -> bool:
        return self.state == "open" and self.body is None


class EventRecords:
    """
    The deliveries in memory, at most *capacity* of them, and what finds them.

    A record is in ``by_id``, in ``by_name`` (the key of its event, then its handler), and either in ``open``
    or in ``ended``, which has the handled and dead ones, oldest first.
    """

    def __init__(
        self,
        capacity: int,
        clock: Callable[[], float],
        steady: Callable[[], float],
    ) -> None:
        self._capacity = capacity
        self._clock = clock
        self._steady = steady
        self._ids = count(1)
        self._leases = count(1)
        self.by_id: dict[int, _Record] = {}
        self.by_name: dict[str, dict[str, _Record]] = {}
        self.open: dict[int, _Record] = {}
        self.ended: dict[int, _Record] = {}

    def of(self, key: str | None) -> dict[str, _Record]:
        """Return the records of the event *key*, by handler."""
        return self.by_name.get(key or "", {})

    def held(self, entry: Entry) -> _Record | None:
        """Return the record of *entry* if its lease was not lost."""
        record = self.open.get(entry.id)
        if record is not None and record.token == entry.token:
            return record
        return None

    def is_covered(self, delivery: Delivery) -> bool:
        """Return whether an event made from a list stands for *delivery*."""
        if not delivery.subject or delivery.as_of is None:
            return False
        caught = self.by_name.get(f"{CAUGHT_UP_KEY}{delivery.subject}", {})
        return any(
            one.as_of is not None and one.as_of >= delivery.as_of
            for one in caught.values()
        )

    def due(self) -> list[_Record]:
        """Return the records to take now: of each ordering key, the begun record or else the first."""
        now = self._steady()
        first = dict[str, _Record]()
        for record in self.open.values():
            if (key := record.ordering_key) is not None:
                first[key] = min(
                    first.get(key, record),
                    record,
                    key=lambda one: (not one.attempts, one.id),
                )
        waiting = (
            one for one in self.open.values() if one.body is not None and one.due <= now
        )
        due = [
            one
            for one in waiting
            if one.ordering_key is None or first[one.ordering_key] is one
        ]
        return sorted(due, key=attrgetter("due", "id"))

    def make_room(self, number: int) -> None:
        """
        Forget as many ended records as *number* new ones need.

        Raises:
            JournalError: There are too few.
        """
        excess = len(self.by_id) + number - self._capacity
        if excess > len(self.ended):
            raise JournalError(
                f"event store: {self._capacity} events wait in memory. Use a store on disk for more."
            )
        for record in list(islice(self.ended.values(), max(excess, 0))):
            self.forget(record)

    def add(
        self,
        delivery: Delivery,
        name: str = "",
        received: float | None = None,
    ) -> _Record:
        """Store *delivery* as an open record, which is due."""
        if len(self.by_id) >= self._capacity:
            self.make_room(1)
        record = _Record(
            id=next(self._ids),
            name=name or delivery.key or made_up_key(),
            key=shown_key(name) if name else delivery.key,
            type=delivery.type,
            body=delivery.body,
            received_at=self._clock() if received is None else received,
            due=self._steady(),
            handler=delivery.handler,
            ordering_key=delivery.ordering_key,
            subject=delivery.subject,
            as_of=delivery.as_of,
        )
        self.by_id[record.id] = self.open[record.id] = record
        self.by_name.setdefault(record.name, {})[record.handler] = record
        return record

    def complete(
        self,
        delivery: Delivery,
        name: str,
        received: float | None = None,
    ) -> None:
        """Store a delivery that is new to its handler, or else the body missing in a claim."""
        record = self.by_name.get(name, {}).get(delivery.handler)
        if record is None:
            self.add(delivery, name, received)
        elif record.is_claim:
            record.body = delivery.body

    def end(self, record: _Record, state: State) -> None:
        """Note that *record* is handled or dead, as *state* says."""
        self.open.pop(record.id, None)
        record.state = state
        record.due = self._steady()
        self.ended[record.id] = record

    def reopen(self, record: _Record) -> None:
        """Make an ended *record* due again, with new attempts."""
        record.state = "open"
        record.attempts = 0
        record.token = ""
        record.ordering_key = None
        record.due = self._steady()
        self.open[record.id] = self.ended.pop(record.id)

    def forget(self, record: _Record) -> None:
        """Remove *record*."""
        self.open.pop(record.id, None)
        self.ended.pop(record.id, None)
        del self.by_id[record.id]
        known = self.by_name[record.name]
        del known[record.handler]
        if not known:
            del self.by_name[record.name]

    def lease(self, record: _Record, seconds: float) -> Entry:
        """Lease *record* for so many *seconds*."""
        record.token = str(next(self._leases))
        record.attempts += 1
        record.due = self._steady() + seconds
        return Entry(
            id=record.id,
            token=record.token,
            key=record.key,
            type=record.type,
            body=record.body,
            attempts=record.attempts,
            handler=record.handler,
            ordering_key=record.ordering_key,
        )


class MemoryStore(CatchUpStore):
    """
    Store at most *capacity* deliveries in memory; the oldest handled and dead ones are deleted first.

    If all are open, the store counts as down, and the sender has to try again later.  *clock* returns seconds
    since the epoch, for display; *steady* times leases, in seconds.
    """

    def __init__(
        self,
        *,
        capacity: int = 10_000,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._records = EventRecords(capacity, clock, steady)

    async def open(self) -> None:
        """Do nothing: memory is always ready."""

    async def close(self) -> None:
        """Do nothing: deliveries stay as long as this object."""

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        name = delivery.key or made_up_key()
        known = self._records.of(name)
        if not known and self._records.is_covered(delivery):
            return False
        is_new = not known
        is_claimed = all(record.is_claim for record in known.values())
        if is_new:
            self._records.make_room(1 + len(further))
        for each in (delivery, *further):
            if is_claimed or each.handler in known:
                self._records.complete(each, name)
        return is_new

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        if isinstance(found, Entry):
            record = self._records.held(found)
        else:
            known = self._records.of(found.key)
            record = None if found.handler in known else self._records.add(found)
        if record is None:
            return False
        record.reason = reason
        self._records.end(record, "dead")
        return True

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        known = self._records.of(delivery.key)
        record = (
            known.get("") or known.get(delivery.handler) or self._records.add(delivery)
        )
        if record.state != "open":
            return Standing.HANDLED
        # Most have no ordering key, and then no other need be looked at.
        if record.due > self._steady() or (
            record.ordering_key and record not in self._records.due()
        ):
            if record.body is None:
                return Standing.BUSY
            return Standing.STORED
        return self._records.lease(record, lease)

    async def take(
        self,
        *,
        limit: int,
        lease: float,
        handlers: Collection[str] | None = None,
    ) -> list[Entry]:
        due = [
            one
            for one in self._records.due()
            if handlers is None or one.handler in handlers
        ]
        return [self._records.lease(record, lease) for record in due[:limit]]

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        record = self._records.held(entry)
        if record is None:
            return False
        self._records.make_room(len(deliveries) - 1)
        known = self._records.by_name[record.name]
        first = next(
            (each for each in deliveries if known.get(each.handler, record) is record),
            None,
        )
        if first is None:
            record.body = None
            self._records.end(record, "handled")
        else:
            known[first.handler] = known.pop(record.handler)
            record.handler = first.handler
            record.ordering_key = first.ordering_key
            record.token = ""
            record.attempts = 0
            record.due = self._steady()
        for each in deliveries:
            if each is not first:
                self._records.complete(each, record.name, record.received_at)
        return True

    async def give(self, event: StoredEvent, handler: str) -> bool:
        record = self._records.by_id.get(event.id)
        if (
            record is None
            or record.body is None
            or handler in self._records.by_name[record.name]
        ):
            return False
        # will be for all handlers that it fits
        if record.state == "open" and not record.handler:
            return False
        given = Delivery(
            key=record.key,
            type=record.type,
            body=record.body,
            handler=handler,
            subject=record.subject,
            as_of=record.as_of,
        )
        self._records.add(given, record.name, record.received_at)
        return True

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        record = self._records.held(entry)
        if record is None:
            return False
        record.body = body
        self._records.end(record, "handled")
        return True

    async def release(self, entry: Entry, *, delay: float) -> bool:
        record = self._records.held(entry)
        if record is None:
            return False
        record.token = ""
        record.due = self._steady() + delay
        if record.body is None:
            self._records.forget(record)
        return True

    async def events(
        self,
        *,
        state: State | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[StoredEvent]:
        records = self._records.by_id.values()
        names = [field.name for field in attrs.fields(StoredEvent)]
        found = (
            record
            for record in records
            if record.id > after and state in {None, record.state}
        )
        return [
            StoredEvent(**{name: getattr(one, name) for name in names})
            for one in islice(found, limit)
        ]

    async def revive(self, event: StoredEvent) -> bool:
        record = self._records.by_id.get(event.id)
        if record is None or record.state == "open" or record.body is None:
            return False
        self._records.reopen(record)
        return True

    async def drop(self, event: StoredEvent) -> bool:
        record = self._records.by_id.get(event.id)
        if record is None or record.body is None:
            return False
        if record.state == "open" and record.token and record.due > self._steady():
            return False
        if record.key is None:
            self._records.forget(record)
            return True
        record.body = None
        if record.state != "handled":
            self._records.ended.pop(record.id, None)
            self._records.end(record, "handled")
        return True

    async def stats(self) -> dict[State, StateStats]:
        received: dict[State, list[float]] = {state: [] for state in STATES}
        for record in self._records.by_id.values():
            received[record.state].append(record.received_at)
        return {
            state: StateStats(len(found), min(found, default=None))
            for state, found in received.items()
        }

    async def backlog(self) -> Backlog:
        due = self._records.due()
        dead = sum(one.state == "dead" for one in self._records.ended.values())
        late = self._steady() - due[0].due if due else 0.0
        return Backlog(min(len(due), COUNTED), late, min(dead, COUNTED))

    async def put_unseen(self, events: Sequence[Sequence[Delivery]]) -> list[bool]:
        known = {
            one.subject for one in self._records.by_id.values() if not one.is_claim
        }
        unseen = [event[0].subject not in known for event in events]
        for event, is_unseen in zip(events, unseen, strict=True):
            if is_unseen:
                first, *further = event
                key = f"{CAUGHT_UP_KEY}{first.subject}"
                await self.put(attrs.evolve(first, key=key), further)
        return unseen

    async def name_subjects(self, limit: int) -> int:
        del limit  # no earlier version has stored anything here
        return 0

    async def knows_from(self) -> float | None:
        now = self._steady()
        handled = (
            one for one in self._records.ended.values() if one.state == "handled"
        )
        first = next(handled, None)
        if first is None:
            return None
        times = [
            one.received_at for one in self._records.by_id.values() if one.subject == ""
        ]
        return max(self._clock() - (now - first.due), *times)

    async def prune(
        self,
        *,
        older_than: float,
        bodies: float | None = None,
        dead: float | None = None,
    ) -> int:
        now = self._steady()
        pruned = 0
        limits = {"open": None, "handled": older_than, "dead": dead}
        for record in list(self._records.by_id.values()):
            age = now - record.due
            limit = older_than if record.is_claim else limits[record.state]
            if limit is not None and age > limit:
                self._records.forget(record)
                pruned += record.state == "handled"
            elif bodies is not None and age > bodies and record.state == "handled":
                record.body = None
        return pruned
