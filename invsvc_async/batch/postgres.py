"""
Keep a batch's entries in PostgreSQL, for many machines; never let two workers write one entry.

Entries come in chunks, and a chunk has one owner: its token changes at every take-over, and whatever is
stored of an entry is compared with it under a lock.  A worker that was stopped and wakes up finds that it
owns nothing.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import attrs

from invsvc_async.batch.entries import Entry, LostChunkError, Mark, State
from invsvc_async.batch.handing import Chunks
from invsvc_async.batch.pack import Commons
from invsvc_async.batch.results import Summary
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.evidence import Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from invsvc_async.clock import Clock

__all__ = ["ChunkStore", "PostgresBatch", "Settings"]

T = TypeVar("T")

SCHEMA = 1
_TABLES = """
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE chunks (id bigserial PRIMARY KEY, owner text, done boolean NOT NULL DEFAULT false);
CREATE TABLE entries (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, chunk bigint NOT NULL, thing text, content bytea
    NOT NULL, state smallint NOT NULL, run integer NOT NULL, operation text NOT NULL, verdict text, common
    bigint, intent text, outcome text, claim text, done_at bigint
) WITH (fillfactor = 70);
CREATE INDEX not_done ON entries (chunk, seq) WHERE state < 2;
CREATE INDEX things ON entries (thing) WHERE state < 2 AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
"""
_ALL = "seq, key, content, state, run, operation, verdict, common, intent, outcome, claim, done_at"
_NAMES = _ALL.split(", ")
_STORE = """
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::bigint[],
    $7::text[],
        $8::text[], $9::text[], $10::bigint[])
    AS t (key, chunk, token, state, verdict, common, intent, outcome, claim, done_at)
), owned AS MATERIALIZED (SELECT id, owner FROM chunks WHERE id = ANY ($2) ORDER BY id FOR SHARE)
UPDATE entries e SET state = g.state, verdict = g.verdict, common = g.common, intent = g.intent, outcome =
g.outcome,
    claim = g.claim, done_at = g.done_at
FROM given g JOIN owned o ON o.id = g.chunk AND o.owner = g.token
WHERE e.key = g.key AND e.chunk = g.chunk RETURNING e.key
"""
_STORED = ("state", "verdict", "common", "intent", "outcome", "claim", "done_at")
_HAND_OUT = """
INSERT INTO entries (key, chunk, thing, content, state, run, operation, common, intent)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[], $5::smallint[], $6::int[],
$7::text[], $8::bigint[],
    $9::text[])
