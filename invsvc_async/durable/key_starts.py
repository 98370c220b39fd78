"""
The order in which runs of keys start in one process.

Keys of one thing are claimed in the order in which their runs have started, whatever each of them has to look
up before: the namespace of its key, or a token.

A write without a key has a place there, too.  Its first send overtakes all keys that are claimed by then
(``PUT_UNKEYED`` of ``entry_sql``).  So it waits for the ends of the keyed runs that have started before it,
and those that start after it claim their keys once it has ended.  They do not wait for that once their keys
have entries, since a run that has started before may wait for those.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from weakref import WeakValueDictionary

import attrs


@attrs.define(eq=False)
class KeyStart:
    """
    The start of a run, from the first step until the key is claimed, or its entry is found.

    That of a write without a key (*is_keyed* is false) lasts until the end of the run.
    """

    order: StartOrder
    thing: str
    number: int  # in the order of starts
    is_keyed: bool = True
    is_found: bool = False  # another run has found an entry of its key since it looked
    # done once this start is the first, or is found; None: nobody waits for that
    is_first: asyncio.Future[None] | None = None
    # done once the run has ended; None: nobody waits for that
    is_over: asyncio.Future[None] | None = None

    def leave(self) -> None:
        """Allow the next start to go on. It may be called again."""
        self.order.leave(self)

    def come_back(self) -> None:
        """Return to the old place among the starts, if it has left: the run claims the key after all."""
        self.order.come_back(self)

    def find(self) -> None:
        """Note that the key has an entry: the run looks for that, and does not wait to be the first."""
        self.is_found = True
        self.wake()

    def wake(self) -> None:
        """Wake the run, if it waits to be the first."""
        if self.is_first is not None and not self.is_first.done():
            self.is_first.set_result(None)

    def end(self) -> None:
        """Leave, because the run has ended. Further calls do nothing."""
        self.order.leave(self)
        self.order.end(self)

    async def until_keys_ended(self) -> None:
        """Wait until the keyed runs for the thing that have started before have ended."""
        await self.order.until_keys_ended(self)


class StartOrder:
    """The starts of runs in this process, by thing, until their keys are claimed."""

    def __init__(self) -> None:
        self._starts: dict[str, deque[KeyStart]] = {}
        self._running: dict[str, dict[int, KeyStart]] = {}  # keyed ones, by number
        self._numbers = count(1)
        # Held by the first of the writes without a key that wait for keyed runs, while one does.
        self._first_waits: WeakValueDictionary[str, asyncio.Lock] = (
            WeakValueDictionary()
        )

    def enter(self, thing: str, *, is_keyed: bool = True) -> KeyStart:
        """Note that a run for *thing* starts."""
        start = KeyStart(self, thing, next(self._numbers), is_keyed)
        self._starts.setdefault(thing, deque()).append(start)
        if is_keyed:
            self._running.setdefault(thing, {})[start.number] = start
        return start

    def come_back(self, start: KeyStart) -> None:
        """Insert *start* again, before all later starts."""
        starts = self._starts.setdefault(start.thing, deque())
        if start in starts:
            return
        earlier = sum(each.number < start.number for each in starts)
        starts.insert(earlier, start)

    def has_unkeyed_before(self, start: KeyStart) -> bool:
        """Return whether a write without a key to the thing of *start* has started before, and runs."""
        return any(
            each.number < start.number and not each.is_keyed
            for each in self._starts.get(start.thing, ())
        )

    async def until_first(self, start: KeyStart) -> None:
        """Wait until *start* is the first of its thing, or *is_found*, unless *start* has left."""
        starts = self._starts.get(start.thing)
        if starts is None or start not in starts:
            return
        if starts[0] is start or start.is_found:
            return
        start.is_first = asyncio.get_running_loop().create_future()
        await start.is_first

    async def until_keys_ended(self, start: KeyStart) -> None:
        """
        Wait until the keyed runs for the thing of *start* that have started before it have ended.

        The writes that wait so go on in the order in which they came here, also before one that comes just as
        the last of those runs has ended, and need not wait for that.
        """
        if start.thing not in self._running and start.thing not in self._first_waits:
            return  # no keyed run, and nobody who has waited for one: by far the most
        waits = self._first_waits.setdefault(start.thing, asyncio.Lock())
        async with waits:
            await self._until_ended_before(start)

    async def _until_ended_before(self, start: KeyStart) -> None:
        while running := self._running.get(start.thing):
            first = next(iter(running.values()))
            if first.number > start.number:
                return
            if first.is_over is None:
                first.is_over = asyncio.get_running_loop().create_future()
            await asyncio.shield(first.is_over)

    def leave(self, start: KeyStart) -> None:
        """Remove *start*."""
        starts = self._starts.get(start.thing)
        if starts is None or start not in starts:
            return
        starts.remove(start)
        if not starts:
            del self._starts[start.thing]
            return
        starts[0].wake()

    def end(self, start: KeyStart) -> None:
        """Note that the run of *start* has ended."""
        running = self._running.get(start.thing, {})
        running.pop(start.number, None)
        if not running:
            self._running.pop(start.thing, None)
        if start.is_over is not None and not start.is_over.done():
            start.is_over.set_result(None)
