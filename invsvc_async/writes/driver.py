"""
A run of a write: carry out what ``decide`` returns, and add the results to the history.

One run is: wait for the turn in the line of the thing, start, then decide and do until there is a verdict,
conclude, and leave the line. What the answers say and what comes out of them is in ``results``, what the
other writes to the same thing have to know in ``register``, how a run starts in ``new_intent``.

Most writes are answered at once, and pay for nothing else: their first send needs no decision (``first``,
from ``sent_at_once``), nor does a plain success (``answered_at_once``); their intent, facts and outcome
are made only if somebody asks for them. Each short cut returns what ``decide`` would, which a test holds.

A run can be cancelled at any point. Then its intent, if a byte may have left, stays in
``client.unsettled``, and the same ``Write``, awaited again, goes on with the same run.

A signal handler, such as that of a time limit, may raise an exception between any two instructions. So a send
is marked before it begins, and the mark counts as a lost attempt until the record of the attempt is in the
history. What others wait for is done again if such an exception interrupts it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import attrs
from msgspec.structs import replace

from invsvc_async.errors import ConfigurationError, InvsvcError
from invsvc_async.reconcile.attempts import ANSWERED, answered_at_once
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.enums import NO_EFFECT
from invsvc_async.reconcile.facts import Known, start_of, stored
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
from invsvc_async.transport.client_core import ClientCore, ClientOptions, DecisionReport
from invsvc_async.transport.transport import CLOSED, Exchange
from invsvc_async.writes.late_modules import load_for
from invsvc_async.writes.new_intent import (
    close_lines_of_leftovers,
    intent_of,
    new_start,
    spec_of_intent,
    tagged_body,
    taken_up,
    thing_of,
)
from invsvc_async.writes.results import Result
from invsvc_async.writes.state_reads import StateReader
from invsvc_async.writes.things import NOBODY, ONLY_HERE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.reconcile.history import Decision, History
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.writes.journal import WriteJournal
    from invsvc_async.writes.new_intent import Start
    from invsvc_async.writes.spec import WriteSpec
    from invsvc_async.writes.things import Thing


T = TypeVar("T")
# Cheaper than access through the class.
_APPLIED = Verdict.APPLIED
_UNKNOWN = Verdict.UNKNOWN

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class _Leaving(NamedTuple):
    """A send that may have begun at *since* (local s), while the history was *after*."""

    send: Send
    since: float
    after: History


class Driver(Generic[T]):
    """
    A run of a write, from the first send, or from where another run left the write, to the outcome.

    *begin* is called with *intent* once the run has its turn, because only then it is known what the write
    before it left. By default it is a first run. *takes_up* is whether another run may have sent it.
    """

    thing: Thing  # the record of its line
    history: History = ()
    _begun = False
    _gathered: Known | None = None
    _users_before: tuple[str, ...] | None = None  # of its line, before it was sent
    _mark: _Leaving | None = None  # of the last send
    # open writes to its thing that its send overtakes, as they were
    _overtaking: tuple[Intent, ...] = ()
    _call_ends: float | None = None  # loop time, if it began with a read

    def __init__(
        self,
        spec: WriteSpec,
        intent: Intent | Callable[..., Intent],
        *,
        begin: Callable[[Any], Start] | None = None,  # Any: an intent, or what makes it
        takes_up: bool = False,
    ) -> None:
        self.spec = spec
        self.core: ClientCore = spec.options.core
        self.journal: WriteJournal | None = (
            spec.options.journal or self.core.writes.journal
        )
        self.verdicts: WriteJournal | None = self.journal  # where its verdict is stored
        self._intent = intent
        self._begin = begin
        self._takes_up = takes_up  # its intent is kept, whatever happens
        self.result: Result[T] = Result(spec)

    @property
    def intent(self) -> Intent:
        """The intent of the write at the start of this run."""
        if callable(self._intent):
            self._intent = self._intent()
        return self._intent

    # --- the loop

    def drive(self) -> Awaitable[None]:
        """Run until there is a verdict. If cancelled, leave the intent in ``client.unsettled``."""
        on_call = self.core.on_call
        if on_call is None:
            return self._drive()
        begun = None if callable(self._intent) else self._intent.trace
        return on_call(self.spec.request, self._drive(), begun)

    async def _drive(self) -> None:
        core = self.core
        self.result.begin(core.clock.now())
        try:
            core.runs[self] = asyncio.current_task()
            await self._take_turn()
        finally:
            try:
                self._end_turn()
            except BaseException:
                # A signal handler's: without the rest, the line or the close of the client would wait on.
                self._end_turn()
                raise

    async def _take_turn(self) -> None:
        """Wait for the turn in the line of the thing, and run until there is a verdict."""
        core = self.core
        writes = core.writes
        if self._takes_up:
            core.transport.check_loop()  # its reads would only fail, until the deadline
        if writes.journal is not None and writes.open_writes.leftovers is None:
            await close_lines_of_leftovers(core, writes.journal)
        # another run, or an earlier await, may have sent it
        is_named = self._takes_up or self.history
        known = writes.ended.get(self.intent.identity) if is_named else None
        thing = self._find_thing()
        if not thing.enter(self):  # another write runs, or has closed the line
            await self._wait_for_turn(thing, self.intent.identity if is_named else None)
        try:
            if self._begun or self._begin is not None:
                first = self._start(known)
            else:  # by far the most
                self._begun = True
                self._intent, _, first = new_start(self.spec, thing.line, self._intent)
            if self.result.done is None:  # no other run has found the verdict
                await self._conclude(await self._loop(first))
        except BaseException:
            self._shelve()
            raise

    def _find_thing(self) -> Thing:
        """Find the record of the line of the write, keep it as ``thing`` of the run, and return it."""
        thing = self.thing = thing_of(self.spec)
        if thing.line is None and (self._takes_up or self.spec.reader is not None):
            key = f"key {self.intent.identity}"
            # all runs could send it
            thing = self.thing = self.core.writes.records.of(key)
        return thing

    async def _wait_for_turn(self, thing: Thing, owner: str | None) -> None:
        """Wait until other writes have left *thing*. *owner* ignores until when it closed the line itself."""
        core = self.core
        waits_since = core.clock.now()
        try:
            await core.writes.lines.turn(thing, owner, core.pause, self)
        except BaseException:
            self._leave_untouched()
            raise
        self.result.waited += core.clock.now() - waits_since

    def _end_turn(self) -> None:
        """Release the line for the next write; tell a closing client. A second call completes the first."""
        core = self.core
        thing = self.__dict__.get("thing")
        if thing is not None:
            core.writes.lines.leave(thing, self)
        core.runs.pop(self, None)
        if core.closed and not core.runs:
            core.idle.set()

    def _leave_untouched(self) -> None:
        """Keep an intent that was taken up in ``client.unsettled``, because its run had no turn."""
        if not self._takes_up:
            return
        writes = self.core.writes
        intent = self.intent
        latest = writes.open_writes.opened(intent.identity)
        if latest is None or len(latest.sent) < len(intent.sent):
            # Whether it is the newest to its thing was known where it was stored, and only then.
            latest = attrs.evolve(intent, newest=(latest or intent).newest and None)
        self.core.leave_unsettled(latest, self.thing.line)

    def _start(self, known: Outcome[Any] | None) -> Send | None:
        """
        Start where another run left it, or go on after a cancelled await.

        *known* was its outcome when this run was asked for. Return the first send, if it needs no decision.
        """
        if not self._begun:
            assert self._begin is not None  # `_take_turn` starts the others
            start = self._begin(self._intent)
        else:
            self._note_lost_send()
            writes = self.core.writes
            own = self.intent.identity
            if (latest := writes.open_writes.opened(own)) is None:
                is_latest = not self._known().in_doubt and own not in writes.ended
            else:
                many = len(self.current_intent().sent)
                is_latest = latest.newest is not False and len(latest.sent) <= many
            if is_latest:
                return self._go_on()
            # Meanwhile a later write was sent, or another run of this client sent it or has the verdict.
            start = taken_up(self.core, latest or self.current_intent())
        self._intent, self.history, first = start
        self._begun = (
            True  # a signal handler may raise before: then the next await starts it
        )
        if self.history:
            self._use_known_verdict(known)
        return first

    def _go_on(self) -> Send | None:
        """Go on after a cancelled await. If nothing was sent, learn what other writes did meanwhile."""
        first = None
        if self._begin is None and not self._known().sends:
            start = new_start(self.spec, self.thing.line, self.intent)
            # what it read before its first send is read again
            if self._known().never_left:
                self.history = start.history
                self._call_ends = None
            self._intent = start.intent
            self._gathered = None
            first = start.first
        if self.history:
            self.history = (*self.history, Tick(self.core.clock.now()))
        return first

    def _use_known_verdict(self, known: Outcome[Any] | None) -> None:
        """
        Use the verdict of an earlier run of the same intent in this client, if there is one.

        NOT_APPLIED counts if this run was asked for before it was known: whoever has heard it may have made
        the write again. But a run that only reads leaves the send to this one.
        """
        ended = self.core.writes.ended.get(self.intent.identity)
        if ended is None:
            return
        begun = ended.history[0] if ended.history else None
        is_shared = ended is not known and not (
            isinstance(begun, Resumed) and begun.reads_only
        )
        if ended.verdict in (Verdict.APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED) or (
            ended.verdict is Verdict.NOT_APPLIED and is_shared
        ):
            self.keep(ended)

    def keep(self, outcome: AnyOutcome) -> None:
        """Use the *outcome* of another run, or a fuller one, as the outcome of this run."""
        self.result.keep(outcome)
        self._intent = outcome.started_as

    async def _loop(self, at_once: Send | Done | None) -> Done:
        core = self.core
        while True:
            decision = self._decide(at_once)
            if isinstance(decision, Done):
                return decision
            at_once = None
            try:
                if isinstance(decision, Send):
                    await self._send(decision)
                    at_once = answered_at_once(self.history)
                else:
                    event = await self._observe(decision)
                    self.history = (*self.history, event)
            except (TimeoutError, ConfigurationError):
                if not core.closed:
                    raise

    def _decide(self, at_once: Send | Done | None) -> Decision:
        """
        Return what to do next: *at_once* if it is given, else as ``decide`` says.

        If the client was closed, the run ends.
        """
        core = self.core
        decision: Decision = at_once or decide(self._known())
        if core.closed and not isinstance(decision, Done):
            # it may have waited until now, and is not to be stored as sent
            if not self.history:
                raise ConfigurationError(CLOSED)
            self.history = (*self.history, Closed(core.clock.now()))
            decision = decide(self._known())
        if (
            at_once is None
            or core.on_decision is not None
            or log.isEnabledFor(logging.DEBUG)
        ):
            self._report(decision)
        return decision

    async def _observe(self, decision: Read | Wait) -> Reading | Tick:
        """Read the state, or let time pass. Return the event for the history."""
        core = self.core
        if isinstance(decision, Read):
            with core.until_closed():
                return await self._look(decision.reader)
        await core.pause(decision.seconds)
        return Tick(core.clock.now())

    def _known(self) -> Known:
        """Return what the history establishes. It is built once for each history."""
        known = self._gathered
        if known is None or known.history is not self.history:
            known = self._gathered = Known(
                self.spec.request.operation, self.intent, self.history
            )
        return known

    def current_intent(self) -> Intent:
        """Return the intent with all sends so far, as another process needs it."""
        mark = self._under_way()
        send, at = (None, 0.0) if mark is None else (mark.send, mark.since)
        return self.result.noted_in(
            stored(self._known(), livemode=self.core.livemode, send=send, at=at)
        )

    def _under_way(self) -> _Leaving | None:
        """Return the mark of a send that may have begun, and of which there is no record yet."""
        mark = self._mark
        return mark if mark is not None and mark.after is self.history else None

    def _note_lost_send(self) -> None:
        """Record a send as lost whose end was not recorded: a signal handler raised just then."""
        mark = self._under_way()
        if mark is not None:
            now = self.core.clock.now()
            lost = Attempt(
                started=mark.since,
                ended=now,
                end=End.LOST,
                timeout=mark.send.attempt_timeout,
            )
            self.history = (*self.history, lost)

    # --- sending

    async def _send(self, send: Send) -> None:
        core = self.core
        spec = self.spec
        options = spec.options
        started = core.clock.now()
        deadline = asyncio.get_running_loop().time() + send.attempt_timeout
        if self._call_ends is not None and self._known().never_left:
            deadline = min(deadline, self._call_ends)
        try:
            load_for(spec.request.operation)
            if core.credential.ready is None and spec.request.operation.credentials:
                with core.until_closed():
                    await options.fetch_token(spec.request, deadline)
            exchange = options.exchange(
                spec.request, deadline, not_after=send.not_after
            )
        except InvsvcError as error:
            attempt = self.result.not_sent(error, started, core.clock.now())
            self.history = (*self.history, attempt)
            return
        self._take_last_place()
        try:
            if self.journal is not None:
                await self._store_send(self.journal, send, started, exchange)
            self._mark = _Leaving(send, started, self.history)
            await options.send(spec.request, exchange)
        finally:
            self._record(exchange, send)
        if exchange.status == 401:
            await self._renew_token(exchange, send)

    def _take_last_place(self) -> None:
        """Record this write as the last sent to the thing, which overtakes the open writes to the thing."""
        thing = self.thing
        if not self.spec.kind.creates:
            if self._users_before is None:
                self._users_before = thing.users
            thing.users = (self.intent.identity if self._takes_up else ONLY_HERE,)
        if thing.open:
            open_writes = self.core.writes.open_writes
            self._overtaking = tuple(
                open_writes.doubt_newest(thing, self.intent.identity)
            )

    def _record(self, exchange: Exchange, send: Send) -> None:
        """Add how an attempt ended to the history."""
        if exchange.end is not None:
            attempt = self.result.attempt(
                exchange, send, self.thing.line, lambda: self.intent.identity
            )
            self.history = (*self.history, attempt)
        elif not exchange.was_begun:
            self._mark = None
        if self._overtaking or exchange.end in {None, End.NOT_SENT}:
            self._note_others()

    def _note_others(self) -> None:
        """
        Note the effect of the last send on the other writes to the thing.

        It has overtaken those that are open, unless no byte of it has left: then all is as it was.
        """
        if self._under_way() is not None:
            return
        writes = self.core.writes
        if self._has_left():
            writes.open_writes.overtake(*self._overtaking)
        else:
            writes.open_writes.revise(*self._overtaking)
            self._take_place_back()
        self._overtaking = ()

    def _has_left(self) -> bool:
        """Return whether a byte of the write may have left, in this run or another."""
        known = self._known()
        return bool(known.sends) or not known.never_left

    def _take_place_back(self) -> None:
        """Restore the record of the last write sent to the thing, because this write was not sent."""
        if self._users_before is not None:
            # Without anybody, this write would stand as the one that was sent.
            self.thing.did_nothing(
                self.intent.identity, self._users_before or (NOBODY,)
            )
        self._users_before = None

    async def _store_send(
        self, journal: WriteJournal, send: Send, started: float, exchange: Exchange
    ) -> None:
        mode = self.core.livemode
        with self.core.until_closed():
            until = await journal.sending(
                stored(self._known(), livemode=mode, send=send, at=started)
            )
        # Not later than the journal says: the deadline does not count time asleep on every system.
        latest = started + send.attempt_timeout
        if until is not None:
            latest = min(latest, until)
        self._leave_other_journal()
        exchange.not_after = (
            latest if send.not_after is None else min(latest, send.not_after)
        )

    def _leave_other_journal(self) -> None:
        """Remove the intent from the client's journal, because the journal of a batch has it from here on."""
        writes = self.core.writes
        own = writes.journal
        if (
            own is not None
            and self.verdicts is not own
            and writes.open_writes.leave_journal(self.intent.identity)
        ):
            own.shelved(self.intent, sent=False)

    async def _renew_token(self, exchange: Exchange, send: Send) -> None:
        """Get a fresh token after a 401, for one more send; not if the 401 answers a re-send."""
        known = self._known()
        if known.in_doubt or any(each.token_renewed for each in known.attempts):
            return
        try:
            with self.core.until_closed():
                if not await self.spec.options.renew_token(
                    exchange, within=send.attempt_timeout
                ):
                    return
        except InvsvcError as error:  # the 401 stands
            log.warning(
                "%s %s: no fresh token: %s",
                self.spec.operation.name,
                self.intent.key,
                error,
            )
            return
        last = self.history[-1]
        assert isinstance(last, Attempt)
        self.history = (*self.history[:-1], attrs.evolve(last, token_renewed=True))

    # --- reading

    async def _look(self, name: str) -> Reading:
        known = self._known()
        kind = self.spec.kind
        looks = StateReader(
            self.spec.options, known.intent, self.current_intent, own=self.spec.reader
        )
        if known.in_doubt or known.attempts:
            reading = await looks.look(
                name, lane="settle" if known.in_doubt else "call"
            )
        else:
            reading = await self._look_before(looks, name)
        self.result.read = reading.seen, looks.shown
        if reading.status != 200 and (
            no_such_read(known, reading)
            or (kind.may_lack_read and reading.status == 404)
        ):
            self.core.warn_once(
                "journey_reader",
                f"{name}: the answer was HTTP {reading.status}. If the journey exists, this "
                "deployment lacks the read, and updates in doubt stay UNKNOWN. Set "
                "ReconcilePolicy(journey_reader=…) to a read that it has, or to None.",
            )
        slack = known.policy.clock_slack
        if self.core.server_clock.is_steady(
            start_of((*self.history, reading)[0]), slack
        ):
            return reading
        return attrs.evolve(reading, steady=False)

    async def _look_before(self, looks: StateReader, name: str) -> Reading:
        """Read before the first send, which has the other half of the call's time."""
        begun = self.core.clock.now()
        loop = asyncio.get_running_loop()
        call = self.intent.timeouts.call
        if self._call_ends is None:
            self._call_ends = loop.time() + call
        try:
            async with asyncio.timeout_at(self._call_ends - call / 2):
                return await looks.look(name, lane="call")
        except TimeoutError:
            error = ErrorFacts(
                kind="TimeoutError",
                message=f"{name}: no answer in half of the call's time",
            )
            return Reading(started=begun, ended=self.core.clock.now(), error=error)

    # --- the end

    def take_back(self) -> None:
        """Leave nothing open, because the journal has refused the first send: another run has this write."""
        self.core.writes.open_writes.take(self.intent.identity)

    async def _conclude(self, done: Done) -> None:
        kind = self.spec.kind
        result = self.result
        if done is ANSWERED and result.value is not None:
            found: T | None = result.value
        else:
            done, found = await result.conclude(done, self._look)
        if kind.creates and done.verdict is _APPLIED:
            result.claim(done, self.intent.identity)
        if kind.has_secret:
            await result.pass_secret_on(done, self.intent.key)
        if self.verdicts is not None:  # before a newer write to its thing can be sent
            outcome = result.outcome = result.outcome or result.made(
                self._known(), done, found
            )
            await self.verdicts.settled(outcome)
            self._leave_other_journal()
        self._close_intent(done)
        result.found = found
        result.done = done
        if done is not ANSWERED:
            self._note_verdict(done)

    def _close_intent(self, done: Done) -> None:
        """Keep the intent as an open one only if its outcome is not known."""
        open_writes = self.core.writes.open_writes
        if done.verdict is _UNKNOWN:
            self._leave_open(self.current_intent())
        elif open_writes.unsettled or open_writes.leftovers:
            open_writes.take(self.intent.identity)

    def _note_verdict(self, done: Done) -> None:
        """Note what later writes to the thing, and later runs of the same intent, have to know of the end."""
        own = self._note_end()
        if done.verdict in NO_EFFECT and self._users_before is not None:
            self.thing.did_nothing(own, self._users_before)
        if self._takes_up or self._known().in_doubt:
            self.core.writes.ended.keep(own, self.outcome())

    def _note_end(self) -> str:
        """Note for the next write that this write was last, and until when an effect may come."""
        own = self.intent.identity
        writes = self.core.writes
        if self.thing.users == (ONLY_HERE,):
            self.thing.users = (own,)
        if self.thing.line is not None and self._known().in_doubt:
            writes.lines.close(self.thing.line, own, self._known().free_at)
        return own

    def _leave_open(self, intent: Intent) -> None:
        """Keep an intent with an unknown outcome, and forget the earlier state of its thing."""
        line = self.thing.line
        if line is not None and self.spec.kind.needs_baseline:
            self.core.writes.shown.forget_state(line)
        in_journal = (
            self.verdicts is not None and self.verdicts is self.core.writes.journal
        )
        self.core.leave_unsettled(intent, line, in_journal=in_journal)

    def outcome(self) -> Outcome[T]:
        """Return the outcome. There must be a verdict."""
        result = self.result
        if result.outcome is None:
            assert result.done is not None
            result.outcome = result.made(self._known(), result.done, result.found)
        return result.outcome

    def _shelve(self) -> None:
        """Keep the intent if a byte of it may have been sent."""
        if self._begin is not None and not self._begun:
            # A signal handler raised before this run knew what others had sent.
            self._leave_untouched()
            return
        self._note_lost_send()
        self._note_others()
        intent = self.current_intent()
        sent = bool(self._known().sends)
        self._note_end()
        if sent:
            self._leave_open(intent)
        if self.journal is not None:  # last: it may be the user's, and raise
            self.journal.shelved(intent, sent=sent)

    # --- reporting

    def _report(self, decision: Decision) -> None:
        noted = decision is not ANSWERED and self._known().in_doubt
        if (
            not noted
            and self.core.on_decision is None
            and not log.isEnabledFor(logging.DEBUG)
        ):
            return
        kind, reason, verdict = words_of(decision)
        level = logging.INFO if noted else logging.DEBUG
        hook = self.core.on_decision
        operation = self.spec.request.operation.name
        key = self.intent.key
        log.log(
            level, "%s %s: %s%s", operation, key, kind, f" ({reason})" if reason else ""
        )
        if hook is not None:
            report = DecisionReport(
                operation=operation,
                key=key,
                decision=kind,
                reason=reason,
                verdict=verdict,
            )
            self.core.tell(hook, report)


