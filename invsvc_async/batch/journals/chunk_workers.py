"""The workers of a shared batch: their list, the signals between them, and how they share what is left."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import attrs

from invsvc_async.batch.journals.chunk_fencing import OwnedEntries
from invsvc_async.batch.journals.chunk_queue import QUEUED, SIGNAL, Chunks
from invsvc_async.batch.journals.postgres_schema import IN_TURN
from invsvc_async.batch.worker import Worker
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.entry import State
from invsvc_async.errors import JournalError
from invsvc_async.storage.postgres_pool import AWAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.batch.journals.chunk_queue import Handed

__all__ = ["Offer", "Sign", "WorkersOfBatch"]

log: logging.Logger = logging.getLogger("invsvc_async.batch")

# One sign of life for the worker and for its run.
_OF_RUN = "run AS (UPDATE runs SET seen = clock_timestamp(), ended = false WHERE run = ANY ($8) AND NOT $7)"
_OF_WORKER = """
INSERT INTO workers (name, host, pid, done, rate, chunks, ended) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET seen = now(), done = excluded.done, rate = excluded.rate,
    chunks = excluded.chunks, ended = workers.ended OR excluded.ended
"""
_SIGN = f"WITH {_OF_RUN} {_OF_WORKER}"
_SILENT = 3  # times the silence: a worker without a chunk gives a sign of life once in that time
_LIST = f"""
SELECT host, pid, done, rate, chunks, begun, seen, extract(epoch FROM now() - seen)::float8 AS silent,
    ended, NOT ended AND seen > now() - {_SILENT} * $1 * interval '1 second' AS alive
FROM workers ORDER BY begun, name
"""  # noqa: S608 - our own text
# The same, and what is left for how many workers: this one and others.
_SHORT = f"""
WITH {_OF_RUN}, worker AS ({_OF_WORKER})
SELECT (SELECT count(*) FROM (SELECT 1 FROM chunks WHERE NOT done AND owner IS NULL LIMIT $10) AS few)
    AS queued, (SELECT count(*) FROM chunks WHERE NOT done) AS open, 1 + (SELECT count(*) FROM workers
    WHERE NOT ended AND seen > now() - {_SILENT} * $9 * interval '1 second' AND name <> $1) AS workers
"""  # noqa: S608 - our own text
_MANY = 1000  # chunks in the queue, beyond which nobody counts
LEAST = 20  # writes in a part of a chunk
_DELETED = 5000  # rows by one statement
_OLD = """
DELETE FROM workers WHERE seen < now() - interval '1 day'
"""
_LOG = f"""
DELETE FROM pgqueuer_log WHERE id IN (SELECT id FROM pgqueuer_log ORDER BY id LIMIT {_DELETED})
    AND created < now() - interval '1 hour'
"""  # noqa: S608 - our own text
_CHUNKS = f"""
DELETE FROM chunks WHERE id IN
    (SELECT id FROM chunks WHERE done ORDER BY id LIMIT {_DELETED} FOR UPDATE SKIP LOCKED)
"""  # noqa: S608 - our own text
# Of runs that ended and gave no result. The others are needed to read results in their order.
_RUNS = """
DELETE FROM runs r WHERE ended AND NOT has_open_input AND seen < now() - interval '1 hour'
    AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.giver = r.run AND e.position IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM runs other WHERE other.given_by = r.run)
"""
_ECHO = 5.0  # s to wait for one's own notification
_AGAIN = 5.0  # s before a lost connection for notifications is replaced
_NO_SIGNALS = (
    "the journal's database sends no notifications to this worker, perhaps because of a pooler in "
    "transaction mode. It looks for work from time to time instead: nothing is lost, but work begins later."
)


@attrs.frozen
class Sign:
    """A worker's sign of life, and that of its run, which may have several numbers."""

    name: str
    done: int
    rate: float
    chunks: int
    ended: bool = False
    runs: Sequence[int] = ()


@attrs.frozen
class Offer:
    """A chunk for a worker, if any; how many chunks are open, and whether others may need a part of it."""

    handed: Handed | None
    open_chunks: int
    parts: int = 1


