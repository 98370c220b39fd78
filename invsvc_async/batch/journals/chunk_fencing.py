"""
Chunks of entries, each owned by one worker at a time.

The protocol is fencing by token:

- A worker that takes a chunk sets its own token on it, under a lock on the chunk's row.
- Every update of an entry checks the token under that lock.  After a takeover, updates of the previous owner
  are rejected.
- Nothing is sent before it is stored as ``sending``.  The new owner reads the entries after the takeover, so
  it sees every send that the previous owner has made or can still make, and settles it before it sends.
- It first waits as long as such a send may take, because one stored just before may start just after.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import dropwhile
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import attrs
from msgspec.structs import astuple

from invsvc_async.batch.deliveries import Deliveries
from invsvc_async.batch.journals.chunk_queue import DONE, SIGNAL
from invsvc_async.batch.journals.postgres_schema import Database
from invsvc_async.durable.entry import Entry, LostChunkError
from invsvc_async.durable.intents import Commons
from invsvc_async.errors import JournalError
from invsvc_async.storage.postgres_pool import DURABLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.last_writes import Left

__all__ = ["POSITIONS", "ChunkStore", "OwnedEntries"]

POSITIONS = "hashtext(current_schema() || ' positions')"  # the lock under which they are assigned, shared
_OWNED = f"""
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock_shared({POSITIONS}), {DURABLY}
), given AS MATERIALIZED (
    SELECT t.*, CASE WHEN done_at IS NOT NULL THEN nextval('positions') END AS position
    FROM turn, unnest($1::text[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::bigint[],
        $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[])
    AS t (key, chunk, token, state, verdict, common, intent, outcome, claim, done_at, seq)
), owned AS MATERIALIZED (SELECT id, owner FROM chunks WHERE id = ANY ($2) ORDER BY id FOR SHARE)
"""  # noqa: S608 - our own text
# A send changes no column of an index: `giver` is set once the write is done.
_UPDATE = """
UPDATE entries e SET state = g.state, verdict = g.verdict, common = g.common, intent = g.intent,
    outcome = g.outcome, claim = g.claim, done_at = g.done_at,
    giver = CASE WHEN g.position IS NULL THEN e.giver ELSE $12 END, position = g.position
FROM given g JOIN owned o ON o.id = g.chunk AND o.owner = g.token
WHERE e.key = g.key AND e.chunk = g.chunk AND g.seq IN (0, e.seq) RETURNING e.key, e.seq, e.position
"""
_STORE = _OWNED + _UPDATE
# The same, and the states in which those writes left their things.  Two writes to one thing are not stored
# together, but if they were, the statement would fail for all entries: hence DISTINCT.
_LEAVE = f"""{_OWNED}, stored AS ({_UPDATE}), remains AS (
    SELECT * FROM unnest($13::text[], $14::text[], $15::text[], $16::text[], $17::bigint[])
    AS t (key, thing, team, state, stamp)
), kept AS (
    INSERT INTO states (thing, seq, team, state, stamp)
    SELECT DISTINCT ON (r.thing) r.thing, s.seq, r.team, r.state, r.stamp
    FROM remains r JOIN stored s USING (key) ORDER BY r.thing, s.seq DESC
    ON CONFLICT (thing) DO UPDATE SET seq = greatest(states.seq, excluded.seq), team = excluded.team,
        state = excluded.state, stamp = excluded.stamp
)
SELECT key, seq, position FROM stored
"""  # noqa: S608 - our own text
_is_none = partial(is_, None)
_state_of = attrgetter("entry.state")
# The columns of `given`, in its order.
_columns_of = attrgetter(
    "entry.key", "chunk", "token", "entry.state", "entry.verdict", "entry.common", "entry.intent",
    "entry.outcome", "entry.claim", "entry.done_at", "entry.seq",
)  # fmt: skip
# Unless somebody else changed it since its owner was looked up.
_TAKE = """
UPDATE chunks SET owner = $2 WHERE id = $1 AND owner IS NOT DISTINCT FROM $3 AND NOT done RETURNING id
"""
# After the lock on the chunk's row, in a statement of its own: it must see what was added to the chunk.
_CLOSE = f"""
WITH closed AS (
    UPDATE chunks SET done = true, owner = NULL
    WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM entries WHERE chunk = $1 AND done_at IS NULL) RETURNING id
)
{SIGNAL.format(DONE)} FROM closed
"""  # noqa: S608 - our own text
_PAUSE = 0.2  # s between checks whether a lease is valid again


@attrs.define(eq=False)
class _Given:
    """An entry to be stored, if *token* still owns *chunk*; one with ``seq`` 0 is known by its key alone."""

    entry: Entry
    left: Left | None
    chunk: int
    token: str
    done: asyncio.Future[None]


class OwnedEntries(Database):
    """Entries in chunks, and the owners of the chunks."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        super().__init__(address, create=create)
        self.commons: Commons = Commons(shared=True)
        self._store_for(0)
        self._stored_commons: set[int] = set()
        self._pending: dict[tuple[str, int], _Given] = {}  # by key and number
        self._flushing: asyncio.Task[None] | None = None

    def _store_for(self, run: int) -> None:
        """Store further entries as results of *run*."""
        self.giver: int = run
        self.deliveries: Deliveries = Deliveries()

    async def aclose(self) -> None:
        """Store what is pending, if the database answers, and disconnect."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=self.patience)
        if self._flushing is not None:
            self._flushing.cancel()
            await self.idle()
        await super().aclose()

    # --- what a worker stores

    def put(self, entry: Entry, chunk: int, token: str, left: Left | None = None) -> asyncio.Future[None]:
        """
        Store *entry* and the state in which it *left* its thing, if *token* still owns its chunk.

        Otherwise the future fails with LostChunkError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = self._pending.get(name := (entry.key, entry.seq))
        self._pending[name] = _Given(entry, left, chunk, token, done)
        if before is not None:  # replaced before it was stored: the later one counts
            done.add_done_callback(lambda later: _follow(before.done, later))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def idle(self) -> None:
        """Wait until everything pending is stored."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        """Store what is pending in one statement, and what was added meanwhile in the next."""
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                try:
                    kept = await self._store(list(pending.values()))
                except BaseException as error:
                    away = JournalError(
                        "the journal was closed while its database was away. Run again to continue."
                    )
                    known = isinstance(error, Exception)
                    for given in pending.values():
                        _settle(given.done, error if known else away)
                    if known:
                        continue
                    raise
                for name, given in pending.items():
                    _settle(given.done, None if name in kept else _lost(f"entry {name[0]!r}"))
        finally:
            self._flushing = None

    async def _store(self, given: list[_Given]) -> set[tuple[str, int]]:
        """Store entries, and return the keys and numbers, as they were given, of those that are stored."""
        await self._store_commons()
        giver, deliveries = self.giver, self.deliveries  # which may change meanwhile
        # Those that are done come first, so that the columns of an end are short: unnest() adds NULL.
        given = sorted(given, key=_state_of, reverse=True)
        columns: list[Any] = [_without_end(column) for column in zip(*map(_columns_of, given), strict=True)]
        columns.append(giver)
        left = [(each.entry.key, *astuple(each.left)) for each in given if each.left is not None]
        if left:
            columns += zip(*left, strict=True)
        stored = {row["key"]: row for row in await self.fetch(_LEAVE if left else _STORE, *columns)}
        kept: set[tuple[str, int]] = set()
        for each in given:
            row = stored.get(each.entry.key)
            if row is None or each.entry.seq not in (0, row["seq"]):
                continue
            kept.add((each.entry.key, each.entry.seq))
            each.entry.position = row["position"]
            if each.entry.position is not None:
                deliveries.add(each.entry.position)
        return kept

    async def _store_commons(self) -> None:
        fresh = [number for number in self.commons.texts if number not in self._stored_commons]
        if fresh:
            await self.fetch(
                "INSERT INTO commons SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT DO NOTHING",
                fresh,
                [self.commons.texts[number] for number in fresh],
            )
            self._stored_commons.update(fresh)

    # --- chunks

    async def take(self, chunk: int, token: str) -> tuple[bool, bool]:
        """Become the owner of *chunk*; return whether it is already done, and whether it had no owner."""
        free: list[bool] = []  # one for each try: a later one may find its own token, if a reply was lost

        async def take() -> bool:
            async with self.lent() as connection:
                while True:
                    row = await connection.fetchrow("SELECT owner, done FROM chunks WHERE id = $1", chunk)
                    if row is None or row["done"]:  # if there is none, it is done, and deleted since
                        return True
                    free.append(row["owner"] in (None, token))
                    if await connection.fetchval(_TAKE, chunk, token, row["owner"]):
                        return False

        done = await self.steadily(take)
        return done, all(free)

    async def owned(self, tokens: Sequence[str]) -> tuple[set[str], int]:
        """Return which of *tokens* still own their chunks, and the number of workers that own any."""
        rows = await self.fetch("SELECT owner FROM chunks WHERE NOT done AND owner IS NOT NULL")
        owners = {row["owner"] for row in rows}
        return owners & set(tokens), len({worker_of(owner) for owner in owners})

    async def close_chunk(self, chunk: int, token: str) -> bool:
        """Mark *chunk* as done, unless an entry of it is open; return whether it is done."""

        async def close(connection: Any) -> bool:
            row = await connection.fetchrow("SELECT owner, done FROM chunks WHERE id = $1 FOR UPDATE", chunk)
            if row is None or row["done"]:
                return True
            if row["owner"] != token:
                raise _lost(f"chunk {chunk}")
            return bool(await connection.fetch(_CLOSE, chunk))

        return await self.ask(close)

    async def release(self, tokens: Sequence[str]) -> set[int]:
        """Release chunks in which no send is in flight; return those that were still owned."""
        text = "UPDATE chunks SET owner = NULL WHERE owner = ANY ($1) RETURNING id"
        return {row["id"] for row in await self.fetch(text, list(tokens))}

    async def open_chunks(self) -> int:
        """Count the chunks that are not done."""
        return int((await self.fetch("SELECT count(*) FROM chunks WHERE NOT done"))[0][0])


@attrs.define(eq=False)
class ChunkStore:
    """
    The entries of one chunk, while *token* owns it.

    ``until`` is the end of the lease, on the client's clock.
    """

    entries: OwnedEntries
    chunk: int
    token: str
    until: float
    clock: Clock
    lost: bool = False

    async def hold(self) -> None:
        """Wait until the lease is valid: it may have run out only because a heartbeat is late."""
        while self.clock.now() > self.until:
            if self.lost:
                raise _lost(f"chunk {self.chunk}")
            await self.clock.sleep(_PAUSE)

    @property
    def commons(self) -> Commons:
        """Return the common parts of intents."""
        return self.entries.commons

    def put(self, entry: Entry, left: Left | None = None) -> asyncio.Future[None]:
        """Store *entry* and the state in which it *left* its thing, if the chunk is still owned."""
        return self.entries.put(entry, self.chunk, self.token, left)

    def shelve(self, entry: Entry) -> None:
        """Store *entry* without waiting."""
        self.put(entry)


def token_of(worker: str, number: int) -> str:
    """Return the token of the *number*-th chunk that *worker* takes."""
    return f"{worker}.{number}"


def worker_of(token: str) -> str:
    """Return the worker of a token."""
    return token.partition(".")[0]


def _without_end(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return *column* without the ``None`` at its end."""
    return column[: len([*dropwhile(_is_none, reversed(column))])]


def _lost(what: str) -> LostChunkError:
    return LostChunkError(f"{what} now belongs to another worker. Nothing is sent for it here.")


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # mark it as retrieved: the waiter may have been cancelled


def _follow(earlier: asyncio.Future[None], later: asyncio.Future[None]) -> None:
    _settle(earlier, None if later.cancelled() else later.exception())
