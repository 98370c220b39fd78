"""
The results of a write: how each attempt ended, the value, the verdict, and the outcome.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import attrs
import msgspec

from invsvc_async import codec, models
from invsvc_async.codec.envelope import Envelope, Shape
from invsvc_async.codec.exact_json import UNREADABLE, Wire
from invsvc_async.codec.fields import maker_of
from invsvc_async.errors import (
    InvsvcError,
    ServiceError,
    TransportError,
    UnreadableResponseError,
)
from invsvc_async.models.common import once
from invsvc_async.reconcile.compare import names_another
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
from invsvc_async.transport import client_core
from invsvc_async.transport.client_core import Request, stamp_of
from invsvc_async.writes.things import milliseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
# Cheaper than access through the class.
_APPLIED = Verdict.APPLIED
_OPEN = Shape.OPEN
_attempt = maker_of(Attempt)
_outcome = maker_of(OutcomeBase)

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class Result(msgspec.Struct, Generic[T], eq=False):
    """
    The answers to the requests of a write, and the end of the write.

    ``value`` is that of a readable answer, ``accepted`` that of a 202, which only says that the write will be
    done, and ``error`` the one of the last attempt that failed. ``read`` is what the last read of the state
    showed, and its JSON. ``done`` is the verdict, once it is known and stored; ``found`` its value, if it has
    one.
    """

    spec: WriteSpec
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

    def attempt(
        self,
        exchange: Exchange,
        send: Send,
        line: str | None,
        identity: Callable[[], str],
    ) -> Attempt:
        """Return how an attempt of the write, in *line*, ended. Keep its value, or its error."""
        assert exchange.end is not None
        readable = False
        own = False
        of_authentication = False
        stamp = None
        retry_after = None
        facts = None
        failure: InvsvcError | None = None
        spec = self.spec
        request = spec.request
        core = spec.options.core
        try:
            envelope = spec.options.opened(request, exchange)
            value: T | None = value_of_answer(envelope, request)
            if spec.kind.creates:
                self._check_own(value, envelope, identity)
            mode = (
                getattr(value, "livemode", None) if _shows_mode(type(value)) else None
            )
            if mode is not core.livemode:
                core.saw(mode)
            readable = True
            stamp = envelope.stamp
            own = True
            if exchange.status == 202:
                self.accepted = value
            else:
                self.value = value
                if line is not None:
                    self._learn(line, exchange, envelope)
        except ServiceError as error:
            failure = error
            stamp = stamp_of(error)
            own = error.own_envelope
            retry_after = error.retry_after
            of_authentication = error.of_authentication
        except TransportError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the request was sent, and the attempt must be recorded
            failure = _unread(request.operation, exchange, error)
        if failure is not None:
            facts = facts_of(failure)
            self.error = failure
        return _attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            readable=readable,
            own_envelope=own,
            of_authentication=of_authentication,
            error=facts,
            stamp=stamp,
            retry_after=retry_after,
            timeout=send.attempt_timeout,
        )

    def _check_own(
        self, made: object, envelope: Envelope, identity: Callable[[], str]
    ) -> None:
        """Raise ``UnreadableResponseError`` if what the answer to a create shows is another's, by its URL."""
        spec = self.spec
        name = spec.kind.found_by or ""
        normal = spec.kind.normal
        shown = getattr(made, name, None)
        wanted = spec.request.body[name]
        if (
            not isinstance(shown, str)
            or shown == wanted
            or normal(shown) == normal(wanted)
        ):
            return
        made_id = getattr(made, "id", "")
        claim = spec.options.core.writes.claims.get(made_id)
        is_anothers = claim is not None and claim[1] and claim[0] != identity()
        # Only the answer to the create has the secret.
        lacks_secret = spec.kind.has_secret and getattr(made, "secret", None) is None
        if lacks_secret or is_anothers:
            raise of_another(envelope, made_id or None)

    def _learn(self, line: str, exchange: Exchange, envelope: Envelope) -> None:
        """Keep what the answer showed, for the writes that follow."""
        spec = self.spec
        value = self.value
        kind = spec.kind
        shown = spec.options.core.writes.shown
        if kind.creates:
            if not is_unique(spec.tag):
                made = getattr(value, "id", "")
                at = getattr(value, "created_at", None)
                shown.learn_created(
                    line, made, None if at is None else milliseconds(at)
                )
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
            state = (await look(str(self.spec.request.operation.reader))).seen
            return done, self._of_state(state or dict(self.spec.request.path))
        # a user-supplied reader decides what it is
        return done, cast("T | None", done.value)

    def _use_accepted(self, done: Done) -> None:
        """Use the value of a 202 if it shows the thing that was found."""
        found = (done.value or {}).get("id")
        self.value = (
            self.accepted if getattr(self.accepted, "id", "") == found else None
        )

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
        seen, shown = self.read
        state = shown if state is seen and shown is not None else state
        return cast("T", value_of_state(self.spec.request.operation, state))

    def claim(self, done: Done, identity: str) -> None:
        """Claim the things that this create made. A unique tag is a proof, but may be edited away later."""
        found = [done.value, *(done.evidence.duplicates or ())]
        answered = getattr(self.value, "id", None)
        writes = self.spec.options.core.writes
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

    def made(self, known: Known, done: Done, value: T | None) -> Outcome[T]:
        """Make the outcome with the verdict *done*."""
        error = self.error
        refusal = known.refusal
        # the last send was one of another process
        if error is None and isinstance(refusal, ErrorFacts):
            error = error_of(
                {**attrs.asdict(refusal), "operation": known.operation.name}
            )
        secret: Secret | None = None
        if done.verdict is _APPLIED and known.kind.has_secret:
            secret = self._secret(known)
        took = 0.0
        if self.called is not None and known.history:
            took = max(known.now - self.called, 0.0)
        outcome: OutcomeBase[T] = _outcome(
            verdict=done.verdict, message=done.reason, evidence=done.evidence, value=value,
            error=error, attempts=len(known.attempts), resends=known.resends,
            secret=secret, history=known.history,
            started_as=known.intent, livemode=self.spec.options.core.livemode,
            took=took, waited=min(self.waited, took),
        )  # fmt: skip
        return cast("Outcome[T]", outcome)

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
        if (
            self.done is not None
            or self.had == "delivered"
            or getattr(self.value, "secret", None) is None
        ):
            return intent
        if not intent.sent or intent.sent[-1].end is None:
            return intent
        *before, last = intent.sent
        assert last.end is not None
        last = attrs.evolve(last, end=attrs.evolve(last.end, secret_lost=True))
        return attrs.evolve(intent, sent=(*before, last))

    async def pass_secret_on(self, done: Done, key: str) -> None:
        """
        Pass the secret of a new webhook on to the hook, if there is one.

        A hook that is still under way some time after the client was closed is cancelled. Then the secret is
        lost, unless whoever awaits the write gets it.
        """
        options = self.spec.options
        made = self.value
        hook = options.on_secret
        if (
            hook is None
            or done.verdict is not _APPLIED
            or getattr(made, "secret", None) is None
        ):
            return
        waiting = None
        try:
            with options.core.until_hooks_end() as waiting:
                await hand_over(hook, key, made)
        except TimeoutError:
            if waiting is None or not waiting.has_expired:
                raise
            self.had = "returned" if options.gives_values else "lost"
            who = (
                "only who awaits the write has it"
                if options.gives_values
                else "it is lost"
            )
            log.error(
                "%s %s: on_secret did not end within %g s after the client was closed, and was cancelled. It "
                "may not have kept the secret of the webhook %s: %s.",
                self.spec.operation.name, key, client_core.TO_KEEP_SECRETS, getattr(made, "id", ""), who,
            )  # fmt: skip
        else:
            self.had = "delivered"


