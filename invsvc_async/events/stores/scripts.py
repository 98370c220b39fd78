"""
What the stores on SQLite and PostgreSQL have in common: each of their operations is a script.

Their SQL is in ``statements``.

On PostgreSQL, what changes the open deliveries of an ordering key has the lock of that key, taken before
anything else.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial, wraps
from itertools import chain
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

from invsvc_async.events.event import CAUGHT_UP_KEY, stored_subject
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
    statements,
)
from invsvc_async.events.stores.statements import SCHEMA
from invsvc_async.storage.dialect import MOST as MOST_ROWS, slices
from invsvc_async.storage.schema import FIRST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from types import CoroutineType

    from invsvc_async.storage.dialect import Script

P = ParamSpec("P")
T = TypeVar("T")

# Any: a store
_Method: TypeAlias = "Callable[Concatenate[Any, P], CoroutineType[Any, Any, T]]"
_Row: TypeAlias = "Sequence[Any]"  # Any: as the columns
How: TypeAlias = Literal["each alone", "together", "to read", "aside"]
"""
Each statement of a script may be a transaction of its own, all are one, or the script only reads.  One that
runs aside changes some rows while others use the store.
"""

MOST: Final = 100_000  # events in one state that ``Store.stats`` counts
# rows that a statement passes which no index leads to the right ones
WALKED: Final = 5_000
_FIRST_ROWS: Final = 20  # of the first slice
# of any: on a slow disk, a commit takes its time whatever is in it
_LEAST_ROWS: Final = 10
# of any: on PostgreSQL, a statement must end within its time limit
_MOST_ROWS: Final = 2_000

_LAST_ID: Final = (1 << 63) - 1


def runs(
    how: How,
) -> Callable[[Callable[Concatenate[Any, P], Script[T]]], _Method[P, T]]:
    """Return a decorator that makes an async method of a script; each run begins the script anew."""

    def decorate(script: Callable[Concatenate[Any, P], Script[T]]) -> _Method[P, T]:
        @wraps(script)
        async def method(
            self: ScriptedStore, /, *args: P.args, **settings: P.kwargs
        ) -> T:
            run = partial(script, self, *args, **settings)
            return await self._database.run(run, how)

        # mypy has another name for what it returns than pyright
        return cast("_Method[P, T]", method)

    return decorate


class EventDatabase(Protocol):
    """The database of a ``ScriptedStore``: its connections, its tables, and how a script runs in it."""

    async def open(self) -> None:
        """Connect, and create or upgrade the tables; does nothing if it is open."""
        ...

    async def close(self) -> None:
        """Release the file or the connections of this event loop; the next use opens them again."""
        ...

    async def run(self, script: Callable[[], Script[T]], how: How) -> T:
        """Run a new *script*, and return its result."""
        ...

    async def put(self, delivery: Delivery) -> bool:
        """Store a delivery and the waiting ones by ``PUT``; return the result of the delivery."""
        ...

    def corrected(self, lease: float, names: Sequence[str] | None) -> Script[None]:
        """Correct times of deliveries for *names*, or of all, where the clock of leases may have been set."""
        ...


class ScriptedStore(CatchUpStore):
    """A ``CatchUpStore`` whose operations are scripts, which run in its database."""

    def __init__(self, database: EventDatabase) -> None:
        self._database = database

    async def put(self, delivery: Delivery, further: Sequence[Delivery] = ()) -> bool:
        if not further and delivery.ordering_key is None and delivery.body is not None:
            return await self._database.put(delivery)
        return await self._put_all(delivery, further)

    @runs("together")
    def _put_all(self, delivery: Delivery, further: Sequence[Delivery]) -> Script[bool]:
        yield from _lock(delivery, *further)
        if delivery.subject:
            yield statements.LOCK_AMONG_OTHERS, ()
        key = delivery.key or made_up_key()
        known = yield statements.KNOWN, (key,)
        # it is stored: only its claims lack a body
        if not all(is_claim for (is_claim,) in known):
            for each in (delivery, *further):
                yield statements.COMPLETE, (key, each.handler, each.body)
            return False
        if delivery.subject and (
            yield statements.IS_COVERED, (delivery.subject, delivery.as_of)
        ):
            return False
        is_new = yield from _add(delivery, key)
        for each in further:
            yield from _add(each, key)
        return is_new and not known

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        if isinstance(found, Entry):
            return await self._end(statements.BURIED, found, reason)
        key = found.key or made_up_key()
        return await self._changes(
            statements.INSERT_DEAD, key, found.type, found.body, reason, found.handler
        )

    @runs("each alone")
    def claim(self, delivery: Delivery, *, lease: float) -> Script[Entry | Standing]:
        key = delivery.key or made_up_key()
        token = token_of(lease)
        rows = yield (
            statements.CLAIM,
            (
                key,
                delivery.type,
                delivery.body,
                lease,
                token,
                delivery.handler,
                delivery.subject,
            ),
        )
        if rows:
            return _entry(rows[0])
        found = yield statements.CLAIMED, (key, delivery.handler)
        if found and found[0][0] != "open":
            return Standing.HANDLED
        if found and found[0][1]:
            return Standing.STORED
        return Standing.BUSY

    @runs("each alone")
    def take(
        self,
        *,
        limit: int,
        lease: float,
        handlers: Collection[str] | None = None,
    ) -> Script[list[Entry]]:
        names = None if handlers is None else sorted(set(handlers))
        if names == []:
            return []
        yield from self._database.corrected(lease, names)
        text = statements.take(None if names is None else len(names))
        rows = yield text, (limit, lease, token_of(lease), *(names or ()))
        return sorted(map(_entry, rows), key=lambda entry: entry.id)

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        return await self._end(statements.HANDLED, entry, body)

    @runs("each alone")
    def release(self, entry: Entry, *, delay: float) -> Script[bool]:
        ours = (entry.id, entry.token)
        if entry.body is None and (yield statements.FORGET_CLAIM, ours):
            return True
        return bool((yield statements.RELEASE, (*ours, delay)))

    @runs("together")
    def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> Script[bool]:
        yield from _lock(*deliveries)
        held = yield statements.HELD, (entry.id, entry.token)
        if not held:
            return False
        key, received = held[0]
        others = {
            handler for (handler,) in (yield statements.OTHER_HANDLERS, (key, entry.id))
        }
        first = next((each for each in deliveries if each.handler not in others), None)
        if first is None:
            yield statements.HANDLED, (entry.id, entry.token, None)
        else:
            delay = yield from _delay(first)
            yield (
                statements.ASSIGN,
                (entry.id, entry.token, delay, first.handler, first.ordering_key),
            )
        for each in deliveries:
            if each is not first:
                yield from _add(each, key, received)
        return True

    @runs("together")
    def give(self, event: StoredEvent, handler: str) -> Script[bool]:
        found = yield statements.GIVEN, (event.id, event.received_at)
        if not found:
            return False
        kind, body, key, subject, as_of = found[0]
        copy = Delivery(
            key=event.key,
            type=kind,
            body=body,
            handler=handler,
            subject=subject,
            as_of=as_of,
        )
        return (yield from _add(copy, key, event.received_at))

    @runs("to read")
    def events(
        self,
        *,
        state: State | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Script[list[StoredEvent]]:
        text = statements.events_in(state)
        if state != "handled":
            return list(map(_event, (yield text, (after, _LAST_ID, limit))))
        found: list[StoredEvent] = []
        # no index has their ids in order: look at some of all at a time
        while len(found) < limit:
            ((last,),) = yield statements.WALK, (after, WALKED)
            if last is None:
                break
            found += map(_event, (yield text, (after, last, limit - len(found))))
            after = last
        return found

    async def revive(self, event: StoredEvent) -> bool:
        return await self._changes(statements.REVIVE, event.id, event.received_at)

    @runs("together")
    def drop(self, event: StoredEvent) -> Script[bool]:
        same = (event.id, event.received_at)
        found = yield statements.DUE_AND_ORDER, same
        key = found[0][1] if found else None
        # read again under the lock: meanwhile it may have become the due one
        if key is not None:
            yield statements.LOCK_ORDER, (key,)
            found = yield statements.DUE_NOW, same
        dropped = yield statements.DROP if event.key is None else statements.EMPTY, same
        if dropped and key is not None and found[0][0] < inf:
            yield statements.ADVANCE, (key,)
        return bool(dropped)

    @runs("to read")
    def stats(self) -> Script[dict[State, StateStats]]:
        found: dict[State, StateStats] = {}
        for state in STATES:
            ((count, oldest),) = yield (
                statements.stats_of(state),
                (MOST + 1,),
            )
            found[state] = StateStats(min(count, MOST), oldest, has_more=count > MOST)
        return found

    @runs("to read")
    def backlog(self) -> Script[Backlog]:
        ((due, first, now, dead),) = yield statements.BACKLOG, (COUNTED,)
        return Backlog(due, 0.0 if first is None else now - first, dead)

    async def prune(
        self,
        *,
        older_than: float,
        bodies: float | None = None,
        dead: float | None = None,
    ) -> int:
        ages = {
            "claims": older_than,
            "bodies": bodies,
            "dead": dead,
            "handled": older_than,
        }
        pruned = 0
        for what, age in ages.items():
            if age is not None:
                pruned = await in_slices(
                    partial(self._prune_some, statements.PRUNES[what], age)
                )
        return pruned

    @runs("together")
    def put_unseen(self, events: Sequence[Sequence[Delivery]]) -> Script[list[bool]]:
        seen = yield from _seen(events)
        unseen = [event for event in events if event[0].subject not in seen]
        if unseen:
            # this lock first, as whoever changes open deliveries of ordering keys takes it first
            yield from _lock(*chain.from_iterable(unseen))
            yield statements.LOCK_ALONE, ()
            seen |= yield from _seen(unseen)
            yield from _add_all(
                [event for event in unseen if event[0].subject not in seen]
            )
        return [event[0].subject not in seen for event in events]

    @runs("together")
    def name_subjects(self, limit: int) -> Script[int]:
        found = yield statements.UNNAMED, (limit,)
        for row, received, body in found:
            yield statements.NAME_SUBJECT, (row, received, stored_subject(body))
        return len(found)

    @runs("to read")
    def knows_from(self) -> Script[float | None]:
        found = yield statements.FIRST_HANDLED, ()
        if not found:
            return None
        times: list[float] = [time for (time,) in found]
        times += [received for (received,) in (yield statements.LAST_OF_NO_SUBJECT, ())]
        return max(times)

    @runs("aside")
    def _prune_some(
        self,
        text: str,
        age: float,
        rows: int,
    ) -> Script[int]:
        return len((yield text, (age, rows)))

    @runs("each alone")
    def _changes(self, text: str, *values: object) -> Script[bool]:
        return bool((yield text, values))

    async def _end(self, text: str, entry: Entry, *values: object) -> bool:
        """End a lease by ``HANDLED`` or ``BURIED``, and make the next of its ordering key due."""

        def script() -> Script[bool]:
            yield from _lock(entry)
            ended = yield text, (entry.id, entry.token, *values)
            if ended and entry.ordering_key is not None:
                yield statements.ADVANCE, (entry.ordering_key,)
            return bool(ended)

        how: How = "each alone" if entry.ordering_key is None else "together"
        return await self._database.run(script, how)


def create() -> Script[None]:
    """Create the table and its indexes: those of the first version, and what was changed since."""
    for text in statements.CREATE:
        yield text, ()
    yield from SCHEMA.upgrade(FIRST)


async def in_slices(
    work: Callable[[int], Awaitable[int]], *, seconds: float = 0.02
) -> int:
    """
    Call *work* with a number of rows until fewer were changed; return the number of all changed rows.

    The number adapts, so that a slice takes about *seconds* with its commit, however slow the disk is.  As
    long a pause follows each, in which others use the store.
    """
    loop = asyncio.get_running_loop()
    rows = _FIRST_ROWS
    done = 0
    while True:
        started = loop.time()
        changed = await work(rows)
        took = max(loop.time() - started, 1e-6)
        done += changed
        if changed < rows:
            return done
        rows = max(_LEAST_ROWS, min(_MOST_ROWS, 2 * rows, int(rows * seconds / took)))
        await asyncio.sleep(took)


def token_of(lease: float) -> str:
    """Return the token of a new lease of *lease* seconds, which ``statements.CORRECT`` reads in it."""
    return f"{secrets.token_hex(8)}:{lease:g}"


def _lock(*found: Delivery | Entry) -> Script[None]:
    """Lock ordering keys until the transaction ends, always in the same sequence."""
    for key in sorted(
        {each.ordering_key for each in found if each.ordering_key is not None}
    ):
        yield statements.LOCK_ORDER, (key,)


def _delay(delivery: Delivery) -> Script[float]:
    """Return after how long a new delivery is due: never, while others with its ordering key are open."""
    key = delivery.ordering_key
    if key is not None and (yield statements.FIRST_OF_ORDER, (key,)):
        return inf
    return 0.0


def _add(
    delivery: Delivery,
    key: str,
    received: float | None = None,
) -> Script[bool]:
    """Add a delivery, or else store the body that its claim lacks; return whether a row was added."""
    delay = yield from _delay(delivery)
    values = (
        delivery.type,
        delivery.body,
        delay,
        received,
        delivery.handler,
        delivery.ordering_key,
        delivery.subject,
        delivery.as_of,
    )
    added = yield statements.INSERT, (key, *values)
    if not added:
        yield statements.COMPLETE, (key, delivery.handler, delivery.body)
    return bool(added)


def _seen(events: Sequence[Sequence[Delivery]]) -> Script[set[str]]:
    """Return which subjects of *events* are known."""
    found: set[str] = set()
    for some in slices([event[0].subject for event in events], MOST_ROWS):
        found |= {subject for (subject,) in (yield statements.SEEN_SUBJECTS, (some,))}
    return found


def _add_all(events: Sequence[Sequence[Delivery]]) -> Script[None]:
    """Add events that were made from a list; few statements, because others wait meanwhile."""
    plain: list[Delivery] = []
    for each in chain.from_iterable(events):
        if each.ordering_key is None:
            plain.append(each)
        else:
            yield from _add(each, f"{CAUGHT_UP_KEY}{each.subject}")
    for some in slices(plain, MOST_ROWS):
        rows = [
            row_of(each, f"{CAUGHT_UP_KEY}{each.subject}", (len(some) - at) / 1e6)
            for at, each in enumerate(some)
        ]
        yield statements.INSERT_MANY, (rows,)


def row_of(
    delivery: Delivery,
    key: str,
    age: float,
) -> tuple[object, ...]:
    """Return *delivery* as a row of ``PUT``, under *key*; it came *age* seconds before the others."""
    return (
        key,
        delivery.type,
        delivery.body,
        delivery.handler,
        age,
        delivery.subject,
        delivery.as_of,
    )


def _made(
    kind: Callable[..., T],
    names: Sequence[str],
    row: _Row,
) -> T:
    facts = dict(zip(names, row, strict=True))
    return kind(**{**facts, "key": shown_key(facts["key"])})


_entry: Final = partial(_made, Entry, statements.ENTRY_COLUMNS)
_event: Final = partial(_made, StoredEvent, statements.EVENT_COLUMNS)
