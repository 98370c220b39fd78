"""One history: the processes of a program on a scripted loop, and a record of what each was told."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.conformance.reasons import Told
from invsvc_async.simulator.stores import Stores
from tests.exhaustive.batches.stage import FROZEN, BatchStage
from tests.interleavings.loop import START
from tests.interleavings.scene import Scene
from tests.interleavings.service import SERVER
from tests.walk.errors import SILENT_ERRORS
from tests.walk.journals import WalkDatabase, WalkFile
from tests.walk.loop import WalkLoop
from tests.walk.process import Process
from tests.walk.program import Life, Program, offset
from tests.walk.service import WalkService
from tests.walk.signals import Signal, SoftLimitError
from tests.walk.uses import USES, Heard
from tests.walk.wire import Fates, WalkWire, hook_id, made_by, seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.outcome import Outcome
    from tests.interleavings.execution import Member

# s that a transaction takes at least and at most, before and after its commit
QUICK = (0.0005, 0.004)
USUAL = 0.002  # s
SLOW = 1.2  # s
# Of an entry's states.
SENDING = 1
DONE = 2


@attrs.define(eq=False)
class WalkStage(BatchStage):
    """Where one program is played."""

    program: Program = attrs.field(kw_only=True)
    service: WalkService = attrs.field(init=False)
    lives: dict[str, Process] = attrs.field(factory=dict)
    asked: list[tuple[float, str, str]] = attrs.field(
        factory=list
    )  # when which process began a run of which key
    told: list[Heard] = attrs.field(factory=list)
    errors: list[tuple[str, str, Exception]] = attrs.field(
        factory=list
    )  # of which process, in the run of which key
    may_have_sent: dict[str, float] = attrs.field(
        factory=dict
    )  # what was being sent when its process was hit: when
    # when a process before the last one was hit, or was gone, whoever was told
    had_verdict: set[str] = attrs.field(factory=set)
    _chance: Random = attrs.field(factory=Random)
    _limited: set[asyncio.Task[Any] | None] = attrs.field(factory=set)

    @classmethod
    def of(cls, program: Program) -> WalkStage:
        """Return the stage of *program*."""
        fates = Fates(program)
        scene = Scene(name="walk", play=lambda stage: stage.begin(), reads=fates.READS)
        return cls(scene, fates, program=program)  # type: ignore[arg-type]

    def __attrs_post_init__(self) -> None:
        program = self.program
        self.loop = WalkLoop(self.schedule, program.order, self._before_step)
        stores = Stores.parse(program.stores or "none")
        self.service = WalkService(
            self.loop, {}, self.scene.reads, stores=stores, seed=program.order
        )
        self.by_journal = True
        self._chance = Random(program.jitter)

    # --- its world

    def open_journal(self) -> WalkFile | WalkDatabase:
        kind = USES[self.program.use].kind
        return (
            WalkDatabase(self, kind)
            if self.program.journal == "database"
            else WalkFile(kind)
        )

    def database_time(self) -> float:
        """Return the time of day of the database (s)."""
        now = self.loop.now
        return now + SERVER + offset(self.program.wall, now - START)

    def wall_time(self, process: str) -> float:
        """Return the time of day of a process (s)."""
        now, life = self.loop.now, self.lives.get(process)
        ahead = 0.0 if life is None else offset(life.life.wall, now - START)
        return now + SERVER + ahead

    def transaction(self, run: str) -> tuple[float, float, bool]:
        """Return how long a transaction takes before and after its commit, and whether its reply is lost."""
        process = self.lives[run.partition("/")[0]]
        number, process.transactions = process.transactions, process.transactions + 1
        before, after = USUAL, USUAL
        if self.program.jitter:
            before, after = self._chance.uniform(*QUICK), self._chance.uniform(*QUICK)
        if number in process.life.slow:
            after = SLOW
        return before, after, number in process.life.lost

    # --- its course

    async def begin(self) -> None:
        """Store the things, and begin the lives that wait for none."""
        seed(self.service, self.program)
        for number, write in enumerate(self.program.writes, 1):
            self.ranks[write.key] = number
            if write.kind == "remove":
                self.removers[f"/webhooks/{hook_id(write.thing)}"] = write.key
        for life in self.program.lives:
            if not life.after:
                self._later(life)

    def _later(self, life: Life) -> None:
        self.loop.call_later(life.gap, self._start, life, context=Context())

    def _start(self, life: Life) -> None:
        process = self.lives[life.name] = Process(life, self.loop.now)
        process.use = USES[self.program.use].of(self, process)
        if life.end is not None and life.end.how == "raise":
            self.loop.signals[life.name] = Signal.of(life.end)
        elif life.end is not None and life.end.step is None:
            self.loop.call_later(life.end.at, self._hit, process, context=Context())
        process.main = self.start(f"{life.name}/run", self._live(process))

    def member(self, life: Life, **how: Any) -> Member:
        """Return the client of a process."""
        member = self.client(
            life.name, program=self.program.use, deadline=life.deadline, **how
        )
        wire = WalkWire(self.service, life.name)
        wire.stage = self
        member.wire = wire
        member.state.transport, member.state.random, member.state.on_secret = (
            wire,
            _half,
            _nothing,
        )
        return member

    def _before_step(self, name: str, steps: int) -> bool:
        """End a process before its next step, if its program says so."""
        process = self.lives.get(name)
        if process is None or process.hit is not None or process.ended is not None:
            return False
        end = process.life.end
        if end is None or end.how == "raise" or end.step is None or steps < end.step:
            return False
        self._hit(process)
        return True

    # --- one process

    async def _live(self, process: Process) -> None:
        try:
            await process.use.live(process)
        except SoftLimitError:
            self._note_hit(process)
        except asyncio.CancelledError:
            if process.hit is None:
                raise
        except SILENT_ERRORS as error:
            self.note_error(process, "", error)
        self._over(process)

    def made(self, process: Process, key: str) -> Any:  # Any: of any operation
        """Return the write under *key*, as *process* makes it."""
        return made_by(process.member, self.program, self.program.write(key)).keyed(key)

    def unsettled(self, process: Process) -> list[str]:
        """Return which of the keys of *process* have no verdict that another run would leave as it is."""
        last = {told.writer: told for told in self.told}
        return [
            key
            for key in process.life.keys
            if key not in last or not last[key].is_settled
        ]

    @contextmanager
    def limited(self, process: Process, key: str) -> Iterator[None]:
        """Cancel the block, which is a run of *key*, as a time limit does, if the program says so."""
        task = asyncio.current_task()
        assert task is not None
        limits = [at for limited, at in process.life.cancels if limited == key]
        timers = [
            self.loop.call_later(at, self._limit, process, task, context=Context())
            for at in limits
        ]
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._limited or process.hit is not None:
                raise
            task.uncancel()
        finally:
            self._limited.discard(task)
            for timer in timers:
                timer.cancel()

    def _limit(self, process: Process, task: asyncio.Task[Any]) -> None:
        if process.hit is None and not task.done():
            self._limited.add(task)
            task.cancel()

    # --- what is noted

    def note_asked(self, process: Process, key: str) -> float:
        """Note that *process* begins a run of *key*; return when."""
        self.asked.append((self.loop.now, process.name, key))
        return self.loop.now

    def note_error(self, process: Process, key: str, error: Exception) -> None:
        """Note that a run, or all of *process*, failed."""
        self.errors.append((process.name, key, error))

    def note_outcome(
        self, process: Process, key: str, begun: float, outcome: Outcome[Any]
    ) -> None:
        """Note what *process* was told of *key*."""
        self.told.append(
            Heard(key, process.name, begun, Told.of(outcome, at=self.loop.now))
        )

    def note_result(self, process: Process, begun: float, result: Result) -> None:
        """Note a result of a batch, which *process* was given."""
        self.told.append(
            Heard(
                result.key,
                process.name,
                begun,
                Told.of_result(result, at=self.loop.now),
            )
        )

    # --- ends from outside

    def _hit(self, process: Process) -> None:
        """End *process* as its program says."""
        if process.hit is not None or process.ended is not None:
            return
        self._note_hit(process)
        end = process.life.end
        assert end is not None
        match end.how:
            case "kill":
                self.kill_life(process)
            case "cancel":
                assert process.main is not None
                process.main.cancel()
            case "close":
                self.start(f"{process.name}/close", self._close(process))
            case "drop":
                self._drop(process)
            case "freeze":
                run = f"{process.name}/run"
                self.loop.freeze(run)
                self.loop.call_later(FROZEN, self.loop.thaw, run, context=Context())

    def _note_hit(self, process: Process) -> None:
        process.hit = self.loop.now
        states = self._states_of_keys()
        process.claimed = frozenset(states)
        for key, state in states.items():
            if state == SENDING:
                self.may_have_sent.setdefault(key, self.loop.now)
        self._note_verdicts(states)

    def _states_of_keys(self) -> dict[str, int]:
        rows = self.journal.fetch("SELECT key, state FROM {s}entries")
        return {self._key_of(name): state for name, state in rows}

    def _note_verdicts(self, states: Mapping[str, int]) -> None:
        self.had_verdict.update(key for key, state in states.items() if state == DONE)

    async def _close(self, process: Process) -> None:
        with suppress(*SILENT_ERRORS):
            await process.use.close()

    def _drop(self, process: Process) -> None:
        """Cancel all tasks of *process*, as the end of an event loop does; then it is gone."""
        for run, task in self.loop.tasks:
            if run.startswith(f"{process.name}/") and not task.done():
                task.cancel()
        self.loop.call_later(0.5, self.kill_life, process, context=Context())

    def kill_life(self, process: Process) -> None:
        """Kill *process*."""
        if process.ended is None:
            self.killed_at[process.name] = self.loop.now
            self._over(process)

    def _over(self, process: Process) -> None:
        """Let *process* be gone: none of its tasks takes another step, and its files are closed."""
        if process.ended is not None:
            return
        process.ended = self.loop.now
        self.loop.dead |= {
            run for run, _ in self.loop.tasks if run.startswith(f"{process.name}/")
        }
        process.use.drop()
        is_last = process.life is self.program.lives[-1]
        if not is_last:
            self._note_verdicts(self._states_of_keys())
        for number, sent in enumerate(self.service.sends):
            if sent.client == process.name:
                self.service.end(number)
        over = {name for name, each in self.lives.items() if each.ended is not None}
        for life in self.program.lives:
            if (
                life.after
                and process.name in life.after
                and over.issuperset(life.after)
            ):
                self._later(life)

    # --- its end

    def play(self) -> None:
        """Play the program to its end, then read the journal."""
        self.journal = self.open_journal()
        try:
            try:
                super(BatchStage, self).play()
            finally:
                for name in self.lives:
                    self._bury(name)
            for process in self.lives.values():
                if process.ended is None:
                    process.use.drop()
            self.states = self._read()
        finally:
            self.journal.close()

    def _read(self) -> dict[str, tuple[str, str | None]]:
        rows = self.journal.fetch("SELECT key, state, verdict, place FROM {s}entries")
        self.places = {self._key_of(name): place for name, _, _, place in rows}
        return {
            self._key_of(name): (state, verdict) for name, state, verdict, _ in rows
        }

    def _key_of(self, name: str) -> str:
        return USES[self.program.use].key_of(name)


def _half() -> float:
    return 0.5


def _nothing(*_: object) -> None:
    """Do nothing."""
