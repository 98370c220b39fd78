"""The writes of an outbox in PostgreSQL: what transactions insert, who sends it, who gets the verdicts."""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from invsvc_async.durable.entry import State
from invsvc_async.durable.intents import pack
from invsvc_async.durable.last_writes import LastWrite
from invsvc_async.durable.leases import show_life
from invsvc_async.durable.postgres_store import PostgresStore
from invsvc_async.durable.restored import SET, PlaceError
from invsvc_async.durable.scripts import drop, keep_verdicts, prune, reopen, take_verdicts
from invsvc_async.durable.store import close_restored, note_fact
from invsvc_async.outbox import caller_connections
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.intents import Commons
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import ClientState

__all__ = ["LANES", "OutboxEntries"]

LANES = 64  # which the dispatching processes divide among themselves
_AT_ONCE = 200  # rows that one transaction of a retry changes
_LOOKED_AT = 500  # rows that one transaction of a prune looks at

# The lock is taken before the number, and lasts as long as the caller's transaction.  So the writes of one
# thing are numbered in the order in which their transactions commit.
_INSERT = """
WITH first AS MATERIALIZED ({lock}),
told AS MATERIALIZED (SELECT pg_notify(CAST($1 AS text), CAST($2 AS text)) AS done FROM first),
numbered AS MATERIALIZED (
    SELECT nextval('{schema}.entries_seq_seq') AS number FROM told WHERE told.done IS NOT NULL
)
INSERT INTO {schema}.entries (seq, place, key, lane, thing, digest, operation, state, common, intent)
SELECT number, number, CAST($3 AS text), CAST($4 AS bigint), CAST($5 AS text), CAST($6 AS text),
    CAST($7 AS text), 0, CAST($8 AS bigint), CAST($9 AS text)
FROM numbered ON CONFLICT (key) DO NOTHING RETURNING seq
"""
_LOCK = "SELECT pg_advisory_xact_lock(CAST($10 AS bigint)) AS done"
_NO_LOCK = "SELECT CAST($10 AS bigint) AS done"
# By lane, because the index has the order of each lane only.
_OPEN = """
SELECT e.seq FROM unnest($1::bigint[], $2::bigint[]) AS l (lane, place), LATERAL (
    SELECT seq FROM {s}entries WHERE lane = l.lane AND place > l.place AND done_at IS NULL
        AND seq NOT IN (SELECT unnest($3::bigint[])) ORDER BY place LIMIT $4
) AS e
"""
_IN_FLIGHT = f"""
SELECT thing, max(place) FROM {{s}}entries WHERE thing {{any 1 text}} AND done_at IS NULL
    AND state = {State.SENDING:d} AND thing NOT LIKE 'url %' GROUP BY thing
"""  # noqa: S608 - our own text
# Of each place, because a copy may contain the note of an earlier restore.
_NOTED = "copied through at "
_NOTE_LAST = """
INSERT INTO {s}facts (name, value) SELECT {arg 1 text}, CAST(coalesce(max(seq), 0) AS text) FROM {s}entries
    WHERE true ON CONFLICT DO NOTHING
"""
_PART = "SELECT max(seq) FROM (SELECT seq FROM {s}entries WHERE seq > $1 ORDER BY seq LIMIT $2) AS part"
_UNTOLD = "e.seq IN (SELECT seq FROM {s}unheard ORDER BY seq LIMIT $1)"
_WHICH = {None: "true", "applied": "e.verdict = 'applied'", "untold": _UNTOLD}


class _Database(PostgresStore):
    """The database of an outbox: what is enqueued while nothing may be sent cannot have been sent."""

    async def check_place(self) -> None:
        accepted = self._restored or self._moved
        try:
            await super().check_place()
        except PlaceError:
            await self.rows(_NOTE_LAST, await self.ask(self._note))
            raise
        if accepted:
            await self.rows("DELETE FROM {s}facts WHERE name LIKE $1", f"{_NOTED}%")

    async def _last_of_copy(self, connection: Any) -> int | None:  # Any: asyncpg's
        text = f"SELECT value FROM {self.schema}.facts WHERE name = $1"  # noqa: S608 - our own text
        noted = await connection.fetchval(text, await self._note(connection))
        return None if noted is None else int(noted)

    async def _note(self, connection: Any) -> str:  # Any: as above
        """Return the name of the note of the last entry that may have been sent before this place."""
        return f"{_NOTED}{sorted((await self._place_now(connection)).items())}"


