"""
One execution of a scene of batches: processes that share a journal, and what happens to them.

What ships is real: ``Batch``, ``Run``, the dispatcher, the engine, the circuit breaker, both stores (SQLite and
PostgreSQL themselves), their scripts and leases, last writes, the driver and the rules of writes. Models are: the
service and the transport (as in ``tests/interleavings``), the clock, notifications, and the thread in which SQLite
commits.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from invsvc_async.batch import Batch
from invsvc_async.batch.sending import Sending
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.enums import End
from tests.exhaustive.batches.journals import SLOW, FileJournal, SharedJournal
from tests.exhaustive.batches.judge import broken
from tests.exhaustive.batches.loop import FreezingLoop
from tests.interleavings.actions import EVENTS, URL, change, rename
from tests.interleavings.execution import Member, Stage
from tests.interleavings.loop import RUN, START
from tests.interleavings.service import WRITER, Service, thing_of
from tests.interleavings.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from pathlib import Path

    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.history import Verdict
    from invsvc_async.transport.exchange import Exchange
    from tests.interleavings.service import Sent

Play: TypeAlias = "Callable[[BatchStage], Coroutine[Any, Any, None]]"
TRANSACTION = 0.004  # s
FROZEN = 30.0  # s
NOTED = 0.5  # s until the journal has noted that a result was taken


@attrs.frozen
class Told:
    """A result that a process was given."""

    writer: str
    how: str
    client: str
    begun: float
    at: float
    outcome: Result
    # the order of the writes at that moment
    ranks: dict[str, int] = attrs.field(factory=dict)

    @property
    def verdict(self) -> Verdict:
        """What became of the write."""
        return self.outcome.verdict


class BatchWire(Wire):
    """The transport of one process: what a request writes shows which write it is."""

    stage: BatchStage

    async def send(self, exchange: Exchange) -> Exchange:
        """Send as :class:`Wire` does, unless the service is away."""
        if self.stage.is_away:
            exchange.started = exchange.ended = self.service.loop.now
            exchange.end, exchange.error = End.NOT_SENT, ConnectionError("refused")
            return exchange
        return await super().send(exchange)

    async def _write(self, exchange: Exchange) -> None:
        stage, service = self.stage, self.service
        body = json.loads(exchange.content) if exchange.content else None
        path = exchange.url.path.removeprefix("/v2")
        writer = (
            stage.removers[path]
            if body is None
            else str(body.get("name") or body["description"]).split()[0]
        )
        WRITER.set(writer)
        stage.ranks_sent.append(stage.ranks[writer])
        before = len(service.sends)
        if writer in stage.tried and not any(
            sent.writer == writer for sent in service.sends
        ):
            # what did not leave is tried again and again
            service.fates[writer] = ("ok",)
        stage.tried.add(writer)
        stage.judge_send(writer, self.client, thing_of(exchange.method, path, body))
        try:
            await super()._write(exchange)
        finally:
            if len(service.sends) == before:  # it did not leave
                stage.ranks_sent.pop()


@attrs.define(eq=False)
class Process:
    """One process and its batch."""

    name: str
    member: Member
    batch: Batch
    entries: Any
    is_over: bool = False
    made: list[Any] = attrs.field(factory=list)  # its writes


@attrs.define(eq=False)
class BatchStage(Stage):
    """Where one scene of batches is played, by one schedule."""

    journal: Any = None
    processes: dict[str, Process] = attrs.field(factory=dict)
    # the order of the writes, by writer
    ranks: dict[str, int] = attrs.field(factory=dict)
    ranks_sent: list[int] = attrs.field(factory=list)  # by number of the send
    removers: dict[str, str] = attrs.field(factory=dict)  # which write deletes a thing
    # at the end: (state, verdict)
    states: dict[str, tuple[str, str | None]] = attrs.field(factory=dict)
    # which process took it, and when
    acknowledged: dict[str, tuple[str, float]] = attrs.field(factory=dict)
    # writers that are retried as the newest
    forced: set[str] = attrs.field(factory=set)
    given: dict[str, tuple[Process, float]] = attrs.field(
        factory=dict
    )  # which process was told of it last, and when
    # writers of which somebody took a result
    taken: set[str] = attrs.field(factory=set)
    tried: set[str] = attrs.field(factory=set)  # writers that tried to send
    places: dict[str, int] = attrs.field(factory=dict)  # at the end, in the journal
    # as the journal has them at the end
    counts: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    # the order is that in which the writes came into the journal
    by_journal: bool = False
    is_away: bool = False  # the service refuses connections
    slow: int = 0  # how many transactions may be slow
    frozen_at: dict[str, float] = attrs.field(factory=dict)  # by process
    # when the journal was copied, until the copy is put back
    copied_at: float | None = None

    def __attrs_post_init__(self) -> None:
        self.loop = FreezingLoop(self.schedule, self._happens)
        scene = self.scene
        self.service = Service(self.loop, {**scene.fates}, scene.reads)

    def play(self) -> None:
        """Play the scene to its end, then read the journal."""
        self.journal = self.open_journal()
        try:
            try:
                super().play()
            finally:
                for name in self.processes:
                    self._bury(name)
            for process in self.processes.values():
                for write in process.made:
                    write.close()
                if not process.is_over:
                    process.entries.store.drop()
            self.states = self._read()
        finally:
            self.journal.close()

    def open_journal(self) -> Any:
        """Return an empty journal, of the kind that the scene's name begins with."""
        shared = self.scene.name.startswith("database")
        return SharedJournal(self) if shared else FileJournal(self)

    def broken(self) -> list[str]:
        return broken(self)

    def _bury(self, name: str) -> None:
        for run, task in self.loop.tasks:
            if not task.done() and run.startswith(f"{name}/"):
                task._log_destroy_pending = False
                # its process is dead: nothing may await
                with suppress(RuntimeError, BaseExceptionGroup):
                    task.get_coro().close()

    def _read(self) -> dict[str, tuple[str, str | None]]:
        """Return what the journal says of each write."""
        rows = self.journal.fetch("SELECT key, state, verdict, place FROM {s}entries")
        self.places = {key: place for key, _, _, place in rows}
        counted = self.journal.fetch(
            "SELECT state, verdict, sum(many) FROM {s}counts GROUP BY state, verdict"
        )
        self.counts = Counter(
            {(state, verdict): int(many) for state, verdict, many in counted}
        )
        return {key: (state, verdict) for key, state, verdict, _ in rows}

    # --- what scenes are made of

    def rank(self, *writers: str) -> None:
        """Move *writers* to the end of the order."""
        for writer in writers:
            self.ranks[writer] = max(self.ranks.values(), default=0) + 1

    def force(self, writers: Iterable[str]) -> None:
        """Move *writers* to the end of the order, as they are: nothing that was written before overtakes them."""
        self.forced = {*writers}
        self.rank(*(writer for writer in self.ranks if writer in self.forced))

    def process(
        self,
        name: str,
        *,
        tag: bool = True,
        concurrency: int = 4,
        restored: bool = False,
        **policy: Any,
    ) -> Process:
        """Make a process with a batch that is not open."""
        member = self.client(name, program="batch", **policy)
        wire = BatchWire(self.service, name)
        wire.stage = self
        member.wire = wire
        member.state.transport = wire
        member.state.random = lambda: 0.5
        entries = self.journal.entries(f"{name}/run", restored=restored)
        sending = Sending(
            client=member.client,
            concurrency=concurrency,
            rate=None,
            tag=tag,
            on_secret=lambda *_: None,
        )
        batch = Batch(entries, sending, None)
        process = self.processes[name] = Process(name, member, batch, entries)
        return process

    def run(
        self,
        process: Process,
        work: Callable[[Process], Coroutine[Any, Any, None]],
        then: Callable[[int], None] | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """
        Start *process*: it opens its batch, does *work*, and closes it. *then* starts the next number.

        *refused* is called if the journal is not accepted.
        """

        async def life() -> None:
            try:
                async with process.batch:
                    await work(process)
            except JournalError:
                if refused is None or any(
                    sent.client == process.name for sent in self.service.sends
                ):
                    raise
                process.is_over = True
                refused()
                return
            process.is_over = True
            if then is not None:
                then(int(process.name[1:]) + 1)

        self.start(f"{process.name}/run", life())

    def start(self, name: str, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a run in a context of its own: it belongs to no other process."""
        context = Context()
        context.run(RUN.set, name)
        task = self.runs[name] = self.loop.create_task(run, name=name, context=context)
        return task

    def reopen(self, *writers: str) -> None:
        """Note that results of *writers* may be given again, because they are retried."""
        for writer in writers:
            self.acknowledged.pop(writer, None)
            self.given.pop(writer, None)

    def copy_journal(self) -> None:
        """Copy the journal. What is acknowledged from now on is given again once the copy is put back."""
        self.journal.copy()
        self.copied_at = self.loop.now

    def put_back(self) -> None:
        """Put the copy in the place of the journal, if there is one."""
        if self.copied_at is not None:
            self.journal.put_back()
            for process in self.processes:
                self.killed_at[process] = min(
                    self.copied_at, self.killed_at.get(process, inf)
                )
            self.copied_at = None

    async def take(
        self,
        process: Process,
        writes: Iterable[Any] | Path = (),
        *,
        most: int | None = None,
        lasting: bool = False,
        pause: float = 0.0,
    ) -> None:
        """Run the batch of *process* over *writes* and take its results, *most* of them; each takes *pause* s."""
        begun, count = self.loop.now, 0
        running: AsyncIterator[Result] = (
            process.batch.work() if lasting else process.batch.run(writes)
        )
        while (result := await anext(running, None)) is not None:
            self.tell(process, result, begun)
            count += 1
            if count == most:
                return
            if pause:
                await asyncio.sleep(pause)
            self._acknowledge(result.key, process)  # now the next one is asked for

    def _acknowledge(self, writer: str, process: Process) -> None:
        self.acknowledged[writer] = process.name, self.loop.now
        self.taken.add(writer)

    def tell(self, process: Process, result: Result, begun: float) -> None:
        if result.key in self.acknowledged:
            taker, at = self.acknowledged[result.key]
            # A kill may undo what was not noted yet, and others do not know it while its process is frozen.
            undone = at >= self.killed_at.get(taker, inf) - NOTED
            if not undone and (
                taker == process.name
                or not 0 <= self.frozen_at.get(taker, inf) - at <= NOTED
            ):
                self.wrong.append(f"14: {result.key} was told again")
        if result.overtaken and result.key in self.forced:
            self.wrong.append(
                f"12: {result.key} was forced, and is said to be overtaken"
            )
        before, at = self.given.get(result.key, (process, inf))
        if (
            before is not process
            and not before.is_over
            and self.frozen_at.get(before.name, -inf) < at
        ):
            self.wrong.append(
                f"14: {result.key} was told to {process.name}, and {before.name} has it"
            )
        self.given[result.key] = process, self.loop.now
        self.heard.append(
            Told(
                result.key,
                "batch",
                process.name,
                begun,
                self.loop.now,
                result,
                {**self.ranks},
            )
        )

    def kill_process(
        self, process: Process, after: Callable[[], None] | None = None
    ) -> None:
        """Kill *process*, and start what comes *after* it."""
        self.loop.dead |= {
            name for name in self.runs if name.startswith(f"{process.name}/")
        }
        self.killed_at[process.name] = self.loop.now
        process.entries.store.drop()
        process.is_over = True
        for number, sent in enumerate(self.service.sends):
            if sent.client == process.name:
                self.service.end(number)
        if after is not None:
            after()

    def offer_kill(
        self, process: Process, after: Callable[[], None] | None = None
    ) -> None:
        """Allow one kill of *process*, at a moment that the schedule chooses."""

        def kill() -> None:
            if not process.is_over:
                self.kill_process(process, after)

        self.offer(f"kill {process.name}", kill, frozenset((f"{process.name}/run",)))

    def offer_freeze(self, process: Process, seconds: float = FROZEN) -> None:
        """Allow one stop of *process* for *seconds*, longer than its lease, at a moment that the schedule chooses."""
        run = f"{process.name}/run"

        def freeze() -> None:
            if not process.is_over:
                self.frozen_at[process.name] = self.loop.now
                self.loop.freeze(run)
                self.loop.call_later(seconds, self.loop.thaw, run, context=Context())

        self.offer(f"freeze {process.name}", freeze, frozenset((run,)))

    def transaction_times(self, run: str) -> tuple[float, float]:
        """Return how long a transaction takes before and after its commit."""
        half = TRANSACTION / 2
        if not self.slow or len(self.processes) < 2:
            return half, half
        ways = ["quick", "slow to begin", "slow to answer"]
        chosen = self.schedule.choose(
            f"transaction of {run}", ways, at=self.loop.now - START
        )
        self.slow -= bool(chosen)
        return ((half, half), (SLOW, half), (half, SLOW))[chosen]

    # --- judging while it is played

    def judge_input(self, writers: Iterable[str]) -> None:
        """Judge whether an input of *writers* that counts as whole is in the journal of a file."""
        facts = dict(self.journal.fetch("SELECT name, value FROM {s}facts"))
        keys = [key for (key,) in self.journal.fetch("SELECT key FROM {s}entries")]
        missing = [writer for writer in writers if writer not in keys]
        is_read = keys and not any(name.startswith("input ") for name in facts)
        if is_read and missing:
            self.wrong.append(
                f"13: the input counts as whole, and the journal lacks {missing}"
            )
        read = json.loads(facts.get("checkpoint", "{}")).get("writes", 0)
        if lacking := [writer for writer in [*writers][:read] if writer in missing]:
            self.wrong.append(
                f"13: the input was read up to {read} writes, and the journal lacks {lacking}"
            )

    def judge_send(self, writer: str, client: str, thing: str) -> None:
        """Judge a request that is about to leave: one owner sends, and nothing older may still land."""
        service, now = self.service, self.loop.now
        landed = {effect.number for effect in service.effects}
        for number, sent in enumerate(service.sends):
            if number in landed or not sent.fate.window:
                continue
            lasts = sent.started + sent.fate.lasts
            over = (
                min(lasts if sent.ended is None else sent.ended, lasts)
                + sent.fate.window
            )
            if now >= over - 1e-6 or not self.knows_of(sent, writer, client):
                continue
            if sent.writer == writer:
                self.wrong.append(
                    f"1: {writer} is sent by {client} while its send by {sent.client} may land"
                )
            elif sent.thing == thing and not thing.startswith("url"):
                self.wrong.append(
                    f"11: {writer} is sent by {client} while {sent.writer} may land"
                )

    def knows_of(self, _sent: Sent, _writer: str, _client: str) -> bool:
        """Return whether a process that sends a writer has to know of an earlier send."""
        return True


# --- what scenes write

KINDS = {
    "rename": rename,
    "change": change,
    "create": lambda member, key: member.client.webhooks.create(
        url=URL, events=EVENTS, description=key
    ),
}


def writes(process: Process, asked: Iterable[tuple[str, str]]) -> list[Any]:
    made = [KINDS[kind](process.member, key).keyed(key) for kind, key in asked]
    process.made += made
    return made


def seed(stage: BatchStage) -> None:
    """Store the things that scenes write to."""
    stage.service.seed_journey("old")
    stage.service.seed_hook("old")


def keys_of(asked: Iterable[tuple[str, str]]) -> list[str]:
    return [key for _, key in asked]
