"""
What one client knows of its writes: a record for each thing, and what was left open.

All writes that can be mistaken for each other, or that replace each other, have one *line* in common
(``new_intent.line_of``): a text that names the thing they change, or the URL of the webhooks they create.
``Thing`` is the record of a line. It has

- the queue. Writes of one line run one at a time, in their order. A write whose answer was lost closes the
  line until it can no longer take effect.
- the last users: which write was sent last, and which of those after it did nothing.
- the last state of the thing in an answer, which is the baseline of its next update; of creates, the ids that
  answers gave them.
- the writes that were left open, oldest first. One that is sent after them overtakes them: they must not be
  sent again.

Records are bounded together, by dropping those that were used longest ago. Then fewer writes can be settled,
but none wrongly: what is not known of a line is never taken for "nothing happened". A record that holds a
queue, or open writes, loses only what was shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
from msgspec import Raw, Struct, field

from invsvc_async.codec.exact_json import Wire, holds_broken, loads, salvage
from invsvc_async.concurrency.clock import Clock, SystemClock
from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.reconcile.compare import is_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import Kind
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.journal import Journal

log: logging.Logger = logging.getLogger("invsvc_async")

MOST_BYTES = 24 * 2**20  # of all records together
OWN_BYTES = 1024  # of a record, without what was shown
_ID_BYTES = 128
IDS_OF_A_URL = 512
MOST_TEAMS = 1000  # whose last list is kept
UNSETTLED_KEPT = 10_000
CLAIMS_KEPT = 50_000
TAGGED_KEPT = 2_000  # of those: of creates with a unique tag, which only a later edit can hide
ENDED_KEPT = 1000
_USERS = 8  # of a line that are remembered, if all but the first did nothing
_NO_TIME = 10**15  # ms: later than any webhook


def version_of(state: Wire) -> int | None:
    """Return when a state (a model or wire data) was last changed, in server ms; ``None`` if not known."""
    at = state.get("last_updated") if isinstance(state, dict) else getattr(state, "last_updated", None)
    if isinstance(at, datetime):
        return milliseconds(at)
    return int(at) if is_time(at) else None


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
    members = state.items() if isinstance(state, dict) else ()
    return {name: value for name, value in members if not holds_broken(value)} or None


class LastState(Struct, frozen=True, gc=False):
    """
    The state of a thing in the last answer that showed it, which arrived at *ended* (local s).

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

    ids: tuple[tuple[str, int | None], ...] = ()  # with the times of creation, server ms
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

    def ids(self, kind: Kind, body: Wire) -> set[str]:
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
    # The run that has the line, or the waiter that it was handed to; None: nobody. Any: of the caller
    held: Any = None
    waiters: deque[asyncio.Future[None]] | None = None
    closed_until: dict[str, float] | None = None  # local s, by the write that closed it
    # The write that was sent last, and after it those that did nothing. "" is one that no other run can send.
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
        """Return when it opens for *owner*, who ignores what it closed itself (local s)."""
        closed = self.closed_until or {}
        return max((until for by, until in closed.items() if by != owner), default=-inf)

    def did_nothing(self, own: str, before: tuple[str, ...]) -> None:
        """Note that the write *own* did nothing, so that those *before* it are not overtaken by it."""
        users = (*(user for user in before if user != own), own)
        self.users = (users[0], *users[1:][1 - _USERS :])


_NO_RECORD = Thing()  # stands for a thing without a record; nothing is stored in it


class OpenWrite(Struct, eq=False):
    """A write whose outcome is not known: its newest revision, and whether the client's journal has it."""

    intent: Intent
    thing: Thing | None  # that others replace; None: a create
    in_journal: bool


