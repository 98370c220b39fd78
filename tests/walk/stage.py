"""One history: the processes of a program on a scripted loop, and a record of what each was told."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import contextmanager, suppress
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.conformance.reasons import Told
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator.stores import Stores
from tests.exhaustive.batches.stage import FROZEN, BatchStage
from tests.interleavings.loop import START
from tests.interleavings.scene import Scene
from tests.interleavings.service import LONG, SERVER, SHORT
from tests.walk.errors import SILENT_ERRORS
from tests.walk.heard import Heard
from tests.walk.journals import WalkDatabase, WalkFile
from tests.walk.loop import WalkLoop
from tests.walk.person import Person
from tests.walk.process import Due, Process
from tests.walk.program import Life, Program, offset
from tests.walk.service import WalkService
from tests.walk.signals import Signal, SoftLimitError, no_signal
from tests.walk.uses import USES
from tests.walk.wire import (
    TEAM,
    Fates,
    WalkWire,
    hook_id,
    is_refused,
    made_by,
    reader_of,
    seed,
    writer_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from tests.interleavings.execution import Member
    from tests.interleavings.service import Sent
    from tests.walk.program import Cut

# s that a transaction takes at least and at most, before and after its commit
QUICK = (0.0005, 0.004)
USUAL = 0.002  # s
SLOW = 1.2  # s
OF_NO_TEAM = "abcdefghij"  # a key that does not say of which team it is
_CLAIMS = base64.urlsafe_b64encode(json.dumps({"team": TEAM}).encode())
OF_TEAM = f"e30.{_CLAIMS.decode().rstrip('=')}.signature"
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
    retried: list[tuple[float, str, str]] = attrs.field(
        factory=list
    )  # when which process marked which key as to be done again
    told: list[Heard] = attrs.field(factory=list)
    # what persons have found; each as if its person had been told of it when it was stored
    found: list[Heard] = attrs.field(factory=list)
    # when a finding was stored last, by run
    found_at: dict[str, float] = attrs.field(factory=dict)
    # what a person perhaps has found: the reply to that was not heard
    perhaps_found: set[str] = attrs.field(factory=set)
    errors: list[tuple[str, str, Exception]] = attrs.field(
        factory=list
    )  # of which process, in the run of which key
    may_have_sent: dict[str, float] = attrs.field(
        factory=dict
    )  # what was being sent when its process was hit: when
    # when a process before the last one was hit, or was gone, whoever was told
    had_verdict: set[str] = attrs.field(factory=set)
    # by the identity of an intent without a key
    writers: dict[str, str] = attrs.field(factory=dict)
    # what clients had left open at the end of their processes, by writer
    handed: dict[str, Intent] = attrs.field(factory=dict)
    # the writes that the journal has at the end
    stored_at_end: dict[str, int] = attrs.field(factory=dict)
    # of writes without a key beside others: the numbers of their entries, which are deleted
    numbers: dict[str, int] = attrs.field(factory=dict)
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
            self.loop,
            {},
            self.scene.reads,
            stores=stores,
            seed=program.order,
            windows={life.name: life.windows for life in program.lives},
            edits=program.edits,
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

    def due_time(self, process: Process, key: str) -> int | None:
        """Return when the write *key*, which *process* enqueues now, is due (epoch ms); ``None``: at once."""
        due = self.program.write(key).due
        if not due:
            return None
        is_shared = self.program.journal == "database"
        now = self.database_time() if is_shared else self.wall_time(process.name)
        return int((now + due) * 1000)

    def transaction(self, run: str) -> tuple[float, float, bool]:
        """Return how long a transaction takes before and after its commit, and whether its reply is lost."""
        self.before_commit(run)
        process = self.lives[run.partition("/")[0]]
        number, process.transactions = process.transactions, process.transactions + 1
        before, after = USUAL, USUAL
        if self.program.jitter:
            before, after = self._chance.uniform(*QUICK), self._chance.uniform(*QUICK)
        if number in process.life.slow:
            after = SLOW
        return before, after, number in process.life.lost

    def before_commit(self, run: str) -> None:
        """Let happen what is due before a commit of a process."""
        process = self.lives.get(run.partition("/")[0])
        if process is None:
            return  # the history is over
        process.commits += 1
        if process.hit is None:
            process.happen("commit", process.commits)

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
        use = Person if life.looks else USES[self.program.use]
        process.use = use.of(self, process)
        if life.end is not None and life.end.how == "raise":
            self.loop.signals[life.name] = Signal.of(life.end)
        elif life.end is not None and life.end.step is None:
            self.loop.call_later(life.end.at, self._hit, process, context=Context())
        process.main = self.start(f"{life.name}/run", self._live(process))

    def member(self, life: Life, **how: Any) -> Member:
        """Return the client of a process."""
        member = self.client(
            life.name,
            program=self.program.use,
            deadline=life.deadline,
            wait_when_limited=life.waits,
            api_key=OF_TEAM if self.program.names_team else OF_NO_TEAM,
            settle_after_error=SHORT * life.windows,
            settle_after_loss=LONG * life.windows,
            **how,
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
        process.happen("step", steps)
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
        write = self.made_without_key(process, key)
        return write if self.program.is_without_key(key) else write.keyed(key)

    # Any: as in made
    def made_without_key(self, process: Process, key: str) -> Any:
        """Return the write that the program calls *key*, without a key of its own."""
        client = process.member.client
        if process.life.names_team:
            client = client.for_team(TEAM)
        return made_by(client, self.program, self.program.write(key))

    def reader_of(self, key: str) -> Any:  # Any: of any operation
        """Return the reader of the write *key*, if it needs one."""
        return reader_of(self.program.write(key))

    def unsettled(self, process: Process) -> list[str]:
        """Return which of the keys of *process* have no verdict that another run would leave as it is."""
        last = {told.writer: told for told in self.told}
        return [
            key
            for key in process.life.keys
            if (key not in last or not last[key].is_settled)
            and not self.program.is_without_key(key)
        ]

    def has_verdict(self, key: str) -> bool:
        """Return whether somebody was told what became of the write *key*."""
        return any(
            told.writer == key and told.verdict is not Verdict.UNKNOWN
            for told in (*self.told, *self.found)
        )

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

    @contextmanager
    def cut_short(self, process: Process, cut: Cut | None) -> Iterator[list[float]]:
        """
        Cancel the block, which is an await, as *cut* says; the block yields when, once that has happened.

        The task of the block goes on after it.
        """
        task = asyncio.current_task()
        assert task is not None
        cancelled: list[float] = []

        def cancel() -> None:
            if process.hit is None and not task.done() and not cancelled:
                cancelled.append(self.loop.now)
                task.cancel()

        withdraw = self._when(process, cut, cancel)
        try:
            yield cancelled
        except asyncio.CancelledError:
            if not cancelled or task.uncancel():
                raise
        finally:
            withdraw()

    async def until_not_cut(
        self, process: Process, key: str, act: Callable[[], Awaitable[None]]
    ) -> None:
        """Await what *act* makes, again after each cut of *key* that has cancelled it."""
        for cut in process.cuts(key):
            with self.cut_short(process, cut) as cancelled:
                await act()
            if not cancelled:
                return
            await asyncio.sleep(0.0 if cut is None else cut.pause)

    def _when(
        self, process: Process, cut: Cut | None, act: Callable[[], None]
    ) -> Callable[[], None]:
        """Call *act* when *cut* says so; return what withdraws that."""
        if cut is None:
            return _nothing
        if cut.step is not None:
            due = Due("step", self.loop.steps[process.name] + cut.step, act)
        elif cut.commit is not None:
            due = Due("commit", process.commits + cut.commit, act)
        else:
            return self.loop.call_later(cut.at, act, context=Context()).cancel
        process.due.append(due)
        return lambda: process.due.remove(due) if due in process.due else None

    # --- what is noted

    def note_asked(self, process: Process, key: str) -> float:
        """Note that *process* begins a run of *key*; return when."""
        self.asked.append((self.loop.now, process.name, key))
        return self.loop.now

    def note_retried(self, process: Process, keys: Iterable[str]) -> None:
        """Note that *process* marks *keys* as to be done again."""
        self.retried += [(self.loop.now, process.name, key) for key in keys]

    def note_error(self, process: Process, key: str, error: Exception) -> None:
        """Note that a run, or all of *process*, failed."""
        self.errors.append((process.name, key, error))

    def note_outcome(
        self,
        process: Process,
        key: str,
        begun: float,
        outcome: Outcome[Any],
        *,
        sender: str = "",
    ) -> None:
        """Note what *process* was told of *key*, by settling it if it had a *sender* then."""
        told = Told.of(outcome, at=self.loop.now)
        self._note_told(Heard(key, process.name, begun, told, sender=sender))

    def note_result(self, process: Process, begun: float, result: Result) -> None:
        """Note a result of a batch, which *process* was given."""
        self._note_told(
            Heard(
                result.key,
                process.name,
                begun,
                Told.of_result(result, at=self.loop.now),
            )
        )

    def note_finding(self, process: str) -> None:
        """Note that a finding is stored now, through *process*, in which one person is at work."""
        self.found_at[process] = self.loop.now

    def note_perhaps_found(self, process: Process, key: str, begun: float) -> None:
        """Note that nobody has heard whether a finding about *key*, asked for at *begun*, is stored."""
        if self.found_at.get(process.name, -1.0) >= begun:
            self.perhaps_found.add(key)

    def note_found(self, process: Process, heard: Heard) -> None:
        """Note what a person has found, who is *process*, or has asked it."""
        told = attrs.evolve(heard.told, at=self.found_at[process.name])
        self.found.append(attrs.evolve(heard, told=told))
        if heard.writer in self.open_here(process):
            self.wrong.append(
                f"kept: {heard.writer} was resolved through {process.name}, which has it as unsettled"
            )

    def _note_told(self, heard: Heard) -> None:
        if heard.is_overtaken:
            # By what is stored as being sent: that may have left, also if it waits for the reply of the store.
            with no_signal():
                states = self.stored()
            sending = frozenset(
                key for key, state in states.items() if state == SENDING
            )
            heard = attrs.evolve(heard, being_sent=sending)
        self.told.append(heard)

    def note_number(self, writer: str) -> None:
        """Note the number of the entry of a write without a key, which is, or may have been, about to be sent."""
        if not self.program.is_without_key(writer):
            return
        # One that was cancelled before a byte of it left gets another number.
        was_sent = any(sent.writer == writer for sent in self.service.sends)
        if was_sent and writer in self.numbers:
            return
        with no_signal():
            rows = self.journal.fetch("SELECT key, seq FROM {s}entries")
        for name, number in rows:
            if self.key_of(name) == writer:
                self.numbers[writer] = number

    def note_intent(self, intent: Intent) -> None:
        """Note which write of the program *intent* is of."""
        self.writers[intent.identity] = self.writer_in(intent)

    def writer_in(self, intent: Intent) -> str:
        """Return which write of the program *intent* is of."""
        if isinstance(intent.body, dict):
            return writer_of(intent.body)
        return self.removers[f"/webhooks/{intent.path['id']}"]

    def open_here(self, process: Process) -> dict[str, Intent]:
        """Return the intents that the client of *process* has left open, by writer."""
        unsettled = process.member.client.unsettled
        return {self.writer_in(intent): intent for intent in unsettled}

    def stored(self) -> dict[str, int]:
        """Return the states of the writes that the journal has now."""
        rows = self.journal.fetch("SELECT key, state FROM {s}entries")
        return {self.key_of(name): state for name, state in rows}

    def judge_cut(self, process: Process, key: str, cancelled_at: float) -> None:
        """Judge what is kept of an await of the write *key* that was just cancelled."""
        if process.hit is not None or self.has_been_signalled(process):
            return
        if self.loop.now > cancelled_at:
            self.wrong.append(f"kept: the cancellation of {key} is not prompt")
        opened = self.open_here(process)
        may_have_effect = any(
            sent.writer == key and not is_refused(sent) for sent in self.service.sends
        )
        if may_have_effect and key not in opened and key not in self.stored():
            self.wrong.append(
                f"kept: {key} was sent, its await is cancelled by {process.name}, and nobody has its intent"
            )
        is_open_elsewhere = key in self.handed or key in self.may_have_sent
        if not may_have_effect and key in opened and not is_open_elsewhere:
            self.wrong.append(
                f"kept: nothing of {key} can have an effect, and {process.name} has it as unsettled"
            )

    def judge_told(self, process: Process, key: str, verdict: Verdict) -> None:
        """Judge what is kept of a write whose *verdict* was just told."""
        is_open = key in self.open_here(process)
        if is_open is not (verdict is Verdict.UNKNOWN):
            self.wrong.append(
                f"kept: {process.name} is told that {key} is {verdict}, and unsettled is {is_open}"
            )

    def has_been_signalled(self, process: Process) -> bool:
        """Return whether a signal handler has raised in *process*."""
        signal = self.loop.signals.get(process.name)
        return signal is not None and signal.is_over

    def knows_of(self, sent: Sent, writer: str, client: str) -> bool:
        """Return whether the process *client* has to know of *sent* when it sends *writer*."""
        are_keyed = self.program.use != "writes" and not any(
            map(self.program.is_without_key, (writer, sent.writer))
        )
        if are_keyed or client in (sent.client, "") or writer == sent.writer:
            return True
        lives = (self.lives[sent.client].life, self.lives[client].life)
        return self.program.journal == "file" and not any(life.bare for life in lives)

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
        states = self.stored()
        process.claimed = frozenset(states)
        self._note_sending(states)
        self._note_verdicts(states)

    def _note_sending(self, states: Mapping[str, int]) -> None:
        for key, state in states.items():
            if state == SENDING:
                self.may_have_sent.setdefault(key, self.loop.now)
                self.note_number(key)

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
        with no_signal():
            self._end(process)

    def _end(self, process: Process) -> None:
        if process.ended is not None:
            return
        process.ended = self.loop.now
        self.loop.dead |= {
            run for run, _ in self.loop.tasks if run.startswith(f"{process.name}/")
        }
        process.use.drop()
        is_last = process.life is self.program.lives[-1]
        if not is_last:
            states = self.stored()
            self._note_verdicts(states)
            if _may_have_stored_late(process.life):
                self._note_sending(states)
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
            self.stored_at_end = self.stored()
        finally:
            self.journal.close()

    def _read(self) -> dict[str, tuple[str, str | None]]:
        rows = self.journal.fetch("SELECT key, state, verdict, place FROM {s}entries")
        places = {self.key_of(name): place for name, _, _, place in rows}
        self.places = places | self.numbers
        return {self.key_of(name): (state, verdict) for name, state, verdict, _ in rows}

    def key_of(self, name: str) -> str:
        """Return which write of the program the entry *name* is of."""
        return self.writers.get(name) or USES[self.program.use].key_of(name)


def _half() -> float:
    return 0.5


def _nothing(*_: object) -> None:
    """Do nothing."""


def _may_have_stored_late(life: Life) -> bool:
    """
    Return whether a write may have been stored as about to be sent after *life* was hit, and so was not taken back.

    Its loop has ended while a commit was under way; or the database answered too late.
    """
    is_dropped = life.end is not None and life.end.how == "drop"
    return is_dropped or bool(life.slow or life.lost)
