"""A scripted loop whose runs can also be frozen: they take no step until they are thawed."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from tests.interleavings.loop import START, ScriptedLoop, run_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.interleavings.schedule import Schedule

MOST_TIME = 240.0  # virtual s: whatever is not over by then is stuck


class FreezingLoop(ScriptedLoop):
    """The loop of all processes of a scene. A process stops at once when it is killed or frozen."""

    def __init__(self, schedule: Schedule, pauses: Callable[[bool], bool]) -> None:
        super().__init__(schedule, pauses)
        # by run: what it has to do once it is thawed
        self._frozen: dict[str, list[asyncio.Handle]] = {}

    def freeze(self, run: str) -> None:
        self._frozen.setdefault(run, [])

    def thaw(self, run: str) -> None:
        """Continue *run*, after everything that became due meanwhile."""
        self._ready += self._frozen.pop(run, [])

    def run_in_executor(
        self, _executor: object, function: Callable[..., object], *args: object
    ) -> asyncio.Future[Any]:
        """Run *function* at once: what a thread does is a part of the step."""
        done = self.create_future()
        done.set_result(function(*args))
        return done

    def _step(self) -> bool:
        if self._frozen:
            for handle in self._ready:
                if run_of(handle) in self._frozen:
                    self._frozen[run_of(handle)].append(handle)
            self._ready = [
                each for each in self._ready if run_of(each) not in self._frozen
            ]
        return super()._step()

    def _jump(self) -> bool:
        if self.now > START + MOST_TIME:
            return False
        return super()._jump()

    def left(self) -> list[Any]:
        """Return the timers that are still to come."""
        return [
            each
            for _, _, each in heapq.nsmallest(9, self._timers)
            if not each.cancelled()
        ]
