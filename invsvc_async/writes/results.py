"""
The results of a write: how each attempt ended, the value, the verdict, and the outcome.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import attrs
import msgspec

from invsvc_async.codec.fields import maker_of
from invsvc_async.errors import (
    InvsvcError,
    ServiceError,
    TransportError,
    UnreadableResponseError,
)
from invsvc_async.models.common import once
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import (
    Attempt,
    Done,
    End,
    ErrorFacts,
    Reading,
    Secret,
    Send,
    Verdict,
)
from invsvc_async.reconcile.json_form import error_of
from invsvc_async.reconcile.outcome import AnyOutcome, Outcome, OutcomeBase
from invsvc_async.transport.client_core import stamp_of
from invsvc_async.writes.new_secret import pass_on
from invsvc_async.writes.things import milliseconds
from invsvc_async.writes.values import of_another, value_of_answer, value_of_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.run_record import RunRecord
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
# Cheaper than access through the class.
_APPLIED = Verdict.APPLIED
_attempt = maker_of(Attempt)
_outcome = maker_of(OutcomeBase)

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class Result(msgspec.Struct, Generic[T], eq=False):
    """
    The answers to the requests of a run, whose *record* they do not change, and the end of the run.

    ``value`` is that of a readable answer, ``accepted`` that of a 202, which only says that the write will be
    done, and ``error`` the one of the last attempt that failed. ``read`` is what the last read of the state
    showed, and its JSON. ``done`` is the verdict, once it is known and stored; ``found`` its value, if it has
    one.
    """

    spec: WriteSpec
    record: RunRecord
    value: T | None = None
    accepted: T | None = None
    error: InvsvcError | None = None
    read: tuple[Wire, Wire | msgspec.Raw] = None, None
    done: Done | None = None
    found: T | None = None
    outcome: Outcome[T] | None = None  # made when it is asked for
    had: Secret = "returned"  # what its outcome says of the secret that an answer had
    called: float | None = None  # when the write was awaited first, local s
    waited: float = 0.0  # s since then, for earlier writes to the same thing

    def begin(self, called: float, waited: float = 0.0) -> None:
        """Note when the write was awaited first (local s), and how long it has *waited* for others since."""
        if self.called is None:
            self.called = called
            self.waited = waited

    # --- answers

    def not_sent(self, error: InvsvcError, started: float, ended: float) -> Attempt:
        """Return an attempt that had no request, because there was no token."""
        self.error = error
        return Attempt(
            started=started, ended=ended, end=End.NOT_SENT, error=facts_of(error)
        )

    def attempt(self, exchange: Exchange, send: Send, line: str | None) -> Attempt:
        """
        Return how an attempt of the write, in *line*, ended. Keep its value, or its error.

        Whatever an answer is like, the attempt is recorded: the request was sent.
        """
        try:
            envelope = self._read(exchange)
        except Exception as error:  # noqa: BLE001 - as said
            return self._failed(exchange, send, error)
        facts = None
        try:
            if line is not None and exchange.status != 202:
                self._learn(line, exchange, envelope)
        except Exception as error:  # noqa: BLE001 - as said; the value is there all the same
            facts = self._keep_error(exchange, error)
        assert exchange.end is not None
        return _attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            readable=True,
            own_envelope=True,
            error=facts,
            stamp=envelope.stamp,
            timeout=send.attempt_timeout,
        )

    def _read(self, exchange: Exchange) -> Envelope:
        """
        Read the answer, keep its value, and return its envelope.

        Raises:
            InvsvcError: There is no answer, or it is an error, or cannot be read.
        """
        spec = self.spec
        request = spec.request
        core = spec.options.core
        envelope = spec.options.opened(request, exchange)
        value: T | None = value_of_answer(envelope, request)
        if spec.kind.creates:
            self._check_own(value, envelope)
        if _shows_mode(type(value)):
            mode = getattr(value, "livemode", None)
            if mode is not core.livemode:
                core.saw(mode)
        if exchange.status == 202:
            self.accepted = value
        else:
            self.value = value
        return envelope

    def _failed(self, exchange: Exchange, send: Send, error: Exception) -> Attempt:
        """Return how an attempt ended that has no readable answer. Keep its error."""
        facts = self._keep_error(exchange, error)
        own = False
        of_authentication = False
        stamp = None
        retry_after = None
        if isinstance(error, ServiceError):
            own = error.own_envelope
            of_authentication = error.of_authentication
            stamp = stamp_of(error)
            retry_after = error.retry_after
        assert exchange.end is not None
        return _attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            own_envelope=own,
            of_authentication=of_authentication,
            error=facts,
            stamp=stamp,
            retry_after=retry_after,
            timeout=send.attempt_timeout,
        )

    def _keep_error(self, exchange: Exchange, error: Exception) -> ErrorFacts:
        """Keep *error*, of an attempt, and return what the history keeps of it."""
        if not isinstance(error, (ServiceError, TransportError)):
            error = _unread(self.spec.request.operation, exchange, error)
        self.error = error
        return facts_of(error)

    def _check_own(self, made: object, envelope: Envelope) -> None:
        """Raise ``UnreadableResponseError`` if what the answer to a create shows is another's, by its URL."""
        spec = self.spec
        name = spec.kind.found_by or ""
        normal = spec.kind.normal
        shown = getattr(made, name, None)
        wanted = spec.request.body[name]
        if not isinstance(shown, str) or shown == wanted:
            return
        if normal(shown) == normal(wanted):
            return
        # Only the answer to the create has the secret.
        lacks_secret = spec.kind.has_secret and getattr(made, "secret", None) is None
        made_id = getattr(made, "id", "")
        if lacks_secret or self._is_anothers(made_id):
            raise of_another(envelope, made_id or None)

    def _is_anothers(self, made_id: str) -> bool:
        """Return whether the thing *made_id* was surely made by another write."""
        claim = self.spec.options.core.writes.claims.get(made_id)
        if claim is None:
            return False
        owner, is_certain = claim
        return is_certain and owner != self.record.intent.identity

    def _learn(self, line: str, exchange: Exchange, envelope: Envelope) -> None:
        """Keep what the answer showed, for the writes that follow."""
        spec = self.spec
        kind = spec.kind
        shown = spec.options.core.writes.shown
        if kind.creates:
            if not is_unique(spec.tag):
                self._learn_created(line)
            return
        if not self._shows_state():
            shown.forget_state(line)
            return
        shown.learn_state(
            spec.request.team,
            line,
            {} if kind.deletes else envelope.raw,
            exchange.started,
            exchange.ended,
            stamp=envelope.stamp,
            weight=len(exchange.answer),
            written=True,
        )

    def _learn_created(self, line: str) -> None:
        """Keep the id that the answer gave to a create without a tag, for the creates that follow."""
        at = getattr(self.value, "created_at", None)
        created_at = None if at is None else milliseconds(at)
        shown = self.spec.options.core.writes.shown
        shown.learn_created(line, getattr(self.value, "id", ""), created_at)

    def _shows_state(self) -> bool:
        """Return whether the answer shows the whole state of the thing. It may show a part of a webhook."""
        kind = self.spec.kind
        if kind.shown_by is None or self.value is None:
            return False
        if kind.deletes:
            return True
        return all(getattr(self.value, each, None) is not None for each in kind.always)

    # --- the value

    async def conclude(
        self, done: Done, look: Callable[[str], Awaitable[Reading]]
    ) -> tuple[Done, T | None]:
        """Return the verdict, with all else that was made, and the value. *look* reads what no answer had."""
        kind = self.spec.kind
        if self.value is None and kind.creates:
            self._use_accepted(done)
        if done.verdict is not _APPLIED:
            return done, None
        if self.value is not None:
            return self._beside_answered(done), self.value
        if isinstance(done.value, dict):
            return done, self._of_state(done.value)
        if done.value is None and not kind.answer_shows_thing:
            request = self.spec.request
            reading = await look(str(request.operation.reader))
            return done, self._of_state(reading.seen or dict(request.path))
        # What it is, a user-supplied reader decides.
        return done, cast("T | None", done.value)

    def _use_accepted(self, done: Done) -> None:
        """Use the value of a 202 if it shows the thing that was found."""
        found = (done.value or {}).get("id")
        if getattr(self.accepted, "id", "") == found:
            self.value = self.accepted

    def _beside_answered(self, done: Done) -> Done:
        """Return *done* with all things found as duplicates, except the one of the answer."""
        if not done.evidence.duplicates:
            return done
        ours = getattr(self.value, "id", None)
        found = (done.value, *done.evidence.duplicates)
        others = [
            each
            for each in found
            if not (isinstance(each, dict) and each.get("id") == ours)
        ]
        return attrs.evolve(
            done, evidence=attrs.evolve(done.evidence, duplicates=tuple(others))
        )

    def _of_state(self, state: Wire) -> T:
        """Return the value in *state*: of its JSON, if that was read last."""
        seen, shown = self.read
        if state is seen and shown is not None:
            state = shown
        return cast("T", value_of_state(self.spec.request.operation, state))

    def claim(self, done: Done) -> None:
        """Claim the things that this create made. A unique tag is a proof, but may be edited away later."""
        found = [done.value, *(done.evidence.duplicates or ())]
        answered = getattr(self.value, "id", None)
        writes = self.spec.options.core.writes
        identity = self.record.intent.identity
        tagged = is_unique(self.spec.tag)
        if isinstance(answered, str):
            writes.claims.claim(
                answered, identity, is_certain=True, has_unique_tag=tagged
            )
        for each in found:
            if isinstance(each, dict) and isinstance(each.get("id"), str):
                writes.claims.claim(
                    each["id"], identity, is_certain=tagged, has_unique_tag=tagged
                )

    # --- the outcome

    def keep(self, outcome: AnyOutcome) -> None:
        """Use the *outcome* of another run, or a fuller one, as the outcome of this run."""
        self.done = Done(
            verdict=outcome.verdict, reason=outcome.message, evidence=outcome.evidence
        )
        self.found = outcome.value
        self.error = outcome.error
        self.outcome = outcome

    def made(self, done: Done, value: T | None) -> Outcome[T]:
        """Make the outcome with the verdict *done*."""
        known = self.record.known()
        secret: Secret | None = None
        if done.verdict is _APPLIED and known.kind.has_secret:
            secret = self._secret(known)
        took = 0.0
        if self.called is not None and known.history:
            took = max(known.now - self.called, 0.0)
        outcome: OutcomeBase[T] = _outcome(
            verdict=done.verdict, message=done.reason, evidence=done.evidence, value=value,
            error=self._error(known), attempts=len(known.attempts), resends=known.resends,
            secret=secret, history=known.history,
            started_as=known.intent, livemode=self.spec.options.core.livemode,
            took=took, waited=min(self.waited, took),
        )  # fmt: skip
        return cast("Outcome[T]", outcome)

    def _error(self, known: Known) -> InvsvcError | None:
        """Return the error of the last attempt that failed, also if that was one of another process."""
        refusal = known.refusal
        if self.error is not None or not isinstance(refusal, ErrorFacts):
            return self.error
        facts = {**attrs.asdict(refusal), "operation": known.operation.name}
        return error_of(facts)

    def _secret(self, known: Known) -> Secret | None:
        """Return what became of the secret of a thing that was made; ``None`` if the answer had none."""
        if self.value is not None:
            return None if getattr(self.value, "secret", None) is None else self.had
        ends = (sent.end for sent in known.intent.sent)  # of runs before this one
        had = any(
            end is not None and end.kind == "applied" and not end.secret_lost
            for end in ends
        )
        return "not stored" if had else "lost"

    def noted_in(self, intent: Intent) -> Intent:
        """Return *intent*, with a note if nobody has the secret of the last answer."""
        if self.done is not None or self.had == "delivered":
            return intent
        if getattr(self.value, "secret", None) is None:
            return intent
        if not intent.sent or intent.sent[-1].end is None:
            return intent
        *before, last = intent.sent
        assert last.end is not None
        last = attrs.evolve(last, end=attrs.evolve(last.end, secret_lost=True))
        return attrs.evolve(intent, sent=(*before, last))

    async def pass_secret_on(self, done: Done) -> None:
        """Pass the secret of a new webhook on to the hook, if there are both, and note who has it."""
        hook = self.spec.options.on_secret
        if hook is None or done.verdict is not _APPLIED:
            return
        if getattr(self.value, "secret", None) is None:
            return
        key = self.record.intent.key
        self.had = await pass_on(hook, self.value, self.spec, key)


def _unread(
    operation: Operation, exchange: Exchange, error: Exception
) -> TransportError:
    """Return the error for an answer that failed to parse in an unexpected way. Log it as a bug."""
    log.error("%s: parsing the answer failed: %s", operation.name, type(error).__name__)
    return UnreadableResponseError(
        f"{operation.name}: parsing the answer (HTTP {exchange.status}) failed with {type(error).__name__}",
        operation=operation.name,
        status=exchange.status,
        raw=exchange.answer,
    )


@once
def _shows_mode(kind: type[object]) -> bool:
    """Return whether models of *kind* have ``livemode``. Asking a model that lacks it is slow."""
    return hasattr(kind, "livemode")


def facts_of(error: InvsvcError) -> ErrorFacts:
    """Return what a history keeps of *error*, which excludes the body."""
    if isinstance(error, ServiceError):
        return ErrorFacts(
            kind=type(error).__name__,
            message=error.message or str(error),
            status=error.status,
            code=error.code,
        )
    status = error.status if isinstance(error, TransportError) else None
    return ErrorFacts(kind=type(error).__name__, message=str(error), status=status)
