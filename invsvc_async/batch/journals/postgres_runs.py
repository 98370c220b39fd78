"""
The runs of a shared batch: which results each of them gave, and how far its input was read.

A run that ends, or is silent for too long, leaves the results that nobody took.  One other run adopts them:
it gives them from then on.  A run that was silent for so long, but goes on, first asks what it still may
give.  If another run gives its own results, that one gives all that was stored under its number; from then on
it stores under another one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async.batch.checkpoint import Checkpoint, decoded
from invsvc_async.batch.deliveries import Deliveries
from invsvc_async.batch.journals.chunk_fencing import POSITIONS, OwnedEntries
from invsvc_async.durable.entry import entry_of
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.history import Verdict

__all__ = ["OwnedResults"]

_BEGIN = "INSERT INTO runs (run) VALUES ($1) ON CONFLICT DO NOTHING"
_SILENT = 2  # times the silence: an idle worker gives a sign of life a little more often than once in that
# Whether the row is of a run that ended, or was silent for too long.
_IS_GONE, _GIVER_IS_GONE = (
    f"({row}.ended OR {row}.seen < clock_timestamp() - {_SILENT} * make_interval(secs => $1))"
    for row in ("r", "g")
)
_HAS_UNTAKEN = "EXISTS (SELECT 1 FROM entries e WHERE e.giver = r.run AND e.position > r.taken)"
_ADOPT = f"""
UPDATE runs r SET given_by = $2 WHERE r.run <> $2 AND {_IS_GONE} AND {_HAS_UNTAKEN}
    AND (r.given_by IS NULL OR EXISTS (SELECT 1 FROM runs g WHERE g.run = r.given_by AND {_GIVER_IS_GONE}))
"""  # noqa: S608 - our own text
_ADOPTED = "SELECT run, taken FROM runs WHERE given_by = ANY ($1) ORDER BY run"
_SEEN = "UPDATE runs SET seen = clock_timestamp(), ended = false WHERE run = ANY ($1)"
_RELIES = 0.8  # of the time after which a run counts as gone: how long it relies on its last sign of life
# Runs that may be gone: they gave no sign of life since $3, and are not silent for long enough.
_UNDECIDED = f"""
SELECT 1 FROM runs r LEFT JOIN runs g ON g.run = r.given_by
WHERE r.run <> ALL ($2) AND (
    (NOT {_IS_GONE} AND r.seen < $3 AND (r.has_open_input OR {_HAS_UNTAKEN}))
    OR ({_IS_GONE} AND g.run <> ALL ($2) AND NOT {_GIVER_IS_GONE} AND g.seen < $3 AND {_HAS_UNTAKEN})
) LIMIT 1
"""  # noqa: S608 - our own text
_TAKEN = """
UPDATE runs r SET taken = greatest(taken, t.position),
    seen = CASE WHEN r.run = ANY ($3) THEN clock_timestamp() ELSE seen END
