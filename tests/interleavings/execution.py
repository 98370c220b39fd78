"""
One execution: clients on a scripted loop, the runs of a scene, and a record of what each came to.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import ApiKey, Client
from invsvc_async.client import options_of
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.settings import ReadRetries, ReconcilePolicy, Timeouts
from tests.interleavings.loop import RUN, START, ScriptedLoop
from tests.interleavings.service import ATTEMPT, LONG, SHORT, WRITER, Service
from tests.interleavings.wire import Wire
from tests.support.naming import named
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from tests.interleavings.journal import MemoryJournal
    from tests.interleavings.scene import Scene
    from tests.interleavings.schedule import Schedule

BASE = "http://127.0.0.1:1/v2"
POLICY = ReconcilePolicy(
    settle_after_error=SHORT, settle_after_loss=LONG, deadline=40.0
)
TIMEOUTS = Timeouts(attempt=ATTEMPT, connect=1.0, call=12.0)
READS = ReadRetries(attempts=1)


@attrs.frozen
class Heard:
    """What the application was told of one write."""

    writer: str
    how: str
    client: str
    begun: float
    at: float
    outcome: Outcome[Any]

    @property
    def verdict(self) -> Verdict:
        """What became of it."""
        return self.outcome.verdict


@attrs.define
class Member:
    """A client with what belongs to it."""

    name: str
    client: Client
    wire: Wire
    program: str  # its writes are siblings of those of the same program
    journal: MemoryJournal | None = None

    @property
    def state(self) -> Any:
        """What its views share."""
        return options_of(self.client).core


@attrs.define(eq=False)
class Stage:
    """Where one scene is played, by one schedule."""

    scene: Scene
    schedule: Schedule
    loop: ScriptedLoop = attrs.field(init=False)
    service: Service = attrs.field(init=False)
    members: dict[str, Member] = attrs.field(factory=dict)
    # by writer: when it was first awaited
    begun: dict[str, float] = attrs.field(factory=dict)
    runs: dict[str, asyncio.Task[None]] = attrs.field(factory=dict)
    heard: list[Heard] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)  # broken while it is played
    keys: dict[str, str] = attrs.field(factory=dict)  # intent key to writer
    killed_at: dict[str, float] = attrs.field(factory=dict)
    # writers whose verdict was stored by then
    known_at_kill: set[str] = attrs.field(factory=set)
    _outside: dict[str, Callable[[], None]] = attrs.field(factory=dict)
    _left: dict[str, tuple[frozenset[str], Callable[[], None]]] = attrs.field(
        factory=dict
    )

    def __attrs_post_init__(self) -> None:
        self.loop = ScriptedLoop(self.schedule, self._happens)
        scene = self.scene
        self.service = Service(self.loop, scene.fates, scene.reads)

    # --- playing

    def play(self) -> None:
        """Play the scene to its end, and what lands after it."""
        self.start("scene", self.scene.play(self))
        self.loop.run()
        for name in self.killed_at:
            self._bury(name)

    def _bury(self, name: str) -> None:
        for run, task in self.loop.tasks:
            if not task.done() and run.startswith(f"{name}/"):
                task._log_destroy_pending = False
                with contextlib.suppress(
                    RuntimeError
                ):  # it awaits while it is closed, but its process is dead
                    task.get_coro().close()

    def start(self, name: str, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a run."""
        context = copy_context() if self.runs else Context()
        context.run(RUN.set, name)
        task = self.runs[name] = self.loop.create_task(run, name=name, context=context)
        return task

    def offer(self, name: str, do: Callable[[], None], runs: frozenset[str]) -> None:
        """Allow *do* to happen once, at a moment that the schedule chooses; it matters to *runs*."""
        self._left[name] = runs, do

    def withdraw(self, name: str) -> None:
        """Remove it from what may happen."""
        self._left.pop(name, None)

    def _happens(self, busy: bool) -> bool:
        """Run something from outside now, if the schedule says so."""
        if not self._left:
            return False
        pending = self.loop.pending()
        names = [
            name for name, (runs, _) in self._left.items() if not busy or runs & pending
        ]
        if not names:
            return False
        chosen = self.schedule.choose(
            "outside", ["nothing", *names], at=self.loop.now - START
        )
        if not chosen:
            return False
        _, do = self._left.pop(names[chosen - 1])
        do()
        return True

    # --- what scenes are made of

    def client(self, name: str, *, journal: MemoryJournal | None = None, program: str | None = None,
               api_key: str = "abcdefghij", **policy: Any) -> Member:  # fmt: skip
        """Make a client whose transport is the service in memory."""
        client = Client(
            BASE,
            ApiKey(api_key),
            timeout=TIMEOUTS,
            reads=READS,
            reconcile=attrs.evolve(POLICY, **policy),
            journal=journal,
            clock=LoopClock(),
        )
        wire = Wire(self.service, name)
        options_of(client).core.transport = wire  # type: ignore[assignment]  # the lowest seam
        member = self.members[name] = Member(
            name, client, wire, program or name, journal
        )
        return member

    async def at(self, *moments: float, what: str = "begins") -> None:
        """Wait until one of *moments* (s from now) that the schedule chooses."""
        costs = [0] * len(moments)
        chosen = self.schedule.choose(
            what,
            [f"at {each} s" for each in moments],
            at=self.loop.now - START,
            costs=costs,
        )
        if moments[chosen]:
            await asyncio.sleep(moments[chosen])

    async def hear(
        self,
        writer: str,
        how: str,
        member: Member,
        awaiting: Awaitable[Outcome[Any]],
        key: str | None = None,
    ) -> Outcome[Any] | None:
        """Await an outcome and record it; ``None`` if the run was cancelled."""
        begun = self.loop.now
        self.begun.setdefault(writer, begun)
        WRITER.set(writer)
        try:
            outcome = await awaiting
        except asyncio.CancelledError:
            return None
        except (ConfigurationError, JournalError) as error:
            if not (
                member.wire.closed
                or (member.journal is not None and member.journal.has_failed)
            ):
                self.wrong.append(f"0: {writer}: {error}")
            if any(
                sent.writer == writer and sent.client == member.name
                for sent in self.service.sends
            ):
                self.wrong.append(
                    f"4: {writer} was sent, and ends without an outcome: {error}"
                )
            return None
        if key is not None and outcome.started_as.key != key:
            self.wrong.append(f"0: the outcome of {writer} is that of another intent")
        self.keys[outcome.started_as.key] = writer
        self.heard.append(
            Heard(writer, how, member.name, begun, self.loop.now, outcome)
        )
        return outcome

    async def live(
        self, writer: str, member: Member, write: Any
    ) -> Outcome[Any] | None:
        """Send *write* and await its outcome; it may be cancelled by the schedule if the scene says so."""
        write = named(write, writer)
        self.keys[writer] = writer
        task = asyncio.current_task()
        assert task is not None
        run, name = RUN.get(), f"cancel {writer}"
        asked: list[float] = []
        if writer in self.scene.cancels:

            def cancel() -> None:
                asked.append(self.loop.now)
                task.cancel()

            self.offer(name, cancel, frozenset((run,)))
        try:
            outcome = await self.hear(writer, "live", member, write.outcome(), writer)
        finally:
            self.withdraw(name)
        if outcome is None and asked:
            self._judge_cancelled(writer, member, asked)
        return outcome

    def _judge_cancelled(self, writer: str, member: Member, asked: list[float]) -> None:
        """Rule 7: a cancellation is prompt, and what may have been sent is kept."""
        if self.loop.now > asked[0]:
            self.wrong.append(f"7: the cancellation of {writer} was not prompt")
        sent = any(
            each.writer == writer and each.status != 404 for each in self.service.sends
        )
        kept = any(intent.key == writer for intent in member.client.unsettled)
        if sent is not kept:
            self.wrong.append(
                f"7: {writer} was cancelled, sent: {sent}, kept as unsettled: {kept}"
            )

    def unsettled(self, writer: str, member: Member) -> Intent | None:
        """Return the intent of *writer* that the client has left open."""
        return next(
            (each for each in member.client.unsettled if each.key == writer), None
        )

    async def settle(
        self, writer: str, member: Member, intent: Intent
    ) -> Outcome[Any] | None:
        """Settle *intent*."""
        return await self.hear(
            writer,
            "settle",
            member,
            member.client.settle(intent, same_mode=True),
            intent.key,
        )

    async def resume(
        self, writer: str, member: Member, intent: Intent
    ) -> Outcome[Any] | None:
        """Resume *intent*."""
        write = member.client.resume(intent, same_mode=True)
        return await self.hear(writer, "resume", member, write.outcome(), intent.key)

    def kill(self, member: Member) -> None:
        """Kill the process of *member*: none of its runs takes another step."""
        for name in self.runs:
            if name.startswith(f"{member.name}/"):
                self.loop.dead.add(name)
        if member.journal is not None:
            member.journal.alive = False
        self.killed_at[member.name] = self.loop.now
        told = {
            heard.writer for heard in self.heard if heard.verdict is not Verdict.UNKNOWN
        }
        for number, sent in enumerate(self.service.sends):
            if sent.client == member.name:
                self.service.end(number)
                self._judge_stored(sent.writer, member, told=sent.writer in told)

    def _judge_stored(self, writer: str, member: Member, *, told: bool) -> None:
        """Rule 4: what was sent is in the journal, with its verdict if it has one."""
        if member.journal is not None:
            stored = member.journal.stored
            self.known_at_kill.update(
                stored.done, (heard.writer for heard in self.heard)
            )
            if writer not in stored.open and writer not in stored.done and not told:
                self.wrong.append(
                    f"4: {writer} was sent, and the journal does not have it"
                )
            if told and writer in stored.open:
                self.wrong.append(
                    f"4: {writer} has a verdict, and the journal has it as open"
                )
