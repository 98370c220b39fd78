"""One history: the processes of a program on a scripted loop, and a record of what each was told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.tables import Opening
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.history import Verdict
from tests.exhaustive.batches.stage import BatchStage, Told
from tests.interleavings.execution import Member
from tests.interleavings.loop import START
from tests.interleavings.scene import Scene
from tests.interleavings.service import SERVER, Service
from tests.walk.journals import WalkDatabase, WalkFile, client_journal
from tests.walk.loop import WalkLoop
from tests.walk.program import Life, Program, offset
from tests.walk.signals import Signal, SoftLimitError
from tests.walk.wire import Fates, WalkWire, hook_id, made_by, seed

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from invsvc_async.reconcile.outcome import Outcome

QUICK = (0.0005, 0.004)  # s that a transaction takes at least and at most, before and after its commit
USUAL = 0.002  # s
SLOW = 1.2  # s
AN_HOUR = 3600.0  # s
ROUNDS = 4  # how often the last process runs what has no final verdict
SILENT_ERRORS = (ConfigurationError, JournalError)
_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)


@attrs.define(eq=False)
class Process:
    """One process of a program."""

    life: Life
    member: Member
    store: Any
    begun: float
    ended: float | None = None  # when nothing of it runs any more
    hit: float | None = None  # when its end came from outside
    main: asyncio.Task[Any] | None = None
    transactions: int = 0
    claimed: frozenset[str] | None = None  # the keys in the journal when it was hit

    @property
    def name(self) -> str:
        return self.life.name


@attrs.define(eq=False)
class WalkStage(BatchStage):
    """Where one program is played."""

    program: Program = attrs.field(kw_only=True)
    lives: dict[str, Process] = attrs.field(factory=dict)
    asked: list[tuple[float, str, str]] = attrs.field(factory=list)  # when which process began a run of which key
    errors: list[tuple[str, str, Exception]] = attrs.field(factory=list)  # of which process, in the run of which key
    may_have_sent: set[str] = attrs.field(factory=set)  # keys that were being sent when their process was hit
    pruned: list[tuple[str, int]] = attrs.field(factory=list)
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
        self.service = Service(self.loop, {}, self.scene.reads)
        self.by_journal = True
        self._chance = Random(program.jitter)

    # --- its world

    def open_journal(self) -> WalkFile | WalkDatabase:
        kind = {"keys": "journal"}.get(self.program.use, self.program.use)
        return WalkDatabase(self, kind) if self.program.journal == "database" else WalkFile(self)

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
        seed(self.service)
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
        run = f"{life.name}/run"
        how = Opening("journal")
        store = self.journal.store(run, how)
        journal = client_journal(store)
        member = self.client(life.name, program="keys", journal=journal, deadline=life.deadline)  # type: ignore[arg-type]
        wire = WalkWire(self.service, life.name)
        wire.stage = self
        member.wire = wire
        member.state.transport, member.state.random, member.state.on_secret = wire, _half, _nothing
        process = self.lives[life.name] = Process(life, member, store, self.loop.now)
        if life.end is not None and life.end.how == "raise":
            self.loop.signals[life.name] = Signal(life.end.file, life.end.step or 1)
        elif life.end is not None and life.end.step is None:
            self.loop.call_later(life.end.at, self._hit, process, context=Context())
        process.main = self.start(run, self._live(process))

    def start(self, name: str, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a run of a process, in a context of its own."""
        return super().start(name, run)

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
            async with process.member.client:
                await self._work(process)
        except SoftLimitError:
            self._note_hit(process)
        except asyncio.CancelledError:
            if process.hit is None:
                raise
        except SILENT_ERRORS as error:
            self.errors.append((process.name, "", error))
        self._over(process)

    async def _work(self, process: Process) -> None:
        life = process.life
        if life.prunes is not None:
            self.start(f"{life.name}/prune", self._prune(process, life.prunes))
        keys = list(life.keys)
        rounds = ROUNDS if life.name == "last" else 1
        for _ in range(rounds):
            if not keys:
                return
            await self._round(process, keys)
            told = {told.writer: told.outcome for told in self.heard if told.client == life.name}
            keys = [key for key in keys if key not in told or not _is_settled(told[key])]

    async def _round(self, process: Process, keys: list[str]) -> None:
        how = process.life.how
        if how == "one by one":
            for key in keys:
                await self._run(process, key)
            return
        tasks = []
        try:
            for key in keys:
                tasks.append(asyncio.create_task(self._run(process, key)))
                if how == "apart":
                    await asyncio.sleep(0.05)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _run(self, process: Process, key: str) -> None:
        """Run the write under *key*, and note what it was told."""
        task, life = asyncio.current_task(), process.life
        for cancelled, at in life.cancels:
            if cancelled == key and task is not None:
                self.loop.call_later(at, self._limit, process, task, context=Context())
        begun = self.loop.now
        write = made_by(process.member, self.program.write(key)).keyed(key)
        self.asked.append((begun, process.name, key))
        try:
            outcome: Outcome[Any] = await write.outcome()
        except SILENT_ERRORS as error:
            self.errors.append((process.name, key, error))
            return
        except asyncio.CancelledError:
            if task not in self._limited or process.hit is not None:
                raise
            return
        self.heard.append(Told(key, "keyed", process.name, begun, self.loop.now, outcome))  # type: ignore[arg-type]

    def _limit(self, process: Process, task: asyncio.Task[Any]) -> None:
        """Cancel one run of a key, as a time limit does."""
        if process.hit is None and not task.done():
            self._limited.add(task)
            task.cancel()

    async def _prune(self, process: Process, at: float) -> None:
        await asyncio.sleep(at)
        with suppress(*SILENT_ERRORS):
            self.pruned.append((process.name, await process.member.client.prune(AN_HOUR)))

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

    def _note_hit(self, process: Process) -> None:
        process.hit = self.loop.now
        rows = self.journal.fetch("SELECT key, state FROM {s}entries")
        process.claimed = frozenset(key_in(key) for key, _ in rows)
        self.may_have_sent |= {key_in(key) for key, state in rows if state == 1}

    async def _close(self, process: Process) -> None:
        with suppress(*SILENT_ERRORS):
            await process.member.client.aclose()

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
        self.loop.dead |= {run for run, _ in self.loop.tasks if run.startswith(f"{process.name}/")}
        process.store.drop()
        for number, sent in enumerate(self.service.sends):
            if sent.client == process.name:
                self.service.end(number)
        over = {name for name, each in self.lives.items() if each.ended is not None}
        for life in self.program.lives:
            if life.after and process.name in life.after and over.issuperset(life.after):
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
                    process.store.drop()
            self.states = self._read()
        finally:
            self.journal.close()

    def _read(self) -> dict[str, tuple[str, str | None]]:
        rows = self.journal.fetch("SELECT key, state, verdict, place FROM {s}entries")
        self.places = {key_in(key): place for key, _, _, place in rows}
        return {key_in(key): (state, verdict) for key, state, verdict, _ in rows}


def _is_settled(outcome: Outcome[Any]) -> bool:
    """Return whether another run under the key would change nothing."""
    return outcome.verdict in _FINAL or outcome.evidence.cause in ("overtaken", "perhaps overtaken")


def _half() -> float:
    return 0.5


def _nothing(*_: object) -> None:
    """Do nothing."""