FROM unnest($1::int[], $2::bigint[]) AS t (run, position)
WHERE r.run = t.run
"""
_OF_ALL = """
SELECT e.* FROM runs r CROSS JOIN LATERAL (
    SELECT * FROM entries WHERE giver = r.run AND position > $1 AND position <= $2 AND state = 2
        AND ($3::text IS NULL OR verdict = $3) ORDER BY position LIMIT $4
) e ORDER BY e.position LIMIT $4
"""
# Positions are assigned under the shared lock, so that after the other one all up to the last are committed.
# A run also asks under the shared lock what others have adopted, and they adopt under the other one.
_LOCK_POSITIONS = f"SELECT pg_advisory_xact_lock({POSITIONS})"
_SHARE_POSITIONS = f"SELECT pg_advisory_xact_lock_shared({POSITIONS})"
_PUT_FACT = "INSERT INTO facts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_encode = msgspec.json.Encoder().encode


class OwnedResults(OwnedEntries):
    """The entries of a shared batch, and the runs that finish them."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        super().__init__(address, create=create)
        self.runs: list[int] = []  # the numbers of this run: the first is that of its input, the last gives
        self.input_of: int | None = None  # the number under which it reads its input, if it does
        self._given: dict[int, Deliveries] = {}  # by the run that stored them
        self._has_ended = True

    async def aclose(self) -> None:
        """End the run, if the database answers, and disconnect."""
        with suppress(JournalError):
            async with self.hurried():
                await self.end_run()
        await super().aclose()

    async def begin_run(self) -> int:
        """Start another run, and return its number."""
        await self.end_run()
        self.runs, self.input_of, self._given = [], None, {}
        await self._take_number()
        return self.giver

    async def _take_number(self) -> None:
        """Get another number for this run, under which it stores results from now on."""
        run = await self.next_run()
        await self.fetch(_BEGIN, run)
        self._has_ended = False
        self.runs.append(run)
        self._store_for(run)
        self._given[run] = self.deliveries

    async def next_run(self) -> int:
        """Return a number for another run."""
        text = (
            "INSERT INTO facts VALUES ('runs', '1') "
            "ON CONFLICT (name) DO UPDATE SET value = (facts.value::int + 1)::text RETURNING value"
        )
        return int((await self.fetch(text))[0][0])

    async def end_run(self) -> None:
        """Note that this run has ended, so that others need not wait to know it."""
        if self._has_ended:
            return
        await self._store_taken()
        await self.fetch("UPDATE runs SET ended = true WHERE run = ANY ($1)", self.runs)
        self._has_ended = True

    @property
    def owes_results(self) -> bool:
        """Whether results were given that are not taken, which another run could take over."""
        return any(each.is_behind and not each.is_lost for each in self._given.values())

    # --- results

    @property
    def reliable_for(self) -> float:
        """How long after a sign of life no other run adopts what this one gives, in seconds."""
        return _RELIES * _SILENT * self.settings.silence

    async def adopt(self) -> list[tuple[Deliveries, int]]:
        """Acquire the results that other runs left; return which are taken of each, and its run."""
        _, taken = await self._who_gives(adopts=True)
        for run, cursor in taken.items():
            if run not in self._given or self._given[run].is_lost:
                self._given[run] = Deliveries(cursor)
        return [(self._given[run], run) for run in taken]

    async def keep_giving(self) -> None:
        """Store a sign of life, and mark as lost what other runs adopted while this one was silent."""
        adopter, _ = await self._who_gives(adopts=False)
        if adopter is not None:
            self.deliveries.is_lost = True
            await self._take_number()

    async def _who_gives(self, *, adopts: bool) -> tuple[int | None, dict[int, int]]:
        """Store a sign of life; return the run that adopted this one, and the cursors of those it adopted."""

        async def ask(connection: Any) -> tuple[int | None, list[Any]]:  # Any: asyncpg has no types
            await connection.execute(_LOCK_POSITIONS if adopts else _SHARE_POSITIONS)
            await connection.execute(_SEEN, self.runs)
            if adopts:
                await connection.execute(_ADOPT, self.settings.silence, self.giver)
            adopter = await connection.fetchval("SELECT given_by FROM runs WHERE run = $1", self.giver)
            return adopter, await connection.fetch(_ADOPTED, self.runs)

        self._has_ended = False
        adopter, rows = await self.ask(ask)
        taken = {row["run"]: row["taken"] for row in rows}
        for run, deliveries in self._given.items():
            if run != self.giver and run not in taken:
                deliveries.is_lost = True
        return adopter, taken

    def deliveries_of(self, position: int) -> Deliveries:
        """Return those to which the result at *position* belongs, which this run has found itself."""
        former = (self._given[run] for run in self.runs[:-1])
        return next((each for each in former if position in each), self.deliveries)

    async def untaken_of(self, run: int, since: int, limit: int) -> list[Entry]:
        """Return the next page of the entries that *run* has finished, after position *since*."""
        where = "giver = $1 AND position > $2 AND state = 2 ORDER BY position LIMIT $3"
        text = f"SELECT * FROM entries WHERE {where}"  # noqa: S608 - our own text
        return [entry_of(row) for row in await self.fetch(text, run, since, limit)]

    async def now(self) -> datetime:
        """Return the time by the database's clock."""
        found: datetime = (await self.fetch("SELECT clock_timestamp()"))[0][0]
        return found

    async def is_undecided(self, since: datetime) -> bool:
        """Return whether another run left something, or gives a sign of life soon. It gave none *since*."""
        return bool(await self.fetch(_UNDECIDED, self.settings.silence, self.runs, since))

    def save_taken(self) -> asyncio.Future[None]:
        """Store which results were taken."""
        return _alone(self._store_taken())

    async def _store_taken(self) -> None:
        cursors = {run: each.cursor for run, each in self._given.items()}
        await self.fetch(_TAKEN, [*cursors], [*cursors.values()], self.runs)

    async def finished(
        self, verdict: Verdict | None, since: int, limit: int, until: int | None = None
    ) -> list[Entry]:
        """Return the next page of entries that are done, after position *since*, in that order."""
        most = await self.last_position() if until is None else until
        wanted = None if verdict is None else str(verdict)
        return [entry_of(row) for row in await self.fetch(_OF_ALL, since, most, wanted, limit)]

    async def last_position(self) -> int:
        """Return a position up to which all finished entries can be read."""

        async def last(connection: Any) -> int:  # Any: asyncpg has no types
            await connection.execute(_LOCK_POSITIONS)
            return int(await connection.fetchval("SELECT last_value FROM positions"))

        return await self.ask(last)

    # --- inputs

    async def begin_input(self) -> None:
        """Note that this run reads an input."""
        text = "UPDATE runs SET has_open_input = true, began = clock_timestamp() WHERE run = $1"
        await self.fetch(text, self.runs[0])
        self.input_of = self.runs[0]

    async def end_input(self, checkpoint: Checkpoint | None) -> None:
        """Note that all of the input is in the journal."""
        self.input_of = None

        async def end(connection: Any) -> None:  # Any: asyncpg has no types
            await connection.execute("UPDATE runs SET has_open_input = false WHERE run = $1", self.runs[0])
            await save_checkpoint(connection, checkpoint)

        await self.ask(end)

    async def close_inputs(self, *, of_earlier: bool = False) -> int:
        """
        Mark inputs of runs that are gone as complete, as far as they were read; return how many.

        With *of_earlier*, only of runs that gave no sign of life since this run began to read its own.
        """
        text = (
            f"UPDATE runs r SET has_open_input = false WHERE r.has_open_input AND {_IS_GONE} "  # noqa: S608 - our own text
            "AND ($2::int IS NULL OR r.seen < (SELECT began FROM runs WHERE run = $2)) RETURNING r.run"
        )
        closed: set[int] = set()  # from all tries: a later one no longer finds what an earlier one closed

        async def close(connection: Any) -> None:  # Any: asyncpg has no types
            rows = await connection.fetch(text, self.settings.silence, self.runs[0] if of_earlier else None)
            closed.update(row["run"] for row in rows)

        await self.ask(close)
        return len(closed)

    async def open_inputs(self) -> int:
        """Count the inputs that were begun and not read to their end."""
        return int((await self.fetch("SELECT count(*) FROM runs WHERE has_open_input"))[0][0])

    def put_fact(self, name: str, value: str | None) -> asyncio.Future[None]:
        """Set a fact about the whole batch to *value*, or delete it, soon."""
        return _alone(self._put_fact(name, value))

    async def _put_fact(self, name: str, value: str | None) -> None:
        if value is None:
            await self.fetch("DELETE FROM facts WHERE name = $1", name)
        else:
            await self.fetch(_PUT_FACT, name, value)

    async def checkpoint(self) -> Checkpoint | None:
        """Return how far the latest input was taken in, if all its lines have keys."""
        rows = await self.fetch("SELECT value FROM facts WHERE name = 'checkpoint'")
        found = decoded(rows[0][0]) if rows else None
        return None if found is None or found.keyless else found


def _alone(storing: Coroutine[Any, Any, None]) -> asyncio.Future[None]:  # Any: as of any coroutine
    """Start *storing*, which nothing may await, so that asyncio does not report its error."""
    task = asyncio.ensure_future(storing)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def save_checkpoint(
    connection: Any, checkpoint: Checkpoint | None
) -> None:  # Any: asyncpg has no types
    """Store how far an input was taken in. Equal lines without keys cannot be told apart later."""
    if checkpoint is not None and not checkpoint.keyless:
        await connection.execute(_PUT_FACT, "checkpoint", _encode(checkpoint).decode())
