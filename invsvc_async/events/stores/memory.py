"""
An event store in memory, of limited size.

For tests, and for applications that may lose unhandled events when the process ends.
"""

from __future__ import annotations

import heapq
import time
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import attrs

from invsvc_async.errors import JournalError
from invsvc_async.events.stores import (
    COUNTED,
    STATES,
    Backlog,
    Delivery,
    Entry,
    HandlerStore,
    Standing,
    State,
    StateStats,
    StoredEvent,
    copy_key,
    is_copy,
    key_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["MemoryStore"]


@attrs.define(kw_only=True, eq=False)
class _Record:
    id: int
    key: str | None
    type: str
    body: bytes | None = attrs.field(repr=False)
    received: float
    due: float  # by the steady clock; of handled and dead ones, when they ended
    state: State = "open"
    lease: int = 0
    attempts: int = 0
    reason: str = ""
    handler: str = ""
    ordering_key: str | None = None

    @property
    def is_claim(self) -> bool:
        return self.state == "open" and self.body is None

    @property
    def is_taken_in_turn(self) -> bool:
        return self.state == "open" and self.body is not None and self.due < inf


class MemoryStore(HandlerStore):
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
        self._capacity = capacity
        self._clock = clock
        self._steady = steady
        self._last = 0
        self._leases = 0
        self._records: dict[int, _Record] = {}
        self._by_key: dict[str | None, _Record] = {}  # of those that have a key
        self._waiting: list[tuple[float, int]] = []  # a heap; items with an outdated time are stale
        self._ended: dict[int, _Record] = {}  # handled and dead ones, oldest first
        self._ordered: dict[str, dict[int, _Record]] = {}  # open ones by ordering key; one of each is due

    async def open(self) -> None:
        """Do nothing: memory is always ready."""

    async def close(self) -> None:
        """Do nothing: deliveries stay as long as this object."""

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        known = self._by_key.get(delivery.key)
        if known is None:
            self._make_room(1 + len(further))
            self._file_all(self._add(delivery), further)
        else:
            self._complete(known, delivery, further)
        return known is None

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        if isinstance(found, Entry):
            record = self._held(found)
        else:
            record = None if found.key in self._by_key else self._add(found)
        if record is None:
            return False
        record.reason = reason
        self._end(record, "dead")
        return True

    async def claim(self, delivery: Delivery, *, lease: float) -> Entry | Standing:
        record, key = self._by_key.get(delivery.key), copy_key(delivery)
        is_own = record is not None and record.handler in {"", delivery.handler}
        # A copy without the event itself: that was another handler's claim, which was deleted.
        if key is not None and not is_own and (record is not None or key in self._by_key):
            delivery = attrs.evolve(delivery, key=key)
            record = self._by_key.get(delivery.key)
        record = record or self._add(delivery)
        if record.state != "open":
            return Standing.HANDLED
        if record.due > self._steady():
            return Standing.BUSY if record.body is None else Standing.STORED
        return self._lease(record, lease)

    async def take(self, *, limit: int, lease: float, handlers: Collection[str] | None = None) -> list[Entry]:
        taken: list[Entry] = []
        passed: list[tuple[float, int]] = []
        while self._waiting and self._waiting[0][0] <= self._steady() and len(taken) < limit:
            due, number = heapq.heappop(self._waiting)
            record = self._records.get(number)
            if record is None or record.state != "open" or record.due != due:
                continue
            if handlers is None or record.handler in handlers:
                taken.append(self._lease(record, lease))
            else:
                passed.append((due, number))
        for item in passed:
            heapq.heappush(self._waiting, item)
        return taken

    async def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> bool:
        record = self._held(entry)
        if record is None:
            return False
        self._make_room(len(deliveries) - 1)
        self._unfile(record)
        first, *further = deliveries
        record.handler, record.ordering_key = first.handler, first.ordering_key
        record.lease = record.attempts = 0
        self._file_all(record, further)
        return True

    async def give(self, event: StoredEvent, handler: str) -> bool:
        record = self._records.get(event.id)
        if record is None or record.body is None or record.handler == handler or is_copy(record.key):
            return False
        if record.state == "open" and not record.handler:  # will be for all handlers that it fits
            return False
        self._make_room(1)
        given = Delivery(key=None, type=record.type, body=record.body, handler=handler)
        copy = self._add_copy(record, given)
        self._file(copy)
        return copy is not None

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        record = self._held(entry)
        if record is None:
            return False
        record.body = body
        self._end(record, "handled")
        return True

    async def release(self, entry: Entry, *, delay: float) -> bool:
        record = self._held(entry)
        if record is None:
            return False
        if record.body is None:
            self._forget(record)
        else:
            record.lease = 0
            self._schedule(record, self._steady() + delay)
        return True

    async def events(
        self, *, state: State | None = None, after: int = 0, limit: int = 100
    ) -> list[StoredEvent]:
        found = (
            record for record in self._records.values() if record.id > after and state in {None, record.state}
        )
        return [
            StoredEvent(
                id=one.id, key=one.key, type=one.type, body=one.body, reason=one.reason, state=one.state,
                attempts=one.attempts, received_at=one.received, handler=one.handler,
            )
            for one in islice(found, limit)
        ]  # fmt: skip

    async def revive(self, event: StoredEvent) -> bool:
        record = self._records.get(event.id)
        if record is None or record.state == "open" or record.body is None:
            return False
        record.state, record.attempts, record.lease, record.ordering_key = "open", 0, 0, None
        del self._ended[record.id]
        self._schedule(record, self._steady())
        return True

    async def drop(self, event: StoredEvent) -> bool:
        record = self._records.get(event.id)
        if record is None or record.body is None:
            return False
        if record.state == "open" and record.lease and record.due > self._steady():
            return False
        if record.key is None:
            self._forget(record)
            return True
        record.body = None
        if record.state != "handled":
            self._ended.pop(record.id, None)
            self._end(record, "handled")
        return True

    async def stats(self) -> dict[State, StateStats]:
        received: dict[State, list[float]] = {state: [] for state in STATES}
        for record in self._records.values():
            received[record.state].append(record.received)
        return {state: StateStats(len(found), min(found, default=None)) for state, found in received.items()}

    async def backlog(self) -> Backlog:
        now = self._steady()
        due = [one.due for one in self._records.values() if one.is_taken_in_turn and one.due <= now]
        dead = sum(one.state == "dead" for one in self._ended.values())
        return Backlog(min(len(due), COUNTED), now - min(due, default=now), min(dead, COUNTED))

    async def prune(
        self, *, older_than: float, bodies: float | None = None, dead: float | None = None
    ) -> int:
        now = self._steady()
        limits = {"handled": older_than, "dead": dead}
        old = [one for one in self._records.values() if one.is_claim and one.due < now - older_than]
        for record in self._ended.values():
            age, limit = now - record.due, limits[record.state]
            if limit is not None and age > limit:
                old.append(record)
            elif bodies is not None and age > bodies and record.state == "handled":
                record.body = None
        for record in old:
            self._forget(record)
        return sum(record.state == "handled" for record in old)

    def _make_room(self, number: int) -> None:
        excess = len(self._records) + number - self._capacity
        if excess > len(self._ended):
            raise JournalError(
                f"event store: {self._capacity} events wait in memory. Use a store on disk for more."
            )
        for record in list(islice(self._ended.values(), max(excess, 0))):
            self._forget(record)

    def _add(self, delivery: Delivery) -> _Record:
        if len(self._records) >= self._capacity:
            self._make_room(1)
        self._last += 1
        record = _Record(
            id=self._last, key=delivery.key, type=delivery.type, body=delivery.body, received=self._clock(),
            due=self._steady(), handler=delivery.handler, ordering_key=delivery.ordering_key,
        )  # fmt: skip
        self._records[record.id] = record
        if record.key is not None:
            self._by_key[record.key] = record
        return record

    def _add_copy(self, first: _Record, delivery: Delivery) -> _Record | None:
        """Add the event of *first* for one more handler; ``None`` if that one has had it."""
        copy = attrs.evolve(delivery, key=key_for(delivery.handler, first.key, first.id, first.received))
        if self._by_key.get(copy.key) is not None:
            return None
        record = self._add(copy)
        record.received = first.received
        return record

    def _complete(self, known: _Record, delivery: Delivery, further: Sequence[Delivery]) -> None:
        """Store what claims of a known event lack: its body, and copies for handlers without a claim."""
        is_claim = known.is_claim
        for each in (delivery, *further):
            own: _Record | None = known
            if each.handler and known.handler not in {"", each.handler}:
                own = self._by_key.get(key_for(each.handler, known.key, known.id, known.received))
            if own is not None and own.is_claim:
                own.body = each.body
                self._schedule(own, own.due)
            elif own is None and is_claim:
                self._file(self._add_copy(known, each))

    def _file_all(self, first: _Record, further: Sequence[Delivery]) -> None:
        self._file(first)
        for each in further:
            self._file(self._add_copy(first, each))

    def _file(self, record: _Record | None) -> None:
        """Make a record due, or let it wait for the others of its ordering key."""
        if record is None:
            return
        due = self._steady()
        if record.ordering_key is not None:
            others = self._ordered.setdefault(record.ordering_key, {})
            others[record.id] = record
            due = due if len(others) == 1 else inf
        self._schedule(record, due)

    def _unfile(self, record: _Record) -> None:
        """Remove a record from those of its ordering key, and make the next of these due."""
        key = record.ordering_key
        others = {} if key is None else self._ordered.get(key, {})
        if key is None or others.pop(record.id, None) is None:
            return
        if not others:
            del self._ordered[key]
        elif record.due < inf:
            self._schedule(others[min(others)], self._steady())

    def _end(self, record: _Record, state: State) -> None:
        if record.ordering_key is not None:
            self._unfile(record)
        record.state, record.due = state, self._steady()
        self._ended[record.id] = record

    def _forget(self, record: _Record) -> None:
        self._ended.pop(record.id, None)
        self._unfile(record)
        del self._records[record.id]
        self._by_key.pop(record.key, None)

    def _schedule(self, record: _Record, due: float) -> None:
        record.due = due
        if record.body is not None and due < inf:
            heapq.heappush(self._waiting, (due, record.id))
        if len(self._waiting) > 2 * self._capacity:  # mostly stale items: each lease leaves one
            self._waiting = [(one.due, one.id) for one in self._records.values() if one.is_taken_in_turn]
            heapq.heapify(self._waiting)

    def _lease(self, record: _Record, seconds: float) -> Entry:
        self._leases += 1
        record.lease = self._leases
        record.attempts += 1
        self._schedule(record, self._steady() + seconds)
        return Entry(
            id=record.id, token=str(record.lease), key=record.key, type=record.type, body=record.body,
            attempts=record.attempts, handler=record.handler, ordering_key=record.ordering_key,
        )  # fmt: skip

    def _held(self, entry: Entry) -> _Record | None:
        record = self._records.get(entry.id)
        held = record is not None and record.state == "open" and str(record.lease) == entry.token
        return record if held else None
