"""
What the stores on SQLite and PostgreSQL have in common: each of their operations is a script.

These are the words for what differs: ``{t}`` is the table; ``{now}`` and ``{began}`` are the clock of leases,
which PostgreSQL reads after a row was locked, or before; ``{calendar}`` is that for display and ``prune``;
``{picked}`` chooses the rows whose ids a table expression of that name has.

On PostgreSQL, what changes the open deliveries of an ordering key has the lock of that key, taken before
anything else.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import cache, partial, wraps
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
)
from invsvc_async.storage.dialect import MOST as MOST_ROWS, slices
from invsvc_async.storage.schema import FIRST, Migration, Schema

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

_CREATE: Final = (
    # ``due`` of an open delivery is the end of its lease or delay; otherwise it is when the delivery ended.
    # Of the open ones with an ordering key, all but one are due never; the others have none.
    """
    CREATE TABLE {t} (
        id {id},
        key text NOT NULL,
        type text NOT NULL,
        body {bytes},
        state text NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due float8 NOT NULL,
        token text NOT NULL DEFAULT '',
        attempts integer NOT NULL DEFAULT 0,
        reason text NOT NULL DEFAULT '',
        received float8 NOT NULL,
        handler text NOT NULL DEFAULT '',
        ordering_key text,
        UNIQUE (key, handler)
    )
    """,
    "CREATE INDEX {t}_waiting ON {t} (due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX {t}_next ON {t} (handler, due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX {t}_claimed ON {t} (due) WHERE state = 'open' AND body IS NULL",
    "CREATE INDEX {t}_handled ON {t} (due) WHERE state = 'handled'",
    "CREATE INDEX {t}_kept ON {t} (due) WHERE state = 'handled' AND body IS NOT NULL",
    "CREATE INDEX {t}_open ON {t} (id) WHERE state = 'open'",
    "CREATE INDEX {t}_dead ON {t} (id) WHERE state = 'dead'",
    "CREATE INDEX {t}_buried ON {t} (due) WHERE state = 'dead'",
    "CREATE INDEX {t}_ordered ON {t} (ordering_key, id) WHERE ordering_key IS NOT NULL",
)
_TYPES: Final = "type IN ('invoice.created', 'invoice.canceled')"
_CAUGHT_UP: Final = Migration(
    2,
    (
        "ALTER TABLE {t} ADD COLUMN subject text",
        "ALTER TABLE {t} ADD COLUMN as_of float8",
        "CREATE INDEX {t}_subject ON {t} (subject, id) WHERE subject IS NOT NULL",
        # of events that a receiver of version 1 has stored: it may still do so
        f"CREATE INDEX {{t}}_unnamed ON {{t}} (id) WHERE subject IS NULL AND {_TYPES}",
    ),
)
SCHEMA: Final = Schema(
    "Handle what is open in it with that version, or choose another file or table",
    (_CAUGHT_UP,),
)
_LAST_ID: Final = (1 << 63) - 1
_ENTRY: Final = (
    "id",
    "token",
    "key",
    "type",
    "body",
    "attempts",
    "handler",
    "ordering_key",
)
_EVENT: Final = (
    "id",
    "key",
    "type",
    "body",
    "reason",
    "attempts",
    "received_at",
    "state",
    "handler",
)
_IS_CLAIM: Final = "state = 'open' AND body IS NULL"  # until a body comes
# An event made from a list stands for the delivered ones with its subject that were queued before.
_COVERED: Final = f"""
    SELECT 1 FROM {{t}} AS caught WHERE caught.key = '{CAUGHT_UP_KEY}' || %s AND caught.as_of >= %s
"""
# Many deliveries, of which those are left out whose event is stored for another handler, or that an event
# made from a list stands for.  The result is whether each is new: a token shows that a claim was there, of
# its handler or of another.  PostgreSQL gets them in the order of keys, in which every process locks them, so
# that they cannot deadlock; ``age`` keeps the order in which they came.
PUT: Final = f"""
    INSERT INTO {{t}} AS kept (key, type, body, handler, state, due, received, token, subject, as_of)
    SELECT key, type, body, handler, 'open', {{began}} - age, {{calendar}},
        CASE WHEN EXISTS (SELECT 1 FROM {{t}} AS other WHERE other.key = given.key) THEN 'claim' ELSE '' END,
        subject, as_of
    FROM {{rows 1 key:text type:text body:bytea handler:text age:float8 subject:text as_of:float8}}
    WHERE NOT EXISTS (
        SELECT 1 FROM {{t}} AS other
        WHERE other.key = given.key AND other.handler <> given.handler AND NOT ({_IS_CLAIM})
    )
    AND NOT EXISTS ({_COVERED % ("given.subject", "given.as_of")})
    ON CONFLICT (key, handler) DO UPDATE SET body = excluded.body
    WHERE kept.state = 'open' AND kept.body IS NULL
    RETURNING key, token = ''
