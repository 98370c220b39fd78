"""
The UNKNOWN writes of a store: the next write to the same thing waits until they can have no effect any more.

How long ago one was sent is known by the service's clock alone, which its intent repeats.  The clocks of
processes may be hours apart, so what they note as the time of a verdict says nothing.  Where the service's
clock is not known, it counts from when this process saw the write first.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.entry import State
from invsvc_async.durable.last_writes import close_line
from invsvc_async.durable.store.facts import now_of
from invsvc_async.durable.store.lanes import owner_of
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.history import Reading
from invsvc_async.writes.state_reads import StateReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from invsvc_async.durable.entry import Entry, VerdictAt
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.client_core import ClientOptions


_MOST: Final = 10_000  # verdicts that are remembered


class _Seen(NamedTuple):
    """The number of an entry, and the time of the verdict; without a verdict, the *intent*."""

    seq: int
    done_at: int | None
    intent: int = 0  # its hash, since the text may be long


def _seen_as(entry: Entry) -> _Seen:
    intent = 0 if entry.done_at is not None else hash(entry.intent)
    return _Seen(entry.seq, entry.done_at, intent)


class UnknownWrites:
    """Those of *store*; *intent_in* returns the intent of an entry, or raises JournalError."""

    def __init__(
        self, store: Store, intent_in: Callable[[Entry], Awaitable[Intent]]
    ) -> None:
        self._store = store
        self._intent_in = intent_in
        # Until when it has to be waited for here (local s); -inf once the client has closed its line.
        self._until: OrderedDict[_Seen, float] = OrderedDict()

    def fresh(self, verdicts: Iterable[VerdictAt], now: float) -> list[int]:
        """
        Return the numbers of the entries that ``close_lines`` has to do with, *now* (local s).

        Of one without a verdict, only the entry tells whether it was sent again since.
        """
        return [
            each.seq
            for each in verdicts
            if each.done_at is None or self._until.get(_Seen(*each), inf) > now
        ]

    async def close_lines(
        self,
        entries: Sequence[Entry],
        options: ClientOptions,
        *,
        since: float = inf,
    ) -> None:
        """
        Close the lines of the things of *entries*, which are in doubt, as long as these may still be applied.

        Nothing of them was sent after the local time *since*. Those that this version cannot read are waited
        for, together; if the wait is cancelled, the next call waits for the rest of it.
        """
        clock = options.core.clock
        first_seen = min(clock.now(), since)
        until = -inf
        for entry in entries:
            seen = _seen_as(entry)
            if seen not in self._until:
                self._note(seen, await self._wait_for(entry, options, first_seen))
            until = max(until, self._until[seen])
        if until > clock.now():
            await clock.sleep(until - clock.now())

    async def _wait_for(
        self, entry: Entry, options: ClientOptions, first_seen: float
    ) -> float:
        """
        Close the line of *entry*, and return -inf.

        If this version cannot read it, return until when it has to be waited for instead, in local seconds.
        """
        try:
            await self._close_line(entry, options, first_seen)
        except JournalError:
            return await self._over(entry, options, first_seen)
        return -inf

    async def _over(
        self,
        entry: Entry,
        options: ClientOptions,
        first_seen: float,
    ) -> float:
        """
        Return the local time from which a send of *entry* can have no effect any more, at the latest.

        Nothing of it was sent after the local time *first_seen*, nor after its verdict was stored.
        """
        longest = _longest(options)
        age = await self._age(entry)
        return min(first_seen, options.core.clock.now() - age) + longest

    async def _age(self, entry: Entry) -> float:
        """
        Return how many s ago the verdict of *entry* was stored, at least: by the clock of the database.

        That of a file is the clock of this machine, which may have been set since.
        """
        if entry.done_at is None or not self._store.is_shared:
            return 0.0
        now = await now_of(self._store)
        return max(now - entry.done_at / 1000, 0.0)

    def _note(self, seen: _Seen, until: float) -> None:
        self._until[seen] = until
        if len(self._until) > _MOST:
            self._until.popitem(last=False)

    async def _close_line(
        self,
        entry: Entry,
        options: ClientOptions,
        since: float,
    ) -> None:
        if entry.intent is None or entry.thing is None:  # lost with an outbox's journal
            return
        intent = await self._intent_in(entry)
        shown = await _shown_clock(intent, options)
        gone = await self._is_sender_gone(entry)
        close_line(
            options.core, entry.thing, intent, *shown, since=since, sender_gone=gone
        )

    async def _is_sender_gone(self, entry: Entry) -> bool:
        """Return whether the sender of *entry* sends nothing more. A silent process may."""
        if entry.state is State.DONE or not self._store.is_shared:
            return True
        owner = await owner_of(self._store, entry.lane)
        return owner is None or owner.sign is None


async def _shown_clock(intent: Intent, options: ClientOptions) -> tuple[Reading, ...]:
    """Return a reading that shows the service's clock, if the clock is known, or a read shows it."""
    core = options.core
    slack = options.reconcile.clock_slack
    bounds = core.server_clock.bounds(core.clock.now(), slack)
    reader = BY_NAME[intent.operation].reader
    if bounds is None and reader is not None:
        looks = StateReader(options.without_team(), intent, lambda: intent, own=None)
        return (await looks.look(reader, lane="settle"),)
    if bounds is None:
        return ()
    stamp = round((core.clock.now() + bounds.low) * 1000)
    started = stamp / 1000 - bounds.high
    return (
        Reading(
            started=started,
            ended=stamp / 1000 - bounds.low,
            stamp=stamp,
        ),
    )


def _longest(options: ClientOptions) -> float:
    """Return for how long a write of *options* may be applied after it was sent, in seconds."""
    policy = options.reconcile
    windows = options.timeouts.attempt + policy.settle_after_loss
    return windows + 2 * policy.clock_slack + policy.clock_band