async def hand_over(
    hook: Callable[..., Awaitable[None] | None], *given: object
) -> None:
    """Call *hook*, a function of the user that may be async, with what is *given*."""
    handed = hook(*given)
    if handed is not None and inspect.isawaitable(handed):
        await handed


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


# --- how the value of each operation is made from a readable answer


def of_another(envelope: Envelope, shown: object) -> UnreadableResponseError:
    """Make the error for an answer about the thing with the id *shown*, which was not asked for."""
    return UnreadableResponseError(
        f"the answer is about {shown!r:.100}, so it belongs to another request. Something between this "
        "client and the service mixes up answers.",
        status=envelope.status,
        raw=envelope.content,
    )


class _Shown(msgspec.Struct):
    """The fields that a payload needs to be the webhook that was changed."""

    id: str
    url: msgspec.Raw


_SHOWN = msgspec.json.Decoder(_Shown).decode


def _shows_webhook(envelope: Envelope, request: Request) -> bool:
    """
    Return whether the payload is the webhook of *request*. It is not specified, so it may be anything else.

    Raises:
        UnreadableResponseError: It is another webhook.
    """
    if not isinstance(envelope.raw, msgspec.Raw):
        return False
    try:
        shown = _SHOWN(envelope.raw)
    except UNREADABLE:
        return False
    if names_another(shown.id, request.path):
        raise of_another(envelope, shown.id)
    return True


# Any: the operation names the model, and the method of the resource types it.
def value_of_answer(envelope: Envelope, request: Request) -> Any:
    """
    Make the value of a write from a readable answer; ``None`` if the answer does not contain it.

    Raises:
        UnreadableResponseError: The answer is about another thing, or lacks what it must have.
    """
    result = request.operation.result
    # the payload is the model
    if result not in {"object", "Deleted", "SheetConnection"}:
        if request.operation.shape is _OPEN and not _shows_webhook(envelope, request):
            return None
        value = codec.one(getattr(models, result), envelope)
        shown = getattr(value, "id", None)
        if shown != request.path.get("id") and names_another(shown, request.path):
            raise of_another(envelope, shown)
        return value
    if result == "object":
        return envelope.data
    if result == "Deleted":  # {success, message}: the id is that of the request
        _shows_webhook(envelope, request)
        plain: Wire = {"id": request.path.get("id"), "message": envelope.message}
    else:  # the connection is one level down
        payload = envelope.data
        plain = payload.get("connection") if isinstance(payload, dict) else None
        if not isinstance(plain, dict):
            raise UnreadableResponseError(
                f"{request.operation.name}: the answer has no data.connection"
            )
    return codec.structure(getattr(models, result), plain, meta=codec.meta_of(envelope))


def value_of_state(operation: Operation, state: Wire | msgspec.Raw) -> Any:
    """Make the value of a write from the state that a read showed, or its JSON."""
    if operation.result == "object":
        return state
    model = getattr(models, operation.result)
    return (
        codec.decode(model, state)
        if isinstance(state, msgspec.Raw)
        else codec.structure(model, state)
    )