"""
_INSERT: Final = """
    INSERT INTO {t} (key, type, body, state, due, received, handler, ordering_key, subject, as_of)
    VALUES ($1, $2, $3, 'open', {now} + $4, coalesce($5, {calendar}), $6, $7, $8, $9)
    ON CONFLICT (key, handler) DO NOTHING {changed}
"""
# Many deliveries without ordering keys, in their order.
_INSERT_MANY: Final = """
    INSERT INTO {t} (key, type, body, handler, state, due, received, subject, as_of)
    SELECT key, type, body, handler, 'open', {began} - age, {calendar}, subject, as_of
    FROM {rows 1 key:text type:text body:bytea handler:text age:float8 subject:text as_of:float8}
    WHERE true
    ON CONFLICT (key, handler) DO NOTHING
"""
_IS_COVERED: Final = _COVERED % ("{arg 1 text}", "{arg 2 float8}")
_SEEN: Final = f"""
    SELECT DISTINCT subject FROM {{t}}
    WHERE subject IS NOT NULL AND subject {{any 1 text}} AND NOT ({_IS_CLAIM})
"""
# Until the transaction ends, others only read, so that no delivery stores meanwhile what was not there.
# Autovacuum gives way.
_ALONE: Final = "{postgres} LOCK TABLE {t} IN SHARE ROW EXCLUSIVE MODE"
# Waits for the end of such a transaction, and keeps others out, until this one ends.
_AMONG_OTHERS: Final = "{postgres} LOCK TABLE {t} IN ROW EXCLUSIVE MODE"
_UNNAMED: Final = f"""
    SELECT id, received, body FROM {{t}}
    WHERE subject IS NULL AND {_TYPES} AND NOT ({_IS_CLAIM}) ORDER BY id LIMIT $1
"""
_NAME: Final = (
    "UPDATE {t} SET subject = $3 WHERE id = $1 AND received = $2 AND subject IS NULL"
)
# What was handled before may have been pruned.
_FIRST_HANDLED: Final = (
    "SELECT due FROM {t} WHERE state = 'handled' ORDER BY due LIMIT 1"
)
_UNKNOWN: Final = "SELECT received FROM {t} WHERE subject = '' ORDER BY id DESC LIMIT 1"
_INSERT_DEAD: Final = """
    INSERT INTO {t} (key, type, body, state, due, reason, received, handler)
    VALUES ($1, $2, $3, 'dead', {calendar}, $4, {calendar}, $5)
    ON CONFLICT (key, handler) DO NOTHING {changed}
"""
_KNOWN: Final = f"SELECT {_IS_CLAIM} FROM {{t}} WHERE key = $1 {{update}}"
_COMPLETE: Final = (
    f"UPDATE {{t}} SET body = $3 WHERE key = $1 AND handler = $2 AND {_IS_CLAIM}"
)
_CLAIM: Final = f"""
    INSERT INTO {{t}} AS kept (key, type, body, state, due, token, attempts, handler, received, subject)
    VALUES ($1, $2, $3, 'open', {{now}} + $4, $5, 1,
        coalesce((SELECT handler FROM {{t}} WHERE key = $1 AND handler = ''), $6), {{calendar}}, $7)
    ON CONFLICT (key, handler) DO UPDATE
    SET due = {{now}} + $4, token = excluded.token, attempts = kept.attempts + 1
    WHERE kept.state = 'open' AND kept.due <= {{now}}
    RETURNING {", ".join(_ENTRY)}
"""
_CLAIMED: Final = """
    SELECT state, body IS NOT NULL FROM {t} WHERE key = $1 AND handler IN ('', $2) ORDER BY handler LIMIT 1
"""
_DUE: Final = "SELECT id, due FROM {t} WHERE state = 'open' AND body IS NOT NULL AND"
_LEASE: Final = f"""
    UPDATE {{t}} SET due = {{now}} + $2, token = $3, attempts = attempts + 1
    WHERE id {{picked}} RETURNING {", ".join(_ENTRY)}
