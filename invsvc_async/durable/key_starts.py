"""
The order in which runs of keys start in one process.

Keys of one thing are claimed in the order in which their runs have started, whatever each of them has to look
up before: the namespace of its key, or a token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count

import attrs


@attrs.define(eq=False)
class KeyStart:
    """The start of a run, from the first step until the key is claimed, or its entry is found."""

    order: StartOrder
    thing: str
    number: int  # in the order of starts
    # done once this start is the first; None: nobody waits for that
    is_first: asyncio.Future[None] | None = None

    def leave(self) -> None:
        """Allow the next start to go on. It may be called again."""
        self.order.leave(self)

    def come_back(self) -> None:
        """Return to the old place among the starts: the run claims the key after all."""
        self.order.come_back(self)


class StartOrder:
    """The starts of runs in this process, by thing, until their keys are claimed."""

    def __init__(self) -> None:
        self._starts: dict[str, deque[KeyStart]] = {}
        self._numbers = count(1)

    def enter(self, thing: str) -> KeyStart:
        """Note that a run for *thing* starts."""
        start = KeyStart(self, thing, next(self._numbers))
        self._starts.setdefault(thing, deque()).append(start)
        return start

    def come_back(self, start: KeyStart) -> None:
        """Insert *start* again, before all later starts."""
        starts = self._starts.setdefault(start.thing, deque())
        earlier = sum(each.number < start.number for each in starts)
        starts.insert(earlier, start)

    async def until_first(self, start: KeyStart) -> None:
        """Wait until *start* is the first of its thing, unless *start* has left."""
        starts = self._starts.get(start.thing)
        if starts is None or start not in starts:
            return
        if starts[0] is start:
            return
        start.is_first = asyncio.get_running_loop().create_future()
        await start.is_first

    def leave(self, start: KeyStart) -> None:
        """Remove *start*."""
        starts = self._starts.get(start.thing)
        if starts is None or start not in starts:
            return
        starts.remove(start)
        if not starts:
            del self._starts[start.thing]
            return
        waiting = starts[0].is_first
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
