"""
Hand chunks of a batch out to workers, through pgqueuer; never the truth about what is done.

The one module that knows pgqueuer: which worker has which chunk, whose worker has gone silent, how many at
once.
"""

from __future__ import annotations

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

__all__ = ["Chunks", "Handed"]

_NAME: Any = "invsvc_chunk"  # Any: pgqueuer has a type of its own for names

Lent: TypeAlias = "Callable[[], AbstractAsyncContextManager[Any]]"  # Any: asyncpg's connection


class _Borrower(AsyncpgPoolDriver):
    """Asks each question over a connection that is lent for it."""

    def __init__(self, lent: Lent) -> None:
        super().__init__(cast("Any", None))
        self._lent = lent

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Give the rows of *query*."""
        async with self._lent() as connection:
            return await AsyncpgDriver(connection).fetch(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        """Run *query*."""
        async with self._lent() as connection:
            return await AsyncpgDriver(connection).execute(query, *args)


@attrs.frozen
class Handed:
    """A chunk that this worker was handed."""

    chunk: int
    job: Any  # Any: pgqueuer's


class Chunks:
    """
    The queue of chunks in the schema of the connections that *lent* gives.

    A chunk whose worker has not been heard of for *silence* seconds is handed to another.  *slots* is how
    many are worked on at once by all workers together (0: any number); a dead worker's stay taken until it
    has been silent that long.
    """

    def __init__(self, lent: Lent, *, slots: int, silence: float) -> None:
        self._queries = Queries(_Borrower(lent))
        self._limits = {_NAME: EntrypointExecutionParameter(concurrency_limit=slots)}
        self._silence = timedelta(seconds=silence)
        self._me: Any = uuid4()

    async def give(self, connection: Any, chunk: int) -> None:  # Any: asyncpg's
        """Put *chunk* in the queue, in the transaction that *connection* is in."""
        await Queries(AsyncpgDriver(connection)).enqueue(_NAME, str(chunk).encode())

    async def take(self) -> Handed | None:
        """Be handed the next chunk, if there is one."""
        jobs = await self._queries.dequeue(
            batch_size=1,
            entrypoints=self._limits,
            queue_manager_id=self._me,
            global_concurrency_limit=None,
            heartbeat_timeout=self._silence,
        )
        return Handed(int(jobs[0].payload or b"0"), jobs[0]) if jobs else None

    async def beat(self, handed: Sequence[Handed]) -> None:
        """Say that this worker is alive."""
        await self._queries.update_heartbeat([each.job.id for each in handed])

    async def end(self, handed: Handed) -> None:
        """Take a chunk that is done out of the queue."""
        await self._queries.log_jobs([(handed.job, "successful", None)])

    async def give_back(self, handed: Handed) -> None:
        """Let another worker have it at once."""
        await self._queries.retry_job(handed.job, timedelta(0), None)
