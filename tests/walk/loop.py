"""The loop of all processes of a history: virtual time, an order from a seed, and events between two steps."""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from tests.exhaustive.batches.loop import FreezingLoop
from tests.interleavings.loop import START, Stuck, run_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.interleavings.schedule import Schedule
    from tests.walk.signals import Signal

MOST_TIME = 600.0  # virtual s: whatever is not over by then is stuck
MOST_STEPS = 60_000
OTHERS_FIRST = 0.25  # how often a task that is not the first goes on
_TIE = 1e-9  # s


class WalkLoop(FreezingLoop):
    """
    Runs callbacks in the order of asyncio within each process; between processes, as the seed says.

    *before_step* is called with a process's name and how many steps it has made; it returns whether something
    happened instead of the step.
    """

    def __init__(
        self, schedule: Schedule, order: int, before_step: Callable[[str, int], bool]
    ) -> None:
        super().__init__(schedule, lambda _: False)
        self._chance = Random(order) if order else None
        self._before_step = before_step
        self.steps: Counter[str] = Counter()  # by process
        self.signals: dict[str, Signal] = {}  # by process: what is to be raised in it
        self.made = 0
        self._looked_at = -1  # the step that was being made when a timer last looked
        self.is_overdue = False  # a step was interrupted, because it did not end

    def run(self) -> None:
        """Run until nothing is left to do, or what is left is not over in time."""
        super().run()
        if self.made >= MOST_STEPS:
            raise Stuck(
                f"still busy after {MOST_STEPS} steps, at {self.now - START:.3f} s"
            )

    def _step(self) -> bool:
        ready = self._ready = [
            each for each in self._ready if not each.cancelled() and self._lives(each)
        ]
        if self._frozen:
            ready = self._thawed()
        if not ready:
            return self._jump()
        place = 0
        if (
            self._chance is not None
            and len(ready) > 1
            and self._chance.random() < OTHERS_FIRST
        ):
            place = self._another()
        handle = ready[place]
        process = run_of(handle).partition("/")[0]
        if self._before_step(process, self.steps[process]):
            return True
        self.steps[process] += 1
        self.made += 1
        del ready[place]
        self._do(handle, process)
        if self.is_overdue:
            raise Stuck(f"a step of {process} at {self.now - START:.3f} s never ends")
        return self.made < MOST_STEPS

    def interrupt_step(self, *_: object) -> None:
        """Interrupt the step that is being made, if it was when this was called before: a handler of signals."""
        if self._looked_at == self.made:
            self.is_overdue = True
            raise Stuck
        self._looked_at = self.made

    def _thawed(self) -> list[asyncio.Handle]:
        """Put aside the steps of frozen runs; return the others."""
        ready = []
        for handle in self._ready:
            self._frozen.get(run_of(handle), ready).append(handle)
        self._ready = ready
        return ready

    def _do(self, handle: asyncio.Handle, process: str) -> None:
        signal = self.signals.get(process) if self.signals else None
        if signal is None or signal.is_over:
            handle._run()
            return
        sys.settrace(signal)
        try:
            handle._run()
        finally:
            sys.settrace(None)

    def _another(self) -> int:
        """Return the first step of a process that is not the first one."""
        firsts: dict[str, int] = {}
        for place, handle in enumerate(self._ready):
            firsts.setdefault(run_of(handle).partition("/")[0], place)
        assert self._chance is not None
        return self._chance.choice([*firsts.values()])

    def _jump(self) -> bool:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or not self._lives(timers[0][2])):
            heapq.heappop(timers)
        if not timers or timers[0][0] > START + MOST_TIME:
            return False
        self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now + _TIE:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled() and self._lives(handle):
                self._ready.append(handle)
        return True
