"""
A run of a write: carry out what ``decide`` returns, and add the results to the history.

One run is: wait for the turn in the line of the thing, start, then decide and do until there is a verdict,
conclude, and leave the line. ``write_run`` has the table of these phases, their files, and their state.

Most writes are answered at once, and pay for nothing else: their first send needs no decision (it is that of
``sent_at_once``), nor does a plain success (``answered_at_once``); their intent, facts and outcome are made
only if somebody asks for them. Each short cut returns what ``decide`` would, which a test holds.

A run can be cancelled at any point. Then its intent, if a byte may have left, stays in
``client.unsettled``, and the same ``Write``, awaited again, goes on with the same run.

A signal handler, such as that of a time limit, may raise an exception between any two instructions. So a send
is marked before it begins, and the mark counts as a lost attempt until the record of the attempt is in the
history. What others wait for is done again if such an exception interrupts it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from invsvc_async.errors import ConfigurationError
from invsvc_async.reconcile.attempts import answered_at_once
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.enums import NO_EFFECT, Verdict
from invsvc_async.reconcile.history import Closed, Done, Read, Send, Tick, Wait
from invsvc_async.transport.transport import CLOSED
from invsvc_async.writes.answers import Answers
from invsvc_async.writes.concluding import conclude, shelve
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.line_names import creates, line_of
from invsvc_async.writes.new_intent import intent_of, spec_of_intent, tagged_body
from invsvc_async.writes.place import WritePlace
from invsvc_async.writes.reporting import hears_all, report
from invsvc_async.writes.results import WriteResult
from invsvc_async.writes.run_journal import journal_of
from invsvc_async.writes.run_record import RunRecord
from invsvc_async.writes.sending import send_once
from invsvc_async.writes.settling import look
from invsvc_async.writes.starting import (
    close_lines_of_leftovers,
    find_thing,
    leave_untouched,
    new_start,
    start_again,
    taken_up,
    use_known_verdict,
)
from invsvc_async.writes.things import NO_RECORD
from invsvc_async.writes.write_run import WriteRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.reconcile.history import Decision
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.settings import AnyReader, ReconcilePolicy
    from invsvc_async.transport.client_core import ClientCore, ClientOptions
    from invsvc_async.writes.journal import KeyOrder
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.starting import Start


T = TypeVar("T")


def _key_order_of(run: WriteRun[Any]) -> KeyOrder | None:
    """Enter a write without a key among keyed ones; return ``None`` if the journal has no keys."""
    if run.journal is None or not run.journal.is_of_client:
        return None
    keys = keys_of(run.core.writes.journal)
    line = line_of(run.core, run.spec.request, run.spec.tag)
    if keys is None or line is None:
        return None
    order: KeyOrder = keys.enter(line)
    return order


class Driver(Generic[T]):
    """
    What carries out a run of a write, from its start to the outcome.

    The run starts anew with *intent*, or with what makes it. With *begin*, it starts where another run left
    the write: *begin* is called with the intent once the run has its turn. *takes_up* is whether that other
    run may have sent it; then the intent is kept if this run ends without a verdict.

    The words for the start of a run:

    - A ``Start`` is what it starts with: the intent, the history, and the first send, if that is known.
      *begin*, like ``new_start``, makes one.
    - ``_start`` is the phase, when the run has its turn. It makes the ``Start``, and gives it to the record
      (``record.start``).
    - ``result.begin`` comes before both: it notes when the write was first awaited.

    ``result.done`` is the verdict, once the run has ended.
    """

    def __init__(
        self,
        spec: WriteSpec,
        intent: Intent | Callable[..., Intent],
        *,
        begin: Callable[[Intent], Start] | None = None,
        takes_up: bool = False,
    ) -> None:
        core = spec.options.core
        self.core: ClientCore = core
        record = RunRecord(spec.request.operation, intent, takes_up)
        answers: Answers[T] = Answers(spec, record)
        self.result: WriteResult[T] = WriteResult(spec, record, answers)
        self.run: WriteRun[T] = WriteRun(
            spec,
            core,
            record,
            WritePlace(record, core.writes, creates(spec.request), NO_RECORD),
            journal_of(spec.options),
            answers,
            self.result,
        )
        self._begin = begin
        self._has_started = False  # once: from then on, it starts again
        # Of a write without a key, among those with one in the journal of the client.
        self._key_order: KeyOrder | None = None
        self._is_unheard = False  # although it has ended: see `leave_unheard`

    @property
    def intent(self) -> Intent:
        """The intent of the write at the start of this run."""
        return self.run.record.intent

    @property
    def known_identity(self) -> str | None:
        """The identity of the write; ``None`` if nobody can know it, because its intent is not made yet."""
        intent = self.run.record.intent_or_maker
        if callable(intent):
            return None
        return intent.identity

    def current_intent(self) -> Intent:
        """Return the intent with all sends so far, as another process needs it."""
        return self.run.current_intent()

    # --- the phases

    def drive(self) -> Awaitable[None]:
        """Run until there is a verdict. If cancelled, leave the intent in ``client.unsettled``."""
        run = self.run
        on_call = self.core.on_call
        if on_call is None:
            return self._drive()
        return on_call(run.spec.request, self._drive(), run.record.trace)

    async def _drive(self) -> None:
        core = self.core
        self.result.begin(core.clock.now())
        try:
            core.under_way.runs[self] = asyncio.current_task()
            await self._run()
        finally:
            try:
                self._leave()
            except BaseException:
                # A signal handler's: without the rest, the line or the close of the client would wait on.
                self._leave()
                raise

    async def _run(self) -> None:
        """Wait for the turn in the line of the thing, and run until there is a verdict."""
        run = self.run
        core = self.core
        record = run.record
        writes = core.writes
        if record.is_taken_up:
            core.transport.check_loop()  # its reads would only fail, until the deadline
        self._key_order = _key_order_of(run)  # before all that is awaited
        if writes.journal is not None and writes.must_look():
            await self._before_start(close_lines_of_leftovers(core, writes.journal))
        is_new = self._begin is None and not self._has_started
        if core.pace is not None and is_new:
            await self._wait_for_rate()
        # The identity is made only if others may know it: it costs more than all the rest here.
        own = record.intent.identity if record.may_be_known else None
        # Before the wait for the turn: see `use_known_verdict`.
        ended_before = None if own is None else writes.ended.get(own)
        if self._key_order is not None:
            # The keyed runs that have started before have to end first.
            await self._wait_for_others(self._key_order.until_keys_ended())
        if writes.open_writes.lines_in_doubt:  # hardly ever
            await self._before_start(self._close_line_in_doubt())
        thing = find_thing(run)
        if not thing.enter(self):  # another write runs, or has closed the line
            # The write *own* may have closed the line itself.
            turn = writes.lines.turn(thing, own, core.under_way.pause, self)
            await self._wait_for_others(turn)
        try:
            first = self._start(ended_before)
            if self.result.done is None:  # no other run has found the verdict
                await conclude(run, await self._until_verdict(first))
        except BaseException:
            self._shelve()
            raise

    async def _close_line_in_doubt(self) -> None:
        """Close the line as long as writes there, in doubt in the journal, may have an effect."""
        spec = self.run.spec
        line = line_of(self.core, spec.request, spec.tag)
        looking = self.core.writes.open_writes.lines_in_doubt.get(line or "")
        if line is None or looking is None:
            return
        keys = keys_of(self.core.writes.journal)
        # A run of a key has waited for those of this process already.
        is_beside_own = self._key_order is not None
        async with looking:
            await keys.queue.close_line(line, spec.options, is_beside_own=is_beside_own)

    async def _before_start(self, closing: Awaitable[None]) -> None:
        """Await *closing*, which closes lines. If that fails, nothing of the write has happened."""
        try:
            await closing
        except BaseException:
            leave_untouched(self.run)
            raise

    async def _wait_for_others(self, waiting: Awaitable[None]) -> None:
        """
        Await *waiting*, which waits for other runs.

        Raises:
            ConfigurationError: The client was closed, and one of those runs does not end.
        """
        waits_since = self.core.clock.now()
        try:
            with self.core.under_way.ended_if_stuck():
                await waiting
        except TimeoutError:
            leave_untouched(self.run)
            raise ConfigurationError(CLOSED) from None
        except BaseException:
            leave_untouched(self.run)
            raise
        self.result.waited += self.core.clock.now() - waits_since

    async def _wait_for_rate(self) -> None:
        """Wait until the rate of the client lets another write begin; that of a batch is the batch's own."""
        core = self.core
        pace = self.run.spec.options.pace
        if pace is None:
            return
        seconds = pace.wait_for_start(asyncio.get_running_loop().time())
        if seconds > 0:
            await core.under_way.pause(seconds)
            self.result.waited += seconds

    def _start(self, ended_before: Outcome[Any] | None) -> Send | None:
        """
        Start, or start again. Return the first send, if it needs no decision.

        *ended_before* was the outcome of another run of the write when this run was asked for.
        """
        run = self.run
        record = run.record
        if self._has_started:
            return start_again(run, ended_before, started_anew=self._begin is None)
        if self._begin is None:  # by far the most
            # Before the start, because an interrupted one does no harm: `start_again` starts anew, too, as
            # long as nothing was sent.
            self._has_started = True
            start = new_start(run.spec, run.place.thing.line, record.intent_or_maker)
            record.start(start.intent)
            return start.first
        start = self._begin(record.intent)
        record.start(start.intent, start.history)
        # A signal handler may raise before: then the next await starts the run, and not again.
        self._has_started = True
        use_known_verdict(run, ended_before)
        return start.first

    def _shelve(self) -> None:
        """Keep what must be kept of the run, which is interrupted."""
        if self._begin is not None and not self._has_started:
            # A signal handler raised before this run knew what others had sent.
            leave_untouched(self.run)
            return
        shelve(self.run)

    async def _until_verdict(self, at_once: Send | Done | None) -> Done:
        """
        Decide and do until there is a verdict, and return it.

        *at_once* is a decision that is known without ``decide``.
        """
        run = self.run
        record = run.record
        core = self.core
        while True:
            decision = self._decide(at_once)
            at_once = None
            try:
                match decision:
                    case Done():
                        return decision
                    case Send():
                        await send_once(run, decision)
                        at_once = answered_at_once(record.history)
                    case Read():
                        with core.under_way.ended_by_close():
                            reading = await look(run, decision.reader)
                        record.add(reading)
                    case Wait():
                        await core.under_way.pause(decision.seconds)
                        record.add(Tick(core.clock.now()))
            except (TimeoutError, ConfigurationError):
                # The close of the client ends what is under way: a wait that it cuts short raises the first,
                # a request that comes later the second. Then the run ends with the next decision.
                if not core.under_way.closed:
                    raise

    def _decide(self, at_once: Send | Done | None) -> Decision:
        """
        Return and report the next decision: *at_once* if given, else that of ``decide``.

        If the client was closed, that becomes the last event of the history, and the run ends.

        Raises:
            ConfigurationError: The client was closed before anything happened: nothing was sent.
        """
        run = self.run
        core = self.core
        record = run.record
        decision: Decision = at_once or decide(record.known())
        if core.under_way.closed and not isinstance(decision, Done):
            if not record.history:
                # It may have waited until now, and is not to be stored as sent.
                raise ConfigurationError(CLOSED)
            record.add(Closed(core.clock.now()))
            decision = decide(record.known())
        if at_once is None or hears_all(core):
            report(run, decision)
        return decision

    def _leave(self) -> None:
        """Release the line for the next write; tell a closing client. A second call completes the first."""
        core = self.core
        core.writes.lines.leave(self.run.place.thing, self)
        if self._key_order is not None:
            self._key_order.end()
        core.under_way.end(self)

    # --- the end, for those who asked for the run

    def outcome(self) -> Outcome[T]:
        """Return the outcome. There must be a verdict."""
        return self.run.outcome()

    @property
    def ended_elsewhere(self) -> bool:
        """
        Whether the outcome is that of another run of this client. There must be a verdict.

        The outcome of a run of its own has the very tuple of the run's record as its history.
        """
        return self.outcome().history is not self.run.record.history

    def keep(self, outcome: AnyOutcome) -> None:
        """Use the *outcome* of another run, or a fuller one, as the outcome of this run."""
        self.run.keep(outcome)

    def tell_heard(self) -> None:
        """Notify the journal, a little later, that the application has the verdict."""
        if self._is_unheard:
            self._is_unheard = False
            self.core.writes.forget(self.intent.identity)
        if self.run.journal is not None:
            self.run.journal.heard_soon(self.intent.identity)

    def leave_unheard(self) -> None:
        """
        Keep the intent in ``client.unsettled``, because the application did not get the verdict.

        Settled, it has this outcome again. A write that had no effect leaves nothing to settle.
        """
        outcome = self.outcome()
        if outcome.replayed or outcome.verdict is Verdict.UNKNOWN:
            return  # the first is stored, and the intent of the second is there
        if outcome.verdict in NO_EFFECT:
            return
        self._is_unheard = True
        self.core.writes.keep_ended(outcome.started_as.identity, outcome)
        # In no line: it has ended, so no later write overtakes it.
        self.core.leave_unsettled(outcome.intent, None)

    def tell_verdict_only(self) -> None:
        """Leave the entry in the journal as it is, but for the verdict; see :class:`RunJournal`."""
        if self.run.journal is not None:
            self.run.journal.tell_verdict_only()


def new_run(spec: WriteSpec, intent: Intent | None = None) -> AnyDriver:
    """Return the first run of a write. *intent* is given if the user has read it."""
    intent_or_maker = intent or partial(intent_of, spec)
    if spec.tag is not None:
        body = tagged_body(spec.request, spec.tag)
        spec = replace(spec, request=replace(spec.request, body=body))
    return Driver(spec, intent_or_maker)


def run_of(
    view: ClientOptions,
    intent: Intent,
    reader: AnyReader | None = None,
    *,
    policy: ReconcilePolicy | None = None,
    reads_only: bool = True,
    journaled: bool = False,
    gone_since: float | None = None,
) -> AnyDriver:
    """Return a run that goes on with *intent*, as :func:`taken_up`."""
    begin = partial(
        taken_up,
        view.core,
        policy=policy,
        journaled=journaled,
        gone_since=gone_since,
        reads_only=reads_only,
    )
    spec = spec_of_intent(view, intent, reader, policy)
    return Driver(spec, intent, begin=begin, takes_up=True)


AnyDriver: TypeAlias = Driver[Any]  # Any: the operation says what its value is