class OutboxEntries:
    """The writes of the outbox at *address*."""

    database: Database = "PostgreSQL"

    def __init__(
        self, address: str, *, create: bool = True, restored: bool = False, moved: bool = False
    ) -> None:
        self.store: PostgresStore = _Database(
            address, "outbox", it="the outbox", lanes=LANES, create=create, restored=restored, moved=moved
        )
        self._noting: set[asyncio.Task[None]] = set()

    @property
    def silence(self) -> float:
        """After how many seconds without a sign of life a process counts as dead."""
        return self.store.silence

    @property
    def commons(self) -> Commons:
        """The common parts of intents."""
        return self.store.commons

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """Open it, for the base URL and credential of *session*."""
        await self.store.open_for(session, same_mode=same_mode)

    async def aclose(self) -> None:
        """Store everything and disconnect."""
        await self.store.aclose()

    # --- in the transaction of the application

    async def insert(self, connection: object, intent: Intent, content: bytes, thing: str | None) -> bool:
        """
        Insert a write to *thing* in the transaction of *connection*; return whether its key was new.

        Raises:
            JournalError: What the entry refers to could not be stored.
            Exception: The error of the driver.

        """
        packed, schema = pack(intent, self.commons), self.store.schema
        await self.store.store_commons()  # on a connection of our own, and only if it is new
        lane = 1 + _number(thing or intent.key) % LANES
        text = _INSERT.format(schema=schema, lock=_NO_LOCK if thing is None else _LOCK)
        values = (
            schema, str(lane), intent.key, lane, thing, content.hex(), intent.operation, packed.common,
            packed.text, _number(f"{schema} {thing}"),
        )  # fmt: skip
        return await caller_connections.first_row(connection, text, values) is not None

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the entry of *key*, as the transaction of *connection* sees it."""
        text = f"SELECT digest FROM {self.store.schema}.entries WHERE key = CAST($1 AS text)"  # noqa: S608 - our own text
        row = await caller_connections.first_row(connection, text, (key,))
        return None if row is None else bytes.fromhex(row[0])

    # --- sending

    async def open_in(self, places: Mapping[int, int], held: Sequence[int], each: int) -> list[Entry]:
        """
        Return entries that are not done, in their order; not those of *held*.

        *places* has the lanes, and after which number to look in each. *each* limits the entries of one lane.
        """
        rows = await self.store.rows(_OPEN, [*places], [*places.values()], list(held), each)
        seqs = [seq for (seq,) in rows]
        if not seqs:
            return []
        return await self.store.entries("e.seq {any 1 bigint} AND e.done_at IS NULL ORDER BY e.seq", seqs)

    async def in_flight_of(self, things: Sequence[str]) -> dict[str, int]:
        """Return the last entry of each of *things* that may have been sent, and is not done; no creates."""
        return dict(map(tuple, await self.store.rows(_IN_FLIGHT, list(things))))

    async def last_writes(self, things: Sequence[str]) -> list[LastWrite]:
        """Return the last finished write to each of *things*, and the state it left."""
        text = "SELECT thing, place, team, state, stamp FROM {s}states WHERE thing {any 1 text}"
        return [
            LastWrite(thing=thing, seq=place, team=team, state=state, stamp=stamp)
            for thing, place, team, state, stamp in await self.store.rows(text, list(things))
        ]

    async def unknown_of(self, things: Sequence[str]) -> list[Entry]:
        """Return the entries of *things* with the verdict UNKNOWN."""
        return await self.store.entries(
            f"e.verdict = '{Verdict.UNKNOWN}' AND e.thing {{any 1 text}}", list(things)
        )

    async def claims_of(self, things: Sequence[str]) -> list[tuple[str, str]]:
        """Return (webhook id, key) of the untagged creates of *things*, which are URLs."""
        text = "SELECT claim, key FROM {s}entries WHERE claim IS NOT NULL AND thing {any 1 text} ORDER BY seq"
        return [(claim, key) for claim, key in await self.store.rows(text, list(things))]

    # --- facts

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about the whole outbox; set it to *value* first."""
        if value is not None:
            await self.store.rows(SET, name, value)
        found = await self.store.rows("SELECT value FROM {s}facts WHERE name = $1", name)
        return found[0][0] if found else None

    async def facts(self, prefix: str) -> dict[str, str]:
        """Return the facts whose names begin with *prefix*."""
        text = "SELECT name, value FROM {s}facts WHERE name LIKE {arg 1 text} || '%'"
        return dict(map(tuple, await self.store.rows(text, prefix)))

    def put_fact(self, name: str, value: str | None) -> asyncio.Task[None]:
        """Set a fact about the whole outbox to *value*, or delete it, soon; it need not be awaited."""
        noting = asyncio.create_task(self.store.run(lambda: note_fact(name, value)))
        self._noting.add(noting)
        noting.add_done_callback(self._noted)
        return noting

    def _noted(self, noting: asyncio.Task[None]) -> None:
        self._noting.discard(noting)
        if not noting.cancelled():
            noting.exception()  # mark it as retrieved

    async def close_restored(self) -> None:
        """Note that the input was read again since the outbox was restored."""
        await self.store.run(close_restored)

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Return the next entries that are not done."""
        found = await self.open_in(dict.fromkeys(range(1, LANES + 1), after), (), limit)
        return found[:limit]

    # --- verdicts

    async def show_life(self, name: str) -> None:
        """Note that the consumer *name* lives."""
        await self.store.run(lambda: show_life(name, self.silence, sends=False))

    async def leave(self, name: str) -> None:
        """Note that the consumer *name* is gone: what it has not acknowledged is free at once."""
        await self.store.rows("DELETE FROM {s}members WHERE name = $1", name)

    async def take_verdicts(self, taker: str, limit: int) -> list[Entry]:
        """Assign done entries to *taker*: those that nobody has acknowledged, and no living process has."""
        seqs = await self.store.run(lambda: take_verdicts(taker, self.silence, limit))
        if not seqs:
            return []
        # Not one that was reopened in between: it has no verdict any more.
        where = f"e.seq {{any 1 bigint}} AND e.state = {State.DONE:d} ORDER BY e.seq"
        return await self.store.entries(where, seqs)

    async def keep_verdicts(self, taker: str, seqs: Sequence[int]) -> set[int]:
        """Show that *taker* lives; return which of its verdicts nobody else has taken meanwhile."""
        return await self.store.run(lambda: keep_verdicts(taker, self.silence, list(seqs)))

    async def release_verdicts(self, taker: str, seqs: Sequence[int]) -> None:
        """Return the verdicts of these entries that *taker* has, so that anybody may take them."""
        text = (
            "UPDATE {s}unheard SET taker = NULL WHERE seq {any 1 bigint} AND taker LIKE {arg 2 text} || '.%'"
        )
        await self.store.rows(text, list(seqs), taker)

    async def acknowledge(self, taker: str, seqs: Sequence[int]) -> None:
        """Note that *taker* acknowledged the verdicts of these entries. Those reopened meanwhile stay."""
        if seqs:
            text = "DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2"
            await self.store.rows(text, list(seqs), taker)

    # --- for people

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*."""
        found = await self._told(await self.store.entries("e.key = $1", key))
        return found[0] if found else None

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries: ``"open"`` ones, ``"untold"`` ones, or those of a verdict."""
        if state == "open":
            return await self.not_done(0, limit)
        which = _WHICH.get(state, "e.verdict = $2 AND e.verdict <> 'applied'")  # as an index needs it
        values = () if state in _WHICH else (state,)
        return await self._told(
            await self.store.entries(f"{which} ORDER BY e.seq LIMIT {{arg 1 bigint}}", limit, *values)
        )

    async def _told(self, entries: list[Entry]) -> list[Entry]:
        """Note in *entries* whether their verdicts were acknowledged."""
        text = "SELECT seq FROM {s}unheard WHERE seq {any 1 bigint}"
        unheard = {seq for (seq,) in await self.store.rows(text, [entry.seq for entry in entries])}
        for entry in entries:
            entry.heard = entry.state is State.DONE and entry.seq not in unheard
        return entries

    async def do_again(self, keys: Iterable[str]) -> list[str]:
        """
        Reopen entries that are done and not applied; return their keys.

        One with the verdict UNKNOWN keeps its sends, and is settled first.
        """
        again: set[str] = set()
        for some in slices(sorted(set(keys)), _AT_ONCE):
            for lane in await self.store.run(partial(reopen, some, again)):
                await self.store.rows(
                    "SELECT pg_notify({arg 1 text}, {arg 2 text})", self.store.schema, str(lane)
                )
        return sorted(again)

    async def drop(self, key: str) -> bool:
        """
        Delete an entry of which nothing was sent, or that is done; return whether there was one.

        A process that is about to send it finds that it is gone, and does not.
        """
        dropped: set[str] = set()
        await self.store.run(lambda: drop(key, dropped))
        return bool(dropped)

    async def delete_done(self, before: int, *, unacknowledged: bool) -> int:
        """
        Delete entries done before *before* (epoch ms), in many short transactions; return how many.

        UNKNOWN ones stay, and so do those whose verdict nobody has acknowledged, unless *unacknowledged*.
        """
        gone: set[int] = set()
        count = after = 0
        while (last := (await self.store.rows(_PART, after, _LOOKED_AT))[0][0]) is not None:
            await self.store.run(
                partial(prune, after, last, before, unacknowledged=unacknowledged, gone=gone)
            )
            count, after = count + len(gone), last
            gone.clear()
        return count


def _number(text: str) -> int:
    """Return a number of 64 bits for *text*."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