class WriteRegister(Struct, eq=False):
    """
    What one client knows of its writes, shared by all its views.

    ``is_of_one_mode`` is whether all answers are of one data mode. If they are not, no states are kept,
    because a later read may show other data.
    """

    is_of_one_mode: bool
    journal: Journal | None = None
    clock: Clock = field(default_factory=SystemClock)
    unsettled: OrderedDict[str, OpenWrite] = field(default_factory=OrderedDict)  # of this client
    # All others in the journal, most of them of the process before; None: the journal was not read yet.
    leftovers: dict[str, OpenWrite] | None = None
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    # By webhook id: the identity of the write that made it, and whether an answer said so or only a match.
    claims: OrderedDict[str, tuple[str, bool]] = field(default_factory=OrderedDict)
    ended: OrderedDict[str, Outcome[Any]] = field(default_factory=OrderedDict)  # once in doubt, by identity
    listings: SingleFlight = field(default_factory=SingleFlight)
    _things: OrderedDict[str, Thing] = field(default_factory=OrderedDict)  # the one used last at the end
    _bytes: int = 0
    _most: int = 0  # more than MOST_BYTES, if that many records are in use
    _other_urls: UrlIds = field(default_factory=UrlIds)  # of all lines without a record
    _lists: dict[tuple[str, str | None], Listed] = field(default_factory=dict)
    _tagged: deque[str] = field(default_factory=deque)  # the ids of claims with a unique tag

    def __repr__(self) -> str:
        return object.__repr__(self)

    # --- the record of a thing

    def thing(self, line: str) -> Thing:
        """Return the record of *line*. Only one that is in use is sure to stay."""
        thing = self._things.get(line)
        if thing is None:
            thing = self._things[line] = Thing(line)
            self._grow(OWN_BYTES)
        else:
            self._things.move_to_end(line)
        return thing

    def things(self) -> dict[str, Thing]:
        """Return all records, by line."""
        return dict(self._things)

    def _grow(self, by: int) -> None:
        """Count so many bytes more. If they are too many, drop records that were used longest ago."""
        self._bytes += by
        if self._bytes <= max(MOST_BYTES, self._most):
            return
        now = self.clock.now()
        for _ in range(len(self._things) - 1):  # the last one is asked for
            if self._bytes <= MOST_BYTES:
                break
            line, thing = self._things.popitem(last=False)
            self._forget(thing)
            if thing.held or thing.open or thing.opens_at(None) > now:
                self._things[line] = thing
            else:
                self._bytes -= OWN_BYTES
        self._most = 2 * self._bytes if self._bytes > MOST_BYTES else 0

    def _forget(self, thing: Thing) -> None:
        if thing.last is not None:
            self._bytes -= thing.last.weight
            thing.last = None
        if thing.ids is not None:
            self._bytes -= _ID_BYTES * len(thing.ids.ids)
            gone = thing.ids.shortened(0).forgotten_until
            others = self._other_urls.forgotten_until
            self._other_urls = UrlIds((), max(gone or 0, others or 0))
            thing.ids = None

    # --- the queue

    async def turn(
        self,
        thing: Thing,
        owner: str | None,
        pause: Callable[[float], Awaitable[bool]],
        run: object = True,  # noqa: FBT002 - as of `Thing.enter`
    ) -> None:
        """
        Wait until *thing* is free and open, and begin *run*.

        *owner* does not wait for what it closed itself. *pause* waits for some seconds, and returns
        ``False`` if the client was closed meanwhile.
        """
        if thing.held:
            waiter = asyncio.get_running_loop().create_future()
            try:
                if thing.waiters is None:
                    thing.waiters = deque()
                thing.waiters.append(waiter)
                await waiter
            except BaseException:
                waiter.cancel()
                self.leave(thing, waiter)  # if it was handed over: pass it on
                if thing.waiters and waiter in thing.waiters:
                    thing.waiters.remove(waiter)
                raise
        thing.held = run
        try:
            while thing.closed_until:
                left = thing.opens_at(owner) - self.clock.now()
                if left <= 0 or not await pause(left):
                    break
        except BaseException:
            self.leave(thing, run)
            raise

    def leave(self, thing: Thing, run: object = True) -> None:  # noqa: FBT002 - as of `Thing.enter`
        """
        End the turn of *run*. The next is the one that has waited longest.

        A second call does what the first one did not, because a signal handler raised in it.
        """
        if thing.held is run:
            thing.held = thing.heir()
        if isinstance(thing.held, asyncio.Future) and not thing.held.done():
            thing.held.set_result(None)
        if thing.held:
            return
        if thing.closed_until and thing.opens_at(None) <= self.clock.now():
            thing.closed_until = None
        if thing.last is not None or thing.ids is not None or thing.line is None:
            return
        if not (thing.users or thing.open or thing.closed_until) and self._things.get(thing.line) is thing:
            del self._things[thing.line]
            self._bytes -= OWN_BYTES

    def close(self, line: str, owner: str, until: float) -> None:
        """Keep *line* closed to all but *owner* until that local time, in seconds."""
        thing = self.thing(line)
        now = self.clock.now()
        closed = {by: kept for by, kept in (thing.closed_until or {}).items() if kept > now}
        thing.closed_until = closed | {owner: max(until, closed.get(owner, -inf))}

    def close_for_unknown(self, line: str, owner: str, until: float) -> None:
        """
        Keep *line* closed to all but *owner*, whose outcome is not known, and may still have an effect.

        What was read of the thing until then is no baseline of the next write.
        """
        self.close(line, owner, until)
        self.forget_state(line)

    def closed_for(self, line: str | None) -> float:
        """Return for how many more seconds *line* is not open to all."""
        thing = self._things.get(line or "", _NO_RECORD)
        return max(thing.opens_at(None) - self.clock.now(), 0.0) if thing.closed_until else 0.0

    def is_busy(self, line: str) -> bool:
        """Return whether a write of *line* runs, or may still land, or could when the last one ended."""
        thing = self._things.get(line, _NO_RECORD)
        return bool(thing.held or thing.closed_until)

    def last_users(self, line: str) -> tuple[str, ...]:
        """Return the write of *line* that was sent last, and after it those that did nothing, if known."""
        return self._things.get(line, _NO_RECORD).users

    # --- what answers showed

    def learn_state(
        self,
        team: str | None,
        line: str,
        shown: Wire | Raw,
        started: float,
        ended: float,
        *,
        stamp: int | None = None,
        weight: int = 0,
        written: bool = False,
    ) -> None:
        """
        Keep the state of the thing in *line*, from the answer to a request from *started* to *ended*.

        *written*: the request was a write of this client. A read that overlaps with the answer that is kept
        is ignored, because it is unknown which state is the later one; and so is one that began while an
        earlier write could still have an effect.
        """
        if not self.is_of_one_mode:
            return
        thing = self.thing(line)
        last = thing.last
        if last is not None and started < last.ended and not written:
            return
        if thing.closed_until and not written and started < thing.opens_at(None):
            return
        thing.last = LastState(shown, ended, stamp, weight, team)
        growth = weight if last is None else weight - last.weight
        if growth:
            self._grow(growth)

    def last_state(self, team: str | None, line: str) -> LastState | None:
        """
        Return the last known state of the thing in *line*, also if another name of the *team* was given.

        That another team does not have it says nothing.
        """
        last = self._things.get(line, _NO_RECORD).last
        return None if last is not None and last.team != team and last.shown == {} else last

    def forget_state(self, line: str) -> None:
        """Forget the state of the thing in *line*, because an open write may have changed it."""
        thing = self._things.get(line, _NO_RECORD)
        if thing.last is not None:
            self._bytes -= thing.last.weight
            thing.last = None

    def learn_created(self, line: str, webhook_id: str, created_at: Wire) -> None:
        """Keep the id that an answer gave to an untagged create, and its time of creation (server ms)."""
        if not self.is_of_one_mode:
            return
        thing = self.thing(line)
        known = thing.ids or self._other_urls
        ids = (*known.ids, (webhook_id, int(created_at) if is_time(created_at) else None))
        made = UrlIds(ids, known.forgotten_until)
        thing.ids = made if len(ids) <= IDS_OF_A_URL else made.shortened(IDS_OF_A_URL // 2)
        self._grow(_ID_BYTES * (len(thing.ids.ids) - len(known.ids)))

    def ids(self, line: str) -> UrlIds:
        """Return the ids from answers to the creates of *line*."""
        return self._things.get(line, _NO_RECORD).ids or self._other_urls

    def learn_list(self, read: str, team: str | None, items: list[Wire]) -> None:
        """Keep the last list (wire form) that the operation *read* has shown of the *team*."""
        if not self.is_of_one_mode:
            return
        self._lists.pop((read, team), None)
        self._lists[read, team] = Listed(len(items), items)
        if len(self._lists) > MOST_TEAMS:
            del self._lists[next(iter(self._lists))]

    def last_list(self, read: str, team: str | None) -> Listed | None:
        """Return the last list that the operation *read* has shown of the *team*."""
        return self._lists.get((read, team))

    # --- writes that were left open

    def opened(self, identity: str) -> Intent | None:
        """Return the newest revision of an open intent."""
        each = self._opened(identity)
        return None if each is None else each.intent

    def _opened(self, identity: str) -> OpenWrite | None:
        return self.unsettled.get(identity) or (self.leftovers or {}).get(identity)

    def _pop(self, identity: str) -> OpenWrite | None:
        return self.unsettled.pop(identity, None) or (self.leftovers or {}).pop(identity, None)

    def knows(self, identity: str) -> bool:
        """Return whether this client has left the write open, or has settled it after doubt."""
        return identity in self.unsettled or identity in self.ended

    def leave_open(self, intent: Intent, line: str | None, *, in_journal: bool = False) -> None:
        """Keep *intent*, of *line*, whose outcome is unknown. If there are too many, drop the oldest one."""
        identity = intent.identity
        before = self._pop(identity)
        in_journal = in_journal or (before is not None and before.in_journal)
        self.unsettled[identity] = OpenWrite(intent, self._open_in(line, intent), in_journal)
        if len(self.unsettled) > UNSETTLED_KEPT:
            identity, oldest = next(iter(self.unsettled.items()))
            if oldest.in_journal and self.leftovers is not None:
                del self.unsettled[identity]
                self.leftovers[identity] = oldest  # the journal must be told when a newer write is sent
            else:
                self.take(identity)
            log.error(
                "more than %d unsettled writes: intent %s is no longer in client.unsettled",
                UNSETTLED_KEPT,
                oldest.intent.key,
            )

    def add_leftover(self, intent: Intent, line: str | None) -> None:
        """Keep *intent* of an earlier process."""
        assert self.leftovers is not None
        if intent.identity in self.unsettled:
            self.unsettled[intent.identity].in_journal = True
        else:
            self.leftovers[intent.identity] = OpenWrite(intent, self._open_in(line, intent), in_journal=True)

    def _open_in(self, line: str | None, intent: Intent) -> Thing | None:
        from invsvc_async.reconcile.kinds import replaces  # a client that only reads does not need it

        if line is None or not replaces(intent.operation):
            return None
        thing = self.thing(line)
        if thing.open is None:
            thing.open = {}
        thing.open[intent.identity] = None
        return thing

    def leave_journal(self, identity: str) -> bool:
        """Note that the client's journal has an intent no longer; return whether it had it."""
        each = self._opened(identity)
        if each is None or not each.in_journal:
            return False
        each.in_journal = False
        return True

    def take(self, identity: str) -> None:
        """Forget an intent, because its outcome is known, or another process settles it now."""
        each = self._pop(identity)
        if each is not None and each.thing is not None and each.thing.open is not None:
            each.thing.open.pop(identity, None)

    def doubt_newest(self, thing: Thing, newest: str) -> list[Intent]:
        """
        Mark the open writes to *thing* as perhaps overtaken by *newest*, in the journal, too.

        That holds however far the send of *newest* gets. Return those that no other write had overtaken, as
        they were.
        """
        found = [self.opened(identity) for identity in thing.open or () if identity != newest]
        before = [intent for intent in found if intent is not None and intent.newest is not False]
        self.revise(*(attrs.evolve(intent, newest=None) for intent in before))
        return before

    def overtake(self, *intents: Intent) -> None:
        """Mark those of *intents* that are open as overtaken, in the journal, too."""
        self.revise(*(attrs.evolve(intent, newest=False) for intent in intents))

    def revise(self, *intents: Intent) -> None:
        """Keep *intents* in place of the revisions of them that are open, in the journal, too."""
        for intent in intents:
            each = self._opened(intent.identity)
            if each is not None:
                each.intent = intent
                if each.in_journal and self.journal is not None:
                    self.journal.shelved(intent, sent=True)

    # --- which write made what, and how it ended

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

    def keep_ended(self, identity: str, outcome: Outcome[Any]) -> None:
        """Keep the outcome of a write that was in doubt, in case its intent is settled or resumed again."""
        self.ended[identity] = outcome
        self.ended.move_to_end(identity)
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
