"""The entries of an outbox in PostgreSQL: what transactions insert, who sends it, who gets the verdicts."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async.batch.journals.chunk_fencing import worker_of
from invsvc_async.batch.journals.postgres import _RESTORED, _without_sends
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.entry import State, entry_of
from invsvc_async.durable.intents import pack
from invsvc_async.durable.records import may_be_sent
from invsvc_async.durable.restored import PlaceError, last_of, place_of
from invsvc_async.outbox import caller_connections
from invsvc_async.outbox.schema import DEAD, SharedEntries, living
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.postgres_pool import DURABLY
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.intent import Intent

__all__ = ["LANES", "OutboxEntries"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

LANES = 64  # chunks, which the dispatching processes divide among themselves
_AT_ONCE = 500  # rows that one transaction of a drop or a prune changes
_RECONNECT = 1.0  # s between tries to listen

# The lock is taken before the number, and lasts as long as the caller's transaction.  So the writes of one
# thing are numbered in the order in which their transactions commit.
_INSERT = """
WITH first AS MATERIALIZED ({lock}),
told AS MATERIALIZED (SELECT pg_notify(CAST($1 AS text), CAST($2 AS text)) AS done FROM first)
INSERT INTO {schema}.entries (seq, key, chunk, thing, content, state, run, operation, common, intent)
SELECT nextval('{schema}.entries_seq_seq'), CAST($3 AS text), CAST($4 AS bigint), CAST($5 AS text),
    CAST($6 AS bytea), 0, 0, CAST($7 AS text), CAST($8 AS bigint), CAST($9 AS text)
FROM told WHERE told.done IS NOT NULL
ON CONFLICT (key) DO NOTHING RETURNING seq
"""
_LOCK = "SELECT pg_advisory_xact_lock(CAST($10 AS bigint)) AS done"
_NO_LOCK = "SELECT CAST($10 AS bigint) AS done"
# By lane, because the index has the order of each lane only.
_OPEN = """
SELECT e.seq, e.chunk FROM unnest($1::bigint[], $2::bigint[]) AS l (lane, place), LATERAL (
    SELECT seq, chunk FROM entries WHERE chunk = l.lane AND seq > l.place AND done_at IS NULL
        AND seq NOT IN (SELECT unnest($3::bigint[])) ORDER BY seq LIMIT $4
) AS e
"""
_IN_FLIGHT = f"""
SELECT thing, max(seq) AS seq FROM entries WHERE thing = ANY ($1) AND done_at IS NULL
    AND state = {State.SENDING:d} AND NOT starts_with(thing, 'url ') GROUP BY thing
"""  # noqa: S608 - our own text
# Of each place, because a copy may contain the note of an earlier restore.
_NOTED = "copied through at "
_NOTE_LAST = "INSERT INTO facts SELECT $1, coalesce(max(seq), 0)::text FROM entries ON CONFLICT DO NOTHING"
_TO_REOPEN = """
SELECT seq, key, chunk, verdict, intent FROM entries WHERE key = ANY ($1) AND state = 2
    AND verdict <> 'applied' AND intent IS NOT NULL ORDER BY seq FOR UPDATE
"""
_REOPEN = """
UPDATE entries e SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL, heard = false, taker = NULL,
    intent = t.intent
FROM unnest($1::bigint[], $2::text[]) AS t (seq, intent) WHERE e.seq = t.seq
"""
_UNHEARD = "done_at IS NOT NULL AND NOT heard"
_OF_DEAD = f"taker <> $2 AND {DEAD.format(owner='e.taker')}"
# NULL stands for verdicts that a dead consumer has: they are only looked for if no others are left, because
# all rows would be read.
_TAKE_VERDICTS = f"""
WITH found AS MATERIALIZED (
    SELECT seq FROM entries WHERE {_UNHEARD} AND (taker IS NULL OR taker = $2)
    ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED
), taken AS (UPDATE entries SET taker = $2 FROM found WHERE entries.seq = found.seq RETURNING entries.seq)
SELECT seq FROM taken UNION ALL
(SELECT NULL FROM entries e WHERE NOT EXISTS (SELECT 1 FROM found) AND {_UNHEARD} AND {_OF_DEAD} LIMIT 1)
"""  # noqa: S608 - our own text
_OVER = f"""
SELECT seq, taker FROM entries e WHERE {_UNHEARD} AND (taker IS NULL OR taker = $2 OR {_OF_DEAD})
    ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED
