"""
The queue of a batch's chunks, in pgqueuer.

It assigns chunks to workers and reassigns those of silent ones.  Whether a chunk is done is not decided here.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import uuid4

import attrs
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

__all__ = ["DONE", "QUEUED", "SIGNAL", "Chunks", "Handed"]

SIGNAL = "SELECT pg_notify(current_schema(), '{}')"  # one of the next two, to all workers of the journal
QUEUED, DONE = "queued", "done"

_NAME: Any = "invsvc_chunk"  # Any: pgqueuer has its own type for names

Lent: TypeAlias = "Callable[[], AbstractAsyncContextManager[Any]]"  # Any: asyncpg's connection


class _Borrower(AsyncpgPoolDriver):
    """A driver that borrows a connection for each statement."""

    def __init__(self, lent: Lent) -> None:
        super().__init__(cast("Any", None))
        self._lent = lent

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Return the rows of *query*."""
        async with self._lent() as connection:
            return await AsyncpgDriver(connection).fetch(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        """Run *query*."""
        async with self._lent() as connection:
            return await AsyncpgDriver(connection).execute(query, *args)


@attrs.frozen
class Handed:
    """A chunk that was assigned to this worker."""

    chunk: int
    job: Any  # Any: pgqueuer's


class Chunks:
    """
    The queue of chunks in the schema of the connections that *lent* returns.

    A chunk whose worker has sent no heartbeat for *silence* seconds is assigned to another.  All workers
    together work on at most *slots* chunks at once (0: any number), those of dead workers included until
    they are reassigned.
    """

    def __init__(self, lent: Lent, *, slots: int, silence: float) -> None:
        self._queries = Queries(_Borrower(lent))
        self._is_limited = slots > 0
        self._limits = {_NAME: EntrypointExecutionParameter(concurrency_limit=slots)}
        self._silence = timedelta(seconds=silence)
        self._me: Any = uuid4()

    async def give(self, connection: Any, chunk: int) -> None:  # Any: asyncpg's
        """Add *chunk* to the queue, in the transaction of *connection*, which tells the workers as well."""
        await self._on(connection).enqueue(_NAME, str(chunk).encode())

    async def take(self, connection: Any) -> Handed | None:  # Any: asyncpg's
        """Return the next chunk for this worker, or None, in the transaction of *connection*."""
        if not self._is_limited:
            return await self._take(connection)
        savepoint = connection.transaction()
        await savepoint.start()
        handed = await self._take(connection)
        if handed is None:  # perhaps because another worker took the last slot, which ends the transaction
            await savepoint.rollback()
        else:
            await savepoint.commit()
        return handed

    async def _take(self, connection: Any) -> Handed | None:  # Any: asyncpg's
        jobs = await self._on(connection).dequeue(
            batch_size=1,
            entrypoints=self._limits,
            queue_manager_id=self._me,
            global_concurrency_limit=None,
            heartbeat_timeout=self._silence,
        )
        return Handed(int(jobs[0].payload or b"0"), jobs[0]) if jobs else None

    def _on(self, connection: Any) -> Queries:  # Any: asyncpg's
        """Return the queries on *connection*. They share what builds their texts, which takes longer."""
        return replace(self._queries, driver=AsyncpgDriver(connection))

    async def beat(self, handed: Sequence[Handed]) -> None:
        """Send a heartbeat for the chunks of this worker."""
        await self._queries.update_heartbeat([each.job.id for each in handed])

    async def end(self, handed: Handed) -> None:
        """Remove a chunk that is done from the queue."""
        await self._queries.log_jobs([(handed.job, "successful", None)])

    async def give_back(self, handed: Handed) -> None:
        """Return a chunk to the queue, for another worker."""
        await self._queries.retry_job(handed.job, timedelta(0), None)
        await self._queries.driver.execute(SIGNAL.format(QUEUED))
