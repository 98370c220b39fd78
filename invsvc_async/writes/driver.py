"""A run of a write: carry out what ``decide`` returns, and add the results to the history."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import attrs
from msgspec.structs import replace

from invsvc_async.errors import (
    ConfigurationError,
    InvsvcError,
    ServiceError,
    TransportError,
    UnreadableResponseError,
)
from invsvc_async.models.common import once
from invsvc_async.reconcile.decide import ANSWERED, answered_at_once, decide
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.error_form import error_of
from invsvc_async.reconcile.facts import Known, began_at
from invsvc_async.reconcile.findings import is_unique, no_such_read
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
from invsvc_async.reconcile.outcome import OutcomeBase
from invsvc_async.reconcile.own_writes import milliseconds
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.transport.session import DecisionReport, stamp_of
from invsvc_async.transport.transport import CLOSED
from invsvc_async.writes.new_intent import intent_of, line_of, tagged_body
from invsvc_async.writes.results import of_another, result_of, secret_passed_on
from invsvc_async.writes.start import close_lines_of_leftovers, new_start, taken_up
from invsvc_async.writes.state_reads import StateReader, facts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.reconcile.history import Decision, Event, History, Secret
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import Kind
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.journal import WriteJournal
    from invsvc_async.transport.session import ClientOptions, ClientState, Request
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.transport.write_register import WriteRegister
    from invsvc_async.writes.results import Result
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.start import Start

__all__ = ["Driver", "new_run"]

T = TypeVar("T")
_APPLIED, _UNKNOWN = Verdict.APPLIED, Verdict.UNKNOWN  # cheaper than access through the class
_USERS = 8  # of a line that are remembered, if all but the first did nothing

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
        self.team: str | None = spec.team
        line = line_of(spec.request, self.team, spec.tag)
        self._intent = intent
        if line is None and (takes_up or spec.reader is not None):  # its runs could all send it
            line = f"key {self.intent.identity}"
        self.line: str | None = line
        self._begin = begin
        self._begun = False
        self._takes_up = takes_up  # its intent is kept, whatever happens
        self.result: Result[T] = result_of(spec.request.operation)
        self.history: History = ()
        self._gathered: Known | None = None
        self.first: Send | None = None
        self.error: InvsvcError | None = None  # of the last attempt that failed
        self.value: T | None = None  # of a readable answer
        self._accepted: T | None = None  # of a 202, which says that the write will be done
        self.done: Done | None = None
        self.found: T | None = None  # the value, if the verdict has one
        self._outcome: Outcome[T] | None = None
        self._leaving: tuple[Send, float] | None = None  # what is being sent now, and since when
        self._call_ends: float | None = None  # loop time, if it began with a read
        self._before: tuple[str, ...] | None = None  # the last users of the line, before it was sent

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
            was_known = self.done is not None
            if not was_known:
                await self._conclude(await self._loop())
        except BaseException:
            self._shelve()
            raise
        finally:
            if line is not None:
                try:
                    if self.done is not ANSWERED and not was_known and self._was_in_doubt():
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
        """Have *outcome*, which another run found, or which says more."""
        self.done = Done(verdict=outcome.verdict, reason=outcome.message, evidence=outcome.evidence)
        self.found, self.error, self._outcome = outcome.value, outcome.error, outcome
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
            self.error = error
            self._add(Attempt(started=started, ended=clock.now(), end=End.NOT_SENT, error=facts_of(error)))
            return
        if self.line is not None and not self.kind.creates:
            lines, user = self.writes.lines, self.intent.identity if self._takes_up else ""
            if self._before is None:
                self._before = lines.last_users(self.line)
            lines.use(self.line, (user,), started)
        overtaken = self._overtake() if self.writes.left_open else []
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
                self._add(self._attempt(exchange, send))
            if overtaken and exchange.end in (None, End.NOT_SENT) and not self._known().sends:
                self._store(self.writes.left_open.reinstate(overtaken))
        if exchange.status == 401 and self._can_use_token() and await self._renewed(exchange, send):
            self._mark_renewed()

    def _overtake(self) -> list[Intent]:
        """Mark the open writes of this line as overtaken, and return them as they were."""
        left_open, line, own = self.writes.left_open, self.line, self.intent.identity
        before = left_open.not_overtaken(line, own)
        self._store(left_open.overtake(line, own))
        return before

    def _store(self, revised: list[Intent]) -> None:
        """Store intents that another write has changed, without waiting."""
        for intent in revised:
            assert self.writes.journal is not None
            self.writes.journal.shelved(intent, sent=True)

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

    def _attempt(self, exchange: Exchange, send: Send) -> Attempt:
        assert exchange.end is not None
        readable, own, of_authentication, stamp, retry_after = False, False, False, None, None
        failure: InvsvcError | None = None
        try:
            envelope = self.view.opened(self.request, exchange)
            value = self._value_in(envelope)
            if _shows_mode(type(value)):
                self.session.saw(getattr(value, "livemode", None))
            readable, stamp, own = True, envelope.stamp, True
            if exchange.status == 202:
                self._accepted = value
            else:
                self.value = value
                self._learn(exchange, stamp)
        except ServiceError as error:
            failure, stamp, own, retry_after = error, stamp_of(error), error.own_envelope, error.retry_after
            of_authentication = error.of_authentication
        except TransportError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the request was sent, and the attempt must be recorded
            failure = _unread(self.operation, exchange, error)
        self.error = failure or self.error
        return Attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            readable=readable,
            own_envelope=own,
            of_authentication=of_authentication,
            error=facts_of(failure) if failure else None,
            stamp=stamp,
            retry_after=retry_after,
            timeout=send.attempt_timeout,
        )

    def _value_in(self, envelope: Envelope) -> T | None:
        """
        Return the value in an answer.

        Raises:
            UnreadableResponseError: The answer does not have the form of this operation's, or it is about
                another thing.

        """
        value = self.result.of_answer(envelope, self.request)
        if self.kind.creates and self._is_anothers(value):
            raise of_another(envelope, getattr(value, "id", None))
        return value

    def _is_anothers(self, made: object) -> bool:
        """Return whether what the answer to a create shows, as a webhook with another URL, is another's."""
        name = self.kind.found_by or ""
        shown, wanted = getattr(made, name, None), self.request.body[name]
        if (
            not isinstance(shown, str)
            or shown == wanted
            or self.kind.normal(shown) == self.kind.normal(wanted)
        ):
            return False
        if (
            self.kind.has_secret and getattr(made, "secret", None) is None
        ):  # only the answer to a create has it
            return True
        claim = self.writes.claims.get(getattr(made, "id", ""))
        return claim is not None and claim[1] and claim[0] != self.intent.identity

    def _learn(self, exchange: Exchange, stamp: int | None) -> None:
        """Keep what the answer showed, for the writes that follow."""
        kind, line, writes = self.kind, self.line, self.writes
        if line is None:
            return
        if kind.creates:
            if not is_unique(self.spec.tag):
                webhook_id, at = getattr(self.value, "id", ""), getattr(self.value, "created_at", None)
                writes.learn_created(line, webhook_id, None if at is None else milliseconds(at))
            return
        state: object = {} if kind.deletes else self.value
        if kind.shown_by is None or state is None or (kind.always and state and _is_partial(kind, state)):
            writes.forget_state(line)
        else:
            weight, started, ended = len(exchange.answer), exchange.started, exchange.ended
            writes.learn_state(
                self.team, line, state, started, ended, stamp=stamp, weight=weight, written=True
            )

    async def _look(self, name: str) -> Reading:
        known = self._known()
        looks = StateReader(self.view, self.intent, self.current_intent, own=self.spec.reader)
        if known.in_doubt or known.attempts:
            reading = await looks.look(name, lane="settle" if known.in_doubt else "call")
        else:
            reading = await self._look_before(looks, name)
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
        if self.value is None and self.kind.creates:
            found = (done.value or {}).get("id")
            self.value = self._accepted if getattr(self._accepted, "id", "") == found else None
        plain = self.value is not None and done.verdict is _APPLIED
        if plain and done.evidence.duplicates:
            done = self._with_duplicates(done)
        found = self.value if plain else await self._value_of(done)
        if self.kind.creates and done.verdict is _APPLIED:
            self._claim(done)
        if self.kind.has_secret:
            await self._pass_secret_on(done, found)
        if self.verdicts is not None:  # before a newer write to its thing can be sent
            self._outcome = self._outcome or self._outcome_of(done, found)
            await self.verdicts.settled(self._outcome)
            self._leave_other_journal()
        if done.verdict is _UNKNOWN:
            self._leave_open(self.current_intent())
        elif self.writes.left_open:
            self.writes.left_open.take(self.intent.identity)
        self.found, self.done = found, done
        if done is not ANSWERED:
            self._note_end(done)

    def _note_end(self, done: Done) -> None:
        """Note, for later writes and runs, how a write ended that was not just answered with a success."""
        self._keep_as_last_user()
        if done.verdict in NO_EFFECT and self._before is not None:
            self._note_no_effect(self._before)
        if self._takes_up or self._was_in_doubt():
            self.writes.keep_ended(self.outcome())

    async def _pass_secret_on(self, done: Done, found: T | None) -> None:
        """Pass the secret on to the hook of the client; what has the journal of a run has its own hook."""
        hook = self.session.on_secret
        if hook is not None and self.view.journal is None:
            self._outcome = await secret_passed_on(self._outcome_of(done, found), self.intent.key, hook)

    def _keep_as_last_user(self) -> None:
        """Note, before the lock is released, that this write, sent or not, was the last of its line."""
        own = (self.intent.identity,)
        if self.line is not None and self.writes.lines.last_users(self.line) in (("",), own):
            self.writes.lines.use(self.line, own, self.session.clock.now())

    def _note_no_effect(self, before: tuple[str, ...]) -> None:
        """Note that this write did nothing, so that those *before* it in its line are not overtaken by it."""
        own = self.intent.identity
        users = (*(user for user in before if user != own), own)
        self.writes.lines.use(self.line, users[-_USERS:], self.session.clock.now())

    def _leave_open(self, intent: Intent) -> None:
        """Keep an intent with an unknown outcome, and forget the earlier state of its thing."""
        if self.line is not None and self.kind.needs_baseline:
            self.writes.forget_state(self.line)
        in_journal = self.verdicts is not None and self.verdicts is self.writes.journal
        self.session.leave_unsettled(intent, self.line, in_journal=in_journal)

    def _with_duplicates(self, done: Done) -> Done:
        """Return *done* with all webhooks found, except the one of the answer, as duplicates."""
        ours = getattr(self.value, "id", None)
        found = (done.value, *(done.evidence.duplicates or ()))
        others = tuple(each for each in found if not (isinstance(each, dict) and each.get("id") == ours))
        return attrs.evolve(done, evidence=attrs.evolve(done.evidence, duplicates=others))

    def outcome(self) -> Outcome[T]:
        """Return the outcome. There must be a verdict."""
        assert self.done is not None
        if self._outcome is None:
            self._outcome = self._outcome_of(self.done, self.found)
        return self._outcome

    def _outcome_of(self, done: Done, value: T | None) -> Outcome[T]:
        known = self._known()
        error, refusal = self.error, known.refusal
        if error is None and isinstance(refusal, ErrorFacts):  # the last send was one of another process
            error = error_of({**attrs.asdict(refusal), "operation": self.operation.name})
        has_secret = done.verdict is Verdict.APPLIED and self.kind.has_secret
        outcome: OutcomeBase[T] = OutcomeBase(
            verdict=done.verdict, message=done.reason, evidence=done.evidence, value=value,
            error=error, attempts=len(known.attempts), resends=known.resends,
            secret=self._secret() if has_secret else None, history=self.history, started_as=self.intent,
            livemode=self.session.livemode,
        )  # fmt: skip
        return cast("Outcome[T]", outcome)

    def _secret(self) -> Secret | None:
        """Return who has the secret of the webhook that was created."""
        if self.value is not None:
            return None if getattr(self.value, "secret", None) is None else "returned"
        before = (sent.end for sent in self.intent.sent)  # by runs before this one
        return "not stored" if any(end is not None and end.kind == "applied" for end in before) else "lost"

    async def _value_of(self, done: Done) -> T | None:
        if done.verdict is not Verdict.APPLIED:
            return None
        if isinstance(done.value, dict):
            return self.result.of_state(done.value)
        if done.value is None and not self.kind.answer_shows_thing:
            state = (await self._look(str(self.operation.reader))).seen
            return self.result.of_state(state or dict(self.intent.path))
        return cast("T | None", done.value)  # a user-supplied reader decides what it is

    def _claim(self, done: Done) -> None:
        """Note which things this create made. A unique tag proves that, but may be edited away later."""
        found = [done.value, *(done.evidence.duplicates or ())]
        answered, identity = getattr(self.value, "id", None), self.intent.identity
        tagged = is_unique(self.intent.tag)
        if isinstance(answered, str):
            self.writes.claim(answered, identity, is_certain=True, has_unique_tag=tagged)
        for each in found:
            if isinstance(each, dict) and isinstance(each.get("id"), str):
                self.writes.claim(each["id"], identity, is_certain=tagged, has_unique_tag=tagged)

    def _shelve(self) -> None:
        """Keep the intent if a byte of it may have been sent."""
        intent, sent = self.current_intent(), bool(self._known().sends)
        self._keep_as_last_user()
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


def _unread(operation: Operation, exchange: Exchange, error: Exception) -> TransportError:
    """Return the error for an answer that failed to parse in an unexpected way. Log it as a bug."""
    log.error("%s: parsing the answer failed: %s", operation.name, type(error).__name__)
    return UnreadableResponseError(
        f"{operation.name}: parsing the answer (HTTP {exchange.status}) failed with {type(error).__name__}",
        operation=operation.name,
        status=exchange.status,
        raw=exchange.answer,
    )


def _is_partial(kind: Kind, state: object) -> bool:
    """Return whether an answer shows only a part of the thing, as the specification allows for webhooks."""
    return any(getattr(state, name, None) is None for name in kind.always)


@once
def _shows_mode(kind: type[object]) -> bool:
    """Return whether models of *kind* have ``livemode``. Asking a model that lacks it is slow."""
    return hasattr(kind, "livemode")


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
