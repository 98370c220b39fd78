"""
The order of the writes to one thing: who comes before whom, and who is overtaken.

The places of a thing's writes are the order in which they were stored first.  A write gets a new place, at
the end, by a forced retry; and if it is done anew to another thing than before (``note_anew`` of ``claims``).
With its old place, a write that moves to another thing would stand before writes there that ``begin`` has let
be sent: they would not wait for it, and two would be sent at once.  Nor have the newer writes to that thing
overtaken it, since it was not in their order when they were sent.

A write *may have had an effect* if it is SENDING, or done with another verdict than NOT_APPLIED or REFUSED.
A write is *overtaken* once a later one to the same thing may have had an effect.  What only waits overtakes
nothing, so a queue whose process has ended is sent by the next one that runs it.

A write of a client without a key of the user's own is in no order with those of keys, so its place is 0, and
no key waits for it.  But it overtakes the keys that were claimed before its entry, which its number tells:
``durable/key_starts`` says how both take turns in one process.  It waits until writes in doubt that no other
living process has can have no effect any more (``in_doubt_of``), but does not settle them.

A write *creates* if it makes the thing and replaces nothing: the create of a webhook without a tag, whose
thing is its URL.  It is not overtaken.  But its webhook and that of another create of the URL could be taken
for each other, so of all creates of a thing that may have been sent, one at most is *held*: in the lane of a
living process.

- A create that was not sent waits for earlier ones, and for all others that may have been sent.  Once
  ``begin`` lets it be sent, it is the one that is held.
- A run that is to settle a create that may have been sent, and that nobody has, acquires it once no other
  create of the thing is held (``check_alone``).  ``begin`` is not asked again before it is sent.

===================  ==================================================================================
who asks             how it is decided
===================  ==================================================================================
a run of a key       in the store, since any process may run any key: ``ahead_of`` says what to wait
                     for (``durable/key_queue.py``), and ``begin`` whether it may be sent.  That is one
                     transaction, under the lock of the thing, which also notes that it is about to be
                     sent.  So of an earlier and a later one that look at once, one sees the other.
                     ``begin`` also looks whether what was waited for has changed since (``WritesBeside``):
                     an earlier one may have been sent again, by another process
a dispatcher         by ``batch/late_places``: it has all writes of a thing, in one lane, and reads them
(batch, outbox)      in the order of their places (``batch/dispatcher.py``, ``batch/earlier_writes.py``)
===================  ==================================================================================

A write that enters under a new key is *next* to its thing if it may be sent at once, without asking what
comes before it.  Two things have to be sure for that:

- Each earlier write to the thing has ended; or it is not sent any more, because its process will find that it
  is overtaken.
- This process knows what the last one that may have had an effect left of the thing: there is none, or this
  process has applied it.

``claims`` decides that in each kind of store by what is cheap there:

- PostgreSQL (``line`` in ``key_sql.CLAIM``): no write to the thing is known, or the one that was claimed just
  before was applied, and is in the lane of this process.  To be sent, that one was next itself, or ``begin``
  let it.  So it has waited for every earlier write that a living process has.  The others it *passed over*,
  and they are overtaken by it: those that were not sent, and those that may have been sent, but that it could
  not settle (``passed`` of ``WritesBeside``).
- A file (``key_sql.NOT_NEXT``): no other write to the thing is open or UNKNOWN; and none had an effect, or
  the last one that may have had one was applied, and is in the lane of this process.

Each condition is enough, so the answers may differ.  If the write before has passed over one that is still
open or UNKNOWN, a file says no, and PostgreSQL may say yes.  If the write before has ended without an effect,
PostgreSQL says no, and a file may say yes.  A no is always safe: the run then asks ``ahead_of``.  A create
that has a thing always asks, since it waits for later creates, too (``durable/key_steps.py``).
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async.durable.entry import (
    AnotherIsHeldError,
    State,
    VerdictAt,
    columns_of,
)
from invsvc_async.durable.store.conditions import WaitsFor
from invsvc_async.durable.store.lanes import check_owned, lost_entry
from invsvc_async.durable.store.statements import entry_sql, key_sql, store_sql
from invsvc_async.reconcile.kinds import is_created
from invsvc_async.storage.dialect import MOST, in_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


class Ahead(NamedTuple):
    """
    The first unfinished write ahead of another write to the same thing, by ``key`` and ``place``.

    ``key`` is ``None`` if no such write exists.  The rest is about the thing.  ``is_overtaken`` is whether a
    later write was sent; that includes one that is being sent, which ``is_being_overtaken`` tells alone,
    because it may still be given up before it leaves.  ``has_unknown`` is whether other writes are UNKNOWN.
    Then come the highest place of a write that may have had an effect, and what the write left that has ended
    last, which may be another one.
    """

    key: str | None
    place: int
    is_overtaken: bool
    is_being_overtaken: bool
    has_unknown: bool
    last: int
    team: str | None
    state: str | None
    stamp: int | None


class WritesBeside(NamedTuple):
    """
    The other writes to a thing, as a run has found them when nothing was ahead of it any more.

    ``last`` is the place of the last one that may have had an effect.  ``unknown`` are the verdicts UNKNOWN
    after which it waits until these writes can have no effect any more.  ``passed`` are the intents of writes
    that may have been sent, that nobody has, and that it has passed over.
    """

    last: int = 0
    unknown: Sequence[VerdictAt] = ()
    passed: Sequence[str] = ()


class Turn(Enum):
    """Whether a write may be sent now."""

    BEGUN = auto()  # it may: it is stored as being sent
    WAITS = auto()  # for another one
    OVERTAKEN = auto()  # it must not be sent any more


async def ahead_of(
    store: Store,
    thing: str,
    place: int,
    after: int,
    own: int,
    waits_for: WaitsFor,
) -> Ahead:
    """
    Return the first write that the entry *own* of *thing*, at *place*, waits for.

    Those up to the place *after* were passed over already.
    """
    rows = await store.rows(key_sql.AHEAD, thing, place, after, own, int(waits_for))
    [(key, earlier, overtaken, being_sent, unknown, last, *left)] = rows
    if waits_for is not WaitsFor.EARLIER:  # It creates, so nothing overtakes it.
        overtaken = False
        being_sent = False
    return Ahead(
        key,
        earlier or 0,
        bool(overtaken),
        bool(being_sent),
        bool(unknown),
        last or 0,
        *left,
    )


async def unknown_beside(
    store: Store,
    thing: str,
    own: int,
) -> list[VerdictAt]:
    """Return the verdicts UNKNOWN of the writes to *thing*, but for the one with the number *own*."""
    return [
        VerdictAt(*row) for row in await store.rows(key_sql.UNKNOWN_BESIDE, thing, own)
    ]


async def things_in_doubt(store: Store, own: int) -> set[str]:
    """
    Return the things of writes in doubt: UNKNOWN, or perhaps sent, and in no lane of another living process.

    *own* is the lane of this process: of those in it, only keyed ones count.
    """
    things: list[str] = []
    while True:
        after = things[-1] if things else ""
        page = await store.rows(
            key_sql.THINGS_IN_DOUBT, store.silence, own, after, MOST
        )
        things += [thing for (thing,) in page]
        if len(page) < MOST:
            return {*things}


async def in_doubt_of(store: Store, thing: str, own: int) -> list[VerdictAt]:
    """Return the writes in doubt to *thing*, with the times of their verdicts."""
    rows = await store.rows(key_sql.IN_DOUBT_OF_THING, store.silence, own, thing)
    return [VerdictAt(*row) for row in rows]


async def entries_at(store: Store, seqs: Sequence[int]) -> list[Entry]:
    """Return the entries with the numbers *seqs*."""
    return await store.entries(entry_sql.OF_NUMBERS, seqs)


# --- asked by dispatchers, before they send (``batch/earlier_writes``)


async def unknown_of(store: Store, things: Sequence[str]) -> list[Entry]:
    """Return the entries of *things* with the verdict UNKNOWN."""
    ask = partial(store.entries, key_sql.UNKNOWN_OF_THINGS)
    return await in_parts(ask, things)


async def in_flight_of(store: Store, things: Sequence[str]) -> dict[str, int]:
    """Return the last place of each of *things* at which a write is being sent that is no create."""
    return dict(await in_parts(partial(store.rows, key_sql.IN_FLIGHT), things))


async def waiting_of_copy(
    store: Store, things: Sequence[str], through: int
) -> list[Entry]:
    """
    Return the entries of *things* that wait in a restored store, perhaps aside, and may have been sent since.

    They are those of the copy, with numbers up to *through*; and others that were added in doubt, as their
    intents tell.  Those that are neither may be among these.  The last entries of a thing come first.
    """

    async def ask(some: Sequence[str]) -> list[Entry]:
        return await store.entries(key_sql.TO_DO_OF_COPY, some, through)

    return await in_parts(ask, things)


# --- asked by runs of keys


async def keys_before(
    store: Store,
    thing: str | None,
    place: int,
) -> list[str]:
    """Return the keys of the first open writes to *thing* before *place*."""
    return [key for (key,) in await store.rows(key_sql.KEYS_BEFORE, thing, place)]


async def is_overtaken(
    store: Store,
    thing: str,
    place: int,
) -> bool:
    """Return whether a write to *thing* that is later than *place* was sent."""
    [(found,)] = await store.rows(key_sql.OVERTAKEN, thing, place)
    return bool(found)


async def begin(
    store: Store,
    entry: Entry,
    lane: OwnedLane,
    beside: WritesBeside,
    waits_for: WaitsFor,
) -> Turn:
    """
    Store *entry* as being sent, if its turn has come; return whether it has.

    *beside* is what its run has found, and has waited for.  If something else has been sent since, or has got
    another end, the run has to look again.

    Raises:
        LostEntryError: Another process has the entry.
        JournalError: The store cannot be used.
    """
    # The common part of its own intent; others are stored with the entries that need them.
    common = [each for each in store.commons.fresh() if each[0] == entry.common]
    script = partial(_begin, entry, lane, common, store.silence, beside, waits_for)
    return await store.run(script)


def _begin(
    entry: Entry,
    lane: OwnedLane,
    common: Sequence[tuple[int, str]],
    silence: float,
    beside: WritesBeside,
    waits_for: WaitsFor,
) -> Script[Turn]:
    yield store_sql.COMMIT_DURABLY, ()
    yield from check_owned(lane)
    yield key_sql.LOCK_THING, (entry.thing,)
    turn = yield from _turn_of(entry, silence, beside, waits_for)
    if turn is not Turn.BEGUN:
        # An earlier run of this script may have stored the send, and only its reply was lost.  Since then, a
        # living process may have taken over a write that comes before.
        as_stored = (entry.seq, lane.number, entry.intent)
        [(has_begun,)] = yield key_sql.HAS_BEGUN, as_stored
        return Turn.BEGUN if has_begun else turn
    yield entry_sql.INSERT_COMMONS, (common,)
    begun = yield key_sql.BEGIN, ([(entry.seq, lane.number, *columns_of(entry))],)
    if not begun:
        raise lost_entry()
    return Turn.BEGUN


def _turn_of(
    entry: Entry,
    silence: float,
    beside: WritesBeside,
    waits_for: WaitsFor,
) -> Script[Turn]:
    """Find whether *entry* may be sent, by the other writes to its thing."""
    if waits_for is WaitsFor.EARLIER:
        [(overtaken,)] = yield key_sql.OVERTAKEN, (entry.thing, entry.place)
        if overtaken:
            return Turn.OVERTAKEN
    writes_before = entry.thing, entry.place, entry.seq, int(waits_for)
    asked = silence, *writes_before, beside.last
    [(has_to_wait, has_sent, has_unknown)] = yield key_sql.HAS_TO_WAIT, asked
    if has_to_wait:
        return Turn.WAITS
    if has_sent:
        rows = yield key_sql.INTENTS_SENT_BEFORE, writes_before
        if {intent or "" for (intent,) in rows}.difference(beside.passed):
            return Turn.WAITS
    if has_unknown:
        rows = yield key_sql.UNKNOWN_BESIDE, (entry.thing, entry.seq)
        if {VerdictAt(*row) for row in rows}.difference(beside.unknown):
            return Turn.WAITS
    return Turn.BEGUN


def check_alone(
    entry: Entry,
    state: State,
    mine: OwnedLane,
    silence: float,
) -> Script[None]:
    """
    Check that *entry* may be acquired in *state*, into the lane *mine*.

    A create that may have been sent is acquired alone: until the commit, no other one is.

    Raises:
        AnotherIsHeldError: A living process, or this one, has another one.
    """
    if state is not State.SENDING or not is_created(entry.thing):
        return
    yield key_sql.LOCK_THING, (entry.thing,)
    [(is_held,)] = yield (
        key_sql.ANOTHER_IS_HELD,
        (
            silence,
            entry.thing,
            entry.seq,
            mine.token,
        ),
    )
    if is_held:
        raise AnotherIsHeldError(
            "another webhook of the URL is being created. Nothing was sent."
        )