"""
_OURS: Final = "WHERE id = $1 AND token = $2 AND state = 'open'"
_END: Final = f"UPDATE {{t}} SET %s = $3, due = {{calendar}}, ordering_key = NULL {_OURS} {{changed}}"
_HANDLED: Final = _END % "state = 'handled', body"
_BURIED: Final = _END % "state = 'dead', reason"
_FORGET: Final = f"DELETE FROM {{t}} {_OURS} AND body IS NULL {{changed}}"
_RELEASE: Final = f"UPDATE {{t}} SET due = {{now}} + $3, token = '' {_OURS} {{changed}}"
_HELD: Final = f"SELECT key, received FROM {{t}} {_OURS} {{update}}"
_OTHERS: Final = "SELECT handler FROM {t} WHERE key = $1 AND id <> $2"
_ASSIGN: Final = f"""
    UPDATE {{t}} SET due = {{now}} + $3, token = '', attempts = 0, handler = $4, ordering_key = $5 {_OURS}
"""
_FIRST: Final = "SELECT id FROM {t} WHERE ordering_key = $1 ORDER BY id LIMIT 1"
_LOCK: Final = """
    {postgres} SELECT pg_advisory_xact_lock(hashtextextended($1, '{t}'::regclass::oid::bigint))
"""
_ADVANCE: Final = f"UPDATE {{t}} SET due = {{now}} WHERE id = ({_FIRST})"
# SQLite may give the id of a deleted row to a new one.
_SAME: Final = "WHERE id = $1 AND received = $2"
# An open one that is for no handler yet will be for all that it fits.
_GIVEN: Final = f"""
    SELECT type, body, key, subject, as_of FROM {{t}}
    {_SAME} AND body IS NOT NULL AND NOT (state = 'open' AND handler = '')
"""
_REVIVE: Final = f"""
    UPDATE {{t}} SET state = 'open', due = {{now}}, token = '', attempts = 0
    {_SAME} AND (state = 'dead' OR (state = 'handled' AND body IS NOT NULL)) {{changed}}
"""
_DROPPABLE: Final = f"""
    {_SAME} AND (state = 'dead' OR body IS NOT NULL)
    AND (state <> 'open' OR token = '' OR due <= {{now}}) {{changed}}
"""
_DROP: Final = f"DELETE FROM {{t}} {_DROPPABLE}"
_EMPTY: Final = f"""
    UPDATE {{t}} SET due = CASE state WHEN 'handled' THEN due ELSE {{calendar}} END, state = 'handled',
        body = NULL, ordering_key = NULL
    {_DROPPABLE}
"""
_EVENTS: Final = """
    SELECT id, key, type, body, reason, attempts, received, state, handler
    FROM {t} WHERE %s id > $1 AND id <= $2 ORDER BY id LIMIT $3
"""
_WALK: Final = "SELECT max(id) FROM (SELECT id FROM {t} WHERE id > $1 ORDER BY id LIMIT $2) AS slice"
# In the order of an index, so that no bodies are read.
_STATS: Final = """
    SELECT many, (SELECT received FROM {t} WHERE id = least) FROM (
        SELECT count(*) AS many, min(id) AS least FROM (
            SELECT id FROM {t} WHERE state = '%s' ORDER BY %s LIMIT $1
        ) AS counted
    ) AS found
"""
_BACKLOG: Final = f"""
    SELECT count(*), min(due), {{began}},
        (SELECT count(*) FROM (SELECT id FROM {{t}} WHERE state = 'dead' LIMIT $1) AS letters)
    FROM ({_DUE} due <= {{began}} ORDER BY due, id LIMIT $1) AS waiting
"""
_OLD: Final = """
    WITH picked AS (SELECT id FROM {t} WHERE %s - $1 ORDER BY due LIMIT $2 {skip})
    %s WHERE id {picked} RETURNING id
