"""The queues of writes to the same thing: one write of a line runs at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.writes.things import Records, Thing


class Lines:
    """The turns of writes in each line, and until when a write that may still land keeps the line closed."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self.clock = clock

    async def turn(
        self,
        thing: Thing,
        owner: str | None,
        pause: Callable[[float], Awaitable[bool]],
        run: object = True,  # noqa: FBT002 - as of `Thing.enter`
    ) -> None:
        """
        Wait until *thing* is free and open, and begin *run*.

        *owner* does not wait for what it closed itself. *pause* waits for some seconds, and returns
        ``False`` if the client was closed meanwhile. Then the turn begins although *thing* is closed: the run
        sends nothing any more, and ends.
        """
        if thing.held:
            await self._until_handed_over(thing, run)
        else:
            thing.held = run
        try:
            while thing.closed_until:
                left = thing.opens_at(owner) - self.clock.now()
                if left <= 0 or not await pause(left):
                    break
        except BaseException:
            self.leave(thing, run)
            raise

    async def _until_handed_over(self, thing: Thing, run: object) -> None:
        """Wait until the run that has *thing*, and all that have waited longer, hand it over to *run*."""
        waiter = asyncio.get_running_loop().create_future()
        try:
            if thing.waiters is None:
                thing.waiters = deque()
            thing.waiters.append(waiter)
            await waiter
            thing.held = run
        except BaseException:
            waiter.cancel()
            self.leave(thing, waiter)  # passes it on, if it was handed over
            if thing.waiters and waiter in thing.waiters:
                thing.waiters.remove(waiter)
            raise

    def leave(self, thing: Thing, run: object = True) -> None:  # noqa: FBT002 - as of `Thing.enter`
        """
        End the turn of *run*. The next is the one that has waited longest.

        First the line is handed to that one, then it is woken, or, if nobody waits, the record is cleared. A
        second call does what the first one did not, because a signal handler raised in it.
        """
        if thing.held is run:
            thing.held = thing.heir()
        if isinstance(thing.held, asyncio.Future) and not thing.held.done():
            thing.held.set_result(None)
        if thing.held:
            return
        if thing.closed_until and thing.opens_at(None) <= self.clock.now():
            thing.closed_until = None
        if not thing.has_to_stay():
            self._records.remove(thing)

    def close(self, line: str, owner: str, until: float) -> None:
        """Keep *line* closed to all but *owner* until that local time, in seconds."""
        thing = self._records.of(line)
        now = self.clock.now()
        closed = {
            by: kept for by, kept in (thing.closed_until or {}).items() if kept > now
        }
        thing.closed_until = closed | {owner: max(until, closed.get(owner, -inf))}

    def closed_for(self, line: str | None) -> float:
        """Return for how many more seconds *line* is not open to all."""
        thing = self._records.known(line or "")
        if thing.closed_until:
            return max(thing.opens_at(None) - self.clock.now(), 0.0)
        return 0.0

    def is_busy(self, line: str) -> bool:
        """
        Return whether a write of *line* runs, or one may still take effect.

        Also if none may any more, until another run has left the line: that clears what closed it.
        """
        thing = self._records.known(line)
        return bool(thing.held or thing.closed_until)
