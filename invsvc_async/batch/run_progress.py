"""The progress of a run: told to the application, and noted in the store for people who watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from invsvc_async.batch.limit import limit_in, pause_in, settling_in
from invsvc_async.batch.result import Progress
from invsvc_async.batch.run_status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.run_input import RunInput
    from invsvc_async.reconcile.history import Verdict


_TICK = 0.2  # s between reports of progress
_NOTED = 5  # ticks between notes of the status


class RunProgress:
    """
    The progress of a run, which goes through these phases: it has not begun, it runs, it has ended.

    While it runs, *on_progress* is told of it several times a second, and what limits it is noted in the
    store. A run that is stopped before it begins has ended at once.
    """

    def __init__(
        self,
        engine: Engine,
        entries: BatchEntries,
        run_input: RunInput,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._engine = engine
        self._entries = entries
        self._run_input = run_input
        self._on_progress = on_progress
        self._ticking: asyncio.TimerHandle  # set once the run has begun
        self._began = 0.0  # loop time
        self._over = 0.0  # loop time; 0: not yet
        self._status: Status | None = None  # ``None`` until the run has begun
        self._limited = 0  # ticks at which something limited the run
        self._verdicts: Counter[Verdict] = Counter()
        # Nothing is under way, and nothing will be. Results may be left.
        self.has_ended: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether the run has begun, and perhaps ended."""
        return self._status is not None

    @property
    def is_running(self) -> bool:
        """Whether the run has begun and not ended."""
        return self.has_begun and not self.has_ended

    def now(self) -> Progress:
        """Return the progress."""
        done = self._verdicts.total()
        engine = self._engine
        now = self._over or asyncio.get_running_loop().time()
        seconds = now - self._began if self._began else 0.0
        paused = next_probe = limited_by = None
        if self.is_running:
            paused, next_probe = pause_in(engine)
            limited_by = limit_in(engine)
        return Progress(
            done=done,
            skipped=self._run_input.skipped,
            under_way=len(engine.open_work),
            settling=settling_in(engine),
            rate=done / seconds if seconds else 0.0,
            seconds=seconds,
            verdicts=dict(self._verdicts),
            paused=paused,
            next_probe=next_probe,
            limited_by=limited_by,
        )

    # --- phases

    def start(self) -> None:
        """Note that the run has begun, and report from now on."""
        self._began = asyncio.get_running_loop().time()
        self._status = Status.of_this_process()
        self._status.store(self._entries, self.now())
        self._tick(self._status)

    def end(self) -> None:
        """Note that the run has ended: nothing of it is under way, and nothing will be."""
        if self._status is None or self.has_ended:
            self.has_ended = True
            return
        self.has_ended = True
        self._over = asyncio.get_running_loop().time()
        self._ticking.cancel()
        self._status.store(self._entries, self.now(), ended=True)

    def give_up(self) -> None:
        """Note that the run has ended without a report: the reading of results failed, or was cancelled."""
        self.has_ended = True

    # --- while it runs

    def count(self, verdict: Verdict) -> None:
        """Count a result of this run that is given."""
        self._verdicts[verdict] += 1

    def report(self) -> None:
        """Call ``on_progress``, if there is one."""
        self._engine.sending.core.tell(self._on_progress, self.now())

    def _tick(self, status: Status) -> None:
        if self._on_progress is not None:
            self.report()
        engine = self._engine
        if (paused := pause_in(engine)[0]) is not None:
            status.note_pause(paused)
        if engine.items and (limit := limit_in(engine)) is not None:
            name = limit.partition(":")[0]
            status.seconds[name] = round(status.seconds.get(name, 0.0) + _TICK, 1)
            self._limited += 1
            is_first_of_several = self._limited % _NOTED == 1
            if is_first_of_several:
                status.store(self._entries, self.now())
        self._ticking = asyncio.get_running_loop().call_later(_TICK, self._tick, status)