def new_run(spec: WriteSpec, intent: Intent | None = None) -> AnyDriver:
    """Return the first run of a write. *intent* is given if the user has read it."""
    intent_or_maker = intent or partial(intent_of, spec)
    if spec.tag is not None:
        spec = replace(
            spec,
            request=replace(spec.request, body=tagged_body(spec.request, spec.tag)),
        )
    return Driver(spec, intent_or_maker)


def run_of(
    view: ClientOptions,
    intent: Intent,
    reader: AnyReader | None = None,
    *,
    reads_only: bool = True,
    **known: Any,  # as `taken_up` takes it
) -> AnyDriver:
    """Return a run that goes on with *intent*, as :func:`taken_up`."""
    begin = partial(taken_up, view.core, reads_only=reads_only, **known)
    return Driver(
        spec_of_intent(view, intent, reader), intent, begin=begin, takes_up=True
    )


# Any: one of DecisionReport's literals
def words_of(decision: Decision) -> tuple[Any, str, str | None]:
    """Return the kind of a decision, its reason, and the verdict, if there is one."""
    match decision:
        case Done(verdict=verdict, reason=reason):
            return "done", f"{verdict}: {reason}", str(verdict)
        case Send(not_after=not_after):
            return (
                "send",
                "again, on proof of absence" if not_after is not None else "",
                None,
            )
        case Read(reader=reader, why=why):
            return "read", f"{reader}: {why}", None
        case Wait(seconds):
            return "wait", f"{seconds:.3f} s", None


AnyDriver: TypeAlias = Driver[Any]  # Any: the operation says what its value is
