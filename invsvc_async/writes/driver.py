"""
A run of a write: carry out what ``decide`` returns, and add the results to the history.

One run is: wait for the turn in the queue of the thing, start, then decide and do until there is a
verdict, conclude, and leave the queue. What the answers say is in ``answers``, what comes out of it in
``ending``, and what the other writes to the same thing have to know in ``queue_place``.

Most writes are answered at once, and pay for nothing else: their first send needs no decision (``first``,
from ``sent_at_once``), nor does a plain success (``answered_at_once``); their intent, facts and outcome
are made only if somebody asks for them. Each short cut returns what ``decide`` would, which a test holds.

A run can be cancelled at any point. Then its intent, if a byte may have left, stays in
``client.unsettled``, and the same ``Write``, awaited again, goes on with the same run.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
from msgspec.structs import replace

from invsvc_async.errors import (
    ConfigurationError,
    InvsvcError,
)
from invsvc_async.reconcile.decide import ANSWERED, answered_at_once, decide
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.facts import Known, began_at
from invsvc_async.reconcile.findings import no_such_read
from invsvc_async.reconcile.history import (
    Attempt,
    Closed,
    Done,
    End,
    ErrorFacts,
    Read,
    Reading,
    Resumed,
    Send,
    Tick,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.transport.session import DecisionReport
from invsvc_async.transport.transport import CLOSED
from invsvc_async.writes.answers import Answers
from invsvc_async.writes.ending import Ending
from invsvc_async.writes.new_intent import intent_of, line_of, tagged_body
from invsvc_async.writes.queue_place import QueuePlace
from invsvc_async.writes.start import close_lines_of_leftovers, new_start, taken_up
from invsvc_async.writes.state_reads import StateReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.reconcile.history import Decision, Event, History
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import Kind
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.journal import WriteJournal
    from invsvc_async.transport.session import ClientOptions, ClientState, Request
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.transport.write_register import WriteRegister
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.start import Start

__all__ = ["Driver", "new_run"]

T = TypeVar("T")
_APPLIED, _UNKNOWN = Verdict.APPLIED, Verdict.UNKNOWN  # cheaper than access through the class

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class Driver(Generic[T]):
    """
    One run of one write, from its first send (or from where another run left it) to its outcome.

    *begin* is called with *intent* once the run has the lock of its line, because only then it is known what
    the write before it left. By default it is a first run. *request* is the one of *spec* unless given;
    *takes_up* is whether another run may have sent it.
    """

    def __init__(
        self,
        spec: WriteSpec,
        intent: Intent | Callable[..., Intent],
        *,
        request: Request | None = None,
        begin: Callable[[Any], Start] | None = None,  # Any: an intent, or what makes it
        takes_up: bool = False,
    ) -> None:
        options = spec.options
        session = options.session
        self.spec = spec
        self.view: ClientOptions = options
        self.session: ClientState = session
        self.writes: WriteRegister = session.writes
        self.journal: WriteJournal | None = options.journal or session.writes.journal
        self.verdicts: WriteJournal | None = self.journal  # where its verdict is stored
        self.request: Request = request or spec.request
        self.operation: Operation = spec.request.operation
        self.kind: Kind = spec.kind
        line = line_of(spec.request, spec.team, spec.tag)
        self._intent = intent
        if line is None and (takes_up or spec.reader is not None):  # its runs could all send it
            line = f"key {self.intent.identity}"
        self.line: str | None = line
        self._begin = begin
        self._begun = False
        self._takes_up = takes_up  # its intent is kept, whatever happens
        self.history: History = ()
        self._gathered: Known | None = None
        self.first: Send | None = None
        self.answers: Answers[T] = Answers(spec, self.request, line)
        self.ending: Ending[T] = Ending(spec, self.answers)
        self._place = QueuePlace(session.writes, line)
        self._leaving: tuple[Send, float] | None = None  # what is being sent now, and since when
        self._call_ends: float | None = None  # loop time, if it began with a read

    @property
    def intent(self) -> Intent:
        """What is to be written, as it was when this run started."""
        if callable(self._intent):
            self._intent = self._intent()
        return self._intent

    # --- the loop

    async def run(self) -> Outcome[T]:
        """Run until there is an outcome, and return it."""
        await self.drive()
        return self.outcome()

    def drive(self) -> Awaitable[None]:
        """Run until there is a verdict. If cancelled, leave the intent in ``client.unsettled``."""
        begun = None if callable(self._intent) else self._intent.trace
        return self.session.around(self.request, self.session.tracked(self._drive), begun)

    async def _drive(self) -> None:
        session, writes, line = self.session, self.writes, self.line
        if self._takes_up:
            session.transport.check_loop()  # its reads would only fail, until the deadline
        if writes.journal is not None and writes.left_open.leftovers is None:
            await close_lines_of_leftovers(session, writes.journal)
        known = writes.ended.get(self.intent.identity) if self._takes_up or self.history else None
        if line is not None and not writes.lines.enter(line):  # another write has it, or has closed it
            owner = self.intent.identity if self._takes_up or self.history else None
            try:
                await writes.lines.wait(line, owner, session.clock, session.pause)
            except BaseException:
                if self._takes_up:
                    session.leave_unsettled(self._latest_revision(), line)
                raise
        was_known = False
        try:
            self._start(known)
            was_known = self.ending.done is not None
            if not was_known:
                await self._conclude(await self._loop())
        except BaseException:
            self._shelve()
            raise
        finally:
            if line is not None:
                try:
                    if self.ending.done is not ANSWERED and not was_known and self._was_in_doubt():
                        writes.lines.close(line, self.intent.identity, self._known().free_at, session.clock)
                finally:
                    writes.lines.leave(line, session.clock)

    def _start(self, known: Outcome[Any] | None) -> None:
        """Start, or go on after a cancelled await. *known* was its outcome when this run was asked for."""
        if not self._begun:
            self._begun = True
            begin = self._begin
            start = new_start(self.spec, self.line, self._intent) if begin is None else begin(self._intent)
        else:
            latest = self.writes.left_open.get(self.intent.identity)
            if self._is_up_to_date(latest):
                if self._begin is None and not self._known().sends:
                    self._look_around()
                if self.history:
                    self._add(Tick(self.session.clock.now()))
                return
            # Meanwhile a later write was sent, or another run of this client sent it or found the verdict.
            start = taken_up(self.session, latest or self.current_intent())
        self._intent, self.history, self.first = start
        if self.history:
            self._use_known_verdict(known)

    def _never_left(self) -> bool:
        return all(each.end is End.NOT_SENT for each in self._known().attempts)

    def _look_around(self) -> None:
        """Learn what other writes did since a run that was cancelled before anything was sent."""
        start = new_start(self.spec, self.line, self.intent)
        if self._never_left():  # what it read before its first send is read again
            self.history, self._call_ends = start.history, None
        self._intent, self.first, self._gathered = start.intent, start.first, None

    def _is_up_to_date(self, latest: Intent | None) -> bool:
        """Return whether neither another run sent this write meanwhile nor a newer write was sent."""
        if latest is None:
            return not self._was_in_doubt() and self.intent.identity not in self.writes.ended
        return latest.newest is not False and len(latest.sent) <= len(self.current_intent().sent)

    def _latest_revision(self) -> Intent:
        """Return what this client knows of an intent that it took up, but has not begun to settle."""
        intent, latest = self.intent, self.writes.left_open.get(self.intent.identity)
        if latest is not None and len(latest.sent) >= len(intent.sent):
            return latest
        # Whether it is the newest write to its resource was known where it was stored, and only then.
        return attrs.evolve(intent, newest=(latest or intent).newest and None)

    def _use_known_verdict(self, known: Outcome[Any] | None) -> None:
        """
        Use the verdict of an earlier run of the same intent in this client, if there is one.

        NOT_APPLIED counts if this run was asked for before it was known: whoever has heard it may have made
        the write again. But a run that only reads leaves the send to this one.
        """
        ended = self.writes.ended.get(self.intent.identity)
        if ended is None:
            return
        begun = ended.history[0] if ended.history else None
        is_shared = ended is not known and not (isinstance(begun, Resumed) and begun.reads_only)
        if ended.verdict in (Verdict.APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED) or (
            ended.verdict is Verdict.NOT_APPLIED and is_shared
        ):
            self.keep(ended)

    def keep(self, outcome: Outcome[Any]) -> None:  # Any: of the same operation
        """Use *outcome*, which another run found or which says more, as that of this run."""
        self.ending.keep(outcome)
        self._intent = outcome.started_as

    def _was_in_doubt(self) -> bool:
        return bool(self.history) and self._known().in_doubt

    async def _loop(self) -> Done:
        while True:
            at_once = answered_at_once(self.history) if self.history else self.first
            decision = at_once or decide(self._known())
            if self.session.closed and not isinstance(decision, Done):
                if not self.history:  # it may have waited until now, and is not to be stored as sent
                    raise ConfigurationError(CLOSED)
                self._add(Closed(self.session.clock.now()))
                decision = decide(self._known())
            if at_once is None or self.session.on_decision is not None or log.isEnabledFor(logging.DEBUG):
                self._report(decision)
            if isinstance(decision, Done):
                return decision
            try:
                with self.session.until_closed():
                    await self._do(decision)
            except (TimeoutError, ConfigurationError):
                if not self.session.closed:
                    raise

    async def _do(self, decision: Send | Read | Wait) -> None:
        match decision:
            case Send():
                await self._send(decision)
            case Read():
                self._add(await self._look(decision.reader))
            case Wait(seconds):
                await self.session.pause(seconds)
                self._add(Tick(self.session.clock.now()))

    def _add(self, event: Event) -> None:
        self.history = (*self.history, event)

    def _known(self) -> Known:
        """Return what the history establishes. It is built once for each history."""
        known = self._gathered
        if known is None or known.history is not self.history:
            known = self._gathered = Known(self.operation, self.intent, self.history)
        return known

    def current_intent(self) -> Intent:
        """Return the intent with all sends so far, as another process needs it."""
        send, at = self._leaving or (None, 0.0)
        return stored(self._known(), livemode=self.session.livemode, send=send, at=at)

    # --- sending

    async def _send(self, send: Send) -> None:
        clock, started = self.session.clock, self.session.clock.now()
        deadline = asyncio.get_running_loop().time() + send.attempt_timeout
        if self._call_ends is not None and self._never_left():
            deadline = min(deadline, self._call_ends)
        try:
            exchange = await self.view.exchange(self.request, deadline=deadline, not_after=send.not_after)
        except InvsvcError as error:  # no token
            self._add(self.answers.not_sent(error, started, clock.now()))
            return
        if self.line is not None and not self.kind.creates:
            self._place.use(self.intent.identity if self._takes_up else "", started)
        overtaken = self._place.overtake(self.intent.identity) if self.writes.left_open else []
        try:
            if self.journal is not None:
                mode = self.session.livemode
                until = await self.journal.sending(
                    stored(self._known(), livemode=mode, send=send, at=started)
                )
                # Not later than the journal says: the deadline does not count time asleep on every system.
                latest = started + send.attempt_timeout
                if until is not None:
                    latest = min(latest, until)
                self._leave_other_journal()
                exchange.not_after = latest if send.not_after is None else min(latest, send.not_after)
            self._leaving = send, started
            await self.view.send(self.request, exchange)
        finally:
            self._leaving = None
            if exchange.end is not None:
                self._add(self.answers.attempt(exchange, send, lambda: self.intent.identity))
            if overtaken and exchange.end in (None, End.NOT_SENT) and not self._known().sends:
                self._place.reinstate(overtaken)
        if exchange.status == 401 and self._can_use_token() and await self._renewed(exchange, send):
            self._mark_renewed()

    def _leave_other_journal(self) -> None:
        """Remove the intent from the client's journal, because that of a batch has it, and what follows."""
        own = self.writes.journal
        if own is None or self.verdicts is own:
            return
        if self.writes.left_open.leave_journal(self.intent.identity):
            own.shelved(self.intent, sent=False)

    def _can_use_token(self) -> bool:
        """Return whether a 401 is followed by another send: once, and not where it answers a re-send."""
        known = self._known()
        return not known.in_doubt and not any(each.token_renewed for each in known.attempts)

    async def _renewed(self, exchange: Exchange, send: Send) -> bool:
        try:
            return await self.view.renew_token(exchange, within=send.attempt_timeout)
        except InvsvcError as error:  # the 401 stands
            log.warning("%s %s: no fresh token: %s", self.operation.name, self.intent.key, error)
            return False

    async def _look(self, name: str) -> Reading:
        known = self._known()
        looks = StateReader(self.view, self.intent, self.current_intent, own=self.spec.reader)
        if known.in_doubt or known.attempts:
            reading = await looks.look(name, lane="settle" if known.in_doubt else "call")
        else:
            reading = await self._look_before(looks, name)
        self.answers.read = reading.seen, looks.shown
        if no_such_read(known, reading) or (self.kind.may_lack_read and reading.status == 404):
            self.session.warn_once(
                "journey_reader",
                f"{name}: the answer was HTTP {reading.status}. If the journey exists, this "
                "deployment lacks the read, and updates in doubt stay UNKNOWN. Set "
                "ReconcilePolicy(journey_reader=…) to a read that it has, or to None.",
            )
        slack = self.intent.policy.clock_slack
        if self.session.server_clock.is_steady(began_at(self.history, reading), slack):
            return reading
        return attrs.evolve(reading, steady=False)

    async def _look_before(self, looks: StateReader, name: str) -> Reading:
        """Read before the first send, which has the other half of the call's time."""
        begun, loop, call = self.session.clock.now(), asyncio.get_running_loop(), self.intent.timeouts.call
        if self._call_ends is None:
            self._call_ends = loop.time() + call
        try:
            async with asyncio.timeout_at(self._call_ends - call / 2):
                return await looks.look(name, lane="call")
        except TimeoutError:
            error = ErrorFacts(kind="TimeoutError", message=f"{name}: no answer in half of the call's time")
            return Reading(started=begun, ended=self.session.clock.now(), error=error)

    def _mark_renewed(self) -> None:
        last = self.history[-1]
        assert isinstance(last, Attempt)
        self.history = (*self.history[:-1], attrs.evolve(last, token_renewed=True))

    # --- the end

    async def _conclude(self, done: Done) -> None:
        kind = self.kind
        done, found = await self.ending.value_of(done, self._look)
        if kind.creates and done.verdict is _APPLIED:
            self.ending.claim(done, self.intent.identity)
        if kind.has_secret:
            await self.ending.pass_secret_on(self._known, done, found, self.intent.key)
        if self.verdicts is not None:  # before a newer write to its thing can be sent
            await self.verdicts.settled(self.ending.outcome_of(self._known, done, found))
            self._leave_other_journal()
        if done.verdict is _UNKNOWN:
            self._leave_open(self.current_intent())
        elif self.writes.left_open:
            self.writes.left_open.take(self.intent.identity)
        self.ending.found, self.ending.done = found, done
        if done is not ANSWERED:
            self._note_end(done)

    def _note_end(self, done: Done) -> None:
        """Note, for later writes and runs, how a write ended that was not just answered with a success."""
        own, now = self.intent.identity, self.session.clock.now()
        self._place.keep_last(own, now)
        if done.verdict in NO_EFFECT:
            self._place.did_nothing(own, now)
        if self._takes_up or self._was_in_doubt():
            self.writes.keep_ended(self.outcome())

    def _leave_open(self, intent: Intent) -> None:
        """Keep an intent with an unknown outcome, and forget the earlier state of its thing."""
        if self.line is not None and self.kind.needs_baseline:
            self.writes.forget_state(self.line)
        in_journal = self.verdicts is not None and self.verdicts is self.writes.journal
        self.session.leave_unsettled(intent, self.line, in_journal=in_journal)

    def outcome(self) -> Outcome[T]:
        """Return the outcome. There must be a verdict."""
        return self.ending.outcome(self._known)

    def _shelve(self) -> None:
        """Keep the intent if a byte of it may have been sent."""
        intent, sent = self.current_intent(), bool(self._known().sends)
        self._place.keep_last(intent.identity, self.session.clock.now())
        if sent:
            self._leave_open(intent)
        if self.journal is not None:  # last: it may be the user's, and raise
            self.journal.shelved(intent, sent=sent)

    # --- reporting

    def _report(self, decision: Decision) -> None:
        noted = decision is not ANSWERED and self._was_in_doubt()
        if not noted and self.session.on_decision is None and not log.isEnabledFor(logging.DEBUG):
            return
        kind, reason, verdict = _words(decision)
        level = logging.INFO if noted else logging.DEBUG
        log.log(
            level, "%s %s: %s%s", self.operation.name, self.intent.key, kind, f" ({reason})" if reason else ""
        )
        report = DecisionReport(
            operation=self.operation.name, key=self.intent.key, decision=kind, reason=reason, verdict=verdict
        )
        self.session.tell(self.session.on_decision, report)


def new_run(spec: WriteSpec, intent: Intent | None = None) -> Driver[Any]:  # Any: the operation says
    """Return the first run of a write. *intent* is the one that its user has read, if any."""
    request = spec.request
    if spec.tag is not None:
        request = replace(request, body=tagged_body(request, spec.tag))
    return Driver(spec, intent or partial(intent_of, spec), request=request)


def _words(decision: Decision) -> tuple[Any, str, str | None]:  # Any: one of DecisionReport's literals
    match decision:
        case Done(verdict=verdict, reason=reason):
            return "done", f"{verdict}: {reason}", str(verdict)
        case Send(not_after=not_after):
            return "send", "again, on proof of absence" if not_after is not None else "", None
        case Read(reader=reader, why=why):
            return "read", f"{reader}: {why}", None
        case Wait(seconds):
            return "wait", f"{seconds:.3f} s", None