class WorkersOfBatch(OwnedEntries):
    """Entries in chunks, and the workers that share them."""

    chunks: Chunks

    async def workers(self) -> list[Worker]:
        """Return the workers of the last day, the longest-running first."""
        return [Worker(**row) for row in await self.fetch(_LIST, self.settings.silence)]

    async def sign(self, sign: Sign) -> None:
        """Store a worker's sign of life."""
        await self.fetch(_SIGN, *_columns(sign))

    async def next_chunk(self, sign: Sign) -> Offer:
        """Return the next chunk for a worker, and store its sign of life, in one transaction."""

        async def take(connection: Any) -> Offer:  # Any: asyncpg has no types
            handed = await self.chunks.take(connection)
            row = await connection.fetchrow(_SHORT, *_columns(sign), self.settings.silence, _MANY)
            parts = row["workers"] - (row["queued"] - 1)  # those queued besides this one
            return Offer(handed, row["open"], max(1, parts))

        return await self.ask(take)

    async def divide(self, chunk: int, parts: int) -> bool:
        """
        Keep one of *parts* of a chunk that no worker has had, and queue the rest; return whether it did.

        The writes to one thing stay together, because one worker at a time may write to it.
        """

        async def divide(connection: Any) -> bool:  # Any: asyncpg has no types
            await connection.execute(IN_TURN)
            text = "SELECT 1 FROM chunks WHERE id = $1 AND owner IS NULL AND NOT done FOR UPDATE"
            if not await connection.fetchval(text, chunk):
                return False
            text = "SELECT seq, thing, state FROM entries WHERE chunk = $1 AND done_at IS NULL ORDER BY seq"
            rows = await connection.fetch(text, chunk)
            things: dict[object, list[Any]] = {}
            for row in rows:
                things.setdefault(row["seq"] if row["thing"] is None else row["thing"], []).append(row)
            least, kept = max(LEAST, -(-len(rows) // parts)), 0
            rest: list[int] = []
            for each in things.values():
                if kept < least or any(row["state"] != State.TO_DO for row in each):
                    kept += len(each)
                else:
                    rest += [row["seq"] for row in each]
            if len(rest) < LEAST:
                return False
            other = await connection.fetchval("INSERT INTO chunks DEFAULT VALUES RETURNING id")
            await connection.execute("UPDATE entries SET chunk = $2 WHERE seq = ANY ($1)", rest, other)
            await self.chunks.give(connection, other)
            await connection.execute(SIGNAL.format(QUEUED))
            return True

        return await self.ask(divide)

    async def tidy(self) -> bool:
        """
        Delete some of the queue's log, of the chunks that are done, of the workers of former days, and of
        the runs that gave nothing.

        Return whether there may be more.
        """
        deleted = [len(await self.fetch(f"{text} RETURNING 1")) for text in (_LOG, _CHUNKS, _OLD, _RUNS)]
        return max(deleted) == _DELETED

    async def listen(self, heard: Callable[[str], None], works: Callable[[bool], None]) -> None:
        """
        Call *heard* with each signal of the workers, until cancelled; *works* says whether signals arrive.

        It ends if the database sends none.
        """
        while True:
            try:
                async with self.lent() as connection:
                    if not await self._hears(connection, heard):
                        log.warning(_NO_SIGNALS)
                        return
                    works(True)
                    heard(QUEUED)  # what was missed before
                    await _closed(connection)
            except (JournalError, asyncpg.PostgresError, *AWAY):
                pass  # those who store something say what is wrong
            works(False)
            raise_if_cancelled()
            await asyncio.sleep(_AGAIN)

    async def _hears(self, connection: Any, heard: Callable[[str], None]) -> bool:  # Any: asyncpg's
        """Listen, and return whether a notification of one's own arrives."""
        arrived, token = asyncio.Event(), token_hex(8)

        def called(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            if payload == token:
                arrived.set()
            else:
                heard(payload)

        await connection.add_listener(self.schema, called)
        await self.fetch(SIGNAL.format(token))
        try:
            async with asyncio.timeout(_ECHO):
                await arrived.wait()
        except TimeoutError:
            await connection.remove_listener(self.schema, called)
            return False
        return True


def _columns(sign: Sign) -> tuple[object, ...]:
    host, pid = socket.gethostname(), os.getpid()
    return (sign.name, host, pid, sign.done, sign.rate, sign.chunks, sign.ended, sign.runs)


async def _closed(connection: Any) -> None:  # Any: asyncpg's
    """Wait until *connection* is closed."""
    closed = asyncio.Event()
    connection.add_termination_listener(lambda _connection: closed.set())
    raise_if_cancelled()  # listening may have hidden it
    if not connection.is_closed():
        await closed.wait()