"""
_PRUNES: Final = {
    "claims": _OLD
    % ("state = 'open' AND body IS NULL AND due < {began}", "DELETE FROM {t}"),
    "bodies": _OLD
    % (
        "state = 'handled' AND body IS NOT NULL AND due < {calendar}",
        "UPDATE {t} SET body = NULL",
    ),
    "dead": _OLD % ("state = 'dead' AND due < {calendar}", "DELETE FROM {t}"),
    "handled": _OLD % ("state = 'handled' AND due < {calendar}", "DELETE FROM {t}"),
}


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
            yield _AMONG_OTHERS, ()
        key = delivery.key or made_up_key()
        known = yield _KNOWN, (key,)
        # it is stored: only its claims lack a body
        if not all(is_claim for (is_claim,) in known):
            for each in (delivery, *further):
                yield _COMPLETE, (key, each.handler, each.body)
            return False
        if delivery.subject and (yield _IS_COVERED, (delivery.subject, delivery.as_of)):
            return False
        is_new = yield from _add(delivery, key)
        for each in further:
            yield from _add(each, key)
        return is_new and not known

    async def bury(self, found: Delivery | Entry, *, reason: str) -> bool:
        if isinstance(found, Entry):
            return await self._end(_BURIED, found, reason)
        key = found.key or made_up_key()
        return await self._changes(
            _INSERT_DEAD, key, found.type, found.body, reason, found.handler
        )

    @runs("each alone")
    def claim(self, delivery: Delivery, *, lease: float) -> Script[Entry | Standing]:
        key = delivery.key or made_up_key()
        token = secrets.token_hex(8)
        rows = yield (
            _CLAIM,
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
        found = yield _CLAIMED, (key, delivery.handler)
        if found and found[0][0] != "open":
            return Standing.HANDLED
        if found and found[0][1]:
            return Standing.STORED
        return Standing.BUSY

    @runs("each alone")
    def take(
        self, *, limit: int, lease: float, handlers: Collection[str] | None = None
    ) -> Script[list[Entry]]:
        names = None if handlers is None else sorted(set(handlers))
        if names == []:
            return []
        yield from self._database.corrected(lease, names)
        text = _take(None if names is None else len(names))
        rows = yield text, (limit, lease, secrets.token_hex(8), *(names or ()))
        return sorted(map(_entry, rows), key=lambda entry: entry.id)

    async def handled(self, entry: Entry, *, body: bytes | None = None) -> bool:
        return await self._end(_HANDLED, entry, body)

    @runs("each alone")
    def release(self, entry: Entry, *, delay: float) -> Script[bool]:
        ours = (entry.id, entry.token)
        if entry.body is None and (yield _FORGET, ours):
            return True
        return bool((yield _RELEASE, (*ours, delay)))

    @runs("together")
    def assign(self, entry: Entry, deliveries: Sequence[Delivery]) -> Script[bool]:
        yield from _lock(*deliveries)
        held = yield _HELD, (entry.id, entry.token)
        if not held:
            return False
        key, received = held[0]
        others = {handler for (handler,) in (yield _OTHERS, (key, entry.id))}
        first = next((each for each in deliveries if each.handler not in others), None)
        if first is None:
            yield _HANDLED, (entry.id, entry.token, None)
        else:
            delay = yield from _delay(first)
            yield (
                _ASSIGN,
                (entry.id, entry.token, delay, first.handler, first.ordering_key),
            )
        for each in deliveries:
            if each is not first:
                yield from _add(each, key, received)
        return True

    @runs("together")
    def give(self, event: StoredEvent, handler: str) -> Script[bool]:
        found = yield _GIVEN, (event.id, event.received_at)
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
        self, *, state: State | None = None, after: int = 0, limit: int = 100
    ) -> Script[list[StoredEvent]]:
        text = _EVENTS % (
            "" if state is None else f"state = '{STATES[STATES.index(state)]}' AND"
        )
        if state != "handled":
            return list(map(_event, (yield text, (after, _LAST_ID, limit))))
        found: list[StoredEvent] = []
        # no index has their ids in order: look at some of all at a time
        while len(found) < limit:
            ((last,),) = yield _WALK, (after, WALKED)
            if last is None:
                break
            found += map(_event, (yield text, (after, last, limit - len(found))))
            after = last
        return found

    async def revive(self, event: StoredEvent) -> bool:
        return await self._changes(_REVIVE, event.id, event.received_at)

    @runs("together")
    def drop(self, event: StoredEvent) -> Script[bool]:
        same = (event.id, event.received_at)
        found = yield f"SELECT due, ordering_key FROM {{t}} {_SAME}", same
        key = found[0][1] if found else None
        # read again under the lock: meanwhile it may have become the due one
        if key is not None:
            yield _LOCK, (key,)
            found = yield f"SELECT due FROM {{t}} {_SAME}", same
        dropped = yield _DROP if event.key is None else _EMPTY, same
        if dropped and key is not None and found[0][0] < inf:
            yield _ADVANCE, (key,)
        return bool(dropped)

    @runs("to read")
    def stats(self) -> Script[dict[State, StateStats]]:
        found: dict[State, StateStats] = {}
        for state in STATES:
            ((count, oldest),) = yield (
                _STATS % (state, "due" if state == "handled" else "id"),
                (MOST + 1,),
            )
            found[state] = StateStats(min(count, MOST), oldest, has_more=count > MOST)
        return found

    @runs("to read")
    def backlog(self) -> Script[Backlog]:
        ((due, first, now, dead),) = yield _BACKLOG, (COUNTED,)
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
                pruned = await in_slices(partial(self._prune_some, _PRUNES[what], age))
        return pruned

    @runs("together")
    def put_unseen(self, events: Sequence[Sequence[Delivery]]) -> Script[list[bool]]:
        seen = yield from _seen(events)
        unseen = [event for event in events if event[0].subject not in seen]
        if unseen:
            # this lock first, as whoever changes open deliveries of ordering keys takes it first
            yield from _lock(*chain.from_iterable(unseen))
            yield _ALONE, ()
            seen |= yield from _seen(unseen)
            yield from _add_all(
                [event for event in unseen if event[0].subject not in seen]
            )
        return [event[0].subject not in seen for event in events]

    @runs("together")
    def name_subjects(self, limit: int) -> Script[int]:
        found = yield _UNNAMED, (limit,)
        for row, received, body in found:
            yield _NAME, (row, received, stored_subject(body))
        return len(found)

    @runs("to read")
    def knows_from(self) -> Script[float | None]:
        found = yield _FIRST_HANDLED, ()
        if not found:
            return None
        times: list[float] = [time for (time,) in found]
        times += [received for (received,) in (yield _UNKNOWN, ())]
        return max(times)

    @runs("aside")
    def _prune_some(self, text: str, age: float, rows: int) -> Script[int]:
        return len((yield text, (age, rows)))

    @runs("each alone")
    def _changes(self, text: str, *values: object) -> Script[bool]:
        return bool((yield text, values))

    async def _end(self, text: str, entry: Entry, *values: object) -> bool:
        """End a lease by ``_HANDLED`` or ``_BURIED``, and make the next of its ordering key due."""

        def script() -> Script[bool]:
            yield from _lock(entry)
            ended = yield text, (entry.id, entry.token, *values)
            if ended and entry.ordering_key is not None:
                yield _ADVANCE, (entry.ordering_key,)
            return bool(ended)

        how: How = "each alone" if entry.ordering_key is None else "together"
        return await self._database.run(script, how)


def create() -> Script[None]:
    """Create the table and its indexes: those of the first version, and what was changed since."""
    for text in _CREATE:
        yield text, ()
    yield from SCHEMA.upgrade(FIRST)


@cache
def _take(handlers: int | None) -> str:
    """Return the statement for so many handlers: each alone, so that no entry of another handler is read."""
    if handlers is None:
        return f"WITH picked AS ({_DUE} due <= {{began}} ORDER BY due, id LIMIT $1 {{skip}}) {_LEASE}"
    names = range(4, 4 + handlers)
    each = [  # compared as rows, so that no other index fits
        f"due_{name} AS ({_DUE} (handler, due) >= (${name}, 0) AND (handler, due) <= (${name}, {{began}})"
        " ORDER BY handler, due, id LIMIT $1 {skip})"
        for name in names
    ]
    found = " UNION ALL ".join(f"SELECT id, due FROM due_{name}" for name in names)
    each.append(
        f"picked AS (SELECT id FROM ({found}) AS found ORDER BY due, id LIMIT $1)"
    )
    return f"WITH {', '.join(each)} {_LEASE}"


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


def _lock(*found: Delivery | Entry) -> Script[None]:
    """Lock ordering keys until the transaction ends, always in the same sequence."""
    for key in sorted(
        {each.ordering_key for each in found if each.ordering_key is not None}
    ):
        yield _LOCK, (key,)


def _delay(delivery: Delivery) -> Script[float]:
    """Return after how long a new delivery is due: never, while others with its ordering key are open."""
    key = delivery.ordering_key
    if key is not None and (yield _FIRST, (key,)):
        return inf
    return 0.0


def _add(delivery: Delivery, key: str, received: float | None = None) -> Script[bool]:
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
    added = yield _INSERT, (key, *values)
    if not added:
        yield _COMPLETE, (key, delivery.handler, delivery.body)
    return bool(added)


def _seen(events: Sequence[Sequence[Delivery]]) -> Script[set[str]]:
    """Return which subjects of *events* are known."""
    found: set[str] = set()
    for some in slices([event[0].subject for event in events], MOST_ROWS):
        found |= {subject for (subject,) in (yield _SEEN, (some,))}
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
        yield _INSERT_MANY, (rows,)


def row_of(delivery: Delivery, key: str, age: float) -> tuple[object, ...]:
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


def _made(kind: Callable[..., T], names: Sequence[str], row: _Row) -> T:
    facts = dict(zip(names, row, strict=True))
    return kind(**{**facts, "key": shown_key(facts["key"])})


_entry: Final = partial(_made, Entry, _ENTRY)
_event: Final = partial(_made, StoredEvent, _EVENT)