"""  # noqa: S608 - our own text
_PRUNE = f"""
WITH gone AS (
    DELETE FROM entries WHERE seq > $1 AND seq <= $2 AND state = 2 AND done_at < $3
        AND verdict <> '{Verdict.UNKNOWN}' AND (heard OR $4) RETURNING seq, thing
), emptied AS (
    UPDATE states s SET team = NULL, state = NULL, stamp = NULL FROM gone
    WHERE s.thing = gone.thing AND s.seq = gone.seq
)
SELECT seq FROM gone
"""  # noqa: S608 - our own text
_PART = "SELECT max(seq) FROM (SELECT seq FROM entries WHERE seq > $1 ORDER BY seq LIMIT $2) AS part"
_WHICH = {None: "true", "applied": "verdict = 'applied'", "untold": _UNHEARD}


class OutboxEntries(SharedEntries):
    """The entries of the outbox at *address*."""

    database: caller_connections.Database = "PostgreSQL"
    it: ClassVar[str] = "the outbox"

    def __init__(
        self, address: str, *, create: bool = True, restored: bool = False, moved: bool = False
    ) -> None:
        super().__init__(address, "outbox", create=create)
        self._restored, self._moved = restored, moved  # until the place is checked: they are about one start

    async def _fill(self, connection: Any) -> None:  # Any: asyncpg's
        await super()._fill(connection)
        await connection.execute("INSERT INTO chunks (id) SELECT generate_series(1, $1::int)", LANES)

    # --- in the transaction of the application

    async def insert(self, connection: object, intent: Intent, content: bytes, thing: str | None) -> bool:
        """
        Insert a write to *thing* in the transaction of *connection*; return whether its key was new.

        Raises:
            JournalError: What the entry refers to could not be stored.
            Exception: The error of the driver.

        """
        packed = pack(intent, self.commons)
        await self._store_commons()  # on a connection of our own, and only if it is new
        lane = 1 + _number(thing or intent.key) % LANES
        text = _INSERT.format(schema=self.schema, lock=_NO_LOCK if thing is None else _LOCK)
        values = (
            self.schema, str(lane), intent.key, lane, thing, content, intent.operation, packed.common,
            packed.text, _number(f"{self.schema} {thing}"),
        )  # fmt: skip
        return await caller_connections.first_row(connection, text, values) is not None

    async def content_seen_by(self, connection: object, key: str) -> bytes | None:
        """Return the digest of the entry of *key*, as the transaction of *connection* sees it."""
        text = f"SELECT content FROM {self.schema}.entries WHERE key = CAST($1 AS text)"  # noqa: S608 - our own text
        row = await caller_connections.first_row(connection, text, (key,))
        return None if row is None else bytes(row[0])

    # --- sending

    async def check_place(self) -> None:
        """
        Check the place before anything is sent. What enqueues only may go on in another one.

        Raises:
            PlaceError: Entries may lack sends that were made.
            JournalError: The database stayed away.

        """
        try:
            await super().check_place()
        except PlaceError:  # what is enqueued from now on cannot have been sent
            await self.ask(_note_last)
            raise
        if self._restored or self._moved:
            await self.fetch("DELETE FROM facts WHERE starts_with(name, $1)", _NOTED)
        self._restored = self._moved = False

    async def _last_of_copy(self, connection: Any) -> int:  # Any: asyncpg's
        text = "SELECT value FROM facts WHERE name = $1"
        noted = await connection.fetchval(text, await _note_at(connection))
        return await super()._last_of_copy(connection) if noted is None else int(noted)

    def forget_place(self) -> None:
        """Note that nothing is sent any more."""
        self._place = None

    async def open_in(
        self, places: Mapping[int, int], held: Sequence[int], each: int
    ) -> list[tuple[Entry, int]]:
        """
        Return entries that are not done, with their lanes, in their order; not those of *held*.

        *places* has the lanes, and after which number to look in each. *each* limits the entries of one lane.
        """
        rows = await self.fetch(_OPEN, [*places], [*places.values()], list(held), each)
        if not rows:
            return []
        lanes = {row["seq"]: row["chunk"] for row in rows}
        entries = await self._entries("seq = ANY ($1) AND done_at IS NULL ORDER BY seq", [*lanes])
        return [(entry, lanes[entry.seq]) for entry in entries]

    async def in_flight_of(self, things: Sequence[str]) -> dict[str, int]:
        """Return the last entry of each of *things* that may have been sent, and is not done; no creates."""
        return {row["thing"]: row["seq"] for row in await self.fetch(_IN_FLIGHT, list(things))}

    async def hear(self, woken: Callable[[str], None]) -> None:
        """
        Call *woken* with the lane of each commit, until cancelled; with ``""`` if some may have been missed.

        Without notifications, as behind a pooler in transaction mode, only polling finds what is new.
        """
        while True:
            try:
                async with self.lent() as connection:
                    lost = asyncio.Event()
                    connection.add_termination_listener(lambda _, lost=lost: lost.set())
                    await connection.add_listener(self.schema, lambda *told: woken(told[3]))
                    woken("")
                    raise_if_cancelled()  # listening may have hidden it
                    await lost.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, there is polling
                log.debug("outbox: cannot listen (%s); new writes are found by polling", type(error).__name__)
            raise_if_cancelled()
            await asyncio.sleep(_RECONNECT)

    # --- verdicts

    async def take_verdicts(self, taker: str, limit: int) -> list[Entry]:
        """Assign done entries to *taker*: those that nobody has acknowledged, and no living process has."""
        rows = await self.fetch(_TAKE_VERDICTS, self.silence, taker, limit)
        seqs = [row["seq"] for row in rows if row["seq"] is not None]
        if rows and not seqs:
            seqs = await self._take_over_verdicts(taker, limit)
        if not seqs:
            return []
        # Not one that was reopened in between: it has no verdict any more.
        where = f"seq = ANY ($1) AND state = {State.DONE:d} ORDER BY seq"
        return await self._entries(where, seqs)

    async def _take_over_verdicts(self, taker: str, limit: int) -> list[int]:
        """Assign done entries to *taker*, also those of consumers that are silent; return their numbers."""

        async def take(connection: Any) -> list[int]:  # Any: asyncpg's
            rows = await connection.fetch(_OVER, self.silence, taker, limit)
            alive = await living(connection, self.silence, (row["taker"] for row in rows))
            seqs = [
                row["seq"]
                for row in rows
                if row["taker"] in (None, taker) or worker_of(row["taker"]) not in alive
            ]
            await connection.execute("UPDATE entries SET taker = $1 WHERE seq = ANY ($2)", taker, seqs)
            return seqs

        return await self.ask(take)

    async def keep_verdicts(self, taker: str, seqs: Sequence[int]) -> set[int]:
        """Show that *taker* lives; return which of its verdicts nobody else has taken meanwhile."""
        await self.show_life(worker_of(taker))
        # The lock waits for those who are about to take them.
        text = "SELECT seq FROM entries WHERE seq = ANY ($1) AND taker = $2 FOR SHARE"
        return {row["seq"] for row in await self.fetch(text, list(seqs), taker)}

    async def release_verdicts(self, taker: str, seqs: Sequence[int]) -> None:
        """Return the verdicts of these entries that *taker* has, so that anybody may take them."""
        text = "UPDATE entries SET taker = NULL WHERE seq = ANY ($1) AND starts_with(taker, $2)"
        await self.fetch(text, list(seqs), taker)

    async def acknowledge(self, taker: str, seqs: Sequence[int]) -> None:
        """Note that *taker* acknowledged the verdicts of these entries. Those reopened meanwhile stay."""
        text = "UPDATE entries SET heard = true, taker = NULL WHERE seq = ANY ($1) AND taker = $2"
        await self.fetch(text, list(seqs), taker)

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*."""
        found = await self._entries("key = $1", key)
        return found[0] if found else None

    # --- for people

    async def first(self, limit: int, state: str | None) -> list[Entry]:
        """Return the first entries: ``"open"`` ones, ``"untold"`` ones, or those of a verdict."""
        if state == "open":
            found = await self.open_in(dict.fromkeys(range(1, LANES + 1), 0), (), limit)
            return [entry for entry, _ in found[:limit]]
        which = _WHICH.get(state, "verdict = $2 AND verdict <> 'applied'")  # as an index needs it
        values = () if state in _WHICH else (state,)
        return await self._entries(f"{which} ORDER BY seq LIMIT $1", limit, *values)

    async def do_again(self, keys: Iterable[str]) -> list[str]:
        """
        Reopen entries that are done and not applied; return their keys.

        One with the verdict UNKNOWN keeps its sends, and is settled first.
        """
        again: set[str] = set()  # from all tries: a later one no longer finds what an earlier one reopened
        lanes: set[int] = set()

        async def reopen(some: Sequence[str], connection: Any) -> None:  # Any: asyncpg's
            rows = await connection.fetch(_TO_REOPEN, some)
            intents = [
                row["intent"] if row["verdict"] == Verdict.UNKNOWN else _without_sends(row["intent"])
                for row in rows
            ]
            await connection.execute(_REOPEN, [row["seq"] for row in rows], intents)
            again.update(row["key"] for row in rows)
            lanes.update(row["chunk"] for row in rows)

        for some in slices(sorted(set(keys)), _AT_ONCE):
            await self.ask(partial(reopen, some))
        for lane in lanes:
            await self.fetch("SELECT pg_notify($1, $2)", self.schema, str(lane))
        return sorted(again)

    async def drop(self, key: str) -> bool:
        """
        Delete an entry of which nothing was sent, or that is done; return whether there was one.

        A process that is about to send it finds that it is gone, and does not.
        """
        dropped: set[int] = set()  # from all tries

        async def drop(connection: Any) -> None:  # Any: asyncpg's
            await connection.execute(f"SELECT {DURABLY}")
            row = await connection.fetchrow("SELECT * FROM entries WHERE key = $1 FOR UPDATE", key)
            if row is None:
                return
            if row["state"] != State.DONE:
                of_copy = row["seq"] <= last_of(await connection.fetchval(_RESTORED))
                if of_copy or may_be_sent(entry_of(row)):
                    return
            await connection.execute("DELETE FROM entries WHERE seq = $1", row["seq"])
            dropped.add(row["seq"])

        await self.ask(drop)
        return bool(dropped)

    async def delete_done(self, before: int, *, unacknowledged: bool) -> int:
        """
        Delete entries done before *before* (epoch ms), in many short transactions; return how many.

        UNKNOWN ones stay, and so do those whose verdict nobody has acknowledged, unless *unacknowledged*.
        """
        count = after = 0
        while (last := (await self.fetch(_PART, after, _AT_ONCE))[0][0]) is not None:
            count += await self._prune_part(after, last, before, unacknowledged)
            after = last
        return count

    async def _prune_part(self, *values: object) -> int:
        pruned: set[int] = set()  # from all tries: a later one no longer finds what an earlier one deleted

        async def prune(connection: Any) -> None:  # Any: asyncpg's
            pruned.update(row["seq"] for row in await connection.fetch(_PRUNE, *values))

        await self.ask(prune)
        return len(pruned)


async def _note_last(connection: Any) -> None:  # Any: asyncpg's
    await connection.execute(_NOTE_LAST, await _note_at(connection))


async def _note_at(connection: Any) -> str:  # Any: asyncpg's
    """Return the name of the note of the last entry that may have been sent before this place."""
    return f"{_NOTED}{sorted((await place_of(connection, 'entries')).items())}"


def _number(text: str) -> int:
    """Return a number of 64 bits for *text*."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
