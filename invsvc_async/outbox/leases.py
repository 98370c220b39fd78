"""
Which process owns which chunks of entries, and until when it may rely on that.

A process shows that it lives by a time in the table ``members``. Chunks of one that is silent are taken over.
``batch.journals.chunk_fencing`` says why nothing is sent twice, even if a silent process was only stopped.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs

from invsvc_async.batch.journals.chunk_fencing import ChunkStore, worker_of
from invsvc_async.durable.entry import LostChunkError
from invsvc_async.errors import JournalError
from invsvc_async.outbox.run import LEASE, TAKER
from invsvc_async.outbox.schema import DEAD, living

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.last_writes import Left
    from invsvc_async.outbox.schema import SharedEntries

__all__ = ["Lane", "Leases"]

_LIVING = f"""
SELECT count(*) FROM members WHERE seen > clock_timestamp() - make_interval(secs => $1)
    AND NOT starts_with(name, '{TAKER}')
"""  # noqa: S608 - our own text
_DEAD = DEAD.format(owner="c.owner")
_CANDIDATES = f"""
SELECT c.id, c.owner FROM chunks c WHERE NOT c.done AND (c.owner IS NULL OR {_DEAD}) AND {{which}}
    ORDER BY c.id LIMIT $2 FOR UPDATE SKIP LOCKED
"""  # noqa: S608 - our own text
_TAKE = """
UPDATE chunks SET owner = t.token FROM unnest($1::bigint[], $2::text[]) AS t (id, token)
    WHERE chunks.id = t.id
"""
_UNANSWERED = """
SELECT c.id FROM chunks c JOIN unnest($1::text[]) AS token ON starts_with(c.owner, token) FOR UPDATE OF c
"""
# Members that are gone for good, and of which nothing is left.
_FORGET = """
DELETE FROM members m WHERE seen < clock_timestamp() - interval '1 day' - make_interval(secs => $1)
    AND NOT EXISTS (SELECT 1 FROM chunks c WHERE split_part(c.owner, '.', 1) = m.name)
"""


@attrs.define(eq=False)
class Lane(ChunkStore):
    """A chunk that this process owns; ``was_free`` if its last owner has provably done with it."""

    was_free: bool = False
    leaving: bool = False  # it is given up once nothing of it is under way
    doubtful: bool = False  # an update was rejected, so another process may have it
    on_doubt: Callable[[], None] | None = None

    def put(self, entry: Entry, left: Left | None = None) -> asyncio.Future[None]:
        """Store *entry* and the state in which it *left* its thing, if the chunk is still owned."""
        done = super().put(entry, left)
        done.add_done_callback(self._look)
        return done

    def _look(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and isinstance(done.exception(), LostChunkError):
            self.doubtful = True
            if self.on_doubt is not None:
                self.on_doubt()


class Leases:
    """The signs of life of this process, and the chunks that it owns, by their ids."""

    def __init__(self, entries: SharedEntries, clock: Clock) -> None:
        self.name: str = f"{uuid4().hex}~{round(1000 * entries.silence)}"
        self.lanes: dict[int, Lane] = {}
        self._entries = entries
        self._clock = clock
        self._numbers = count(1)
        self._until = 0.0  # local s: others count this process as living until then, and longer
        self._unanswered: set[str] = set()  # beginnings of tokens: what was acquired with them is not known

    async def beat(self) -> int:
        """Show that this process lives, and check which chunks it still has; return how many live."""
        held = dict(self.lanes)
        now = self._clock.now()
        await self._entries.show_life(self.name)
        mine, _ = await self._entries.owned([lane.token for lane in held.values()])
        self._until = now + LEASE * self._entries.silence
        for chunk, lane in held.items():
            lane.lost = lane.token not in mine
            lane.doubtful = False
            lane.until = now if lane.lost else self._until
            if lane.lost:
                self.lanes.pop(chunk, None)
        living: int = (await self._entries.fetch(_LIVING, self._entries.silence))[0][0]
        return max(living, 1)

    async def forget_the_dead(self) -> None:
        """Delete the signs of life of processes that are long gone."""
        await self._entries.fetch(_FORGET, self._entries.silence)

    async def take(self, most: int, *, credential: str | None = None) -> list[Lane]:
        """
        Acquire up to *most* chunks that have no owner, or whose owner is silent. Call it after a beat.

        With *credential*, take only those of a client that had it.
        """
        tokens = f"{self.token()}-"

        async def take(connection: Any) -> dict[int, bool]:  # Any: asyncpg's
            which, mine = ("true", ()) if credential is None else ("c.credential = $3", (credential,))
            text = _CANDIDATES.format(which=which)
            rows = await connection.fetch(text, self._entries.silence, most, *mine)
            alive = await living(connection, self._entries.silence, (row["owner"] for row in rows))
            taken = {
                row["id"]: row["owner"] is None
                for row in rows
                if row["owner"] is None or worker_of(row["owner"]) not in alive
            }
            if self._unanswered:  # what those tries have taken is ours, and perhaps not free
                for row in await connection.fetch(_UNANSWERED, [*self._unanswered]):
                    taken[row["id"]] = False
            if taken:
                await connection.execute(_TAKE, [*taken], [f"{tokens}{chunk}" for chunk in taken])
            self._unanswered.add(tokens)
            return taken

        found = await self._entries.ask(take)
        self._unanswered.clear()
        lanes = [
            Lane(self._entries, chunk, f"{tokens}{chunk}", self._until, self._clock, was_free=free)
            for chunk, free in sorted(found.items())
        ]
        self.lanes.update((lane.chunk, lane) for lane in lanes)
        return lanes

    def token(self) -> str:
        """Return a new token of this process."""
        return f"{self.name}.{next(self._numbers)}"

    def hold(self, chunk: int, token: str) -> Lane:
        """Note that this process has *chunk*, which it has made."""
        lane = self.lanes[chunk] = Lane(self._entries, chunk, token, self._until, self._clock)
        return lane

    async def give_up(self, lanes: list[Lane]) -> None:
        """Release chunks in which no send is in flight."""
        if lanes:
            await self._entries.release([lane.token for lane in lanes])
        for lane in lanes:  # only now: if that failed, they are still ours
            self.lanes.pop(lane.chunk, None)

    async def leave(self) -> None:
        """Release all chunks; no send may be in flight. If the database fails, others get them later."""
        with suppress(JournalError):
            async with self._entries.hurried():
                await self._entries.idle()
                await self.give_up([*self.lanes.values()])
                await self._entries.leave(self.name)
        self.lanes.clear()
