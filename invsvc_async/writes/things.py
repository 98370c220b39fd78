"""
The record of each thing that writes change, and the memory that all records take together.

All writes that can be mistaken for each other, or that replace each other, have one *line* in common
(``line_names.line_of``): a text that names the thing they change, or the URL of the webhooks they create.
``Thing`` is the record of a line. It has

- the queue. Writes of one line run one at a time, in their order. A write whose answer was lost closes the
  line until it can no longer take effect. ``lines`` works on this part.
- the last users: which write was sent last, and which of those after it did nothing.
- the last state of the thing in an answer, which is the baseline of its next update; of creates, the ids that
  answers gave them. ``shown`` works on this part.
- the writes that were left open, oldest first. One that is sent after them overtakes them: they must not be
  sent again. ``open_writes`` works on this part.

Records are bounded together, by dropping those that were used longest ago. Then fewer writes can be settled,
but none wrongly: what is not known of a line is never taken for "nothing happened". A record that holds a
queue, or open writes, loses only what was shown.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Raw, Struct

from invsvc_async.codec.exact_json import Wire, holds_broken, loads, salvage
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.reconcile.compare import is_time

if TYPE_CHECKING:
    import asyncio

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.reconcile.kinds import WriteKind

MOST_BYTES = 24 * 2**20  # of all records together
OWN_BYTES = 1024  # of a record, without what was shown
_ID_BYTES = 128
# In place of the identity of the write that runs. No other run can send that write before its end, so nobody
# asks for its identity, and to make it would cost more than the record does.
NOT_NAMED_YET = ""
# In place of the identity of the write that was sent last, where that is not known.
NOT_KNOWN = "-"
_USERS = 8  # of a line that are remembered, if all but the first did nothing
_NO_TIME = 10**15  # ms: later than any webhook
# Who has a line: a run, which is any object of the caller; or a future in `Thing.waiters`, whose run was
# handed the line and has not gone on yet; or nobody (None).
Holder: TypeAlias = object


def version_of(state: Wire) -> int | None:
    """Return when a state (a model or wire data) was last changed, in server ms; ``None`` if not known."""
    if isinstance(state, dict):
        at = state.get("last_updated")
    else:
        at = getattr(state, "last_updated", None)
    if isinstance(at, datetime):
        return milliseconds(at)
    if is_time(at):
        return int(at)
    return None


def milliseconds(at: datetime) -> int:
    """Return *at* in wire form, epoch ms."""
    return round(at.timestamp() * 1000)


def sound(state: Wire) -> Wire:
    """
    Return wire data without the members that no parser accepts, such as a number of a million digits.

    An intent that has one could not be read back.
    """
    if not holds_broken(state):
        return state
    if not isinstance(state, dict):
        return None
    whole = {name: value for name, value in state.items() if not holds_broken(value)}
    return whole or None


class LastState(Struct, frozen=True, gc=False):
    """
    The state of a thing in the last answer that showed it; *ended* is when the answer arrived (local s).

    ``shown`` is its JSON, or wire data; an empty dict if the thing was gone. ``stamp`` is the time in the
    answer (server ms), ``weight`` the length of the answer in bytes, ``team`` the one that the request named.
    """

    shown: Wire | Raw
    ended: float
    stamp: int | None
    weight: int
    team: str | None = None

    @property
    def state(self) -> Wire:
        """The wire form, without members that no parser accepts; ``None`` if it is no object."""
        if not isinstance(self.shown, Raw):
            return self.shown
        try:
            return loads(self.shown)
        except UnreadableResponseError:
            return sound(salvage(self.shown))


class UrlIds(Struct, frozen=True):
    """The ids of webhooks of one URL, from answers. Some created up to ``forgotten_until`` are missing."""

    # with the times of creation, server ms
    ids: tuple[tuple[str, int | None], ...] = ()
    forgotten_until: int | None = None

    def shortened(self, kept: int) -> UrlIds:
        """Return a copy with only the last *kept* ids."""
        cut = len(self.ids) - kept
        dropped = [_NO_TIME if at is None else at for _, at in self.ids[:cut]]
        return UrlIds(self.ids[cut:], max([*dropped, self.forgotten_until or 0]))

    def created_since(self, earliest: float | None) -> set[str]:
        """Return the ids of the webhooks that may have been created at *earliest* (server s) or later."""
        if earliest is None:
            return {webhook_id for webhook_id, _ in self.ids}
        return {known for known, at in self.ids if at is None or at / 1000 >= earliest}


class Listed(Struct):
    """The ids in a list as the service returned it."""

    many: int
    _items: list[Wire]  # until the ids are asked for
    _ids: dict[str | None, set[str]] | None = None

    def ids(self, kind: WriteKind, body: Wire) -> set[str]:
        """Return the ids of what could be mistaken for the effect of a create of *kind* with *body*."""
        if self._ids is None:
            self._ids = kind.ids_near(self._items)
            self._items = []
        return kind.near(self._ids, body)


class Thing(Struct, eq=False):
    """
    The record of *line*. See the top of this file.

    ``line`` is ``None`` for a write that no other can be mistaken for: its record is its own.
    """

    line: str | None = None
    held: Holder = None
    waiters: deque[asyncio.Future[None]] | None = None
    closed_until: dict[str, float] | None = None  # local s, by the write that closed it
    # The write that was sent last (its identity, NOT_NAMED_YET or NOT_KNOWN), and after it the writes that
    # did nothing, and so have not overtaken it. Empty: no write is known.
    users: tuple[str, ...] = ()
    last: LastState | None = None
    ids: UrlIds | None = None
    open: dict[str, None] | None = None  # by identity, oldest first

    def enter(self, run: object = True) -> bool:  # noqa: FBT002 - any token will do
        """Begin *run* unless another write runs, waits or has closed the line. Return whether it did."""
        if self.held or self.closed_until:
            return False
        self.held = run
        return True

    def heir(self) -> asyncio.Future[None] | None:
        """Return the one that has waited longest, and still does."""
        while self.waiters:
            if not self.waiters[0].done():
                return self.waiters[0]
            self.waiters.popleft()
        return None

    def opens_at(self, owner: str | None) -> float:
        """Return when the line opens for *owner*, for whom its own closing does not count (local s)."""
        closed = self.closed_until or {}
        return max((until for by, until in closed.items() if by != owner), default=-inf)

    def has_to_stay(self) -> bool:
        """Return whether the record has anything that a later write must know."""
        if self.last is not None or self.ids is not None:
            return True
        return bool(self.users or self.open or self.closed_until)

    def was_sent_by(self, own: str) -> None:
        """Note *own* (an identity, or ``NOT_NAMED_YET``) as the last write that was sent."""
        self.users = (own,)

    def name_only_user(self, own: str) -> None:
        """Replace ``NOT_NAMED_YET`` by the identity *own*, because others may ask for it from here on."""
        if self.users == (NOT_NAMED_YET,):
            self.users = (own,)

    def did_nothing(self, own: str, before: tuple[str, ...]) -> None:
        """
        Note that the write *own* did nothing, and so has not overtaken the writes *before* it.

        A write that was sent after it stays the last one.
        """
        was_sent_last = not self.users or self.users[0] in (own, NOT_NAMED_YET)
        if not was_sent_last:
            return
        # *own* comes last, also if it was among them. The first was sent last; the others did nothing.
        users = (*(user for user in before if user != own), own)
        without_effect = users[1:]
        self.users = (users[0], *without_effect[1 - _USERS :])


NO_RECORD = Thing()  # stands for a thing without a record; nothing is stored in it


class Records:
    """The records of all lines, in the order of their last use, and the count of the bytes that they take."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # the one used last at the end
        self._things: OrderedDict[str, Thing] = OrderedDict()
        self.bytes: int = 0
        self._most = 0  # bytes: more than MOST_BYTES, if that many records are in use
        self.other_urls: UrlIds = UrlIds()  # of all lines without a record

    def of(self, line: str) -> Thing:
        """Return the record of *line*, a new one if there is none. Only a record in use is sure to stay."""
        thing = self._things.get(line)
        if thing is None:
            thing = self._things[line] = Thing(line)
            self._count(OWN_BYTES)
        else:
            self._things.move_to_end(line)
        return thing

    def known(self, line: str) -> Thing:
        """Return the record of *line* without using it; an empty one if there is none."""
        return self._things.get(line, NO_RECORD)

    def all(self) -> dict[str, Thing]:
        """Return all records, by line."""
        return dict(self._things)

    def remove(self, thing: Thing) -> None:
        """Remove *thing*, of which nothing is known, unless its line has another record by now."""
        if thing.line is not None and self._things.get(thing.line) is thing:
            del self._things[thing.line]
            self.bytes -= OWN_BYTES

    # --- what answers showed, which takes most of the memory

    def keep_state(self, thing: Thing, state: LastState) -> None:
        """Keep *state* in *thing*, in place of the one before."""
        before = thing.last
        thing.last = state
        growth = state.weight if before is None else state.weight - before.weight
        if growth:
            self._count(growth)

    def keep_ids(self, thing: Thing, ids: UrlIds) -> None:
        """Keep *ids* in *thing*, in place of those before."""
        many_before = 0 if thing.ids is None else len(thing.ids.ids)
        thing.ids = ids
        self._count(_ID_BYTES * (len(ids.ids) - many_before))

    def forget_state(self, thing: Thing) -> None:
        """Forget the state that was shown of *thing*."""
        if thing.last is not None:
            self.bytes -= thing.last.weight
            thing.last = None

    def _forget_ids(self, thing: Thing) -> None:
        if thing.ids is not None:
            self.bytes -= _ID_BYTES * len(thing.ids.ids)
            gone = thing.ids.shortened(0).forgotten_until
            others = self.other_urls.forgotten_until
            self.other_urls = UrlIds((), max(gone or 0, others or 0))
            thing.ids = None

    # --- memory

    def _count(self, by: int) -> None:
        """Count so many bytes more. If there are too many, drop records that were used longest ago."""
        self.bytes += by
        if self.bytes > max(MOST_BYTES, self._most):
            self._make_room()

    def _make_room(self) -> None:
        now = self._clock.now()
        for _ in range(len(self._things) - 1):  # the last one is asked for
            if self.bytes <= MOST_BYTES:
                break
            line, thing = self._things.popitem(last=False)
            self.forget_state(thing)
            self._forget_ids(thing)
            if thing.held or thing.open or thing.opens_at(None) > now:
                self._things[line] = thing
            else:
                self.bytes -= OWN_BYTES
        self._most = 2 * self.bytes if self.bytes > MOST_BYTES else 0