"""
_AWAY = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError,
         asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)  # fmt: skip
_PATIENCE = 60.0  # s for which a database that is away is asked again
_PAUSE = 0.2  # s between


@attrs.frozen(kw_only=True)
class Settings:
    """
    What the address says beyond PostgreSQL's own: ``?batch=NAME&slots=8&silence=10``.

    ``slots``: chunks in work at once, on all machines (0: any number); ``silence``: s after which a worker
    counts as dead.
    """

    address: str
    batch: str = "default"
    slots: int = 0
    silence: float = 10.0

    @classmethod
    def of(cls, address: str) -> Settings:
        """
        Take the address apart.

        Raises:
            ConfigurationError: A setting that cannot work.

        """
        parts = urlsplit(address)
        asked = dict(parse_qsl(parts.query))
        own = {name: asked.pop(name) for name in ("batch", "slots", "silence") if name in asked}
        try:
            settings = cls(
                address=urlunsplit(parts._replace(query=urlencode(asked))),
                batch=own.get("batch", "default"),
                slots=int(own.get("slots", 0)),
                silence=float(own.get("silence", 10.0)),
            )
        except ValueError as error:
            raise ConfigurationError(f"the journal's address: {error}") from None
        if not re.fullmatch(r"[a-z0-9_]{1,40}", settings.batch) or settings.slots < 0 or settings.silence < 1:
            raise ConfigurationError(
                "the journal's address: batch is 1 to 40 of a-z, 0-9 and _; slots 0 or more; silence from 1"
            )
        return settings


class PostgresBatch:
    """The journal of a batch that machines share: one schema of one database."""

    def __init__(self, address: str) -> None:
        self.settings = Settings.of(address)
        self.commons = Commons(shared=True)
        self._stored_commons: set[int] = set()
        self._pool: Any = None  # Any: asyncpg has no types
        self._pending: dict[str, tuple[Entry, int, str, asyncio.Future[None]]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self.chunks: Chunks

    async def open(self) -> None:
        """
        Connect, and make the tables where there are none.

        Raises:
            JournalError: The database cannot be reached, or the journal is of a newer version.

        """
        schema = f"invsvc_{self.settings.batch}"
        try:
            make: Any = asyncpg.create_pool  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            self._pool = await make(
                self.settings.address, min_size=1, max_size=5, timeout=10.0,
                server_settings={"search_path": schema, "application_name": "invsvc batch"},
            )  # fmt: skip
            await self._make(schema)
        except (*_AWAY, asyncpg.PostgresError, ValueError) as error:
            await self.aclose()
            raise JournalError(f"the journal's database cannot be used: {error}") from error
        self.chunks = Chunks(self._pool, slots=self.settings.slots, silence=self.settings.silence)

    async def _make(self, schema: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            if not await connection.fetchval("SELECT to_regclass($1)", f"{schema}.facts"):
                await connection.execute(_TABLES)
                await connection.execute("INSERT INTO facts VALUES ('schema', $1)", str(SCHEMA))
                from pgqueuer.db import AsyncpgDriver
                from pgqueuer.queries import Queries

                await Queries(AsyncpgDriver(connection)).install(create_schema=False)
            version = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        if version != str(SCHEMA):
            raise JournalError(
                f"the journal in {schema} is of version {version}, and this package reads version {SCHEMA}: "
                "use the version that made it, or a newer one"
            )

    async def aclose(self) -> None:
        """Store what is pending, and disconnect."""
        await self.idle()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 5.0)
            except _AWAY:
                pool.terminate()

    async def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        """Run *question* in a transaction, again while the database is away: it must bear being run twice."""

        async def ask() -> T:
            if self._pool is None:
                raise JournalError("the journal is not open")
            async with self._pool.acquire(timeout=10.0) as connection, connection.transaction():
                return await question(connection)

        return await self.steadily(ask)

    async def steadily(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do *act*, again while the database is away: it must bear being done twice."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while True:
            try:
                return await act()
            except _AWAY as error:
                if loop.time() > until:
                    raise JournalError(f"the journal's database is away: {error}") from error
                await asyncio.sleep(_PAUSE)
            except asyncpg.PostgresError as error:
                raise JournalError(f"the journal's database refused: {error}") from error

    # --- the entries of a worker

    def put(self, entry: Entry, chunk: int, token: str) -> asyncio.Future[None]:
        """Store *entry* if its chunk is still *token*'s; the future fails with LostChunkError if not."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = self._pending.get(entry.key)
        self._pending[entry.key] = entry, chunk, token, done
        if before is not None:  # replaced before it was stored: what came later counts
            done.add_done_callback(lambda later: _follow(before[3], later))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def idle(self) -> None:
        """Wait until all that was put is stored."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        """Store what is pending in one statement, and what came meanwhile in the next."""
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                try:
                    kept = await self._store(list(pending.values()))
                except JournalError as error:
                    for *_, done in pending.values():
                        _settle(done, error)
                    continue
                for key, (*_, done) in pending.items():
                    _settle(
                        done,
                        None if key in kept else LostChunkError(f"entry {key!r} is another worker's now"),
                    )
        finally:
            self._flushing = None

    async def _store(self, given: list[tuple[Entry, int, str, asyncio.Future[None]]]) -> set[str]:
        columns = [[entry.key for entry, *_ in given], [row[1] for row in given], [row[2] for row in given]]
        columns += [[getattr(entry, name) for entry, *_ in given] for name in _STORED]

        async def store(connection: Any) -> set[str]:
            await self._store_commons(connection)
            return {row["key"] for row in await connection.fetch(_STORE, *columns)}

        kept = await self.ask(store)
        self._stored_commons |= set(self.commons.texts)
        return kept

    async def _store_commons(self, connection: Any) -> None:
        fresh = [
            (number, text)
            for number, text in self.commons.texts.items()
            if number not in self._stored_commons
        ]
        if fresh:
            await connection.executemany("INSERT INTO commons VALUES ($1, $2) ON CONFLICT DO NOTHING", fresh)

    # --- chunks

    async def hand_out(self, given: list[tuple[Entry, str | None]]) -> None:
        """Store fresh entries, each with the thing that it touches, and queue them as one chunk."""

        async def hand_out(connection: Any) -> None:
            await self._store_commons(connection)
            things = list({thing for _, thing in given if thing is not None})
            chunk = await connection.fetchval("INSERT INTO chunks DEFAULT VALUES RETURNING id")
            # What touches a thing that an open chunk has goes into that chunk, so that their order is kept.
            busy = dict(
                await connection.fetch(
                    "SELECT thing, min(chunk) FROM entries "
                    "WHERE thing = ANY ($1) AND state < 2 GROUP BY thing",
                    things,
                )
            )
            alive = await connection.fetch(
                "SELECT id FROM chunks WHERE id = ANY ($1) AND NOT done ORDER BY id FOR SHARE",
                list(set(busy.values())),
            )
            open_ones = {row["id"] for row in alive}
            chosen = [busy.get(thing) if busy.get(thing) in open_ones else chunk for _, thing in given]
            entries = [entry for entry, _ in given]
            await connection.execute(
                _HAND_OUT,
                [entry.key for entry in entries], chosen, [thing for _, thing in given],
                [entry.content for entry in entries], [int(entry.state) for entry in entries],
                [entry.run for entry in entries], [entry.operation for entry in entries],
                [entry.common for entry in entries], [entry.intent for entry in entries],
            )  # fmt: skip
            await self.chunks.give(connection, chunk)

        await self.ask(hand_out)
        self._stored_commons |= set(self.commons.texts)

    async def take(self, chunk: int, token: str) -> tuple[bool, bool]:
        """Become the owner of *chunk*; tells whether it is done already, and whether nobody held it."""

        async def take(connection: Any) -> tuple[bool, bool]:
            row = await connection.fetchrow("SELECT owner, done FROM chunks WHERE id = $1 FOR UPDATE", chunk)
            await connection.execute("UPDATE chunks SET owner = $2 WHERE id = $1", chunk, token)
            return row["done"], row["owner"] in (None, token)

        return await self.ask(take)

    async def owned(self, tokens: Sequence[str]) -> tuple[set[str], int]:
        """Tell which of *tokens* still own their chunks, and how many chunks are in work anywhere."""

        async def owned(connection: Any) -> tuple[set[str], int]:
            rows = await connection.fetch("SELECT owner FROM chunks WHERE NOT done AND owner IS NOT NULL")
            owners = {row["owner"] for row in rows}
            return owners & set(tokens), len(owners)

        return await self.ask(owned)

    async def close_chunk(self, chunk: int, token: str) -> bool:
        """Note that *chunk* is done, unless something of it is open."""

        async def close(connection: Any) -> bool:
            row = await connection.fetchrow("SELECT owner FROM chunks WHERE id = $1 FOR UPDATE", chunk)
            if row["owner"] != token:
                raise LostChunkError(f"chunk {chunk} is another worker's now")
            if await connection.fetchval(
                "SELECT 1 FROM entries WHERE chunk = $1 AND state < 2 LIMIT 1", chunk
            ):
                return False
            await connection.execute("UPDATE chunks SET done = true, owner = NULL WHERE id = $1", chunk)
            return True

        return await self.ask(close)

    async def release(self, tokens: Sequence[str]) -> None:
        """Give chunks up whose sends have all ended."""
        await self.ask(
            lambda c: c.execute("UPDATE chunks SET owner = NULL WHERE owner = ANY ($1)", list(tokens))
        )

    async def open_chunks(self) -> int:
        """Count the chunks that are not done."""
        return int(await self.ask(lambda c: c.fetchval("SELECT count(*) FROM chunks WHERE NOT done")))

    async def of_chunk(self, chunk: int, after: int) -> list[Entry]:
        """Give the entries of *chunk* that are not done, in order."""
        return await self._entries("chunk = $1 AND state < 2 AND seq > $2 ORDER BY seq", chunk, after)

    # --- the questions of a batch

    async def next_run(self) -> int:
        """Count one more run, and tell its number."""
        text = (
            "INSERT INTO facts VALUES ('runs', '1') "
            "ON CONFLICT (name) DO UPDATE SET value = (facts.value::int + 1)::text RETURNING value"
        )
        return int(await self.ask(lambda c: c.fetchval(text)))

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Tell a fact about the whole batch; with *value*, set it where it was not known."""

        async def fact(connection: Any) -> str | None:
            if value is not None:
                await connection.execute(
                    "INSERT INTO facts VALUES ($1, $2) ON CONFLICT DO NOTHING", name, value
                )
            found: str | None = await connection.fetchval("SELECT value FROM facts WHERE name = $1", name)
            return found

        return await self.ask(fact)

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """Find the entries of *keys*, as they were, and note that the input of *run* holds them."""
        text = (
            "WITH old AS (SELECT key, content, state, run FROM entries WHERE key = ANY ($1)), "
            "noted AS (UPDATE entries e SET run = $2 FROM old WHERE e.key = old.key AND old.run <> $2) "
            "SELECT * FROM old"
        )
        rows = await self.ask(lambda c: c.fetch(text, list(keys), run))
        return {row["key"]: Mark(row["content"], row["state"], row["run"]) for row in rows}

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Page through those that are done."""
        wanted = None if verdict is None else str(verdict)
        where = "state = 2 AND ($1::text IS NULL OR verdict = $1) AND seq > $2 ORDER BY seq LIMIT $3"
        return await self._entries(where, wanted, after, limit)

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Page through the entries that are not done, in the order in which they came."""
        return await self._entries("state < 2 AND seq > $1 ORDER BY seq LIMIT $2", after, limit)

    async def summary(self) -> Summary:
        """Count the entries."""
        text = (
            "SELECT state, verdict, count(*) AS many, "
            "count(*) FILTER (WHERE outcome LIKE '%\"lost\":true%') AS lost FROM entries "
            "GROUP BY state, verdict"
        )
        rows = await self.ask(lambda c: c.fetch(text))
        return Summary(
            to_do=sum(row["many"] for row in rows if row["state"] == State.TO_DO),
            sending=sum(row["many"] for row in rows if row["state"] == State.SENDING),
            verdicts={Verdict(row["verdict"]): row["many"] for row in rows if row["state"] == State.DONE},
            secrets_lost=sum(row["lost"] for row in rows),
        )

    async def reopen(self, verdict: Verdict, *, keep_sends: bool) -> int:
        """Make those of *verdict* to do again; without their sends where it is certain that none landed."""
        intent = "intent" if keep_sends else "(intent::jsonb - 'sent' - 'bounds' - 'baseline')::text"

        async def reopen(connection: Any) -> int:
            chunk = await connection.fetchval("INSERT INTO chunks DEFAULT VALUES RETURNING id")
            status = await connection.execute(
                "UPDATE entries SET state = 0, verdict = NULL, outcome = NULL, done_at = NULL, chunk = $2, "  # noqa: S608 - our own text
                f"intent = {intent} WHERE state = 2 AND verdict = $1 AND intent IS NOT NULL",
                str(verdict),
                chunk,
            )
            await self.chunks.give(connection, chunk)
            return int(status.split()[-1])

        return await self.ask(reopen)

    async def prune(self, before: int) -> int:
        """Empty what was done before *before* (epoch ms) of all but key, digest and verdict."""
        text = (
            "UPDATE entries SET intent = NULL, outcome = NULL, claim = NULL "
            "WHERE state = 2 AND done_at < $1 AND (intent IS NOT NULL OR outcome IS NOT NULL)"
        )
        status = await self.ask(lambda c: c.execute(text, before))
        return int(status.split()[-1])

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Give (webhook id, key) of untagged creates, the latest ones."""
        text = "SELECT claim, key FROM entries WHERE claim IS NOT NULL ORDER BY seq DESC LIMIT $1"
        return [(row["claim"], row["key"]) for row in await self.ask(lambda c: c.fetch(text, limit))]

    async def _entries(self, where: str, *values: object) -> list[Entry]:
        text = f"SELECT {_ALL} FROM entries WHERE {where}"  # noqa: S608 - our own text
        rows = await self.ask(lambda c: c.fetch(text, *values))
        if any(row["common"] not in self.commons.texts for row in rows if row["common"] is not None):
            for row in await self.ask(lambda c: c.fetch("SELECT number, text FROM commons")):
                self.commons.load(row["number"], row["text"])
                self._stored_commons.add(row["number"])
        return [Entry(**{name: row[name] for name in _NAMES}) for row in rows]


@attrs.define(eq=False)
class ChunkStore:
    """
    The entries of one chunk, as long as *token* owns it.

    ``until`` is the end of the lease, by the client's clock.
    """

    entries: PostgresBatch
    chunk: int
    token: str
    until: float
    clock: Clock
    lost: bool = False

    async def hold(self) -> None:
        """Wait until the lease is valid: this worker may only be late to say that it is alive."""
        while self.clock.now() > self.until:
            if self.lost:
                raise LostChunkError(f"chunk {self.chunk} is another worker's now")
            await self.clock.sleep(_PAUSE)

    @property
    def commons(self) -> Commons:
        """The common parts of intents."""
        return self.entries.commons

    def put(self, entry: Entry) -> asyncio.Future[None]:
        """Store *entry* if the chunk is still owned."""
        return self.entries.put(entry, self.chunk, self.token)

    def shelve(self, entry: Entry) -> None:
        """Store *entry* without waiting and without fail."""
        self.put(entry)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # seen: who waits for it may have been cancelled


def _follow(earlier: asyncio.Future[None], later: asyncio.Future[None]) -> None:
    _settle(earlier, None if later.cancelled() else later.exception())  # type: ignore[arg-type]  # set by _settle
